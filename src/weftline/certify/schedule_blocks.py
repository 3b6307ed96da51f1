"""The blocks of a schedule file as plain lists: the reader that the arguments about schedules share.

In: the embedded blocks. Out: `ScheduleBlocks`, or a `Refusal`. Simplified: nothing is trusted; it knows the longest
path to and from every block, and what loads alone say.
"""

from __future__ import annotations

from typing import Any

from weftline.certify.problem import flag, need, rows, whole

__all__ = ["MAX_SPAN", "NO_LIMIT", "ScheduleBlocks", "only_fields"]

MAX_BLOCKS, MAX_DEVICES, MAX_EDGES = 20_000, 4_096, 200_000
MAX_SPAN = 2**46
NO_LIMIT = 2**62
"""A memory limit that says that there is none."""
KINDS = ("F", "B", "W", "C")


class ScheduleBlocks:
    """The embedded blocks as plain lists, checked; block = place in the order of ids."""

    def __init__(self, form: dict[str, Any]) -> None:
        only_fields("blocks", form, {"name", "devices", "blocks"}, {"edges"})
        need(isinstance(form["name"], str), "blocks", "the name of the blocks must be text")
        self._read_lanes(form["devices"])
        self._read_blocks(form["blocks"])
        edges = rows(form.get("edges", []), "edges")
        need(len(edges) <= MAX_EDGES, "blocks", "too many edges")
        self.edges = [self._edge(edge) for edge in edges]
        self.head, self.tail = self._paths()

    def _read_lanes(self, given: Any) -> None:
        if type(given) is int:
            given = [{"id": str(d)} for d in range(whole(given, "devices", 1, MAX_DEVICES))]
        need(1 <= len(rows(given, "devices")) <= MAX_DEVICES, "blocks", "too many devices, or none")
        for lane in given:
            only_fields("device", lane, {"id"}, {"memory", "link", "reserved"})
            need(isinstance(lane["id"], str), "blocks", "the id of a device must be text")
        need(len({lane["id"] for lane in given}) == len(given), "blocks", "ids of devices must differ")
        self.link = [flag(lane, "link") for lane in given]
        need(not all(self.link), "blocks", "all devices are links")
        self.reserved = [whole(lane.get("reserved", 0), "reserved", 0, MAX_SPAN) for lane in given]
        """Device -> memory that is kept free beside all changes."""
        need(not any(r for r, link in zip(self.reserved, self.link, strict=True) if link), "blocks", "a link has none")
        memory = [lane.get("memory") for lane in given]
        limits = [NO_LIMIT if limit is None else whole(limit, "memory", 0, NO_LIMIT) for limit in memory]
        self.limit = [
            None if link or limit == NO_LIMIT else limit for limit, link in zip(limits, self.link, strict=True)
        ]

    def _read_blocks(self, given: Any) -> None:
        for row in rows(given, "blocks"):
            only_fields("block", row, {"id", "kind", "span", "devices"}, {"memory", "name", "stage"})
            whole(row["id"], "id of a block", -(2**63), 2**63)
        found = sorted(given, key=lambda row: row["id"])
        self.place = {row["id"]: i for i, row in enumerate(found)}
        need(1 <= len(found) <= MAX_BLOCKS, "blocks", "too many blocks, or none")
        need(len(self.place) == len(found), "blocks", "ids of blocks must differ")
        self.n = len(found)
        self.span = [whole(row["span"], "span", 1, MAX_SPAN) for row in found]
        self.memory: list[dict[int, int]] = []
        """Block -> change of memory on each of its devices."""
        self.on: list[list[int]] = [[] for _ in self.link]
        """Device -> its blocks."""
        for i, row in enumerate(found):
            need(row["kind"] in KINDS, "blocks", f"{row['kind']!r:.60} is no kind of block")
            need(isinstance(row.get("name", ""), str), "blocks", "the name of a block must be text")
            whole(row.get("stage", -1), "stage", -1, MAX_BLOCKS - 1)
            lanes = [whole(d, "device", 0, len(self.link) - 1) for d in rows(row["devices"], "devices")]
            need(0 < len(lanes) == len(set(lanes)), "blocks", "a block has devices, each once")
            change = row.get("memory", 0)
            each = [change] * len(lanes) if type(change) is int else rows(change, "memory")
            need(len(each) == len(lanes), "blocks", "memory is one change, or one for each device")
            self.memory.append({d: whole(m, "memory", -MAX_SPAN, MAX_SPAN) for d, m in zip(lanes, each, strict=True)})
            for d in lanes:
                need(not (self.link[d] and self.memory[i][d]), "blocks", "a link holds no memory")
                self.on[d].append(i)
        self.load = [sum(self.span[i] for i in mine) for mine in self.on]
        """Device -> work per micro-batch."""

    def _edge(self, edge: Any) -> tuple[int, int, int]:
        need(len(rows(edge, "edge")) in (2, 3), "blocks", "an edge has two or three numbers")
        for end in edge[:2]:
            need(type(end) is int and end in self.place, "blocks", f"no block has the id {end!r:.60} of an edge")
        need(edge[0] != edge[1], "blocks", "an edge joins a block with itself")
        lag = whole(edge[2], "latency of an edge", 0, MAX_SPAN) if len(edge) == 3 else 0
        return self.place[edge[0]], self.place[edge[1]], lag

    def _paths(self) -> tuple[list[int], list[int]]:
        """Longest path to the start of a block, and from its end to the end of all."""
        after: list[list[tuple[int, int]]] = [[] for _ in range(self.n)]
        waits = [0] * self.n
        for a, b, lag in self.edges:
            after[a].append((b, lag))
            waits[b] += 1
        ready = [i for i in range(self.n) if waits[i] == 0]
        order, head, tail = [], [0] * self.n, [0] * self.n
        while ready:
            a = ready.pop()
            order.append(a)
            for b, lag in after[a]:
                head[b] = max(head[b], head[a] + self.span[a] + lag)
                waits[b] -= 1
                if waits[b] == 0:
                    ready.append(b)
        need(len(order) == self.n, "blocks", "the edges form a circle")
        self.order, self.after = order, after
        for a in reversed(order):
            tail[a] = max((lag + self.span[b] + tail[b] for b, lag in after[a]), default=0)
        return head, tail

    def bound(self, objective: str, count: int) -> int:
        """What can be said about every schedule: the longest path, and work with what must lie before and after it."""
        if objective == "latency":
            return self.tail[-1]  # of the last block, which is the arrival
        if objective == "device-span":
            return max(count * load for load, link in zip(self.load, self.link, strict=True) if not link)
        bound = max(h + s + t for h, s, t in zip(self.head, self.span, self.tail, strict=True))
        for device, mine in enumerate(self.on):
            if mine:
                ends = min(self.head[i] for i in mine) + min(self.tail[i] for i in mine)
                bound = max(bound, count * self.load[device] + ends)
        return bound


def only_fields(name: str, form: Any, wanted: set[str], more: frozenset[str] | set[str] = frozenset()) -> None:
    """Exactly these fields, and perhaps some of `more`."""
    need(isinstance(form, dict), "type", f"{name} must be an object, not {form!r:.60}")
    wrong = (form.keys() ^ wanted) - more
    need(not wrong, "fields", f"{name}: wrong fields {sorted(wrong)!s:.200}")
