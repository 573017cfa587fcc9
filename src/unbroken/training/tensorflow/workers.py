"""Connect the workers of one training under MultiWorkerMirroredStrategy: who we are, and what all agree on.

All workers run the same script, and call every communicating method in the same order.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from unbroken.errors import SegmentError
from unbroken.training.core.process_group import Processes, RankRequest
from unbroken.training.launch.rendezvous import worker_place


def multi_worker() -> Any:
    """Return the strategy under whose scope to make the model: of several workers if TF_CONFIG names them, else of one.

    SegmentError, in one line, if TF_CONFIG is wrong.
    """
    is_alone = worker_place()[1] == 1
    return tf.distribute.get_strategy() if is_alone else tf.distribute.MultiWorkerMirroredStrategy()


class Workers(Processes):
    """Connect all workers of a training, or this process alone."""

    def __init__(self, rank: int = 0, size: int = 1, strategy: Any = None) -> None:
        super().__init__(rank, size)
        self._sum = tf.function(
            lambda own: strategy.reduce(tf.distribute.ReduceOp.SUM, strategy.run(tf.identity, args=(own,)), axis=None)
        )

    @classmethod
    def of(cls, models: Sequence[Any], environment: Mapping[str, str] = os.environ) -> Workers:
        """Return the workers of these models; raise SegmentError if they are not made for all of TF_CONFIG's."""
        rank, size = worker_place(environment)
        if size == 1:
            return cls()
        strategies = [model.distribute_strategy for model in models] or [tf.distribute.get_strategy()]
        if not all(isinstance(each, tf.distribute.MultiWorkerMirroredStrategy) for each in strategies):
            raise SegmentError(
                f"TF_CONFIG names {size} workers, and the model was not made for them; "
                "type: with multi_worker().scope():"
            )
        strategy = strategies[0]
        if strategy.num_replicas_in_sync != size:
            raise SegmentError(
                f"{size} workers have {strategy.num_replicas_in_sync} devices, allowed: one each; let each see one GPU "
                "(CUDA_VISIBLE_DEVICES), and start a worker for each"
            )
        return cls(rank, size, strategy)

    def agreed(self, wish: Callable[[], RankRequest], *, at_once: bool = True) -> RankRequest:
        """Return what any worker requests, always at once."""
        return RankRequest(*map(any, zip(*self.all_gather([*vars(wish()).values()]), strict=True)))

    def all_gather(self, value: Sequence[float]) -> list[list[float]]:  # type: ignore[override]
        """Return the numbers that each worker gives, equally many, by rank."""
        own = np.zeros((self.size, len(value)))
        own[self.rank] = value
        gathered: list[list[float]] = (own if self.size == 1 else self._sum(tf.constant(own)).numpy()).tolist()
        return gathered

    def meet(self) -> None:
        self.all_gather([0.0])

    @property
    def share(self) -> Callable[[Any], Any] | None:
        """Return what takes this worker's samples out of a batch; None for one that takes all."""
        if self.size == 1:
            return None
        return lambda batch: tf.nest.map_structure(lambda tensor: tensor[self.rank :: self.size], batch)
