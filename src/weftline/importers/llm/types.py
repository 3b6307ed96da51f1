"""Types of numbers in files of weights: how many bytes a row of them takes.

In: the name of a type in small letters, or its number in GGUF files. Out: exact bytes. Simplified: of packed
checkpoints (AWQ, GPTQ, fp8) scales and zeros are spread over the weights, in groups as most publishers choose them.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from types import MappingProxyType

import msgspec

from weftline.errors import InputError, near

__all__ = ["NUMBER_TYPES", "TYPES_BY_ID", "NumberType", "bytes_per_weight", "number_type", "tensor_bytes"]


class NumberType(msgspec.Struct, frozen=True):
    """A type of numbers: `block` of them take `bytes`."""

    name: str
    block: int
    bytes: int
    id: int = -1
    """In GGUF files; -1: not there."""

    @property
    def bits(self) -> float:
        """For each weight."""
        return 8 * self.bytes / self.block


_GGUF = (  # number, name, weights of a block, bytes of a block: ggml/src/ggml-common.h of llama.cpp at b21e4de
    (0, "f32", 1, 4),
    (1, "f16", 1, 2),
    (2, "q4_0", 32, 18),
    (3, "q4_1", 32, 20),
    (6, "q5_0", 32, 22),
    (7, "q5_1", 32, 24),
    (8, "q8_0", 32, 34),
    (10, "q2_k", 256, 84),
    (11, "q3_k", 256, 110),
    (12, "q4_k", 256, 144),
    (13, "q5_k", 256, 176),
    (14, "q6_k", 256, 210),
    (16, "iq2_xxs", 256, 66),
    (17, "iq2_xs", 256, 74),
    (18, "iq3_xxs", 256, 98),
    (19, "iq1_s", 256, 50),
    (20, "iq4_nl", 32, 18),
    (21, "iq3_s", 256, 110),
    (22, "iq2_s", 256, 82),
    (23, "iq4_xs", 256, 136),
    (24, "i8", 1, 1),
    (25, "i16", 1, 2),
    (26, "i32", 1, 4),
    (27, "i64", 1, 8),
    (28, "f64", 1, 8),
    (29, "iq1_m", 256, 56),
    (30, "bf16", 1, 2),
    (34, "tq1_0", 256, 54),
    (35, "tq2_0", 256, 66),
    (39, "mxfp4", 32, 17),
    (40, "nvfp4", 64, 36),
    (41, "q1_0", 128, 18),
    (42, "q2_0", 64, 18),
)
_OTHERS = (  # of packed checkpoints
    ("fp8", 128 * 128, 128 * 128 + 4),  # one f32 for each tile of 128 x 128
    ("fp8_tensor", 1, 1),  # one scale for a whole tensor
    ("int8", 1, 1),  # one scale for a row
    ("int4", 256, 133),  # groups of 128: 4 bits each, an f16 scale and 4 bits of zero
    ("nf4", 256, 132),  # groups of 64: 4 bits each, 8 bits of absmax
    ("u8", 1, 1),
    ("bool", 1, 1),
)
NUMBER_TYPES: Mapping[str, NumberType] = MappingProxyType(
    {name: NumberType(name, block, size, number) for number, name, block, size in _GGUF}
    | {name: NumberType(name, block, size) for name, block, size in _OTHERS}
)
"""All types by name."""
TYPES_BY_ID: Mapping[int, NumberType] = MappingProxyType({one.id: one for one in NUMBER_TYPES.values() if one.id >= 0})
"""Those of GGUF files by their number there."""


def number_type(name: str) -> NumberType:
    """A type by its name; `InputError` where there is none."""
    found = NUMBER_TYPES.get(name.lower())
    if found is None:
        raise InputError(f"unknown type of numbers {name!r}{near(name.lower(), NUMBER_TYPES)}")
    return found


def bytes_per_weight(name: str) -> Fraction:
    """Bytes of one weight of this type, exactly."""
    found = number_type(name)
    return Fraction(found.bytes, found.block)


def tensor_bytes(name: str, shape: tuple[int, ...]) -> int:
    """Bytes of a tensor of this type; whole blocks."""
    found, count = number_type(name), 1
    for size in shape:
        count *= size
    return -(-count // found.block) * found.bytes
