"""Tensors between ranks: isend and irecv with two buffers each, so that a request is on its way while one is computed.

In: the messages of a rank. Out: arrays that were received; arrays that are sent. Per pair of ranks and direction the
order is that of requests, then of messages, and a wait is always for an earlier request or segment: nothing can wait
in a circle. By gloo, or by NCCL through a group for each direction. Simplified: NCCL's tensors pass main memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weftline.errors import InputError, WeftlineError
from weftline.run.dist.job import TensorMessage

__all__ = ["WIRE_SLOTS", "RankWires", "as_bytes", "lost"]

WIRE_SLOTS = 2


class RankWires:
    """Both ends of all messages of one rank."""

    def __init__(
        self, messages: Sequence[TensorMessage], rank: int, devices: Sequence[str], requests: int, timeout: float
    ) -> None:
        # Nothing is sent where there is nothing to send: both ends know it.
        self._incoming = [message for message in messages if message.target == rank]
        self._devices, self._requests, self._limit = devices, requests, timeout
        self._posted: dict[tuple[int, int], Any] = {}
        self._sent: dict[tuple[int, int], tuple[Any, Any]] = {}
        self._groups: dict[tuple[int, int], Any] = {}
        self._on_gpu = False
        self._slots: dict[tuple[int, int], Any] = {}

    def use_nccl(self, groups: dict[tuple[int, int], Any]) -> None:
        """Send by these groups: (source, target) -> group."""
        self._groups, self._on_gpu = groups, True

    def expect(self, request: int) -> None:
        """Post the receives of a request, if there is such a request."""
        import torch.distributed as dist

        if request >= self._requests:
            return
        for message in self._incoming:
            if message.size:
                key = (message.number, request % WIRE_SLOTS)
                work = dist.irecv(self._slot(message, key), message.source, self._group(message), _tag(*key))
                self._posted[key] = work

    def receive(self, message: TensorMessage, request: int) -> NDArray[Any]:
        """Wait for a tensor; it is valid until the request after the next is expected."""
        key = (message.number, request % WIRE_SLOTS)
        if not message.size:
            return np.zeros(message.shape, message.dtype)
        self._wait(self._posted.pop(key), message, message.source, f"waited for tensor {message.name[:80]!r} from")
        slot = self._slots[key].cpu() if self._on_gpu else self._slots[key]
        return np.asarray(slot.numpy().view(message.dtype).reshape(message.shape))

    def send(self, message: TensorMessage, request: int, array: NDArray[Any]) -> None:
        """Start to send a tensor; waits until the one two requests ago has left."""
        import torch
        import torch.distributed as dist

        if array.shape != message.shape or array.dtype != np.dtype(message.dtype):
            raise InputError(
                f"has shape {array.shape} of {array.dtype}, planned was {message.shape} of {message.dtype}",
                where=f"tensor {message.name[:80]!r}",
                hint="only shapes that do not depend on data can go from one device to another",
            )
        if not message.size:
            return
        key = (message.number, request % WIRE_SLOTS)
        self._finish(key, message)
        tensor = torch.from_numpy(as_bytes(array))
        tensor = tensor.cuda() if self._on_gpu else tensor
        work = dist.isend(tensor, message.target, self._group(message), _tag(*key))
        self._sent[key] = (work, tensor)

    def finish(self, messages: Sequence[TensorMessage]) -> None:
        """Wait until everything has left."""
        for message in messages:
            for slot in range(WIRE_SLOTS):
                self._finish((message.number, slot), message)

    def _finish(self, key: tuple[int, int], message: TensorMessage) -> None:
        if key in self._sent:
            work, _ = self._sent[key]
            self._wait(work, message, message.target, f"could not send tensor {message.name[:80]!r} to")
            del self._sent[key]

    def _slot(self, message: TensorMessage, key: tuple[int, int]) -> Any:
        import torch

        if key not in self._slots:
            device = "cuda" if self._on_gpu else "cpu"
            self._slots[key] = torch.empty(message.size, dtype=torch.uint8, device=device)
        return self._slots[key]

    def _group(self, message: TensorMessage) -> Any:
        return self._groups.get((message.source, message.target))

    def _wait(self, work: Any, message: TensorMessage, peer: int, what: str) -> None:
        try:
            work.wait(timedelta(seconds=self._limit))
        except (RuntimeError, ValueError) as error:  # torch's errors of communication are RuntimeErrors
            raise lost(f"{what} device {self._devices[peer]!r} (rank {peer})", error, self._limit) from error


def as_bytes(array: NDArray[Any]) -> NDArray[np.uint8]:
    """One dimension of bytes; no copy if the array lies in one piece."""
    flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return flat if flat.flags.writeable else flat.copy()


def lost(what: str, error: BaseException, timeout: float) -> WeftlineError:
    """An error of communication in words."""
    said = str(error)
    if "imed out" in said or "imeout" in said:
        return WeftlineError(f"{what}: no answer for {timeout:g} s. Connection given up; try a larger --timeout")
    return WeftlineError(f"{what}: that process is gone. Connection: {said.splitlines()[0][-200:] if said else 'lost'}")


def _tag(number: int, slot: int) -> int:
    return WIRE_SLOTS * number + slot
