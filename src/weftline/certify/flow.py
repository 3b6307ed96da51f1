"""The largest flow between two nodes of a network, by layers of shortest paths (Dinic 1970).

In: arcs with whole numbers. Out: the flow, which is the least cut; and the nodes on the source's side of one least cut.
Simplified: it ends early where the flow is more than the caller needs to know.
"""

from __future__ import annotations

__all__ = ["ENDLESS_ROOM", "Flow"]

ENDLESS_ROOM = 2**200
"""Of arcs that no cut may hold."""


class Flow:
    """The largest flow from node 0 to node 1, in layers of shortest paths."""

    def __init__(self, nodes: int) -> None:
        self.arcs: list[list[int]] = [[] for _ in range(nodes)]
        self.head: list[int] = []
        self.room: list[int] = []

    def add(self) -> int:
        """One more node."""
        self.arcs.append([])
        return len(self.arcs) - 1

    def join(self, a: int, b: int, room: int) -> None:
        """An arc, and its reverse without room."""
        if room > 0:
            self.arcs[a].append(len(self.head))
            self.arcs[b].append(len(self.head) + 1)
            self.head += [b, a]
            self.room += [room, 0]

    def run(self, stop: int) -> tuple[int, list[bool]]:
        """Until no path is left, or the flow is more than `stop`; and the nodes that are still reached from node 0."""
        total = 0
        while True:
            level = self._levels()
            if level[1] < 0:
                return total, [depth >= 0 for depth in level]
            total += self._fill(level, stop - total)
            if total > stop:
                return total, [False] * len(level)

    def _levels(self) -> list[int]:
        level = [-1] * len(self.arcs)
        level[0] = 0
        queue = [0]
        head, room = self.head, self.room
        for v in queue:  # grows while it is read
            for e in self.arcs[v]:
                w = head[e]
                if level[w] < 0 and room[e]:
                    level[w] = level[v] + 1
                    queue.append(w)
            if level[1] >= 0:
                break
        return level

    def _fill(self, level: list[int], stop: int) -> int:
        """Paths along the layers, depth first."""
        arcs, head, room = self.arcs, self.head, self.room
        turn = [0] * len(arcs)
        path: list[int] = []
        total, v = 0, 0
        while True:
            if v == 1:
                most = min(room[e] for e in path)
                for e in path:
                    room[e] -= most
                    room[e ^ 1] += most
                total += most
                if total > stop:
                    return total
                cut = next(i for i, e in enumerate(path) if not room[e])
                v = head[path[cut] ^ 1]
                del path[cut:]
                continue
            mine = arcs[v]
            while turn[v] < len(mine):
                e = mine[turn[v]]
                if room[e] and level[head[e]] == level[v] + 1:
                    break
                turn[v] += 1
            else:
                if v == 0:
                    return total
                e = path.pop()
                v = head[e ^ 1]
                turn[v] += 1
                continue
            path.append(e)
            v = head[e]
