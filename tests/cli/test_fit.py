"""Tests of `weftline fit` as a command: what it prints, writes and refuses."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from weftline.cli.main import app
from weftline.errors import UsageError, WeftlineError

TWO = ["--gpu", "RTX 4090", "--gpu", "RTX 3060 12GB"]
SPLIT = ["llama-3.1-8b", "--quant", "q8_0", *TWO, "--context", "16k", "--splits", "20,12"]


def fit(*words: object) -> tuple[int, str]:
    """Exit code, and what is said on stdout or as the error."""
    done = CliRunner().invoke(app, ["fit", *map(str, words)], prog_name="weftline")
    if isinstance(done.exception, WeftlineError):
        return done.exception.exit_code, str(done.exception)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.stdout


def answer(*words: object) -> dict[str, Any]:
    """What --json prints."""
    code, said = fit(*words, "--json")
    assert code == 0, said
    found: dict[str, Any] = json.loads(said)
    return found


def test_json_has_the_fields_that_were_promised() -> None:
    """Tests names, units and sums of a given split."""
    found = answer(*SPLIT)
    first, second = found["devices"]
    assert (first["id"], first["layers"], second["layers"], second["output"]) == ("gpu0", [0, 20], [20, 32], True)
    for one in (first, second):
        assert one["weights_bytes"] + one["kv_bytes"] + one["compute_bytes"] <= one["limit_bytes"]
    assert first["kv_bytes"] == 20 * 16384 * 2 * 8 * 128 * 2
    for name in ("tokens_per_second", "prefill_tokens_per_second"):
        assert found[name]["low"] <= found[name]["value"] <= found[name]["high"]
    assert {"bound_tokens_per_second", "gap", "proof", "baselines", "notes"} <= set(found)
    assert shlex.split(found["command"][0])[1:] == found["launch"][0]["program"]
    assert "-ngl 33 --device CUDA0,CUDA1 -sm layer -ts 20,13 -c 16384" in found["command"][0]


def test_text_shows_cards_and_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests what a person reads: a bar for each card, tokens per second, a line to paste."""
    monkeypatch.setenv("COLUMNS", "120")
    code, said = fit(*SPLIT)
    assert code == 0
    assert "gpu0  GeForce RTX 4090" in said
    assert "20..31 and output" in said
    assert "tokens per second (measured ones lie between" in said
    assert "llama-server -m llama-3.1-8b-q8_0.gguf -ngl 33" in said


