"""One path from a request to an answer, whoever asks."""

from __future__ import annotations

import json
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from onnx import TensorProto, helper
from typer.testing import CliRunner

import weftline as wl
from weftline.ask.answer import answer_one, answer_stages, find_cluster, model_path
from weftline.ask.micro_batches import answer_memory
from weftline.ask.request import ClusterText, PlanRequest, ScheduleRequest
from weftline.cli.main import app
from weftline.cluster import preset_text
from weftline.measure import answer_calibrated
from weftline.plans.plan import plan_to_json
from weftline.problem.model import problem_to_json
from weftline.zoo import build, save, zoo_graph


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small model's file."""
    path = tmp_path_factory.mktemp("model") / "bert.onnx"
    save(build("bert", size="small"), path)
    return path


def decisions(plan: wl.Plan) -> bytes:
    """The plan's bytes without who asked for it how."""
    fields = json.loads(plan_to_json(plan))
    del fields["provenance"]
    return json.dumps(fields).encode()


def test_everyone_asks_the_same(model: Path, tmp_path: Path) -> None:
    """Tests that request, face, command line and the text of a cluster give the same plan."""
    request = PlanRequest(model=model, cluster="laptop", objective="throughput", copies=1, work_limit=100, seed=3)
    first = answer_one(request)
    asked: dict[str, Any] = {"objective": "throughput", "copies": 1, "work_limit": 100, "seed": 3}
    face = wl.plan(wl.load(model), wl.Cluster.preset("laptop"), **asked)
    paths = wl.plan(model, "laptop", **asked)
    text = ClusterText(preset_text("laptop"), "laptop", "laptop")
    texts = answer_one(replace(request, cluster=text))
    call = ["plan", str(model), "-c", "laptop", "--objective", "throughput", "--work", "100", "--seed", "3"]
    call += ["--copies", "1"]
    done = CliRunner().invoke(app, [*call, "-o", str(tmp_path / "plan.json")])
    assert done.exit_code == 0, done.output
    shell = wl.Plan.load(tmp_path / "plan.json")
    assert {decisions(plan) for plan in (face, paths, texts, shell)} == {decisions(first)}
    assert first.provenance.inputs == paths.provenance.inputs == texts.provenance.inputs == shell.provenance.inputs
    digest = sha256(preset_text("laptop").encode()).hexdigest()
    assert first.provenance.inputs == {"model": sha256(model.read_bytes()).hexdigest(), "cluster": digest}
    assert face.provenance.inputs == {}


