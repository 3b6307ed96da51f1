"""Which lane of a fleet gets which input: a weighted round-robin without chance.

In: the whole rates of the lanes. Out: the lane of every input. After every number of inputs each lane has had its share
of them, less or more than one; after as many as the rates add up to (in lowest terms) it has had exactly that. Every
process computes the same turns by itself. Simplified: a lane that is late is waited for.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["lane_turns"]


def lane_turns(rates: Sequence[int], count: int) -> list[int]:
    """The lanes of the first so many inputs; without rates there is one lane.

    Among the lanes that have had less than their share, the one whose next input is due first. No lane is ever a whole
    input from its share: this is the schedule by earliest deadlines of tasks that have a whole processor together.
    """
    if len(rates) < 2:
        return [0] * count
    total, had = sum(rates), [0] * len(rates)
    due = [-(-total // rate) for rate in rates]
    turns = []
    for number in range(1, count + 1):
        owed = (lane for lane, rate in enumerate(rates) if had[lane] * total < number * rate)
        lane = min(owed, key=lambda lane: (due[lane], lane))
        had[lane] += 1
        due[lane] = -(-(had[lane] + 1) * total // rates[lane])
        turns.append(lane)
    return turns
