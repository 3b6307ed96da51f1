"""Tests of the torch export: every pitfall of torch.distributed.pipelining 2.13 is refused or shown harmless."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from weftline.errors import InputError
from weftline.export import schedule_exporters
from weftline.export.torch_csv import parse_torch_csv, read_torch_csv, torch_csv, write_torch_csv
from weftline.problem.blocks import Block, Blocks, Lane
from weftline.schedule.lower.torch import torch_rows
from weftline.schedule.make_blocks import chunked, make_shape, pipeline_blocks
from weftline.simulate import Timetable, simulate_schedule, simulate_throughput
from weftline.testing.generate import Feed, problem_of

GOOD = "0F0,0F1,,0B0,0B1\n1F0,1B0,1F1,1B1\n"


def timetable(blocks: Blocks, count: int, *, ahead: int = 3) -> Timetable:
    """Micro-batches in order on every block, so many of them in flight, as early as possible."""
    waits = {(m, b): 0 for m in range(count) for b in range(blocks.n)}
    for _, target, _ in blocks.edges:
        for m in range(count):
            waits[m, target] += 1
    rows: list[list[int]] = [[] for _ in blocks.devices]
    while waits:
        first = min(m for m, _ in waits)
        m, b = min((k for k, n in waits.items() if not n and k[0] < first + ahead), key=lambda k: (-k[1], k[0]))
        if any((earlier, b) in waits for earlier in range(m)):
            m = min(earlier for earlier in range(m) if (earlier, b) in waits)
        del waits[m, b]
        for source, target, _ in blocks.edges:
            if source == b:
                waits[m, target] -= 1
        for device in blocks.blocks[b].devices:
            rows[device].append(m * blocks.n + b)
    return simulate_schedule(blocks, count, [np.array(row, np.int64) for row in rows])


CHAINS = {
    "linear": make_shape("linear", 4),
    "whole": make_shape("vshape", 3),
    "v": make_shape("zigzag", 2),
    "interleaved": make_shape("interleaved", 2),
    "one": make_shape("linear", 1),
}


@pytest.mark.parametrize("name", CHAINS)
@pytest.mark.parametrize("count", [1, 5])
def test_chains_are_exported(name: str, count: int, tmp_path: Path) -> None:
    """Tests that the file of a chain reads back as its stages, ranks and orders."""
    made = timetable(CHAINS[name], count)
    write_torch_csv(made, tmp_path / "s.csv")
    back = read_torch_csv(tmp_path / "s.csv", ranks=len(made.blocks.devices))
    assert (back.stages, back.micro_batches) == (sum(b.kind == "F" for b in made.blocks.blocks), count)
    for rank, row in enumerate(back.rows):
        blocks = [made.blocks.blocks[op % made.blocks.n] for op in made.orders[rank].tolist()]
        assert [cell.stage for cell in row] == [block.stage for block in blocks]
        assert [cell.micro_batch for cell in row] == [op // made.blocks.n for op in made.orders[rank].tolist()]
        split = any(block.kind == "W" for block in made.blocks.blocks)
        assert [cell.op for cell in row] == [{"B": "I" if split else "B"}.get(b.kind, b.kind) for b in blocks]


def test_a_file_by_hand() -> None:
    """Tests the text itself."""
    assert torch_csv(timetable(make_shape("vshape", 2), 2, ahead=1)) == "0F0,0B0,0F1,0B1\n1F0,1B0,1F1,1B1\n"


def test_the_registry_writes_schedule_and_stages(tmp_path: Path) -> None:
    """Tests that the exporter's files say which rank builds which stage."""
    made = timetable(make_shape("zigzag", 2), 3)
    files = schedule_exporters()["torch-csv"].write(made, tmp_path)
    assert [file.name for file in files] == ["schedule.csv", "stages.json"]
    about = json.loads(files[1].read_text())
    assert [stage["rank"] for stage in about["stages"]] == list(read_torch_csv(files[0]).rank_of) == [0, 1, 1, 0]
    assert about["micro_batches"] == 3
    assert all(stage["split_backward"] for stage in about["stages"])


def test_links_and_stage_numbers_do_not_matter() -> None:
    """Tests that blocks on links vanish and that stages are numbered along the chain."""
    lanes = [Lane("a"), Lane("wire", link=True), Lane("b")]
    parts = [
        Block("F", 1, (2,), (1,), stage=7),
        Block("C", 4, (1,), (0,)),
        Block("F", 1, (0,), (1,), stage=3),
        Block("B", 1, (0,), (-1,), stage=3),
        Block("B", 1, (2,), (-1,), stage=7),
    ]
    blocks = Blocks.of("t", lanes, parts, [(0, 1), (1, 2), (2, 3), (3, 4), (0, 4)])
    assert torch_rows(timetable(blocks, 1)) == (("1F0", "1B0"), ("0F0", "0B0"))