def test_cards_fit_a_terminal_of_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that each card is one whole line where there is no room for bars."""
    monkeypatch.setenv("COLUMNS", "80")
    code, said = fit(*SPLIT)
    assert code == 0
    (card,) = [line.split() for line in said.splitlines() if line.startswith("gpu1 ")]
    assert card[:4] == ["gpu1", "RTX", "3060", "12GB"]
    assert card[4:7] == ["20..31", "and", "output"]
    assert card[-1] == "ms"
    assert "GiB" in card
    assert "weights + cache + buffers" in said
    assert "…" not in said


def test_slower_with_more_in_the_cache_and_narrower_when_measured() -> None:
    """Tests that live tokens are counted, and that one measurement scales the estimate and narrows its interval."""
    short, long = answer(*SPLIT, "--live", "512"), answer(*SPLIT, "--live", "16k")
    assert short["tokens_per_second"]["value"] > long["tokens_per_second"]["value"]
    told = answer(*SPLIT, "--measured", "tg=41.2")["tokens_per_second"]
    assert told["value"] == pytest.approx(41.2)
    guess = answer(*SPLIT)["tokens_per_second"]
    assert told["high"] / told["low"] < guess["high"] / guess["low"]


def test_files(tmp_path: Path) -> None:
    """Tests the folder of --write: a script that a shell takes, a compose file, the plan; and -o."""
    folder, plan = tmp_path / "serve", tmp_path / "plan.json"
    code, said = fit(*SPLIT, "--write", folder, "-o", plan)
    assert code == 0
    assert sorted(path.name for path in folder.iterdir()) == ["compose.yaml", "plan.json", "run.sh"]
    assert json.loads(plan.read_text())["segments"] == json.loads((folder / "plan.json").read_text())["segments"]
    assert "exec llama-server -m llama-3.1-8b-q8_0.gguf -ngl 33" in (folder / "run.sh").read_text()
    assert f"written: {plan}" in said.replace("\n", "")


def test_nothing_but_regular_files_is_replaced(tmp_path: Path) -> None:
    """Tests that a folder in the place of a file refuses all of them, and that nothing is left behind."""
    (tmp_path / "serve" / "plan.json").mkdir(parents=True)
    code, said = fit(*SPLIT, "--write", tmp_path / "serve")
    assert code == 3
    assert "is a folder" in said
    assert [path.name for path in (tmp_path / "serve").iterdir()] == ["plan.json"]


def test_lists_of_models() -> None:
    """Tests the catalogue as text and as JSON."""
    code, said = fit("--models")
    assert code == 0
    assert "llama-3.1-8b" in said
    code, said = fit("--models", "--json")
    assert any(one["name"] == "llama-3.1-8b" and one["layers"] == 32 for one in json.loads(said)["models"])


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        ([], 2, "which model?"),
        (["llama-3.1-8b"], 2, "which devices?"),
        (["llama-3.1-8c", *TWO], 3, "did you mean"),
        (["llama-3.1-8b", "--gpu", "RTX 4909"], 3, "did you mean"),
        (["llama-3.1-8b", *TWO, "--context", "lots"], 2, "write it like 16k"),
        (["llama-3.1-8b", *TWO, "--quant", "q4_k_x"], 3, "did you mean"),
        (["llama-3.1-8b", *TWO, "--for", "vlm"], 2, "did you mean 'vllm'"),
        (["llama-3.1-8b", *TWO, "--kv-type", "q9"], 3, "unknown type of the cache"),
        (["llama-3.1-8b", *TWO, "--splits", "40,30"], 3, "a split of 70 layers"),
        (["llama-3.1-8b", *TWO, "--quant", "bf16", "--splits", "2,30"], 4, "does not fit"),
        (["missing/model.gguf", *TWO], 3, "no such file"),
        (["llama-3.1-8b", "--gpu", "M2 Ultra 192GB", "--for", "vllm"], 2, "does not run on Apple"),
        (["llama-3.1-8b", *TWO, "-o", "no/such/plan.json"], 3, "No such file or directory"),
    ],
)
def test_every_error_says_what_to_do(words: list[str], code: int, says: str) -> None:
    """Tests exit code and words of what people get wrong."""
    found, said = fit(*words)
    assert (found, says in said) == (code, True), said


def test_explain_report_and_verify(tmp_path: Path) -> None:
    """Tests that the verbs which look at an answer take a plan of a language model, and refuse what is not for it."""
    plan, page = tmp_path / "plan.json", tmp_path / "report.html"
    assert fit("llama-3.1-8b", "--quant", "q8_0", *TWO, "-o", plan)[0] == 0
    told = CliRunner().invoke(app, ["explain", str(plan)])
    assert "of the time for 32 of 32 layers" in told.stdout
    assert json.loads(CliRunner().invoke(app, ["explain", str(plan), "--json"]).stdout)["rate"] > 0
    assert CliRunner().invoke(app, ["report", str(plan), "-o", str(page)]).exit_code == 0
    text = page.read_text()
    assert "<svg" in text
    assert "llama-server -m llama-3.1-8b-q8_0.gguf" in text
    assert isinstance(CliRunner().invoke(app, ["explain", str(plan), "--op", "x"]).exception, UsageError)
    assert isinstance(CliRunner().invoke(app, ["simulate", str(plan)]).exception, WeftlineError)


def test_one_card_that_is_enough_is_not_split() -> None:
    """Tests that the first line says so, and that the plan is proved to be the best."""
    found = answer("llama-3.1-8b", "--quant", "q8_0", *TWO)
    assert found["advice"].startswith("Do not split")
    assert (found["proof"], found["gap"]) == ("proved", 0.0)
    assert "-sm layer" not in found["command"][0]


def test_further_questions() -> None:
    """Tests the largest context, the best quantisation, and wanted rates."""
    card = ["--gpu", "RTX 3060 12GB"]
    found = answer("llama-3.1-8b", "--quant", "q8_0", *card, "--context", "max")
    most = found["asked"]["largest_context"]
    assert found["terms"]["context"] == most
    assert fit("llama-3.1-8b", "--quant", "q8_0", *card, "--context", most + 256)[0] == 4
    best = answer("llama-3.1-8b", "--quant", "best", *card)
    assert best["asked"]["quantisation"] == best["model"]["quantisation"] == "q8_0"
    assert answer("llama-3.1-8b", "--quant", "q8_0", *card, "--want", "20 tok/s")["asked"]["enough"]
    no = answer("llama-3.1-8b", "--quant", "q8_0", *card, "--want", "100 tok/s")["asked"]
    assert not no["enough"]
    assert "GeForce RTX 5090" in no["cards"]
    assert "GeForce RTX 3060 12GB" not in no["cards"]
    code, said = fit("llama-3.3-70b", "--quant", "q4_k_m", "--gpu", "RTX 4090")
    assert code == 4
    assert "GiB are missing" in said
    assert "--quant" in said
    assert "--ram 64GB" in said
