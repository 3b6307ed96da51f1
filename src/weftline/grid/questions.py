"""The questions of a sweep: the cross product of models, clusters, objectives, stages, solvers and seeds.

In: lists of words, from a call or from sweep.toml (or .json), whose paths are relative to its folder. Out: a
`GridQuestion` for each combination that makes sense, with a key that is a hash of its content: the model's bytes, the
cluster's text and the options, not their names. The file is hostile: its size is limited, and unknown fields are
errors. Simplified: stages are for throughput alone, a solver is combined only with the objectives that have it, and
there is one set of limits for all questions.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cache
from itertools import product
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from weftline.ask.planning import MAX_SEED, solvers_for, stop_rules
from weftline.ask.request import GridRequest, Objective
from weftline.cluster import preset_names, preset_text, toml_document
from weftline.errors import InputError, UsageError, no_such_file
from weftline.files import read_limited
from weftline.importers.registry import file_sha256
from weftline.problem.load import MAX_STAGES
from weftline.units import parse_ratio, parse_time
from weftline.zoo import ZOO, build_named

__all__ = ["GridQuestion", "Objective", "SweepFile", "questions_of", "read_sweep_file"]

MOST_QUESTIONS = 100_000
MOST_CLUSTER_BYTES = 2**20


class GridQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """One plan that is wanted."""

    model: str
    """As it was asked for."""
    file: str
    """Where it is."""
    model_sha256: str
    """Of the file; empty where it cannot be read."""
    cluster: str | None
    cluster_text: str | None
    objective: Objective
    stages: int | None
    solver: str
    seed: int
    gap: float | None
    time_limit: float | None
    work_limit: int | None
    wrong: str = ""
    """Why there is nothing to plan, where that is known already."""

    @property
    def cluster_sha256(self) -> str:
        """Of the cluster's text; empty without one."""
        return "" if self.cluster_text is None else hashlib.sha256(self.cluster_text.encode()).hexdigest()

    @property
    def key(self) -> str:
        """A hash of the content: 32 hexadecimal digits."""
        content = (
            versions(),
            self.model_sha256,
            self.cluster_sha256,
            self.objective,
            self.stages,
            self.solver,
            self.seed,
            self.gap,
            self.time_limit,
            self.work_limit,
            [self.wrong, self.model, self.cluster] if self.wrong else None,
        )
        return hashlib.sha256(msgspec.json.encode(content)).hexdigest()[:32]


@cache
def versions() -> tuple[str, str]:
    """Of weftline and its solver: what another version found does not count as finished."""
    from importlib.metadata import version

    from weftline import __version__

    return __version__, version("ortools")


class _Model(NamedTuple):
    word: str
    file: str
    sha256: str
    wrong: str


class _Cluster(NamedTuple):
    word: str | None
    text: str | None
    wrong: str


def questions_of(wanted: GridRequest, folder: Path) -> list[GridQuestion]:
    """Every combination once, in the order of the lists; models of the zoo are built into `folder`."""
    _check(wanted)
    families = {objective: set(solvers_for(objective)) for objective in wanted.objectives}
    known = set().union(*families.values())
    for solver in wanted.solvers:
        if solver not in known:
            raise UsageError(
                f"no objective of the sweep has a solver {solver[:80]!r}; see: weftline plan --solver help"
            )
    models = [_model(word, folder) for word in wanted.models]
    clusters = [_cluster(word) for word in wanted.clusters] or [_Cluster(None, None, "")]
    found: dict[str, GridQuestion] = {}
    for model, cluster, objective in product(models, clusters, wanted.objectives):
        stages: Sequence[int | None] = wanted.stages if objective == "throughput" and wanted.stages else (None,)
        solvers = [solver for solver in wanted.solvers if solver in families[objective]]
        for number, solver, seed in product(stages, solvers, wanted.seeds):
            question = GridQuestion(
                model=model.word,
                file=model.file,
                model_sha256=model.sha256,
                cluster=cluster.word,
                cluster_text=cluster.text,
                objective=objective,
                stages=number,
                solver=solver,
                seed=seed,
                gap=wanted.gap,
                time_limit=wanted.time_limit,
                work_limit=wanted.work_limit,
                wrong=model.wrong or cluster.wrong,
            )
            found.setdefault(question.key, question)
    return list(found.values())


