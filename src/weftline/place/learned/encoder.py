"""The encoder: features of nodes -> embeddings, by a perceptron and graph convolutions (Kipf, Welling 2017).

In: a table of features and the undirected edges between nodes. Out: one vector per node. A graph is a list of edges
with weights 1 / sqrt(degree * degree), self loops included; a convolution is a product and a sum over edges.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from weftline.graph.arrays import Ints
from weftline.place.learned.parameters import Parameters, Tensor

__all__ = ["Links", "convolved", "describe_convolution", "describe_perceptron", "make_links", "perceptron"]


@dataclass(frozen=True, eq=False)
class Links:
    """The graph of one level, symmetric."""

    count: int
    a: Tensor
    b: Tensor
    """(E,): the ends of every undirected edge, once."""
    weight: Tensor
    """(E, 1): 1 / sqrt((degree + 1) * (degree + 1)) of its ends."""
    loop: Tensor
    """(N, 1): the weight of each node's own loop."""


def make_links(parameters: Parameters, count: int, a: Ints, b: Ints) -> Links:
    """The normalised adjacency with self loops."""
    torch = parameters.torch
    a, b = torch.as_tensor(a, dtype=torch.int64), torch.as_tensor(b, dtype=torch.int64)
    degree = torch.ones(count)
    degree += torch.bincount(a, minlength=count) + torch.bincount(b, minlength=count)
    root = degree.rsqrt()
    return Links(count, a, b, (root[a] * root[b])[:, None], (1.0 / degree)[:, None])


def describe_perceptron(parameters: Parameters, name: str, widths: tuple[int, ...]) -> None:
    """Layers of Linear, LayerNorm, ReLU, Dropout."""
    for layer, (fan_in, fan_out) in enumerate(pairwise(widths)):
        parameters.linear(f"{name}.{layer}", fan_in, fan_out)
        parameters.norm(f"{name}.{layer}.norm", fan_out)


def perceptron(parameters: Parameters, name: str, x: Tensor, layers: int, dropout: float = 0.0) -> Tensor:
    """What `describe_perceptron` describes."""
    for layer in range(layers):
        x = parameters.normalised(f"{name}.{layer}.norm", parameters.dense(f"{name}.{layer}", x))
        x = parameters.dropped(x.relu(), dropout)
    return x


def describe_convolution(parameters: Parameters, name: str, width: int, layers: int) -> None:
    """Convolutions of equal width."""
    for layer in range(layers):
        parameters.linear(f"{name}.{layer}", width, width)


def convolved(parameters: Parameters, name: str, x: Tensor, links: Links, layers: int) -> Tensor:
    """H' = ReLU(D^-1/2 (A + I) D^-1/2 H W), `layers` times."""
    for layer in range(layers):
        moved = parameters.dense(f"{name}.{layer}", x)
        x = moved * links.loop
        x = x.index_add(0, links.b, moved[links.a] * links.weight)
        x = x.index_add(0, links.a, moved[links.b] * links.weight).relu()
    return x
