"""One segment of any program with restart files of its own: its `start` line, or `resume` from the last checkpoint."""

from collections.abc import Mapping

from unbroken.engines.command.engine import CommandEngine
from unbroken.engines.command.placeholders import filled
from unbroken.engines.files.settings import program_of
from unbroken.runs.record import Record
from unbroken.runs.run import Run
from unbroken.segment.job import Job, main
from unbroken.segment.lifecycle import run_segment


def build_command(run: Run, values: Mapping[str, str], is_resumed: bool) -> list[str]:
    """The argument list as the config has it, its placeholders filled with `values`."""
    program = program_of(run)
    return [filled(word, values) for word in (program.resume if is_resumed else program.start)]


def command_segment(job: Job) -> Record:
    """Runs the user's program for one segment."""
    return run_segment(job, CommandEngine(job.base))


if __name__ == "__main__":
    main(snakemake, command_segment)  # type: ignore[name-defined]
