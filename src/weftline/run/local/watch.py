"""Run a plan and watch it: a device that is slower than planned, or lost, brings a new plan.

In: a plan or fleet plan, its ONNX file, how many requests. Out: a `WatchResult`: rounds of requests, each with its
measured time, and the switches between plans. A round ends with no request on its way; there, and only there, plans
change: none is lost and none is answered twice. A round in which a worker ended counts for nothing: it is run again,
without that device. Simplified: no request runs while the workers of a new plan start; that pause is measured.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from weftline.cost import NO_TIME
from weftline.errors import InfeasibleError, UsageError
from weftline.run.compare import precision_of
from weftline.run.inputs import check_planned_model
from weftline.run.local.engine import HANG_SECONDS, WorkerLost
from weftline.run.local.lanes import LanePass
from weftline.run.local.run import Baselines, check_runtimes
from weftline.run.local.start import Asked, Feeds, StartedPlan, start_plan
from weftline.run.planned import placements_of, planned_compute
from weftline.run.result import OUTPUT_TOLERANCE, RunResult, misplaced_ops
from weftline.simulate.fleet import lane_loads, simulate_deployment
from weftline.units import format_time

if TYPE_CHECKING:
    from weftline.plans import FleetPlan, Plan
    from weftline.problem import Problem

__all__ = ["Round", "Switch", "WatchResult", "Watcher", "run_watched"]

WINDOW_ROUNDS = 3
"""Rounds of which the median counts."""
SLOWER_SHARE = 0.25
"""So much slower than the others, against what was planned, a device must be ..."""
PATIENCE_ROUNDS = 2
"""... in so many rounds, one after another, before a new plan is made."""
LEAST_GAIN = 0.05
"""A new plan must be so much better, under the measured times, to be worth a switch."""
REPLAN_SECONDS = 5.0
"""For the search of a new plan."""
LEAST_ROUND, MOST_ROUND, WISHED_ROUNDS = 10, 50, 20


@dataclass(frozen=True)
class Round:
    """Some requests under one plan."""

    requests: int
    measured_ns: int
    predicted_ns: int
    """By the plan that ran, with the times it was made from."""
    slower: dict[str, float]
    """Device -> measured over planned computing time."""


@dataclass(frozen=True)
class Switch:
    """A change of plans."""

    after: int
    """Requests that were answered before."""
    devices: dict[str, float]
    """What was slower than planned, and how much."""
    kept_ns: int
    """What the old plan would take, by the measured times; without a device that is lost, 0: it takes for ever."""
    new_ns: int
    pause_ns: int
    """Time without an answer: planning, splitting, starting, warming up."""
    lost: tuple[str, ...] = ()
    """Devices whose workers ended."""


@dataclass(frozen=True)
class WatchResult(RunResult):
    """What a watched run did."""

    engine: str
    objective: str
    requests: int
    """Sent; each was answered once."""
    answered: int
    rounds: tuple[Round, ...]
    switches: tuple[Switch, ...]
    measured_ns: int
    """In the last round, as `predicted_ns` is."""
    predicted_ns: int
    max_output_difference: float
    misplaced: tuple[str, ...]
    plan: Plan | FleetPlan
    """The one that ran last."""
    output_tolerance: float = OUTPUT_TOLERANCE
    """What rounding can do in the model's arithmetic: larger differences fail."""

    @property
    def allowed(self) -> float:
        """By the model's arithmetic."""
        return self.output_tolerance

    def mistakes(self) -> list[str]:
        """Something ran elsewhere, or a request was lost."""
        wrong = misplaced_ops(self.misplaced)
        if self.answered != self.requests:
            wrong.append(f"{self.requests} requests were sent, {self.answered} were answered")
        return wrong

    def to_json(self) -> dict[str, Any]:
        """All but the plan itself, and what the last round says again."""
        found = {
            name: value for name, value in vars(self).items() if name not in ("measured_ns", "predicted_ns", "plan")
        }
        built: dict[str, Any] = msgspec.to_builtins(found)
        return {**built, "value_ns": self.plan.value_ns}

    def opening(self) -> list[str]:
        """Requests and times."""
        word = "period" if self.objective == "throughput" else "latency"
        first, last = self.rounds[0], self.rounds[-1]
        return [
            f"{self.answered} requests answered in {len(self.rounds)} rounds, {len(self.switches)} changes of plan",
            f"{word}: first round {format_time(first.measured_ns)} (predicted {format_time(first.predicted_ns)}), "
            f"last round {format_time(last.measured_ns)} (predicted {format_time(last.predicted_ns)})",
        ]

    def closing(self) -> list[str]:
        """Changes of plan."""
        lines = []
        for switch in self.switches:
            slow = ", ".join(f"{id} {factor:.2f}x" for id, factor in switch.devices.items())
            why, instead = f"{slow} of the planned time", f" instead of {format_time(switch.kept_ns)}"
            if switch.lost:
                why, instead = f"{', '.join(switch.lost)} lost", " without it"
            lines.append(
                f"after {switch.after} requests: {why}; a new plan takes "
                f"{format_time(switch.new_ns)}{instead} (pause {format_time(switch.pause_ns)})"
            )
        return lines


