"""An adapter of no library: a test does what a framework's loop would do."""

from types import MappingProxyType

from unbroken.training.torch.framework_session import Adapter


class PlainAdapter(Adapter):
    _library = MappingProxyType({"framework": "1.0"})