@pytest.mark.parametrize(
    ("name", "train", "why"),
    [
        ("mshape", True, "on several devices"),
        ("nnshape", True, "on several devices"),
        ("kshape", True, "on several devices"),
        ("xshape", True, "bidirectional"),
        ("vshape", False, "inference"),
        ("alphafold", True, "without a backward"),
    ],
)
def test_shapes_that_torch_cannot_express(name: str, train: bool, why: str) -> None:
    """Tests pitfalls 2, 3 and 4: the sentence says what is in the way and which engine runs it."""
    with pytest.raises(InputError, match=why) as caught:
        torch_csv(timetable(make_shape(name, 4, train=train), 2))
    assert "--engine weftline" in str(caught.value)


def test_branches_and_unused_devices_are_refused() -> None:
    """Tests that a diamond on single devices, and a rank without a stage, are refused with a sentence."""
    parts = [Block("F", 1, (d,), (1,), stage=d) for d in range(4)]
    parts += [Block("B", 1, (d,), (-1,), stage=d) for d in (3, 2, 1, 0)]
    edges = [(0, 1), (0, 2), (1, 3), (2, 3), (3, 4), (4, 5), (4, 6), (5, 7), (6, 7)]
    diamond = Blocks.of("diamond", [Lane(str(d)) for d in range(4)], parts, edges)
    with pytest.raises(InputError, match=r"branches.*--engine weftline"):
        torch_csv(timetable(diamond, 1))
    chain = make_shape("vshape", 2)
    idle = Blocks.of("idle", [*chain.devices, Lane("spare")], chain.blocks, chain.edges)
    with pytest.raises(InputError, match="'spare' without a stage"):
        torch_csv(timetable(idle, 1))


def test_what_skips_a_stage_is_named() -> None:
    """Tests that the tensor, its producer and its reader are named, with how many go the same way."""
    wires = [Feed(0, (1, 2), 3, 9), Feed(1, (2,), 3, 9), Feed(0, (3,), 3, 1)]
    problem = problem_of([[4] * 3] * 4, wires, objective="throughput")
    loads = simulate_throughput(problem, np.array([0, 1, 2, 2], np.int32))
    blocks = pipeline_blocks(problem, loads, train=True)
    tensor, ops = problem.graph.tensors[0].name, [op.name for op in problem.graph.ops]
    sends = f"stage 0 sends '{tensor}: {ops[0]} -> {ops[2]} and 1 more' to stage 2 (run it with --engine weftline"
    with pytest.raises(InputError, match=re.escape(sends)):
        torch_csv(timetable(blocks, 1))
    joined = problem_of([[4] * 3] * 3, [Feed(0, (2,), 3, 9), Feed(1, (2,), 0, 5)], objective="throughput")
    blocks = pipeline_blocks(joined, simulate_throughput(joined, np.array([0, 1, 2], np.int32)), train=True)
    with pytest.raises(InputError, match=r"stage 0 sends '.* -> .*' to stage 2"):
        torch_csv(timetable(blocks, 1))


WRONG = {
    "1F0,0F0\n": "stage 0, micro-batch 0|no backward",
    "0F0,0B0\n0F1,0B1\n": "a stage has one rank",
    "0F0,0B0\n2F0,2B0\n": "stage 1 is on no rank",
    GOOD.replace("0F0", "0F0x"): "'0F0x' is not",
    GOOD.replace("0F0", " 0F0"): "' 0F0' is not",
    GOOD.replace("0F0", "00F0"): "'00F0' is not",
    GOOD.replace("0F0", "0F٠"): "is not <stage>",
    GOOD.replace("0F0", "0f0"): "'0f0' is not",
    GOOD.replace("0F0", "(0F0;0B0)OVERLAP_F_B"): "write two cells",
    GOOD.replace("0F0", "0SEND_F0"): "compute_only does not have",
    GOOD.replace("0F0", "0F9999999"): "above 1000000",
    GOOD.replace("0F1", "0F0"): "0F0 stands there twice",
    GOOD.replace("0F1,", ""): "stage 0 never runs micro-batch 1 forward",
    GOOD.replace("1F0,1B0", "1B0,1F0"): "1B0 comes before 1F0",
    GOOD.replace("1B0", "1I0"): "I and W come together",
    GOOD.replace("1B0", "1W0,1I0"): "1W0 comes before 1I0",
    GOOD.replace("1B0", "1B0,1I0,1W0"): "either B, or I and W",
    GOOD.replace("1F1,", ",").replace("1F0", "1F1,1F0"): "silently wrong",
    GOOD.replace("0F1,,0B0", "0B0,0F1").replace("1F0,1B0,1F1", "1F0,1F1,1B0"): "deadlock",
    "0F0,0F1\n1F0,1F1\n": "no inference",
    "": "is empty",
    GOOD + "\n": "row 3: the row is empty",
    '"0F0': "is not CSV",
}