class Watcher:
    """When is it time for a new plan? Fed with measured over planned computing times, round by round."""

    def __init__(self) -> None:
        self._seen: deque[dict[str, float]] = deque(maxlen=WINDOW_ROUNDS)
        self._late = 0

    def see(self, slower: Mapping[str, float]) -> dict[str, float]:
        """Device -> its factor, if some have been slower than the others for long enough; else nothing.

        The least factor counts as the machine's own: where all are off by the same, another plan would not help.
        """
        self._seen.append(dict(slower))
        middle = {id: median(seen[id] for seen in self._seen) for id in slower}
        least = min(middle.values())
        late = any(factor > (1 + SLOWER_SHARE) * least for factor in middle.values())
        self._late = self._late + 1 if late else 0
        return middle if self._late >= PATIENCE_ROUNDS else {}

    def forget(self) -> None:
        """Begin again: the plan is another one, or its times are."""
        self._seen.clear()
        self._late = 0


def run_watched(
    plan: Plan | FleetPlan,
    *,
    model: Path | str,
    inputs: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
    runtimes: Mapping[str, str] = MappingProxyType({}),
    requests: int = 1000,
    seed: int = 0,
    timeout: float = HANG_SECONDS,
    on_event: Callable[[str], None] | None = None,
) -> WatchResult:
    """Run requests in rounds, and change the plan where measured times ask for it."""
    if requests < 1 or timeout <= 0:
        raise UsageError("a run needs at least one request, and a timeout above 0")
    check_runtimes(plan.load_problem(), runtimes)
    check_planned_model(plan, model)
    return _Watched(plan, Asked(Path(model), inputs, runtimes, seed, timeout, on_event or (lambda _: None))).run(
        requests
    )


