"""What `weftline plan` is asked about: the words of the call -> the problem, for any number of stages."""

from __future__ import annotations

import atexit
from collections.abc import Mapping
from copy import copy
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import typer

from weftline.cli.options import find_cluster, read_shapes
from weftline.errors import UsageError

if TYPE_CHECKING:
    from weftline.cluster import Cluster
    from weftline.cost import Profile
    from weftline.graph.arrays import Indices
    from weftline.problem import Problem

__all__ = ["Question", "read_stages"]


class Question:
    """A model, a cluster where the model needs one, rules, and how ops are grouped."""

    group: Indices | None = None
    """The group of each op, where grouping only makes the search smaller; known once there is a problem."""

    def __init__(
        self,
        model: Path,
        cluster: str | None,
        rules: Mapping[str, object],
        without: str,
        shapes: list[str],
        coarsen: str = "none",
        costs: Path | None = None,
    ) -> None:
        from weftline.cluster.rules import unlinked

        self.model, self._rules, self._coarsen = _model_file(model), rules, coarsen
        self._without = tuple(word for word in without.split(",") if word)
        self._shapes = read_shapes(shapes)
        self._cluster: Cluster | None = None
        self._digests: dict[str, str] = {}
        if cluster:
            self._cluster, self._digests["cluster"] = find_cluster(cluster)
        self._costs: Profile | None = None
        if costs is not None:
            self._costs, self._digests["costs"] = _read_costs(costs, coarsen)
        if self._cluster is not None and (missing := unlinked(self._cluster)):
            typer.echo(f"warning: no link between {', '.join(missing[:8])}, so no tensor can pass there", err=True)

    @property
    def costs(self) -> Profile | None:
        """The measured times that the problem has."""
        return self._costs

    def with_costs(self, costs: Profile) -> Question:
        """The same question with other measured times."""
        other = copy(self)
        other._costs = costs
        return other

    def problem(self, stages: int | None) -> Problem:
        """The problem with so many stages asked for."""
        from weftline.importers import ImportOptions
        from weftline.problem import load_problem
        from weftline.reduce import coarsened

        problem, digest = load_problem(
            self.model,
            cluster=self._cluster,
            rules={**self._rules, "stages": stages},
            without=self._without,
            options=ImportOptions(shapes=self._shapes),
            costs=self._costs,
        )
        self._digests["model"] = digest
        grouped = coarsened(problem, self._coarsen, model=self.model)
        if grouped.note:
            typer.echo(f"warning: {grouped.note}", err=True)
        self.group = grouped.group
        return grouped.small

    @property
    def inputs(self) -> dict[str, str]:
        """Role -> sha256 of every file that was read."""
        return {role: self._digests[role] for role in ("model", "cluster", "costs") if role in self._digests}


def _model_file(model: Path) -> Path:
    """The model's file; one of the zoo is built, and removed when the command ends."""
    from weftline.zoo import ZOO, build_named

    if not str(model).startswith(ZOO):
        return model
    folder = TemporaryDirectory(prefix="weftline-zoo-", ignore_cleanup_errors=True)
    atexit.register(folder.cleanup)
    return build_named(str(model), Path(folder.name))


def _read_costs(path: Path, coarsen: str) -> tuple[Profile, str]:
    from weftline.cost import read_profile

    if coarsen in ("gcof", "oracle"):
        raise UsageError(f"--costs knows the kernels as they were measured; leave --coarsen {coarsen} out")
    return read_profile(path)


def read_stages(stages: str | None, sweep: str | None) -> tuple[int | None, str]:
    """`--stages` and `--sweep-stages` -> one number of stages, or the words for a sweep over several."""
    if stages is not None and sweep is not None:
        raise UsageError("--stages asks for one number of stages, --sweep-stages for several; leave one out")
    if sweep == "":
        raise UsageError("--sweep-stages needs numbers of stages, like 1..8 or 1,2,4,8")
    if stages is None or stages == "auto":
        return None, sweep or stages or ""
    if not (stages.isascii() and stages.isdigit() and 1 <= len(stages) <= 9 and int(stages) >= 1):
        raise UsageError(
            f"--stages {stages[:40]!r} is neither a whole number from 1 nor auto; for several: --sweep-stages"
        )
    return int(stages), ""
