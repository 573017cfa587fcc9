"""Copy a state into host memory, so that it can be written while the training changes the original.

A copy keeps how tensors share their memory: the file of a snapshot is the file of its original.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any, TypeVar

import torch
from torch.distributed.tensor import DTensor

from unbroken.training.torch.state import bytes_here, local, mapped, tensors_in

T = TypeVar("T")
# Memory by its size, and if it is pinned: asking torch for that takes longer than finding it.
Memory = defaultdict[tuple[int, bool], list[torch.UntypedStorage]]
# Whose memory is copied to pinned memory of the host.
PINNED_FOR = "cuda"


def snapshot_bytes(state: object) -> int:
    """Return the host memory that a snapshot takes: torch gives pinned memory in powers of two."""
    sizes = ((tensor.device.type, bytes_here(tensor)) for tensor in tensors_in(state))
    return sum(1 << (size - 1).bit_length() if kind == PINNED_FOR and size else size for kind, size in sizes)


class SnapshotBuffer:
    """Hold host memory for one snapshot, which is used again for the next; pinned for what comes from a GPU."""

    def __init__(self) -> None:
        self._free: Memory = defaultdict(list)
        self._used: Memory = defaultdict(list)
        self._targets: dict[int, torch.UntypedStorage] = {}
        self._gpus: set[torch.device] = set()  # which still have to copy
        self._events: list[torch.cuda.Event] = []
        self._gpu: int | None = None  # on which this rank works

    def take(self, state: T) -> T:
        """Return a canonical state as it is, complete once `wait` returned; the original may change at once."""
        self._free, self._used, self._targets, self._gpus = self._used, defaultdict(list), {}, set()
        copy: T = self._value(state)
        self._free.clear()
        self._events = [torch.cuda.current_stream(gpu).record_event() for gpu in self._gpus]
        is_used = torch.cuda.is_available() and torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
        self._gpu = torch.cuda.current_device() if is_used else None
        return copy

    def wait(self) -> None:
        """Return, in the thread that writes, when the GPUs have copied, which they do in the order of their own work.

        By itself another thread works on GPU 0, where each rank would take memory; so it works on this rank's now.
        """
        if self._gpu is not None:
            torch.cuda.set_device(self._gpu)
        for event in self._events:
            event.synchronize()

    def _value(self, value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return mapped(value, lambda item, place: self._value(item))
        if value.device.type == "cuda":
            self._gpus.add(value.device)
        if isinstance(value, DTensor):  # the part of it that lies here, as a tensor that is spread like it
            # Not from_local(), which would bring it back to the GPU.
            return DTensor(self._value(local(value)), value._spec, requires_grad=False)  # type: ignore[no-untyped-call]
        if value.is_conj():
            return self._value(value.conj()).conj()
        return self._tensor(value) if _is_plain(value) else value.detach().clone()

    def _tensor(self, tensor: torch.Tensor) -> torch.Tensor:
        source = tensor.untyped_storage()
        # Memory of no size has no address of its own.
        key = source.data_ptr() if source.nbytes() else -1 - len(self._targets)
        target = self._targets.get(key)
        if target is None:
            target = self._targets[key] = self._memory(source.nbytes(), is_pinned=source.device.type == PINNED_FOR)
            target.copy_(source, non_blocking=source.device.type == "cuda")
        copy = torch.empty(0, dtype=tensor.dtype, device="cpu").set_(
            target, tensor.storage_offset(), tensor.size(), tensor.stride()
        )
        return copy.requires_grad_(tensor.requires_grad)

    def _memory(self, size: int, *, is_pinned: bool) -> torch.UntypedStorage:
        if free := self._free[size, is_pinned]:
            storage = free.pop()
        else:
            storage = torch.empty(size, dtype=torch.uint8, device="cpu", pin_memory=is_pinned).untyped_storage()
        self._used[size, is_pinned].append(storage)
        return storage


def _is_plain(tensor: torch.Tensor) -> bool:
    """Return True for a tensor that is only a view of memory; others are copied as a whole."""
    is_known = type(tensor) in (torch.Tensor, torch.nn.Parameter) and tensor.device.type in ("cpu", "cuda")
    if not is_known or tensor.layout is not torch.strided or tensor.is_quantized:
        return False
    return not (tensor.is_neg() or tensor.is_inference())
