"""Ctrl-C is neither lost nor mistaken for something else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from weftline import interrupts
from weftline.interrupts import Interruption, keep_interrupts, uninterrupted


def test_no_interrupt_is_lost() -> None:
    """Tests that Ctrl-C inside a destructor, which Python prints and forgets, ends the program all the same."""
    code = (
        "import signal, time\n"
        "from weftline.interrupts import keep_interrupts\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "keep_interrupts()\n"
        "class Gone:\n"
        "    def __del__(self):\n"
        "        signal.raise_signal(signal.SIGINT)\n"
        "gone = Gone()\n"
        "try:\n"
        "    del gone\n"
        "    time.sleep(60)\n"
        "except KeyboardInterrupt:\n"
        "    print('heard')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=50)
    assert (done.stdout, done.stderr) == ("heard\n", "")


def test_other_exceptions_of_destructors_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that everything else goes where it went before."""
    told: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", told.append)
    keep_interrupts()
    sys.unraisablehook(SimpleNamespace(exc_type=ValueError))
    assert len(told) == 1


def test_an_interrupt_ends_its_block_alone() -> None:
    """Tests that what stands behind the block is done, and that the handler is what it was."""
    before = signal.getsignal(signal.SIGINT)
    with Interruption() as stop:
        signal.raise_signal(signal.SIGINT)
        pytest.fail("the block went on")
    assert stop.ended
    assert signal.getsignal(signal.SIGINT) is before
    with Interruption() as stop:
        pass
    assert not stop.ended


def test_what_an_interrupt_becomes_is_the_interrupt() -> None:
    """Tests that an exception after Ctrl-C ends the block, and one without it is an error as ever."""
    with Interruption() as stop:
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            raise ImportError("half of a module") from None
    assert stop.ended
    with Interruption() as stop:
        raise SystemError("returned a result with an exception set") from KeyboardInterrupt()
    assert stop.ended
    with pytest.raises(ImportError), Interruption():
        raise ImportError("no such module")


def test_a_block_that_goes_on_is_told_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that compiled code that swallows an interrupt gets another, and that none comes after the block."""
    monkeypatch.setattr(interrupts, "INSIST_SECONDS", 0.05)
    heard = 0
    with Interruption(insist=True) as stop:
        while True:
            try:
                if not heard:
                    signal.raise_signal(signal.SIGINT)
                time.sleep(60)
            except KeyboardInterrupt:
                heard += 1
                if heard == 3:
                    raise
    assert stop.ended
    time.sleep(0.2)  # a late one would end this test


def test_blocks_inside_blocks() -> None:
    """Tests that the inner block takes the interrupt, and errors behind it are errors for the outer one."""

    def both() -> None:
        with Interruption():
            with Interruption() as inner:
                signal.raise_signal(signal.SIGINT)
            assert inner.ended
            raise ValueError("later")

    with pytest.raises(ValueError, match="later"):
        both()


def test_handlers_of_others_stay() -> None:
    """Tests that a program with its own answer to Ctrl-C keeps it."""
    heard: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: heard.append(number))
    try:
        with Interruption() as stop:
            signal.raise_signal(signal.SIGINT)
        assert heard == [signal.SIGINT]
        assert not stop.ended
    finally:
        signal.signal(signal.SIGINT, before)


def test_threads_have_no_signals() -> None:
    """Tests that both blocks do nothing outside the main thread."""
    done = []

    def work() -> None:
        with Interruption() as stop, uninterrupted():
            done.append(stop.ended)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done == [False]


def test_uninterrupted() -> None:
    """Tests that Ctrl-C inside does nothing, and does something again behind it."""
    with uninterrupted():
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.01)
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize(
    ("argv", "given", "is_program"),
    [
        (["/usr/bin/weftline", "plan"], ["python", "/usr/bin/weftline", "plan"], True),
        (["-m", "plan"], ["python", "-m", "weftline", "plan"], True),
        (["-m", "x"], ["python", "-m", "weftline.worker.child", "x"], False),
        (["notebook.py"], ["python", "notebook.py"], False),
    ],
)
def test_before_the_command_line_is_loaded(
    argv: list[str], given: list[str], is_program: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tests that a Ctrl-C during imports ends the program with a word, and that a library leaves it alone."""
    from weftline import _start

    set_handlers: list[Any] = []
    monkeypatch.setattr(sys, "argv", argv)
    monkeypatch.setattr(sys, "orig_argv", given)
    monkeypatch.setattr(signal, "signal", lambda number, handler: set_handlers.append(handler))
    exec(compile(Path(_start.__file__).read_bytes(), "start", "exec"), {"__name__": "start"})
    assert [handler.__name__ for handler in set_handlers] == ["leave"] * is_program
    written: list[Any] = []
    monkeypatch.setattr(os, "write", lambda *given: written.append(given))
    monkeypatch.setattr(os, "_exit", written.append)
    _start.leave(signal.SIGINT, None)
    assert written == [(2, b"interrupted\n"), 130]


FIRST = """
import sys
class Spy:
    @staticmethod
    def find_spec(name, path=None, target=None):
        print(name)
sys.meta_path.insert(0, Spy)
import weftline._start
"""


def test_little_is_loaded_before_interrupts_have_a_word() -> None:
    """Tests that the handler stands before modules that take time (typing, threading)."""
    done = subprocess.run([sys.executable, "-c", FIRST], capture_output=True, encoding="utf-8", check=True)
    names = done.stdout.split()
    before = names[: names.index("weftline._start") + 1]
    assert [name for name in before if not name.startswith("weftline")] in ([], ["__future__"])
    after = names[names.index("weftline._start") + 1 :]
    assert not {"threading", "contextlib"} & set(after[: after.index("typing")])


def test_main_takes_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that `keep_interrupts` brings back Python's own handler, and only in place of ours."""
    from weftline._start import leave

    monkeypatch.setattr(sys, "unraisablehook", sys.unraisablehook)
    before, ending = signal.signal(signal.SIGINT, leave), signal.getsignal(signal.SIGTERM)
    try:
        keep_interrupts()
        signal.signal(signal.SIGTERM, ending)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        keep_interrupts()
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


SCRIPT = """
import ctypes, os, signal, sys, time
sys.argv = ["weftline"]
import typer
from weftline.cli import main as entry
module = sys.modules["weftline.cli.main"]
app = typer.Typer()
@app.command()
def verb() -> None:
    if KIND == "library":  # Python code that C runs, as binary modules do when they are loaded
        run = ctypes.pythonapi.PyRun_String
        run.restype = ctypes.py_object
        run.argtypes = [ctypes.c_char_p, ctypes.c_int, ctypes.py_object, ctypes.py_object]
        run(b"import os, signal, time; os.kill(os.getpid(), signal.SIGINT); time.sleep(9)", 257, {}, {})
    os.kill(os.getpid(), getattr(signal, KIND))
    time.sleep(9)
module.app = app
entry()
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["SIGINT", "SIGTERM", "library"])
def test_a_program_says_that_it_was_interrupted(kind: str) -> None:
    """Tests the code and the word; the argument parser made a bare code of it, and Python sometimes a signal."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.replace("KIND", repr(kind))], capture_output=True, encoding="utf-8", check=False
    )
    assert (done.returncode, done.stderr.strip(), done.stdout) == (130, "interrupted", "")
