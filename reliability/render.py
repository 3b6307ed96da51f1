"""docs/reliability.md from the results: what was tried, how often, and what was found.

In: the folder of results. Out: the page. Sections that were never measured are left out; one that is not complete says
so. Simplified: no number is written by hand, and none is left out because it looks bad.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from reliability.mutation import ROOMS, is_equivalent, score
from reliability.results_file import Row, read

__all__ = ["render"]

HEAD = """# Reliability

Written by `python -m reliability` (`make reliability`; the fuzzer alone: `make fuzz`), never by hand. What is measured
here are samples with fixed seeds, not proofs; each table says how large its sample is, and which commit was measured:
what is newer is not in it. Agreement, scarce memory and mutants are about one input or one pipeline, not about fleets
and language models. What was found on the way is fixed and has a test of its own (`tests/reliability`,
`tests/test_files.py`, `tests/test_interrupts.py`), but for mutants that are listed as survived.
"""


def render(folder: Path) -> str:
    """The page."""
    parts = [HEAD]
    for name, section in (
        ("fuzz", _fuzz),
        ("determinism", _determinism),
        ("agreement", _agreement),
        ("memory", _memory),
        ("kills", _kills),
        ("mutation", _mutation),
    ):
        stored = read(folder / f"{name}.json")
        if stored:
            parts.append(f"{section(stored['rows'])}{_stamp(name, stored)}")
    return "\n".join(parts)


def _stamp(name: str, stored: Row) -> str:
    about = stored["environment"]
    commits = ", ".join(stored.get("commits") or [about["commit"]])
    state = "" if stored["complete"] else " **Not complete.**"
    settings = ", ".join(f"{key} {value}" for key, value in stored["settings"].items())
    return (
        f"\n`python -m reliability --only {name}` ({settings}), {about['date']}, commit {commits}, "
        f"Python {about['python']}, {about['system']}, {stored['seconds']:.0f} s.{state}\n"
    )


def _table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(str(cell).replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def _fuzz(rows: dict[str, Row]) -> str:
    table = [
        (
            name,
            f"{row['inputs']:,}",
            f"{row['accepted']:,}",
            f"{row['refused']:,}",
            row["failed"],
            f"{row['slowest']:.2f}",
            f"{row['peak'] / 2**20:.0f}",
        )
        for name, row in rows.items()
    ]
    total = sum(row["inputs"] for row in rows.values())
    failed = sum(row["failed"] for row in rows.values())
    shown = [
        f"- {name}, input {number}: {kind} {_plain(where)}"
        for name, row in rows.items()
        for number, kind, where in row["failures"]
    ]
    found = "\n" + "\n".join(shown) + "\n" if shown else ""
    return (
        f"## Fuzzing\n\n{total:,} inputs over {len(rows)} readers, {failed} failures. An input is a valid file with "
        "one to nine mutations of its bytes, tokens, JSON tree, protobuf fields or packed header; what is accepted is "
        "used as well (simulated, explained, costed). A failure is an exception that is not `InputError` (or another "
        "one that the reader documents), more than 10 s, more than 1 GiB above the empty process, a crash, or an "
        "endless message.\n\n"
        + _table(("reader", "inputs", "accepted", "refused", "failures", "slowest, s", "memory, MiB"), table)
        + found
    )


def _determinism(rows: dict[str, Row]) -> str:
    table = [
        (case, row["runs"], len(row["hash_seeds"]), len(row["digests"]), row["digests"][0])
        for case, row in rows.items()
    ]
    return (
        "## Determinism\n\nThe same question, seed and work limit, each run in a process of its own, under several "
        "values of `PYTHONHASHSEED`: the bytes of the plan or schedule must be the same.\n\n"
        + _table(("case", "runs", "hash seeds", "different answers", "sha256 begins"), table)
    )


def _agreement(rows: dict[str, Row]) -> str:
    table = []
    for objective, runtime in (("latency", "parallel"), ("latency", "sequential"), ("throughput", "")):
        mine = [row for row in rows.values() if (row["objective"], row["runtime"]) == (objective, runtime)]
        if not mine:
            continue
        met = [row for row in mine if row["value"] is not None and row["value"] == row["bound"]]
        table.append(
            (
                f"{objective} {runtime}".strip(),
                len(mine),
                f"{min(row['ops'] for row in mine)}-{max(row['ops'] for row in mine)}",
                sum(row["answers"] for row in mine),
                sum(row["bounds"] for row in mine),
                sum(row["presolve"] for row in mine),
                sum(row["split"] for row in mine),
                len(met),
                sum(row["failed"] for row in mine),
            )
        )
    broken = [f"- problem {name}: {_plain(text)}" for name, row in rows.items() for text in row["broken"]]
    head = (
        "problems",
        "number",
        "ops",
        "plans",
        "bounds",
        "presolve on and off",
        "split",
        "optimum known",
        "violations",
    )
    return (
        f"## Agreement of solvers\n\n{len(rows)} problems of 20 to 60 ops, each asked of all solvers of its kind with "
        "short work limits. Every bound, proved or claimed, must lie at or below every value; CP-SAT with and without "
        "presolve may not contradict each other; and where one op is pinned to a device or kept away from it, the "
        "bounds and values of both parts must fit those of the whole.\n\n"
        + _table(head, table)
        + ("\n" + "\n".join(broken) + "\n" if broken else "")
    )


def _memory(rows: dict[str, Row]) -> str:
    table = []
    for kind in dict.fromkeys(row["kind"] for row in rows.values()):
        mine = [row for row in rows.values() if row["kind"] == kind]
        table.append(
            (
                kind,
                len(mine),
                sum(row["memory"] == "dynamic" for row in mine),
                sum(row["values"] for row in mine),
                sum(row["bounds"] for row in mine),
                sum(row["model"] == "optimal" for row in mine),
                sum(row["same"] for row in mine),
                sum(row["model"] == row["ours"] == "none fits" for row in mine),
                sum(row["model"] in ("optimal", "plan") and not row["values"] for row in mine),
                sum(row["failed"] for row in mine),
            )
        )
    broken = [f"- problem {name}: {_plain(text)}" for name, row in rows.items() for text in row["broken"]]
    head = (
        "problems",
        "number",
        "dynamic memory",
        "plans",
        "bounds",
        "optimum known to the model",
        "to both: the same",
        "both: nothing fits",
        "weftline finds no plan",
        "violations",
    )
    return (
        f"## Scarce memory, a second model\n\n{len(rows)} problems of 10 to 40 ops on 2 to 4 devices, whose memory "
        "lies between too little and enough; ops that cannot run everywhere, missing links, buses, tied weights, "
        "sets that stay together, hosts, backward ops. A CP-SAT model that was written from docs/concepts.md alone, "
        "and shares nothing with the solvers, is asked too, and a checker of the same kind re-computes every plan. "
        "Every plan must hold with its value, none may be below the model's bound, no bound above the model's plan. "
        "Solvers get short limits, so some find no plan where one exists: that is no violation, and is counted.\n\n"
        + _table(head, table)
        + ("\n" + "\n".join(broken) + "\n" if broken else "")
    )


def _kills(rows: dict[str, Row]) -> str:
    table = []
    for name, row in rows.items():
        about = ", ".join(f"{key} {value}" for key, value in row.items() if key != "failed")
        table.append((name, about, row["failed"]))
    return (
        "## Kills, shared folders, full disks\n\nA process that writes plans, schedules and rows of a sweep over and "
        "over is killed by `kill -9`; afterwards every file is whole and no finished row is lost. `left` are temporary "
        "files, which the next writer takes over.\n\n" + _table(("what", "counts", "failures"), table)
    )


def _mutation(rows: dict[str, Row]) -> str:
    table, lists = [], []
    for room in ROOMS:
        found = score(rows, room.name)
        kernels = sum(row["kernel"] for row in rows.values() if row["room"] == room.name)
        cells = (found["mutants"], kernels, found["killed"], found["equivalent"], len(found["survived"]))
        table.append((f"`{room.name}`", *cells, f"{found['score']:.0%}" if found["mutants"] else "not measured"))
        lists += [f"- survived: `{name}`" for name in found["survived"]]
    same = [name for name, row in rows.items() if row["outcome"] == "survived" and is_equivalent(name, row)]
    lists += [f"- equivalent: `{name}`: {is_equivalent(name, rows[name])}" for name in same]
    return (
        "## Mutation testing\n\nA sample of mutants (comparisons, signs, whole numbers, and/or, not, min/max, returned "
        "values, dropped calls), each against the tests of its room alone; mutants inside kernels run without the "
        "compiler. A mutant that hangs counts as killed; equivalent ones do not count. Names and lines are "
        "those of the commit that was measured.\n\n"
        + _table(("room", "mutants", "in kernels", "killed", "equivalent", "survived", "score"), table)
        + ("\n" + "\n".join(lists) + "\n" if lists else "")
    )


def _plain(text: str) -> str:
    """Hostile text, as code."""
    return (
        "`" + "".join(letter if letter.isprintable() and letter not in "`<>|" else "?" for letter in text[:120]) + "`"
    )
