"""How a command ends: exit codes of what interrupts become."""

from __future__ import annotations

import signal
from importlib import import_module
from typing import Any

import pytest

from weftline.errors import InputError

room = import_module("weftline.cli.main")  # the package has a function of that name


@pytest.mark.parametrize("error", [ImportError("half of a module"), InputError("is wrong"), OSError("no")])
def test_what_an_interrupt_becomes_is_the_interrupt(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Tests that a command that Ctrl-C ends with another exception ends with 130; one without it as ever."""

    def interrupted(**_: Any) -> None:
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            raise error from None

    monkeypatch.setattr(room, "app", interrupted)
    monkeypatch.setattr("sys.unraisablehook", None)
    with pytest.raises(SystemExit) as left:
        room.main()
    assert left.value.code == 130
    assert capsys.readouterr().err == "interrupted\n"


def test_errors_keep_their_codes(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Tests an error without Ctrl-C."""

    def wrong(**_: Any) -> None:
        raise InputError("is wrong")

    monkeypatch.setattr(room, "app", wrong)
    monkeypatch.setattr("sys.unraisablehook", None)
    with pytest.raises(SystemExit) as left:
        room.main()
    assert left.value.code == 3
    assert "is wrong" in capsys.readouterr().err
