"""The event simulator of a language model that is served: requests, batches on instances, messages on links.

Invariants between events. Every request that is inside is in exactly one place: on its way (one event in the heap, when
it arrives at the next instance or comes back), in the queue of one section of an instance, or in the batch that an
instance works on; a linked list (`LINK_NEXT`) is enough for all queues and batches. An instance has at most one event,
the end of its batch, and is idle only when all its queues are empty. So an event is time * slots + slot, where slots
are instances and then requests, and events at one time are handled in the order of their slots: nothing depends on how
the heap breaks ties. `simulate/serving_reference.py` says the same in plain Python; tests compare them exactly.

A section is what lies between two layers at which requests enter or leave an instance: inside it a batch changes
nothing. Times are in ns, of links ps per token.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from weftline.graph.arrays import Ints
from weftline.simulate.kernels.jit import kernel, part, uncounted_part
from weftline.simulate.kernels.sorting import pop, push

__all__ = ["ServingTables", "run_serving"]

INSTANCE_UNIT, INSTANCE_SECTION, INSTANCE_END, INSTANCE_PROMPTS, INSTANCE_ROOM = range(5)
"""Columns: its unit, its sections (from, to), the most prompts in a batch, layer tokens that requests may take."""
HOP_INSTANCE, HOP_ENTER, HOP_LEAVE, HOP_LAYERS, HOP_LINK = range(5)
"""Columns: first and last section, layers used, link by which it is reached. Behind the last hop of a lane stands one
with instance -1 and the link back.
"""
LANE_HOP, LANE_HOPS, LANE_SHARE = range(3)
LINK_PS, LINK_NS = range(2)
"""Columns of a link: per token, and latency."""
UNIT_PROMPT, UNIT_DECODE = range(2)
"""Columns of `reach`: the last entries of a unit's times."""
RULE_WARM, RULE_END, RULE_ROOM, RULE_PROMPTS, RULE_EXPECTED, RULE_COPY, RULE_DRAIN, RULE_PAUSE = range(8)
"""Of `rules`: measured from, until; tokens that requests may take on every layer; prompts at once (0: any number);
tokens that are reserved for an answer; ns for each token that enters an instance; whether the end is waited for; ns
from when a request is let in to when it sets out.
"""
ASKED_PROMPT, ASKED_OUTPUT, ASKED_ARRIVAL = range(3)
"""Columns of `asked`; an arrival of -1 is offline."""

HOP_NOW, LANE_NOW, TOKENS_LEFT, ISSUED_AT, LINK_NEXT = range(5)
"""State of a request. TOKENS_LEFT is -1 in its prompt, HOP_NOW until it sets out, LANE_NOW until it is let in."""
QUEUE_FIRST, QUEUE_LAST = range(2)
BATCH_FIRST, BATCH_SECTION, BATCH_END, ROOM_TAKEN, WORK_DONE = range(5)
"""State of an instance; BATCH_FIRST is -1 while it is idle."""
EVENT_COUNT, NEXT_ENTERS, ARRIVED_COUNT, PROMPTS_INSIDE, REQUESTS_INSIDE, TOKENS_TAKEN = range(6)
FIRSTS_SEEN, TOKENS_SEEN, PEAK_INSIDE, END_OF_RUN, NEVER_ENTERS = range(6, 11)
"""Of `counts`; NEVER_ENTERS is 1 + the number of a request that has room on no lane at all, else 0."""
COUNT_SLOTS, PS_PER_NS = 11, 1000


class ServingTables(NamedTuple):
    """What is to be simulated."""

    instance: Ints
    hop: Ints
    lane: Ints
    link: Ints
    section: Ints
    """Layers of each."""
    prompt_ns: Ints
    """(units, tokens)"""
    decode_ns: Ints
    """(units, requests)"""
    reach: Ints
    asked: Ints
    rules: Ints


class ServingState(NamedTuple):
    """Scratch and results of one run."""

    heap: Ints
    counts: Ints
    request: Ints
    queue: Ints
    batch: Ints
    load: Ints
    """Of a lane: tokens that it was given."""
    free: Ints
    """Of a link: when it has sent all that it was given."""
    first_ns: Ints
    """From arrival (offline: from when it was let in) to the end of the prompt."""
    token_ns: Ints
    """From one token to the next."""


