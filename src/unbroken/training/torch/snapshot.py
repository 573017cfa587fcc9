"""A snapshot of a state in host memory, so that it can be written while the training changes the original.

What an optimizer keeps changes only in its step, so it is copied while the next forward and backward pass run, and
the step waits for the copy: the idea of CheckFreq (Mohan, Phanishayee, Chidambaram, FAST 2021).  Everything else is
copied at once.  A copy keeps how tensors share their memory: the file of a snapshot is the file of its original.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch.distributed.tensor import DTensor

from unbroken.training.torch.state import bytes_here, local, parameters_of
from unbroken.training.torch.tree import leaves, mapped

# A smaller piece is copied in less time than it takes to see to it later.
LATER_BYTES = 256 * 1024
# The snapshot, and as much for whatever else the training takes until its next step.
NEEDED_MEMORY = 2
# Whose memory is copied to pinned memory of the host.
PINNED_FOR = "cuda"
# So many numbers of eight bytes are noted of each piece that is copied later; a step changes nearly all of them.
NOTED = 64


def optimizer_storages(optimizers: Iterable[torch.optim.Optimizer]) -> set[int]:
    """Return the memory of everything that only the step of an optimizer changes, by its address."""
    held = (value for one in optimizers for value in (*parameters_of(one), *leaves(list(one.state.values()))))
    tensors = (local(value) for value in held if isinstance(value, torch.Tensor))
    return {tensor.untyped_storage().data_ptr() for tensor in tensors if _is_plain(tensor)}


def snapshot_bytes(state: object) -> int:
    """The host memory that a snapshot takes: torch gives pinned memory in powers of two (CachingHostAllocator)."""
    tensors = (each for each in leaves(state) if isinstance(each, torch.Tensor))
    sizes = ((tensor.device.type, bytes_here(tensor)) for tensor in tensors)
    return sum(1 << (size - 1).bit_length() if kind == PINNED_FOR and size else size for kind, size in sizes)


@dataclass
class Snapshot:
    """A state as it was, complete once `copy_the_rest` returned, `is_torn` and `is_other` say False."""

    state: Any
    _later: list[tuple[torch.UntypedStorage, torch.UntypedStorage]] = field(default_factory=list)
    _seen: list[tuple[torch.Tensor, int]] = field(default_factory=list)
    _noted: list[tuple[torch.UntypedStorage, torch.Tensor]] = field(default_factory=list)
    _events: list[tuple[torch.device, torch.cuda.Event]] = field(default_factory=list)
    _host_copied: threading.Event = field(default_factory=threading.Event)
    _copied: threading.Event = field(default_factory=threading.Event)

    def copy_the_rest(self) -> None:
        """Copies what is left; for a thread beside the training."""
        try:
            for source, target in self._later:
                _bytes(target)[:] = _bytes(source)
            self._host_copied.set()
            for _, event in self._events:
                event.synchronize()
        finally:
            self._host_copied.set()
            self._copied.set()

    def wait_for_copy(self) -> None:
        """Returns when the original may be changed; a GPU waits by itself, without this process."""
        for device, event in self._events:
            torch.cuda.current_stream(device).wait_event(event)
        self._host_copied.wait()

    @property
    def is_copied(self) -> bool:
        return self._copied.is_set()

    def is_torn(self) -> bool:
        """True if something that was to be copied later has been changed before an optimizer's step."""
        return any(tensor._version != version for tensor, version in self._seen)

    def is_other(self) -> bool:
        """True if a piece was changed before it was copied and no version tells, as a replay of a CUDA graph does.

        Asked once all is copied; by the numbers that were noted of it.
        """
        return any(not torch.equal(_numbers(target), noted.cpu()) for target, noted in self._noted)


class Room(NamedTuple):
    """Host memory for one piece; torch takes longer to say whether it is pinned than to find it."""

    storage: torch.UntypedStorage
    is_pinned: bool


class SnapshotBuffer:
    """Room in host memory for one snapshot, which is used again for the next; pinned for what comes from a GPU."""

    def __init__(self) -> None:
        self._rooms: list[Room] = []

    def take(self, state: Any, later: set[int]) -> Snapshot:
        """A snapshot of a canonical state; memory at the addresses in `later` is left to `copy_the_rest`."""
        return _Taking(self._rooms, later).take(state)


