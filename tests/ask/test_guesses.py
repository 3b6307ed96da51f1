"""Plans whose costs rest on sizes that nobody knows: they say so, first, everywhere; `strict` refuses them."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path

import msgspec
import pytest

import weftline as wl
from weftline.certify import Refusal, check_plan
from weftline.cost import CostTable, analytic_costs
from weftline.errors import InputError
from weftline.graph import Graph, Op, Tensor, assemble, graph_to_json
from weftline.plans import Plan
from weftline.problem import build_problem
from weftline.report.html import report_html

CLUSTER = wl.Cluster.preset("laptop")
FIRST = "2 ops have dimensions that could not be computed, first 'b' (Odd): their costs are a guess; give --dim NAME=N"


def _graph(*guessed: str) -> Graph:
    kinds = {"a": "MatMul", "b": "Odd", "c": "Relu"}
    ops = [Op(name, kind, 10**9, traffic_bytes=10**6, guessed=name in guessed) for name, kind in kinds.items()]
    tensors = [Tensor(f"t{i}", i, (i + 1,) if i < 2 else (), 10**6, output=i == 2) for i in range(3)]
    return assemble("three", ops, tensors)


def _plan(graph: Graph) -> Plan:
    return wl.plan(graph, CLUSTER, solver="greedy", work_limit=100)


def test_a_plan_says_that_costs_are_guessed() -> None:
    """Tests the summary's first line, the word beside proved, the field of the file, the report's top."""
    plan = _plan(_graph("b", "c"))
    assert plan.summary().startswith(FIRST)
    assert plan.proof == "proved"
    assert "proved for these guessed costs (" in plan.summary()
    assert msgspec.to_builtins(plan)["guessed"] == {"ops": 2, "first": "b", "kind": "Odd"}
    assert "costs of 2 ops are a guess" in repr(plan)
    page = report_html(plan).decode()
    assert "could not be computed" in page
    assert "bound proved for these guessed costs" in page


def test_a_plan_without_guesses_says_nothing() -> None:
    """Tests that nothing is said, and no field is written, where everything is known."""
    plan = _plan(_graph())
    assert "guess" not in plan.summary()
    assert "guessed" not in msgspec.to_builtins(plan)
    assert "guess" not in repr(plan)


def test_one_op_is_said_as_one() -> None:
    """Tests the sentence for a single op."""
    assert _plan(_graph("b")).summary().startswith("1 op has dimensions that could not be computed: 'b' (Odd): its")


def test_the_checker_holds_a_plan_to_it() -> None:
    """Tests that a plan which hides its guesses, or invents some, is refused, and that the verdict counts them."""
    plan = msgspec.to_builtins(_plan(_graph("b", "c")))
    assert check_plan(plan).guessed_ops == 2
    with pytest.raises(Refusal, match="guessed"):
        check_plan({**plan, "guessed": {"ops": 1, "first": "b", "kind": "Odd"}})
    with pytest.raises(Refusal, match="guessed"):
        check_plan({name: value for name, value in plan.items() if name != "guessed"})
    with pytest.raises(Refusal, match="guessed"):
        check_plan({**msgspec.to_builtins(_plan(_graph())), "guessed": plan["guessed"]})


def test_strict_refuses() -> None:
    """Tests that `strict` is an error with the same sentence, and passes a model without guesses."""
    with pytest.raises(InputError, match="could not be computed"):
        wl.plan(_graph("b"), CLUSTER, strict=True, solver="greedy", work_limit=100)
    assert wl.plan(_graph(), CLUSTER, strict=True, solver="greedy", work_limit=100).value_ns > 0


def test_given_times_take_the_place_of_guesses() -> None:
    """Tests that a table of times, as a profile gives it, leaves no guess."""
    graph = _graph("b", "c")
    times: CostTable = analytic_costs(graph, CLUSTER)
    assert not build_problem(graph, CLUSTER, cost=times).graph.guessed
    assert len(build_problem(graph, CLUSTER).graph.guessed) == 2


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests the first line of the answer, the field of --json, exit code 3 with --strict, and `verify`."""
    model, out = tmp_path / "g.json", tmp_path / "plan.json"
    model.write_bytes(graph_to_json(_graph("b", "c")))
    call = ["plan", str(model), "--cluster", "laptop", "--solver", "greedy", "--work", "100"]

    def run(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["weftline", *words])
        with pytest.raises(SystemExit) as left:
            import_module("weftline.cli.main").main()
        said = capsys.readouterr()
        return int(left.value.code or 0), said.out, said.err

    code, shown, _ = run(*call, "-o", str(out))
    assert code == 0
    assert " ".join(shown.split()).startswith(FIRST)
    assert json.loads(run(*call, "--json")[1])["guessed"]["ops"] == 2
    code, _, error = run(*call, "--strict")
    assert (code, "could not be computed" in " ".join(error.split())) == (3, True)
    assert "for these guessed costs (of 2 ops)" in " ".join(run("verify", str(out))[1].split())