def test_dimensions_by_name_reach_the_model(tmp_path: Path) -> None:
    """Tests that Python, requests and the command line, with and without costs, set a symbol of the file."""
    value = helper.make_tensor_value_info
    ends = [value(name, TensorProto.FLOAT, ["batch", 3]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "open", ends[:1], ends[1:])
    path, problem = tmp_path / "open.onnx", tmp_path / "problem.json"
    path.write_bytes(helper.make_model(graph).SerializeToString())
    loaded = wl.load(path, dims={"batch": 4})
    assert isinstance(loaded, wl.Graph)
    assert loaded.tensors[0].shape == (4, 3)
    whole = wl.load_problem(path, cluster=wl.Cluster.preset("laptop"), dims={"batch": 4})
    assert whole.graph == loaded
    assert wl.plan(path, "laptop", dims={"batch": 4}, work_limit=10).problem.graph == loaded
    call = ["plan", str(path), "-c", "laptop", "--work", "10", "-o", str(tmp_path / "plan.json")]
    assert CliRunner().invoke(app, [*call, "--dim", "batch=4"]).exit_code == 0
    assert wl.Plan.load(tmp_path / "plan.json").problem.graph == loaded
    for words in (call, ["profile", str(path), "-c", "laptop", "-o", str(tmp_path / "costs.json")]):
        wrong = CliRunner().invoke(app, [*words, "--dim", "length=4"])
        assert isinstance(wrong.exception, wl.InputError)
        assert "symbols: batch" in str(wrong.exception)
    problem.write_bytes(problem_to_json(whole))
    with pytest.raises(wl.UsageError, match="no named dimensions"):
        wl.load(problem, dims={"batch": 4})


def test_a_problem_is_resolved(model: Path) -> None:
    """Tests rules, dropped limits, shapes and the name of a model that is a file."""
    found = wl.resolve(PlanRequest(model=model, cluster="laptop", objective="throughput", stages=1))
    assert found.problem.rules.stages == 1
    assert found.file == model
    assert found.group is None
    assert wl.resolve(PlanRequest(model="zoo:bert:small", cluster="laptop")).problem.graph.ops


def test_schedules_by_requests(tmp_path: Path) -> None:
    """Tests blocks, a plan, its file, and the default number of micro-batches."""
    blocks = wl.shape("vshape", 2)
    asked = ScheduleRequest(blocks=blocks, solver="1f1b", work_limit=10)
    assert wl.answer(asked).micro_batches == 8
    plan = wl.plan(zoo_graph("bert", size="small"), "two-gpus", objective="throughput", copies=1, work_limit=50)
    plan.save(tmp_path / "plan.json")
    one = wl.answer(ScheduleRequest(plan=plan, micro_batches=4, solver="gpipe", work_limit=10))
    other = wl.answer(ScheduleRequest(plan=tmp_path / "plan.json", micro_batches=4, solver="gpipe", work_limit=10))
    assert one.value == other.value == wl.schedule(plan, micro_batches=4, solver="gpipe", work_limit=10).value
    assert set(other.provenance.inputs) == {"plan"}
    rows = answer_memory(ScheduleRequest(blocks=blocks, micro_batches=4, work_limit=20), "2..3").rows
    assert [row.memory for row in rows] == [2, 3]


def test_stages_by_requests(model: Path) -> None:
    """Tests a sweep over numbers of stages."""
    request = PlanRequest(model=model, cluster="two-gpus", objective="throughput", work_limit=100)
    assert [row.stages for row in answer_stages(request, "1..2").rows] == [1, 2]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"model": 7}, "Graph or Problem"),
        ({"model": zoo_graph("bert", size="small")}, "needs a cluster"),
        ({"model": zoo_graph("bert", size="small"), "cluster": 7}, "a cluster is"),
        ({"model": "m.onnx", "reward": "guessed"}, "simulated or measured"),
        ({"model": "m.onnx", "measurements": 3}, "measured rewards"),
        ({"model": zoo_graph("bert", size="small"), "cluster": "laptop", "runtime": ""}, "runtime"),
        ({"model": zoo_graph("bert", size="small"), "cluster": "laptop", "shapes": {"x": (1,)}}, "shapes and dims are"),
        ({"model": zoo_graph("bert", size="small"), "cluster": "laptop", "dims": {"x": 1}}, "shapes and dims are for"),
        ({"model": zoo_graph("bert", size="small"), "cluster": "laptop", "reward": "measured"}, "need model_file"),
    ],
)
def test_what_makes_no_sense_is_refused(fields: dict[str, object], words: str) -> None:
    """Tests that the sentence says what is wrong."""
    with pytest.raises(wl.UsageError, match=words):
        wl.answer(PlanRequest(**fields))  # type: ignore[arg-type]


def test_schedules_that_make_no_sense() -> None:
    """Tests neither blocks nor plan, both, and something else."""
    blocks = wl.shape("vshape", 2)
    for fields in ({}, {"blocks": blocks, "plan": "plan.json"}, {"blocks": 7}, {"blocks": blocks, "micro_batches": 0}):
        with pytest.raises(wl.UsageError):
            wl.answer(ScheduleRequest(**fields))


def test_grids_are_for_sweep() -> None:
    """Tests that the sentence says where a grid is answered."""
    with pytest.raises(wl.UsageError, match=r"wl\.sweep"):
        wl.answer(wl.GridRequest(models=("m.onnx",)))  # type: ignore[call-overload]


def test_calibration_needs_costs_and_a_file() -> None:
    """Tests a request without either."""
    with pytest.raises(wl.UsageError, match="measured costs"):
        answer_calibrated(PlanRequest(model="m.onnx", cluster="laptop"))


def test_warnings_are_heard(tmp_path: Path) -> None:
    """Tests that devices without a link are named, once."""
    text = preset_text("laptop")
    path = tmp_path / "apart.toml"
    path.write_text(text[: text.index("[[link")])
    said: list[str] = []
    wl.resolve(PlanRequest(model=zoo_graph("bert", size="small"), cluster=str(path)), say=said.append)
    assert len(said) == 1
    assert "no link between" in said[0]
    assert find_cluster(str(path))[0].devices
    with pytest.warns(UserWarning, match="no link between") as heard:
        wl.plan(zoo_graph("bert", size="small"), path, solver="single-device", work_limit=1)
    assert heard[0].filename == __file__


def test_models_of_the_zoo_are_built_again() -> None:
    """Tests that nothing is lost with the folder of temporary files."""
    first = model_path("zoo:bert:small")
    first.unlink()
    assert model_path("zoo:bert:small").is_file()
