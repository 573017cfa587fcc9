"""Train with TensorFlow and Keras so that a training can be stopped and resumed."""

from unbroken.training.core.guard import Guard
from unbroken.training.core.save_policy import Saves
from unbroken.training.core.validation import Validate
from unbroken.training.tensorflow.training import Training, seed_everything
from unbroken.training.tensorflow.workers import multi_worker

__all__ = ["Guard", "Saves", "Training", "Validate", "multi_worker", "seed_everything"]
