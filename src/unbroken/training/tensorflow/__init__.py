"""For TensorFlow and Keras: training that can be stopped and goes on."""

from unbroken.training.core.guard import Guard
from unbroken.training.core.save_policy import Saves
from unbroken.training.core.validation import Validate
from unbroken.training.tensorflow.training import Training, seed_everything
from unbroken.training.tensorflow.workers import multi_worker

__all__ = ["Guard", "Saves", "Training", "Validate", "multi_worker", "seed_everything"]
