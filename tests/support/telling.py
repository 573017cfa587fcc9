"""A process that trains several times, as several processes."""

from unbroken.training.core import once


def begin_as_a_new_process() -> None:
    """For a test that plays several attempts: what this process has trained before is forgotten."""
    once._begun.clear()
    once._finished.clear()
