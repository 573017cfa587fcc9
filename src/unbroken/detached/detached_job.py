"""What a detached job is told by the driver that submits it, on its command line."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from unbroken.detached.targets import wanted
from unbroken.runs.layout import RunFolder
from unbroken.system.clock import utc_now


@dataclass(frozen=True)
class DetachedJob:
    """What the driver has told the job."""

    run: str
    told_segments: int
    after: tuple[str, ...]  # the jobs of this run before it
    start: str  # attempts of earlier starts of snakemake do not count
    retries: int
    idle_attempts: int
    memory_growth: float
    command: tuple[str, ...]

    @classmethod
    def parse(cls, words: Sequence[str] | None, description: str | None) -> DetachedJob:
        """The job that these words tell of; None are those of this process."""
        parser = argparse.ArgumentParser(description=description)
        parser.add_argument("--run", required=True)
        parser.add_argument("--segments", type=int, required=True)
        parser.add_argument("--after", default="")
        parser.add_argument("--start", default="")
        parser.add_argument("--retries", type=int, default=0)
        parser.add_argument("--idle-attempts", type=int, default=2)
        parser.add_argument("--memory-growth", type=float, default=1.0)
        parser.add_argument("command", nargs=argparse.REMAINDER)
        given = parser.parse_args(words)
        command = tuple(given.command[1:] if given.command[:1] == ["--"] else given.command)
        return cls(
            given.run,
            given.segments,
            tuple(number for number in given.after.split(",") if number),
            given.start,
            given.retries,
            given.idle_attempts,
            given.memory_growth,
            command,
        )

    @property
    def places(self) -> RunFolder:
        return RunFolder(self.run)

    @property
    def segments(self) -> int:
        """How many segments the run may have by now."""
        now = wanted(self.run)
        return now.segments if now else self.told_segments

    def next_segment(self) -> int | None:
        """The first segment without a record; None if all have one."""
        return next((n for n in range(1, self.segments + 1) if not self.places.record(n).exists()), None)

    def command_for(self, segment: int, attempt: int) -> list[str]:
        """The command that does this segment."""
        words = [re.sub(r"^(\w+:.*\bsegment=)\d+", rf"\g<1>{segment:03d}", word) for word in self.command]
        place = words.index("--attempt") + 1
        words[place] = str(attempt)
        return words

    def tell(self, line: str) -> None:
        """One line into Slurm's log of this job."""
        print(f"unbroken {utc_now()} {self.run}: {line}", file=sys.stderr, flush=True)
