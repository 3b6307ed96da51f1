"""What a page hears: only what it does not know yet."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import msgspec

from weftline.search import Event
from weftline.ui.jobs import MOST_ROWS, EventStream, Job, Jobs
from weftline.ui.models import PageLimits
from weftline.ui.task import ModelFile, PlanTask, Row, Said, Teller


def make_job(number: int = 1) -> Job:
    task = PlanTask(
        model=ModelFile("/nowhere", "label.onnx"),
        cluster=None,
        cluster_name="",
        objective="latency",
        stages=None,
        solver="auto",
        seconds=1.0,
        gap=None,
        seed=0,
        shapes=(),
        argv=("plan", "label.onnx"),
        output="/nowhere/plan.json",
    )
    return Job(number, task, Path("/nowhere"), state="running")


def watched(tmp_path: Path, *jobs: Job) -> tuple[Jobs, EventStream]:
    found = Jobs(tmp_path, PageLimits(), 2**30)
    found._jobs.update({job.id: job for job in jobs})
    return found, EventStream(found, dict)


def heard(text: str) -> list[tuple[str, Any]]:
    events = [event.split("\n") for event in text.split("\n\n") if event]
    return [(kind.removeprefix("event: "), json.loads(data.removeprefix("data: "))) for kind, data in events]


def say(job: Job, *rows: Row) -> None:
    job.hear(Said(rows=rows))
    job.version += 1


def test_first_everything_then_what_is_new(tmp_path: Path) -> None:
    """Tests that rows are sent once, that silence costs nothing, and that paths of the server stay there."""
    job = make_job()
    say(job, (0.1, 9, None), (0.2, 8, 3))
    _, stream = watched(tmp_path, job)
    (kind, first), (other, _) = heard(stream.news())
    assert (kind, other) == ("plan", "state")
    assert (first["since"], first["rows"]) == (0, [[0.1, 9, None], [0.2, 8, 3]])
    assert "nowhere" not in json.dumps(first)
    assert stream.news() == ""
    say(job, (0.3, 7, 3))
    ((_, second),) = heard(stream.news())
    assert (second["since"], second["rows"]) == (2, [[0.3, 7, 3]])


def test_thinned_rows_are_sent_again(tmp_path: Path) -> None:
    """Tests that a page never puts new rows behind old ones that were thinned out; first and last row survive."""
    job = make_job()
    _, stream = watched(tmp_path, job)
    say(job, *((float(i), i, 0) for i in range(MOST_ROWS)))
    assert len(heard(stream.news())[0][1]["rows"]) == MOST_ROWS
    say(job, (1e6, 5, 5))
    ((_, news),) = heard(stream.news())
    assert news["since"] == 0
    assert MOST_ROWS / 2 <= len(news["rows"]) < MOST_ROWS
    assert (news["rows"][0], news["rows"][-1]) == ([0.0, 0, 0], [1e6, 5, 5])


def test_gone(tmp_path: Path) -> None:
    """Tests that a removed plan is told once."""
    jobs, stream = watched(tmp_path, make_job(1), make_job(2))
    stream.news()
    del jobs._jobs[1]
    assert heard(stream.news()) == [("gone", 1)]
    assert stream.news() == ""


def test_states() -> None:
    """Tests how the last line of a worker decides the state of a plan."""
    ends = {
        "done": Said(answer={"value_ns": 1}),
        "stopped": Said(error="stopped before there was a plan", kind="Stopped"),
        "failed": Said(error="is not a model", kind="InputError"),
    }
    for state, said in ends.items():
        job = make_job()
        job.hear(said)
        assert job.state == state


def test_phases_are_told_and_their_words_end_with_them() -> None:
    """Tests that a page hears that kernels are compiled, with the count, and no such word once the search runs."""
    said = io.BytesIO()
    teller, job = Teller(said), make_job()
    teller.begin("loading", "loading the kernels of the search")
    teller._flush()
    teller.hear(Event(0.0, "", None, None, "compiling kernels: 7 of about 41, about 40 s left"))
    teller._flush()
    teller.hear(Event(0.1, "auto", 5, 3))
    teller.end(Said(error="enough", kind="Stopped"))
    told = []
    for line in said.getvalue().splitlines():
        job.hear(msgspec.json.decode(line, type=Said))
        told.append((job.about()["phase"], job.about()["note"]))
    assert told[:3] == [
        ("loading", "loading the kernels of the search"),
        ("compiling", "compiling kernels: 7 of about 41, about 40 s left"),
        ("searching", ""),
    ]
    assert job.rows == [(0.1, 5, 3)]
