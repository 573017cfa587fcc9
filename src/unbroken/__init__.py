"""unbroken: long computations as chains of time-limited segments."""

__version__ = "0.1.0"
