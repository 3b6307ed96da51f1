"""Child processes: what goes over the pipes, how failures and deaths are told, and that nobody outlives a parent."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from weftline.worker.child import LastWords, LineBuffer
from weftline.worker.parent import Child, ChildFailed, ChildGone, ChildSilent, environment_of_children

TALKER = Path(__file__).with_name("talker.py")


@pytest.fixture
def child() -> Iterator[Child]:
    """One that listens."""
    with Child(TALKER) as child:
        yield child


def soon() -> float:
    """An end that is never reached."""
    return time.monotonic() + 60


def gone(pid: int) -> bool:
    """Whether a process has ended within a while."""
    for _ in range(600):
        if not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
            return True
        time.sleep(0.05)
    return False


def test_messages_go_there_and_back(child: Child) -> None:
    """Tests that what libraries print stays out of answers, that long lines come whole, and several at once."""
    child.send(["echo", "one"])
    child.send(["long", "1000000"])
    child.send(["echo", "line\nbreak"])
    assert child.receive(list[str], soon()) == ["one"]
    assert len(child.receive(list[str], soon())[0]) == 1000000
    assert child.receive(list[str], soon()) == ["line\nbreak"]
    assert child.code is None


def test_lines_are_put_together() -> None:
    """Tests that parts of lines wait for their ends."""
    buffer = LineBuffer()
    assert [buffer.feed(part) for part in (b"a", b"b\nc\n\nd", b"", b"\n")] == [[], [b"ab", b"c", b""], [], [b"d"]]


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("input", LastWords("InputError", "here: is wrong", ours=True)),
        ("other", LastWords("ValueError", "first", ours=False)),
        ("silent", LastWords("ValueError", "ValueError", ours=False)),
    ],
)
def test_last_words(child: Child, word: str, expected: LastWords) -> None:
    """Tests that an exception in the child is told with its kind, and whether it is ours."""
    child.send([word])
    with pytest.raises(ChildFailed) as failed:
        child.receive(list[str], soon())
    assert failed.value.words == expected
    assert child.end() == 1


def test_deaths_are_told(child: Child) -> None:
    """Tests that a signal is named, to whoever listens and to whoever speaks."""
    child.send(["crash"])
    with pytest.raises(ChildGone, match=r"^crashed \(signal 9\)$"):
        child.receive(list[str], soon())
    with pytest.raises(ChildGone, match=r"^crashed \(signal 9\)$"):
        child.send(["echo", "anybody?"])
    assert child.listen(list[str]) is None


def test_an_exit_is_told_with_what_was_printed(child: Child) -> None:
    """Tests the exit code and the last line of standard error."""
    child.send(["leave"])
    with pytest.raises(ChildGone, match=r"^ended with code 3: goodbye$"):
        child.receive(list[str], soon())


def test_a_child_that_says_nothing(child: Child) -> None:
    """Tests that waiting has an end, and that the child is ended with the `with`."""
    child.send(["sleep"])
    with pytest.raises(ChildSilent):
        child.receive(list[str], time.monotonic() + 0.1)
    assert child.wait(0.1) is None
    child.close()
    child.close()
    assert child.code == -9


def test_an_answer_of_another_kind(child: Child) -> None:
    """Tests that an answer that makes no sense is as good as none."""
    child.send(["echo", "one"])
    with pytest.raises(ChildGone, match="something else than an answer"):
        child.receive(list[int], soon())


@pytest.mark.parametrize("linux", [False, True])
def test_nobody_outlives_the_parent(linux: bool) -> None:
    """Tests that a child that sleeps ends when its parent is killed: by the end of its input, and by the kernel."""
    code = (
        "import os, time\n"
        "from pathlib import Path\n"
        "from weftline.worker.parent import Child\n"
        f"child = Child(Path({str(TALKER)!r}), *([str(os.getpid())] if {linux} else []))\n"
        "child.send(['echo', ''])\n"
        "child.receive(list[str], time.monotonic() + 60)\n"
        "child.send(['sleep'])\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert psutil.pid_exists(pid)
        parent.kill()
    assert gone(pid)


def test_an_orphan_does_not_start() -> None:
    """Tests that a child whose parent is another one by now ends at once."""
    with Child(TALKER, "1") as child:
        assert child.end() == 1


def test_environment_is_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that children inherit variables, and that the parent keeps its own."""
    monkeypatch.setenv("WEFTLINE_TEST_OLD", "old")
    monkeypatch.delenv("WEFTLINE_TEST_NEW", raising=False)
    with environment_of_children({"WEFTLINE_TEST_OLD": "1", "WEFTLINE_TEST_NEW": "2"}):
        assert (os.environ["WEFTLINE_TEST_OLD"], os.environ["WEFTLINE_TEST_NEW"]) == ("1", "2")
    assert os.environ["WEFTLINE_TEST_OLD"] == "old"
    assert "WEFTLINE_TEST_NEW" not in os.environ