class _Taking:
    """The making of one snapshot."""

    def __init__(self, rooms: list[Room], later: set[int]) -> None:
        self._free, self._rooms, self._later = rooms[:], rooms, later
        self._used: list[Room] = []
        self._targets: dict[int, torch.UntypedStorage] = {}
        self._streams: dict[torch.device, torch.cuda.Stream] = {}
        self._cloned: set[torch.device] = set()  # GPUs that still have to make a clone
        self._snapshot = Snapshot(None)

    def take(self, state: Any) -> Snapshot:
        snapshot = self._snapshot
        snapshot.state = self._value(state)
        self._rooms[:] = self._used
        for device in {*self._streams, *self._cloned}:
            streams = [torch.cuda.current_stream(device), *filter(None, [self._streams.get(device)])]
            snapshot._events.extend((device, stream.record_event()) for stream in streams)
        if not snapshot._later:
            snapshot._host_copied.set()
            if not snapshot._events:
                snapshot._copied.set()
        return snapshot

    def _value(self, value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return mapped(value, lambda item, place: self._value(item))
        if isinstance(value, DTensor):
            return self._spread_tensor(value)
        if value.is_conj():
            return self._value(value.conj()).conj()
        return self._tensor(value) if _is_plain(value) else self._clone(value)

    def _clone(self, tensor: torch.Tensor) -> torch.Tensor:
        # A GPU makes it later, in the order of this thread's stream, which the thread that writes knows nothing of.
        if tensor.device.type == "cuda":
            self._cloned.add(tensor.device)
        return tensor.detach().clone()

    def _spread_tensor(self, tensor: DTensor) -> DTensor:
        """The part of it that lies here, in the memory of the host, as a tensor that is spread like it."""
        here = local(tensor)
        if here.untyped_storage().data_ptr() in self._later:
            self._snapshot._seen.append((tensor, tensor._version))  # an optimizer's step shows in it alone
        # Not from_local(), which would bring it back to the GPU.
        return DTensor(self._value(here), tensor._spec, requires_grad=False)  # type: ignore[no-untyped-call]

    def _tensor(self, tensor: torch.Tensor) -> torch.Tensor:
        source = tensor.untyped_storage()
        # Memory of no size has no address of its own.
        key = source.data_ptr() if source.nbytes() else -1 - len(self._used)
        target = self._targets.get(key)
        if target is None:
            target = self._targets[key] = self._room(source)
            self._copy(tensor, source, target)
        elif source.data_ptr() in self._later:
            self._snapshot._seen.append((tensor, tensor._version))
        copy = torch.empty(0, dtype=tensor.dtype, device="cpu").set_(
            target, tensor.storage_offset(), tensor.size(), tensor.stride()
        )
        return copy.requires_grad_(tensor.requires_grad)

    def _room(self, source: torch.UntypedStorage) -> torch.UntypedStorage:
        size, is_pinned = source.nbytes(), source.device.type == PINNED_FOR
        for index, room in enumerate(self._free):
            if room.storage.nbytes() == size and room.is_pinned == is_pinned:
                self._used.append(self._free.pop(index))
                return room.storage
        storage = torch.empty(size, dtype=torch.uint8, device="cpu", pin_memory=is_pinned).untyped_storage()
        self._used.append(Room(storage, is_pinned))
        return storage

    def _copy(self, tensor: torch.Tensor, source: torch.UntypedStorage, target: torch.UntypedStorage) -> None:
        is_later = source.data_ptr() in self._later and source.nbytes() >= LATER_BYTES
        if is_later:
            self._snapshot._seen.append((tensor, tensor._version))
            self._snapshot._noted.append((target, _numbers(source)))
        if source.device.type == "cuda":
            self._copy_from_gpu(source, target, is_later)
        elif is_later:
            self._snapshot._later.append((source, target))
        else:
            target.copy_(source)

    def _copy_from_gpu(self, source: torch.UntypedStorage, target: torch.UntypedStorage, is_later: bool) -> None:
        """In the order of the GPU's own work, or beside it; the snapshot keeps the source until it is copied."""
        device = source.device
        stream = self._streams.get(device)
        if stream is None:
            stream = self._streams[device] = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
            stream.wait_stream(torch.cuda.current_stream(device))
        if is_later:
            with torch.cuda.stream(stream):
                target.copy_(source, non_blocking=True)
        else:
            target.copy_(source, non_blocking=True)


def _is_plain(tensor: torch.Tensor) -> bool:
    """True for what is nothing but a view of memory; others are copied as a whole."""
    is_known = type(tensor) in (torch.Tensor, torch.nn.Parameter) and tensor.device.type in ("cpu", "cuda")
    if not is_known or tensor.layout is not torch.strided or tensor.is_quantized:
        return False
    return not (tensor.is_neg() or tensor.is_inference())


def _bytes(storage: torch.UntypedStorage) -> Any:
    """The memory as an array, whose copies leave the interpreter to others."""
    return torch.empty(0, dtype=torch.uint8, device="cpu").set_(storage).numpy()


def _numbers(storage: torch.UntypedStorage) -> torch.Tensor:
    """Some of the memory's bytes, eight at a time from everywhere in it, on the device where it lies."""
    device, together = storage.device, min(8, storage.nbytes())
    at = torch.linspace(0, storage.nbytes() - together, NOTED, dtype=torch.float64, device=device).long()
    places = (at[:, None] + torch.arange(together, device=device)).flatten()
    return torch.empty(0, dtype=torch.uint8, device=device).set_(storage)[places]