class _Watched:
    def __init__(self, plan: Plan | FleetPlan, asked: Asked) -> None:
        self.plan, self.asked = plan, asked
        self.problem = plan.load_problem()
        """With the times that are believed now."""
        self.rounds: list[Round] = []
        self.switches: list[Switch] = []
        self.expected: Feeds = []
        self.worst, self.answered = 0.0, 0
        self.wrong: tuple[str, ...] = ()

    def run(self, requests: int) -> WatchResult:
        size = max(LEAST_ROUND, min(MOST_ROUND, requests // WISHED_ROUNDS))
        begun = time.perf_counter_ns()
        while self.answered < requests:
            try:
                with start_plan(self.plan, self.problem, self.asked) as ready:
                    self._note(ready, begun)
                    found = self._until_late(ready, size, requests)
            except WorkerLost as lost:
                found = time.perf_counter_ns(), self._without(lost)
            if found is None:
                break
            begun, self.plan = found
        return WatchResult(
            "local",
            self.plan.objective,
            requests,
            self.answered,
            tuple(self.rounds),
            tuple(self.switches),
            self.rounds[-1].measured_ns,
            self.rounds[-1].predicted_ns,
            min(self.worst, 1e300),
            self.wrong,
            self.plan,
            precision_of(self.problem.graph).tolerance,
        )

    def _note(self, ready: StartedPlan, begun: int) -> None:
        """Workers are ready: how long that took, and whether they compute what they should."""
        if self.switches:
            self.switches[-1] = replace(self.switches[-1], pause_ns=time.perf_counter_ns() - begun)
        if len(self.expected) != len(ready.feeds):  # their number depends on that of the devices
            others = Baselines(
                self.plan, self.asked.model, ready.manifest, ready.seats, ready.feeds, self.asked.timeout, 1
            )
            self.expected = others.whole(measured=False)
        self.worst = max(self.worst, ready.worst(ready.warm_up, self.expected))
        self.wrong += ready.wrong

    def _until_late(self, ready: StartedPlan, size: int, requests: int) -> tuple[int, Plan | FleetPlan] | None:
        """Rounds until there is a better plan (when that began, and the plan) or no request is left."""
        watcher = Watcher()
        while self.answered < requests:
            count = min(size, requests - self.answered)
            found = ready.engine.run([count], ready.feeds, keep=[frozenset({count - 1})])[0]
            self.answered += len(found.done_ns)
            self.worst = max(self.worst, ready.worst(found, self.expected))
            slower = self._slower(ready, found)
            taken = found.taken(pipelined=self.plan.objective == "throughput")
            self.rounds.append(Round(count, round(taken), self.plan.value_ns, slower))
            self.asked.tell(f"{self.answered} of {requests} requests, {format_time(self.rounds[-1].measured_ns)}")
            late = watcher.see(slower)
            if late and self.answered < requests:
                begun = time.perf_counter_ns()
                better = self._replan(late)
                if better is not None:
                    return begun, better
                watcher.forget()
        return None

    def _slower(self, ready: StartedPlan, found: LanePass) -> dict[str, float]:
        """Measured over planned computing time of every device that the plan uses."""
        planned = planned_compute(self.plan, self.problem)
        count = max(len(found.done_ns), 1)  # a mean, not a median: a core that is shared is late now and then
        return {
            id: answer.busy_ns / count / max(planned[id], 1)
            for id, answer in zip(ready.layout.devices, found.answers, strict=True)
        }

    def _replan(self, slower: Mapping[str, float]) -> Plan | FleetPlan | None:
        """Believe the measured times, and search; None if the plan that runs is as good."""
        factor = np.array([slower.get(device.id, median(slower.values())) for device in self.problem.devices])
        time_ns = self.problem.cost.time
        scaled = np.where(time_ns == NO_TIME, NO_TIME, np.rint(time_ns * factor).astype(np.int64))
        self.problem = replace(self.problem, cost=replace(self.problem.cost, time=scaled))
        found = self._planned()
        kept = _value(self.problem, self.plan)
        if found.value_ns > (1 - LEAST_GAIN) * kept:
            return None
        self.switches.append(Switch(self.answered, dict(slower), kept, found.value_ns, 0))
        return found

    def _without(self, lost: WorkerLost) -> Plan | FleetPlan:
        """A plan that does not use what is lost; that it is lost, if there is none."""
        if not lost.devices <= self.problem.device_index.keys():  # one that is none of the plan's
            raise lost
        columns = [self.problem.device_index[id] for id in lost.devices]
        time_ns = self.problem.cost.time.copy()
        time_ns[:, columns] = NO_TIME
        self.problem = replace(self.problem, cost=replace(self.problem.cost, time=time_ns))
        self.asked.tell(str(lost))
        try:
            found = self._planned()
        except InfeasibleError as error:
            raise lost from error
        self.switches.append(Switch(self.answered, {}, 0, found.value_ns, 0, tuple(sorted(lost.devices))))
        return found

    def _planned(self) -> Plan | FleetPlan:
        """The same question with the times that are believed now."""
        from weftline.ask import make_plan
        from weftline.ask.fleets import make_fleet
        from weftline.plans import Plan

        self.asked.tell("planning again")
        inputs = {role: sha for role, sha in self.plan.provenance.inputs.items() if role == "model"}
        make = make_plan if isinstance(self.plan, Plan) else make_fleet
        return make(
            self.problem, time_limit=REPLAN_SECONDS, seed=self.asked.seed, inputs=inputs, argv=("run", "--watch")
        )


def _value(problem: Problem, plan: Plan | FleetPlan) -> int:
    """What a plan takes by the times of the problem; a fleet keeps its shares, so its busiest device decides."""
    from weftline.plans import Plan
    from weftline.search import Search

    placements = [
        np.array([problem.device_index[placement[op.name]] for op in problem.graph.ops], np.int32)
        for placement in placements_of(plan)
    ]
    if not isinstance(plan, Plan):
        loads = [lane_loads(problem, placement) for placement in placements]
        found = simulate_deployment(problem, loads, [lane.rate for lane in plan.lanes])
        return -(-max(found.busy) // found.rate)
    search = Search(problem)
    order = None
    if plan.timeline is not None:
        order = np.array([op for _, _, op in sorted((b, e, op) for op, b, e in plan.timeline.ops)], np.int32)
    search.offer(placements[0], order=order)
    return search.best.value if search.best is not None else plan.value_ns
