"""Verification of files, in the checker's own process."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest
from tests.certify.base_plans import Json, latency_plan, throughput_plan

from weftline.certify import Unreadable, Verdict, check, read_plan, verify_file
from weftline.certify.run import verify_bytes
from weftline.errors import InputError, VerificationError

MAKER = Path(__file__).parents[2] / "tools" / "make_checker.py"
TEXT = json.dumps(latency_plan()).encode()


def _edited(**fields: object) -> bytes:
    return json.dumps({**latency_plan(), **fields}).encode()


UNREADABLE = {
    "empty file": (b"", "empty"),
    "only spaces": (b"  \n", "json"),
    "truncated file": (TEXT[: len(TEXT) // 2], "json"),
    "something after the end": (TEXT + b"{}", "json"),
    "random bytes": (random.Random(7).randbytes(300), "encoding"),
    "UTF-16": (TEXT.decode().encode("utf-16"), "encoding"),
    "not an object": (b"[1, 2]", "object"),
    "a number alone": (b"3", "object"),
    "duplicate key": (TEXT.replace(b'"value_ns": 65', b'"value_ns": 65, "value_ns": 60', 1), "duplicate-key"),
    "NaN": (TEXT.replace(b'"value_ns": 65', b'"value_ns": NaN', 1), "not-finite"),
    "Infinity": (TEXT.replace(b'"value_ns": 65', b'"value_ns": Infinity', 1), "not-finite"),
    "minus Infinity": (TEXT.replace(b'"value_ns": 65', b'"value_ns": -Infinity', 1), "not-finite"),
    "number beyond every float": (TEXT.replace(b'"value_ns": 65', b'"value_ns": 1e999', 1), "not-finite"),
    "number of 10,000 digits": (TEXT.replace(b'"value_ns": 65', b'"value_ns": 1' + b"0" * 10_000, 1), "digits"),
    "100,000 brackets": (b"[" * 100_000, "nesting"),
    "100,000 brackets inside": (TEXT.replace(b'"value_ns": 65', b'"value_ns": ' + b"[" * 100_000, 1), "nesting"),
    "another format": (_edited(format="weftline-graph"), "format"),
    "no format": (b"{}", "format"),
    "another version": (_edited(version=2), "version"),
    "true as version": (_edited(version=True), "version"),
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_unreadable_files_are_refused(tmp_path: Path, name: str) -> None:
    """Tests that what is not a plan at all is refused while it is read, each kind with its code."""
    data, code = UNREADABLE[name]
    assert data != TEXT
    path = tmp_path / "plan.json"
    path.write_bytes(data)
    with pytest.raises(Unreadable) as refused:
        read_plan(str(path))
    assert refused.value.code == code
    assert refused.value.exit_code == 3


def test_what_is_read_is_what_was_written(tmp_path: Path) -> None:
    """Tests that strict reading changes nothing, numbers with a point included."""
    path = tmp_path / "plan.json"
    path.write_bytes(TEXT)
    assert isinstance(read_plan(str(path))["gap"], float)
    assert read_plan(str(path)) == latency_plan()


def test_unreadable_files_have_their_own_messages(tmp_path: Path) -> None:
    """Tests that the sentences tell the kinds of unreadable files apart, but for words inside quotes."""
    messages = set()
    path = tmp_path / "plan.json"
    for data, _ in UNREADABLE.values():
        path.write_bytes(data)
        with pytest.raises(Unreadable) as refused:
            read_plan(str(path))
        messages.add(str(refused.value))
    assert len(messages) >= len(UNREADABLE) - 2  # two kinds of non-objects, two of deep nesting


@pytest.mark.parametrize("base", [latency_plan, throughput_plan])
def test_verify_file_accepts(tmp_path: Path, base: object) -> None:
    """Tests that a plan file that holds is verified in a process of its own."""
    plan = base()  # type: ignore[operator]
    path = tmp_path / "a plan.json"
    path.write_text(json.dumps(plan), encoding="utf-8")
    verdict = verify_file(path)
    assert isinstance(verdict, Verdict)
    assert (verdict.objective, verdict.value_ns) == (plan["objective"], plan["value_ns"])
    assert verdict.checks == check.CHECKS
    assert verify_bytes(path.read_bytes()) == verdict


@pytest.mark.parametrize("name", ["empty file", "random bytes", "100,000 brackets", "NaN", "number of 10,000 digits"])
def test_verify_file_raises_input_error(tmp_path: Path, name: str) -> None:
    """Tests that an unreadable file is an `InputError` that names it."""
    path = tmp_path / "plan.json"
    path.write_bytes(UNREADABLE[name][0])
    with pytest.raises(InputError, match=UNREADABLE[name][1]) as error:
        verify_file(path)
    assert str(path) in str(error.value)
    assert error.value.exit_code == 3


@pytest.mark.parametrize(
    ("field", "value", "code"),
    [("value_ns", 60, "value"), ("bound_ns", 65, "best-bound"), ("gap", 0.5, "gap"), ("placement", {}, "missing-op")],
)
def test_verify_file_raises_verification_error(tmp_path: Path, field: str, value: Json, code: str) -> None:
    """Tests that a plan that does not hold is a `VerificationError` that names file and code."""
    path = tmp_path / "plan.json"
    path.write_bytes(_edited(**{field: value}))
    with pytest.raises(VerificationError, match=rf"plan.json: {code}: ") as error:
        verify_file(path)
    assert error.value.exit_code == 6


def test_missing_file_and_folder(tmp_path: Path) -> None:
    """Tests that a path that is no file is told so."""
    for path, words in ((tmp_path / "nothing.json", "no such file"), (tmp_path, "directory")):
        with pytest.raises(InputError, match=words):
            verify_file(path)


@pytest.mark.parametrize(("arguments", "code"), [((), 2), (("a", "b"), 2)])
def test_wrong_call(arguments: tuple[str, ...], code: int, capsys: pytest.CaptureFixture[str]) -> None:
    """Tests that the script says how it is called."""
    assert check.main(list(arguments)) == code
    assert "usage" in capsys.readouterr().err


def test_the_script_needs_no_package(tmp_path: Path) -> None:
    """Tests that the archive alone, far from weftline, gives exit codes and one JSON object."""
    script, path = tmp_path / "check.pyz", tmp_path / "plan.json"
    subprocess.run([sys.executable, str(MAKER), str(script)], check=True, capture_output=True)
    expected = {TEXT: 0, b"": 3, _edited(value_ns=1): 6}
    for data, code in expected.items():
        path.write_bytes(data)
        call = [sys.executable, "-I", "-S", str(script), str(path)]
        done = subprocess.run(call, capture_output=True, text=True, check=False)
        assert done.returncode == code
        answer = json.loads(done.stdout)
        assert answer["ok"] is (code == 0)
        assert not done.stderr