@pytest.mark.parametrize("text", WRONG)
def test_wrong_files_are_refused(text: str) -> None:
    """Tests the strict rules one by one (pitfalls 1, 2, 3, 5, 6): the message says what and where."""
    with pytest.raises(InputError, match=WRONG[text]):
        parse_torch_csv(text)


def test_right_files_are_read() -> None:
    """Tests that blank cells, and whole and split backwards side by side, are fine (pitfall 6)."""
    assert parse_torch_csv(GOOD, ranks=2).rank_of == (0, 1)
    assert parse_torch_csv(GOOD.replace("1B0", "1I0,,1W0")).micro_batches == 2


def test_row_count_must_be_the_group_size() -> None:
    """Tests pitfall 7: a file for two ranks is not one for three."""
    with pytest.raises(InputError, match="2 rows for 3 ranks"):
        parse_torch_csv(GOOD, ranks=3)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    """Tests that a missing file and one that is not text are input errors with the path."""
    with pytest.raises(InputError, match=r"no\.csv.*no such file"):
        read_torch_csv(tmp_path / "no.csv")
    (tmp_path / "bad.csv").write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match=r"bad\.csv.*ASCII"):
        read_torch_csv(tmp_path / "bad.csv")


def test_the_file_is_only_an_order() -> None:
    """Tests pitfall 9: other times with the same order give the same file."""
    made = timetable(make_shape("linear", 2), 4)
    slower = chunked("linear", range(2), [5, 7], [9, 2], [3, 3], latency=4)
    again = simulate_schedule(slower, 4, made.orders)
    assert again.makespan != made.makespan
    assert torch_csv(again) == torch_csv(made)


def test_an_order_with_crossed_micro_batches_is_refused() -> None:
    """Tests pitfall 1 on our side: a timetable whose last stage runs micro-batch 1 first is not exported."""
    blocks = make_shape("vshape", 1)
    made = simulate_schedule(blocks, 2, [np.array([2, 3, 0, 1])])
    with pytest.raises(InputError, match=r"silently wrong.*--engine weftline"):
        torch_csv(made)


# What torch itself does; these load torch.


def lowered(text: str, stages: int, count: int) -> str:
    """The compute_comms file that torch makes of a compute_only one."""
    from torch.distributed.pipelining import schedules as torch_schedules

    given = {rank: _actions(line) for rank, line in enumerate(text.splitlines())}
    rank_of = torch_schedules._validate_schedule(given, len(given), stages, count)
    whole = {rank: torch_schedules._add_unshard_reshard(row) for rank, row in given.items()}
    rows: dict[int, Any] = {rank: torch_schedules._add_reduce_grad(row, count) for rank, row in whole.items()}
    rows = torch_schedules._add_send_recv(rows, lambda s: rank_of[s], stages)
    return "".join(",".join(map(str, rows[rank])) + "\n" for rank in sorted(rows))


def _actions(line: str) -> list[Any]:
    from torch.distributed.pipelining.schedules import _Action

    return [_Action.from_str(cell) for cell in line.split(",")]


@pytest.mark.parametrize("name", CHAINS)
def test_torch_lowers_our_files_to_files_that_pass(name: str) -> None:
    """Tests that torch accepts our files, and that its transfers keep one order per pair of ranks (pitfall 9)."""
    made = timetable(CHAINS[name], 6)
    stages = sum(block.kind == "F" for block in made.blocks.blocks)
    comms = lowered(torch_csv(made), stages, 6)
    assert parse_torch_csv(comms, form="compute_comms", ranks=len(made.blocks.devices)).stages == stages


def test_wrong_transfers_are_refused() -> None:
    """Tests pitfalls 7 and 9: blanks, lost, late, crossed and senseless transfers, and a missing REDUCE_GRAD."""
    comms = lowered(GOOD, 2, 2)
    assert parse_torch_csv(comms, form="compute_comms").micro_batches == 2
    wrong = {
        comms.replace("0F0,", "0F0,,"): "blank",
        comms.replace("0SEND_F1,", ""): "0SEND_F1 is missing",
        comms.replace("1RECV_F1,", ""): "1RECV_F1 is missing",
        comms.replace("0SEND_F0,", "").replace("0F0,", "0SEND_F0,0F0,"): "wrong side",
        comms.replace("0F0,", "0F0,0SEND_B0,"): "no other rank",
        comms.replace("0SEND_F0,", "").replace("0SEND_F1,", "0SEND_F1,0SEND_F0,"): "another order",
        comms.replace("0REDUCE_GRAD", "0RESHARD"): "not divided",
    }
    for text, why in wrong.items():
        with pytest.raises(InputError, match=why):
            parse_torch_csv(text, form="compute_comms")


