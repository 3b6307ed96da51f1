"""`plan --copies auto`: the rate of the whole cluster, by the command line."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from typer.testing import CliRunner

from weftline.certify import Refusal
from weftline.certify.check_fleet import check_fleet, read_fleet
from weftline.cli.main import app
from weftline.errors import InputError, UsageError
from weftline.plans import load_fleet, load_plan

ASKED = ("plan", "zoo:bert:small", "--cluster", "two-gpus", "--copies", "auto", "--work", "40")


def test_file_and_words(tmp_path: Path) -> None:
    """Tests that the file holds, that the same call gives the same bytes, and what is printed."""
    file = tmp_path / "fleet.json"
    said = CliRunner().invoke(app, [*ASKED, "-o", str(file)], catch_exceptions=False)
    assert said.exit_code == 0
    assert "inputs per second" in said.output
    for name in ("How good is it", "replicas", "single-device", "no deployment gives more"):
        assert name in said.output
    verdict = check_fleet(read_fleet(str(file)))
    plan = load_fleet(file)
    assert verdict.proved_bound_ns == plan.bound_ns > 0
    assert all(rate is None or rate <= plan.rate * (1 + 1e-6) for rate in plan.baselines.values())
    again = CliRunner().invoke(app, [*ASKED, "--json"], catch_exceptions=False)
    before, after = json.loads(file.read_bytes()), json.loads(again.stdout)
    assert "Run a whole copy on each of" in after.pop("advice")
    before["provenance"].pop("argv"), after["provenance"].pop("argv")
    assert before == after


@pytest.mark.parametrize("words", [("--objective", "latency"), ("--stages", "2"), ("--sweep-stages", "1..9")])
def test_what_makes_no_sense(words: tuple[str, str]) -> None:
    """Tests that copies are for throughput, without a number of stages, and on no more devices than there are."""
    with pytest.raises(UsageError, match=r"copies|there are 3 devices"):
        CliRunner().invoke(app, [*ASKED, *words], catch_exceptions=False)


def test_other_verbs_name_the_file(tmp_path: Path) -> None:
    """Tests that a verb that takes plans of one placement says what this file is."""
    file = tmp_path / "fleet.json"
    CliRunner().invoke(app, [*ASKED, "-o", str(file)], catch_exceptions=False)
    with pytest.raises(InputError, match="a fleet plan"):
        load_plan(file)


def test_throughput_is_the_whole_cluster(tmp_path: Path) -> None:
    """Tests that a fleet is what throughput means, that limits are kept, and that --copies 1 is one pipeline."""
    asked = [*ASKED[:4], "--objective", "throughput", "--work", "40"]
    runner, file = CliRunner(), tmp_path / "plan.json"
    said = runner.invoke(app, [*asked, "--max-depth", "1", "--latency-limit", "9ms", "-o", str(file)])
    assert said.exit_code == 0, said.output
    assert said.output.startswith("Run a whole copy on each of ")
    assert json.loads(file.read_bytes())["limits"] == {"max_depth": 1, "latency_ns": 9_000_000}
    check_fleet(read_fleet(str(file)))
    with pytest.raises(InputError, match="for one pipeline: plan with --copies 1"):
        runner.invoke(app, ["schedule", "--plan", str(file), "-n", "4"], catch_exceptions=False)
    said = runner.invoke(app, [*asked, "--copies", "1", "-o", str(file)])
    assert said.exit_code == 0, said.output
    assert load_plan(file).objective == "throughput"
    for words in (["--calibrate", "--costs", str(file)], ["--stages", "2"]):
        with pytest.raises(UsageError, match="a limit of depth"):
            runner.invoke(app, [*asked, "--max-depth", "2", *words], catch_exceptions=False)


def test_a_number_of_copies(tmp_path: Path) -> None:
    """Tests `--copies N`: no op is on more devices, more copies give more, and a lie about the limit is refused."""
    rates, file, runner = [], tmp_path / "plan.json", CliRunner()
    for copies in (2, 3, 8):
        asked = ["plan", "zoo:bert:small", "--cluster", "eight-gpus", "--copies", str(copies), "--work", "400"]
        said = runner.invoke(app, [*asked, "-o", str(file)], catch_exceptions=False)
        assert said.exit_code == 0
        plan = read_fleet(str(file))
        assert check_fleet(plan).rate == plan["rate"] <= plan["rate_bound"]
        assert plan["limits"] == {"max_depth": None, "latency_ns": None, "max_copies": copies}
        held = {(device, op) for lane in plan["lanes"] for device, a, b in lane["hops"] for op in range(a, b)}
        most = max(Counter(op for _, op in held).values())
        assert most <= copies
        rates.append(plan["rate"])
        with pytest.raises(Refusal, match="max_copies"):
            check_fleet({**plan, "limits": {**plan["limits"], "max_copies": most - 1}})
    assert rates[0] < rates[1] < rates[2] == plan["baselines"]["replicas"]
    with pytest.raises(UsageError, match="neither a whole number from 1 nor auto"):
        runner.invoke(app, [*ASKED[:4], "--copies", "two"], catch_exceptions=False)


def test_how_many_devices_are_enough(tmp_path: Path) -> None:
    """Tests the sweep over numbers of devices: its words, its JSON, and that the file is the plan of the best."""
    file, runner = tmp_path / "plan.json", CliRunner()
    said = runner.invoke(app, [*ASKED, "--stages", "auto", "-o", str(file)], catch_exceptions=False)
    assert said.exit_code == 0
    for words in ("Numbers of devices", "are best here", "the fewest whose rate is within 1% of the highest found"):
        assert words in " ".join(said.output.split())
    told = json.loads(runner.invoke(app, [*ASKED, "--sweep-stages", "2,3", "--json"], catch_exceptions=False).stdout)
    assert [row["devices"] for row in told["sweep"]] == [2, 3]
    assert told["sweep"][0]["rate"] <= told["sweep"][1]["rate"] <= told["sweep"][1]["rate_bound"]
    best = read_fleet(str(file))
    assert told["best_devices"] == len(told["plan"]["problem"]["devices"]) == len(best["problem"]["devices"])
    check_fleet(best)
