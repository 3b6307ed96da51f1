"""Encoder-decoders with one op per attention head and costs of their own: hard for chains, since one op feeds much.

In: a seed, sizes, how costly transfers are. Out: an instance in Moirai's form. Keys (and queries, or values) of every
cross attention are made from the encoder's output, so that many ops wait for nothing but this one op. Simplified: times
are drawn around what the kinds of ops take on four devices of which the first and the last are fast; links are unequal,
as in published instances; memory never binds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from weftline.papers.moirai.instance import MoiraiEdge, MoiraiFile, MoiraiOp

__all__ = ["heads_file"]

LINKS = ((0.0, 0.9, 2.3, 0.9), (1.0, 0.0, 1.7, 0.9), (2.2, 1.7, 0.0, 2.3), (1.0, 0.9, 2.2, 0.0))
DEVICE_MEMORY = 10**12
KINDS = {
    "project": (0.0225, 1.15, 3.2, 24.0),
    "product": (0.012, 1.0, 2.8, 30.0),
    "small": (0.005, 1.0, 2.2, 16.0),
    "softmax": (0.01, 1.05, 2.8, 20.0),
    "linear": (0.03, 1.2, 3.2, 26.0),
    "wide": (0.21, 1.25, 3.4, 30.0),
    "norm": (0.012, 1.1, 2.0, 20.0),
    "add": (0.006, 1.0, 2.0, 18.0),
}
"""Seconds on the last device, and how much slower the other three are."""
KIND_SPREAD, OWN_SPREAD = 0.07, 0.04


@dataclass(eq=False)
class _Builder:
    chance: Random
    ops: list[MoiraiOp] = field(default_factory=list)
    edges: list[MoiraiEdge] = field(default_factory=list)
    sizes: list[float] = field(default_factory=list)
    """Of what each op makes: seconds on a link of 1."""

    def op(self, kind: str, *reads: int, size: float) -> int:
        seconds, *slower = KINDS[kind]
        seconds *= self.chance.uniform(1 - KIND_SPREAD, 1 + KIND_SPREAD)
        times = [seconds * rate * self.chance.uniform(1 - OWN_SPREAD, 1 + OWN_SPREAD) for rate in slower]
        number = len(self.ops)
        self.ops.append(MoiraiOp(number, tuple(round(time, 3) for time in (*times, seconds)), 0))
        for maker in reads:
            comm = tuple(tuple(round(self.sizes[maker] * link, 5) for link in row) for row in LINKS)
            self.edges.append(MoiraiEdge(maker, number, len(self.edges), comm))
        self.sizes.append(size)
        return number


def heads_file(
    seed: int = 0,
    *,
    layers: int = 6,
    heads: int = 8,
    activation: float = 0.9,
    score: float = 0.03,
    queries_from_encoder: bool = True,
) -> MoiraiFile:
    """`activation`, `score`: seconds of a layer's output, and of a head's scores, from the last device to the first.

    `queries_from_encoder`: cross attention takes queries and keys from the encoder, otherwise keys and values.
    """
    made = _Builder(Random(seed))

    def attention(query: int, key: int, value: int, residual: int) -> int:
        outs, part = [], activation / heads
        for _ in range(heads):
            a, b, c = (made.op("project", each, size=part) for each in (query, key, value))
            scores = made.op("product", a, made.op("small", b, size=part), size=score)
            scores = made.op("softmax", made.op("small", scores, size=score), size=score)
            outs.append(made.op("product", scores, c, size=part))
        joined = made.op("linear", made.op("small", *outs, size=activation), size=activation)
        return made.op("norm", made.op("add", joined, residual, size=activation), size=activation)

    def feed_forward(before: int) -> int:
        wide = made.op("norm", made.op("wide", before, size=4 * activation), size=4 * activation)
        back = made.op("wide", wide, size=activation)
        return made.op("norm", made.op("add", back, before, size=activation), size=activation)

    encoded = made.op("add", size=activation)
    for _ in range(layers):
        encoded = feed_forward(attention(encoded, encoded, encoded, encoded))
    decoded = made.op("add", size=activation)
    for _ in range(layers):
        decoded = attention(decoded, decoded, decoded, decoded)
        if queries_from_encoder:
            decoded = attention(encoded, encoded, decoded, decoded)
        else:
            decoded = attention(decoded, encoded, encoded, decoded)
        decoded = feed_forward(decoded)
    made.op("softmax", made.op("linear", decoded, size=activation), size=activation)
    return MoiraiFile(num_devices=4, device_mem=(DEVICE_MEMORY,) * 4, ops=tuple(made.ops), edges=tuple(made.edges))
