"""Chrome trace events of a schedule: one track per device or link, memory as counters."""

from __future__ import annotations

from typing import Any

import msgspec

from weftline.plan.schedule_file import Schedule

__all__ = ["schedule_trace"]


def schedule_trace(schedule: Schedule) -> bytes:
    """Times are drawn as if their unit were the nanosecond."""
    blocks = schedule.load_blocks()
    events: list[dict[str, Any]] = [
        {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": f"devices of {schedule.name}"}}
    ]
    for device, (lane, row) in enumerate(zip(blocks.devices, schedule.actions, strict=True)):
        events.append({"ph": "M", "name": "thread_name", "pid": 1, "tid": device, "args": {"name": lane.id}})
        level = 0
        for action in row:
            block = blocks.blocks[action.block]
            times = {"ts": action.start / 1000, "dur": (action.end - action.start) / 1000}
            about = {"kind": block.kind, "micro_batch": action.micro_batch, "stage": block.stage}
            name = f"{block.name} mb{action.micro_batch}"
            events.append({"ph": "X", "name": name, "pid": 1, "tid": device, **times, "args": about})
            level += block.memory[block.devices.index(device)]
            if not lane.link:
                counter = {"ph": "C", "name": f"memory {lane.id}", "pid": 1, "ts": action.start / 1000}
                events.append({**counter, "args": {"held": level}})
    about_all = {"tool": "weftline", "makespan": schedule.makespan, "period": schedule.period_exact}
    return msgspec.json.encode({"traceEvents": events, "displayTimeUnit": "ns", "otherData": about_all})