def test_torch_reads_what_we_refuse() -> None:
    """Tests pitfall 5: torch takes `0F0x` for 0F0 and accepts duplicates; should that change, our rules may relax."""
    from torch.distributed.pipelining.schedules import _validate_schedule

    assert str(_actions("0F0x")[0]) == "0F0"
    rows = {0: _actions("0F0,0F0,0B0,0B0")}
    assert _validate_schedule(rows, 1, 1, 1) == {0: 0}
    for text in ("0F0x,0B0\n", "0F0,0F0,0B0,0B0\n"):
        with pytest.raises(InputError):
            parse_torch_csv(text)


@pytest.mark.parametrize(
    ("text", "stages", "count", "why"),
    [
        ("0F0,0F1\n1F0,1F1\n", 2, 2, "total backwards"),
        ("0F0,0B0\n0F1,0B1\n", 1, 2, "assigned to both rank"),
        ("0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1\n", 2, 2, "Malformed compute schedule"),
        ("0B0,0F0\n", 1, 1, "without first running Forward"),
        ("0F0,0W0,0I0\n", 1, 1, "without first running Backward Input"),
        ("0F0,0I0\n", 1, 1, "I and W must have equal counts"),
    ],
)
def test_torch_refuses_what_we_refuse(text: str, stages: int, count: int, why: str) -> None:
    """Tests pitfalls 2, 3 and 6: on these torch and we agree."""
    with pytest.raises((AssertionError, RuntimeError), match=why):
        lowered(text, stages, count)
    with pytest.raises(InputError):
        parse_torch_csv(text)


def test_torchs_own_1f1b_order_is_wrong() -> None:
    """Tests pitfall 8: the last rank of `Schedule1F1B._get_pipeline_order` starts at micro-batch 1; we refuse it."""
    from torch.distributed.pipelining.schedules import Schedule1F1B

    schedule = Schedule1F1B.__new__(Schedule1F1B)
    schedule.pp_group_size, schedule._n_microbatches, schedule._num_stages = 4, 6, 4
    orders = schedule._get_pipeline_order()
    assert orders is not None
    cells = [[str(a) for a in orders[rank] if a is not None and "REDUCE" not in str(a)] for rank in range(4)]
    assert cells[3][0] == "3F1"
    with pytest.raises(InputError):
        parse_torch_csv("".join(",".join(row) + "\n" for row in cells))


def test_silently_wrong_gradients(tmp_path: Path) -> None:
    """Tests pitfall 1 with real torch: crossed forwards on the last stage give wrong gradients and no error."""
    import torch
    import torch.distributed as dist
    from torch.distributed.pipelining import PipelineStage
    from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime

    def gradients(text: str) -> tuple[torch.Tensor, torch.Tensor]:
        torch.manual_seed(0)
        parts = [torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)]
        inputs, target = torch.randn(4, 4), torch.randn(4, 4)
        stages = [PipelineStage(part, k, 2, torch.device("cpu")) for k, part in enumerate(parts)]
        schedule = _PipelineScheduleRuntime(stages, 2, loss_fn=lambda out, wanted: (out * wanted).mean())
        (tmp_path / "s.csv").write_text(text)
        schedule._load_csv(str(tmp_path / "s.csv"), format="compute_only")
        schedule.step(inputs, target=target)
        return parts[0].weight.grad, parts[1].weight.grad

    dist.init_process_group("gloo", store=dist.FileStore(str(tmp_path / "store"), 1), rank=0, world_size=1)
    try:
        right = gradients("0F0,0F1,1F0,1F1,1B0,1B1,0B0,0B1\n")
        wrong = gradients("0F0,0F1,1F1,1F0,1B0,1B1,0B0,0B1\n")
    finally:
        dist.destroy_process_group()
    assert torch.allclose(right[1], wrong[1])
    assert (right[0] - wrong[0]).abs().max() > 1e-3


def test_the_torch_version_is_pinned() -> None:
    """Tests pitfall 10: all of this is private API, so the extra pins the version that was tested."""
    import torch

    project = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    assert f'"torch=={torch.__version__.split("+")[0]}"' in project
