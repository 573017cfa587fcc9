"""A process that trains several times, as several processes."""

from unbroken.training.core import run_directory


def begin_as_a_new_process() -> None:
    """For a test that plays several attempts: what this process has trained before is forgotten."""
    run_directory._trained.clear()
