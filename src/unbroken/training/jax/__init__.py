"""Train with JAX (Flax, Optax, Grain) so that a training can be stopped and resumed; Orbax writes the arrays."""

from unbroken.training.core.guard import Guard
from unbroken.training.core.save_policy import Saves
from unbroken.training.jax.training import Training

__all__ = ["Guard", "Saves", "Training"]