@kernel
def run_serving(t: ServingTables, first_ns: Ints, token_ns: Ints, work: Ints) -> Ints:
    """Fill times of first tokens, of tokens, and how long instances worked, of what is measured -> `counts`."""
    instances, requests = len(t.instance), len(t.asked)
    slots = instances + requests
    s = ServingState(
        np.empty(slots + 1, np.int64),
        np.zeros(COUNT_SLOTS, np.int64),
        np.full((requests, 5), -1, np.int64),
        np.full((len(t.section), 2), -1, np.int64),
        np.zeros((instances, 5), np.int64),
        np.zeros(len(t.lane), np.int64),
        np.zeros(len(t.link), np.int64),
        first_ns,
        token_ns,
    )
    s.batch[:, BATCH_FIRST] = -1
    s.counts[END_OF_RUN] = t.rules[RULE_END]
    if t.asked[0, ASKED_ARRIVAL] < 0:
        s.counts[ARRIVED_COUNT] = requests
        _admit(t, s, 0)
    else:
        _schedule(s, t.asked[0, ASKED_ARRIVAL] * slots + instances)
    now = 0
    while s.counts[EVENT_COUNT] > 0 and s.counts[NEVER_ENTERS] == 0:
        if s.heap[0] // slots >= s.counts[END_OF_RUN]:
            break
        now = s.heap[0] // slots
        slot = pop(s.heap, s.counts[EVENT_COUNT]) % slots
        s.counts[EVENT_COUNT] -= 1
        if slot < instances:
            _finish(t, s, slot, now)
        else:
            _move(t, s, slot - instances, now)
    if s.counts[EVENT_COUNT] == 0:
        s.counts[END_OF_RUN] = min(now, s.counts[END_OF_RUN])
    for i in range(instances):  # what was started counts up to the end
        if s.batch[i, BATCH_FIRST] >= 0:
            over = s.batch[i, BATCH_END] - max(s.counts[END_OF_RUN], t.rules[RULE_WARM])
            s.batch[i, WORK_DONE] -= max(0, over)
        work[i] = s.batch[i, WORK_DONE]
    return s.counts


@part
def _schedule(s: ServingState, event: int) -> None:
    s.counts[EVENT_COUNT] = push(s.heap, s.counts[EVENT_COUNT], event)


@uncounted_part
def _move(t: ServingTables, s: ServingState, r: int, now: int) -> None:
    """A request arrives: for the first time, after its pause, at an instance, or back."""
    hop, lane = s.request[r, HOP_NOW], s.request[r, LANE_NOW]
    if hop < 0 <= lane:
        _send(t, s, r, t.lane[lane, LANE_HOP], now)
        return
    if hop < 0:
        s.counts[ARRIVED_COUNT] += 1
        if r + 1 < len(t.asked):
            slots = len(t.instance) + len(t.asked)
            _schedule(s, t.asked[r + 1, ASKED_ARRIVAL] * slots + len(t.instance) + r + 1)
        _admit(t, s, now)
        return
    i = t.hop[hop, HOP_INSTANCE]
    if i < 0:
        _answer(t, s, r, now)
        return
    _enqueue(s, t.hop[hop, HOP_ENTER], r)
    if s.batch[i, BATCH_FIRST] < 0:
        _start(t, s, i, t.hop[hop, HOP_ENTER], now)


@uncounted_part
def _enqueue(s: ServingState, section: int, r: int) -> None:
    s.request[r, LINK_NEXT] = -1
    if s.queue[section, QUEUE_FIRST] < 0:
        s.queue[section, QUEUE_FIRST] = r
    else:
        s.request[s.queue[section, QUEUE_LAST], LINK_NEXT] = r
    s.queue[section, QUEUE_LAST] = r


