"""Define the interface of an engine, and hold the engines.

What an engine of another package needs is exported here; `unbroken.engines.testing` checks it.
"""

from unbroken.engines.base import Engine, Results, Task, When, settings_as
from unbroken.engines.starter import Starter
from unbroken.errors import Mistake
from unbroken.program.contract import EXIT_FINISHED, EXIT_PAUSED
from unbroken.program.handover import HandedOver
from unbroken.program.process import Child
from unbroken.store.checkpoint import Checkpoint
from unbroken.store.layout import RunOutput
from unbroken.store.progress import Handover, Progress
from unbroken.store.run import RunSpec

__all__ = [
    "EXIT_FINISHED",
    "EXIT_PAUSED",
    "Checkpoint",
    "Child",
    "Engine",
    "HandedOver",
    "Handover",
    "Mistake",
    "Progress",
    "Results",
    "RunOutput",
    "RunSpec",
    "Starter",
    "Task",
    "When",
    "settings_as",
]
