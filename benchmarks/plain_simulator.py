"""The latency simulator as one would write it in plain Python, linear in the edges: the fair opponent of the kernel.

Same meaning of time (parallel runtime, one transfer per tensor and device, ports), no memory, no shared buses. The
reference simulator is written to be obviously right and takes quadratic time; a ratio to it alone would flatter.
"""

from __future__ import annotations

from weftline.graph.arrays import Indices
from weftline.problem import Problem
from weftline.simulate import default_order

__all__ = ["PlainSimulator"]


class PlainSimulator:
    """Lists of one problem, made once."""

    def __init__(self, problem: Problem) -> None:
        self.order = default_order(problem).tolist()
        self.time = problem.cost.time.tolist()
        self.transfer = problem.cost.transfer.tolist()
        self.devices = len(problem.devices)
        row = problem.cost.transfer_row.tolist()
        self.reads: list[list[tuple[int, int, int]]] = [[] for _ in problem.graph.ops]
        for t, tensor in enumerate(problem.graph.tensors):
            for op in tensor.consumers if tensor.producer >= 0 else ():
                self.reads[op].append((t, tensor.producer, row[t]))

    def latency(self, placement: Indices) -> int:
        """The value of one placement."""
        where = placement.tolist()
        end = [0] * len(where)
        free, send, receive = ([0] * self.devices for _ in range(3))
        arrived: dict[tuple[int, int], int] = {}
        for op in self.order:
            device = where[op]
            ready, missing = 0, []
            for tensor, maker, row in self.reads[op]:
                if where[maker] == device:
                    ready = max(ready, end[maker])
                elif (tensor, device) in arrived:
                    ready = max(ready, arrived[tensor, device])
                else:
                    missing.append((end[maker], tensor, where[maker], row))
            for done, tensor, source, row in sorted(missing):
                length, begin = self.transfer[row][source][device], done
                if length > 0:
                    begin = max(done, send[source], receive[device])
                    send[source] = receive[device] = begin + length
                arrived[tensor, device] = begin + length
                ready = max(ready, begin + length)
            duration = self.time[op][device]
            if duration > 0:
                ready = max(ready, free[device])
                free[device] = ready + duration
            end[op] = ready + duration
        return max(end)