def _check(wanted: GridRequest) -> None:
    if not wanted.models:
        raise UsageError("which models? Name at least one, such as bert.onnx or zoo:bert")
    if not (wanted.objectives and wanted.solvers and wanted.seeds):
        raise UsageError("a sweep needs at least one objective, one solver and one seed")
    for objective in wanted.objectives:
        if objective not in ("latency", "throughput"):
            raise UsageError(f"an objective is latency or throughput, not {objective[:60]!r}")
    if wanted.stages and "throughput" not in wanted.objectives:
        raise UsageError("stages are for the objective throughput, which is not asked for")
    stop_rules(wanted.gap, wanted.time_limit, wanted.work_limit)
    if not all(1 <= number <= MAX_STAGES for number in wanted.stages):
        raise UsageError(f"a number of stages lies between 1 and {MAX_STAGES}")
    if not all(0 <= seed <= MAX_SEED for seed in wanted.seeds):
        raise UsageError(f"a seed lies between 0 and {MAX_SEED}")
    lists = (wanted.models, wanted.clusters, wanted.objectives, wanted.stages, wanted.solvers, wanted.seeds)
    total = 1
    for values in lists:
        total *= max(1, len(values))
    if total > MOST_QUESTIONS:
        raise UsageError(f"{total:,} combinations are more than the {MOST_QUESTIONS:,} that one sweep may have")


def _model(word: str, folder: Path) -> _Model:
    try:
        path = build_named(word, folder) if word.startswith(ZOO) else Path(word).absolute()
        if not path.is_file():
            raise no_such_file(word)
        return _Model(word, str(path), file_sha256(path), "")
    except (InputError, UsageError) as error:
        return _Model(word, word, "", str(error))
    except (OSError, ValueError) as error:  # ValueError: a path with a null character
        return _Model(word, word, "", f"{word[:200]}: cannot be read: {error}")


def _cluster(word: str) -> _Cluster:
    if word in preset_names():
        return _Cluster(word, preset_text(word), "")
    hint = f"a file, or one of the presets {', '.join(preset_names())}"
    try:
        return _Cluster(word, read_limited(word, MOST_CLUSTER_BYTES).decode("utf-8-sig"), "")
    except InputError as error:
        return _Cluster(word, None, str(InputError(error.what, where=error.where, hint=hint)))
    except UnicodeDecodeError:
        return _Cluster(word, None, str(InputError("is not text", where=word, hint=hint)))


MOST_FILE_BYTES = 2**20


class SweepFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The fields of the file."""

    version: Literal[1]
    models: tuple[str, ...]
    """Files, relative to this one, or `zoo:NAME` and `zoo:NAME:SIZE`."""
    clusters: tuple[str, ...] = ()
    """Files, relative to this one, or presets."""
    objectives: tuple[Objective, ...] = ("latency",)
    stages: tuple[int, ...] = ()
    solvers: tuple[str, ...] = ("auto",)
    seeds: tuple[int, ...] = (0,)
    gap: str | None = None
    """`1%`"""
    time: str | None = None
    """`60 s`, for each question."""
    work: int | None = None
    """Candidates costed, for each question."""


def read_sweep_file(path: Path | str) -> GridRequest:
    """Read and check; an `InputError` names the field that is wrong."""
    path = Path(path)
    data = read_limited(path, MOST_FILE_BYTES)
    try:
        file = msgspec.convert(_document(path, data), SweepFile)
        return GridRequest(
            models=tuple(_beside(path, word) for word in file.models),
            clusters=tuple(word if word in preset_names() else _beside(path, word) for word in file.clusters),
            objectives=file.objectives,
            stages=file.stages,
            solvers=file.solvers,
            seeds=file.seeds,
            gap=None if file.gap is None else parse_ratio(file.gap),
            time_limit=None if file.time is None else parse_time(file.time) / 1e9,
            work_limit=file.work,
        )
    except msgspec.ValidationError as error:
        raise InputError(f"is not the file of a sweep: {error}", where=str(path)) from error
    except InputError as error:
        raise error.at(str(path)) from error


def _document(path: Path, data: bytes) -> object:
    try:
        return msgspec.json.decode(data) if path.suffix.lower() == ".json" else toml_document(data.decode("utf-8-sig"))
    except (ValueError, RecursionError, InputError) as error:  # msgspec's own errors are ValueErrors
        why = error.what if isinstance(error, InputError) else error
        raise InputError(f"is neither TOML nor JSON (in a file .json): {str(why)[:200]}") from error


def _beside(path: Path, word: str) -> str:
    return word if word.startswith(ZOO) else str(path.parent / word)