@uncounted_part
def _start(t: ServingTables, s: ServingState, i: int, section: int, now: int) -> None:
    """Take from a queue, the first first, as many prompts and as many decodes as a batch may hold; the others stay."""
    unit = t.instance[i, INSTANCE_UNIT]
    most_prompts, most_tokens = t.instance[i, INSTANCE_PROMPTS], t.reach[unit, UNIT_PROMPT]
    prompts, tokens, decodes, entering, last = 0, 0, 0, 0, -1
    r = s.queue[section, QUEUE_FIRST]
    s.queue[section, QUEUE_FIRST] = -1
    while r >= 0:
        after = s.request[r, LINK_NEXT]
        length = 1
        if s.request[r, TOKENS_LEFT] < 0:
            length = t.asked[r, ASKED_PROMPT]
            taken = prompts < most_prompts and tokens + length <= most_tokens
            if taken:
                prompts += 1
                tokens += length
        else:
            taken = decodes < t.reach[unit, UNIT_DECODE]
            if taken:
                decodes += 1
        if taken:
            s.request[r, LINK_NEXT] = -1
            if last < 0:
                s.batch[i, BATCH_FIRST] = r
            else:
                s.request[last, LINK_NEXT] = r
            last = r
            if t.hop[s.request[r, HOP_NOW], HOP_ENTER] == section:
                entering += length
        else:
            _enqueue(s, section, r)
        r = after
    span = t.section[section] * (t.prompt_ns[unit, tokens] + t.decode_ns[unit, decodes]) + t.rules[RULE_COPY] * entering
    s.batch[i, BATCH_SECTION] = section
    s.batch[i, BATCH_END] = now + span
    s.batch[i, WORK_DONE] += max(0, now + span - max(now, t.rules[RULE_WARM]))
    _schedule(s, (now + span) * (len(t.instance) + len(t.asked)) + i)


@uncounted_part
def _finish(t: ServingTables, s: ServingState, i: int, now: int) -> None:
    """The batch of an instance has ended: its requests go on, and it takes the next section where somebody waits."""
    done, r = s.batch[i, BATCH_SECTION], s.batch[i, BATCH_FIRST]
    while r >= 0:
        after = s.request[r, LINK_NEXT]
        if t.hop[s.request[r, HOP_NOW], HOP_LEAVE] == done:
            _send(t, s, r, s.request[r, HOP_NOW] + 1, now)
        else:
            _enqueue(s, done + 1, r)
        r = after
    s.batch[i, BATCH_FIRST] = -1
    begin, count = t.instance[i, INSTANCE_SECTION], t.instance[i, INSTANCE_END] - t.instance[i, INSTANCE_SECTION]
    for step in range(1, count + 1):
        section = begin + (done - begin + step) % count
        if s.queue[section, QUEUE_FIRST] >= 0:
            _start(t, s, i, section, now)
            return


@uncounted_part
def _send(t: ServingTables, s: ServingState, r: int, hop: int, now: int) -> None:
    """Over the link into a hop, behind all that it was given before."""
    link, tokens = t.hop[hop, HOP_LINK], 1
    if s.request[r, TOKENS_LEFT] < 0:
        tokens = t.asked[r, ASKED_PROMPT]
    sent = max(now, s.free[link]) + tokens * t.link[link, LINK_PS] // PS_PER_NS
    s.free[link] = sent
    s.request[r, HOP_NOW] = hop
    slots = len(t.instance) + len(t.asked)
    _schedule(s, (sent + t.link[link, LINK_NS]) * slots + len(t.instance) + r)


@uncounted_part
def _answer(t: ServingTables, s: ServingState, r: int, now: int) -> None:
    """A prompt or a token is back: measure it, then send the request round again or let it go."""
    measured, taken = now >= t.rules[RULE_WARM], now - s.request[r, ISSUED_AT]
    lane = s.request[r, LANE_NOW]
    entered = False
    if s.request[r, TOKENS_LEFT] < 0:
        if measured:
            s.first_ns[s.counts[FIRSTS_SEEN]] = taken
            s.counts[FIRSTS_SEEN] += 1
        s.request[r, TOKENS_LEFT] = t.asked[r, ASKED_OUTPUT]
        s.counts[PROMPTS_INSIDE] -= 1
        entered = t.rules[RULE_PROMPTS] > 0
    else:
        if measured:
            s.token_ns[s.counts[TOKENS_SEEN]] = taken
            s.counts[TOKENS_SEEN] += 1
            if s.counts[TOKENS_SEEN] == len(s.token_ns):
                s.counts[END_OF_RUN] = now
        s.request[r, TOKENS_LEFT] -= 1
    if s.request[r, TOKENS_LEFT] > 0:
        s.load[lane] += 1
        s.request[r, ISSUED_AT] = now
        _send(t, s, r, t.lane[lane, LANE_HOP], now)
    else:
        _reserve(t, s, r, lane, -1)
        s.counts[REQUESTS_INSIDE] -= 1
        entered = True
    if entered:
        _admit(t, s, now)


