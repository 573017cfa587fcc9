"""Let Accelerate train with FSDP2 on a CPU, as on a GPU; by itself it takes DistributedDataParallel silently."""

from accelerate.state import AcceleratorState, PartialState
from accelerate.utils import DistributedType

_made = AcceleratorState.__init__


def _make(self, *rest, fsdp_plugin=None, **options):
    _made(self, *rest, fsdp_plugin=fsdp_plugin, **options)
    if fsdp_plugin is not None and self.distributed_type is DistributedType.MULTI_CPU:
        AcceleratorState._shared_state["fsdp_plugin"] = fsdp_plugin
        for state in (AcceleratorState, PartialState):
            state._shared_state["distributed_type"] = DistributedType.FSDP


AcceleratorState.__init__ = _make