@uncounted_part
def _reserve(t: ServingTables, s: ServingState, r: int, lane: int, sign: int) -> None:
    """Room for the prompt and the expected answer, on every layer, is taken (1) or given back (-1)."""
    tokens = sign * (t.asked[r, ASKED_PROMPT] + t.rules[RULE_EXPECTED])
    s.counts[TOKENS_TAKEN] += tokens
    for hop in range(t.lane[lane, LANE_HOP], t.lane[lane, LANE_HOP] + t.lane[lane, LANE_HOPS]):
        s.batch[t.hop[hop, HOP_INSTANCE], ROOM_TAKEN] += tokens * t.hop[hop, HOP_LAYERS]


@uncounted_part
def _admit(t: ServingTables, s: ServingState, now: int) -> None:
    """Let requests in, in their order, while there is room for the next one on some lane."""
    while s.counts[NEXT_ENTERS] < s.counts[ARRIVED_COUNT]:
        r, most = s.counts[NEXT_ENTERS], t.rules[RULE_PROMPTS]
        if 0 < most <= s.counts[PROMPTS_INSIDE]:
            return
        lane = _choose(t, s, r)
        if lane < 0:
            if s.counts[REQUESTS_INSIDE] == 0:
                s.counts[NEVER_ENTERS] = r + 1
            return
        s.load[lane] += t.asked[r, ASKED_PROMPT]
        _reserve(t, s, r, lane, 1)
        s.counts[NEXT_ENTERS] += 1
        s.counts[PROMPTS_INSIDE] += 1
        s.counts[REQUESTS_INSIDE] += 1
        s.counts[PEAK_INSIDE] = max(s.counts[PEAK_INSIDE], s.counts[REQUESTS_INSIDE])
        s.request[r, LANE_NOW] = lane
        offline = t.asked[r, ASKED_ARRIVAL] < 0
        begin = now + t.rules[RULE_PAUSE]
        s.request[r, ISSUED_AT] = begin if offline else t.asked[r, ASKED_ARRIVAL]
        if begin == now:
            _send(t, s, r, t.lane[lane, LANE_HOP], now)
        else:
            _schedule(s, begin * (len(t.instance) + len(t.asked)) + len(t.instance) + r)
        if offline and s.counts[NEXT_ENTERS] == len(t.asked) and t.rules[RULE_DRAIN] == 0:
            s.counts[END_OF_RUN] = min(now, s.counts[END_OF_RUN])  # from here on nobody follows who ends


@uncounted_part
def _choose(t: ServingTables, s: ServingState, r: int) -> int:
    """The lane with room whose tokens, with this prompt, are the fewest for its share; -1 if none has room."""
    tokens = t.asked[r, ASKED_PROMPT] + t.rules[RULE_EXPECTED]
    best, best_load = -1, 0
    if s.counts[TOKENS_TAKEN] + tokens > t.rules[RULE_ROOM]:
        return best
    for lane in range(len(t.lane)):
        fits = True
        for hop in range(t.lane[lane, LANE_HOP], t.lane[lane, LANE_HOP] + t.lane[lane, LANE_HOPS]):
            i = t.hop[hop, HOP_INSTANCE]
            if s.batch[i, ROOM_TAKEN] + tokens * t.hop[hop, HOP_LAYERS] > t.instance[i, INSTANCE_ROOM]:
                fits = False
        load = s.load[lane] + t.asked[r, ASKED_PROMPT]
        if fits and (best < 0 or load * t.lane[best, LANE_SHARE] < best_load * t.lane[lane, LANE_SHARE]):
            best, best_load = lane, load
    return best
