"""What a job does whose driver waits for it: one segment, and a line in the history if its work never begins.

python -m unbroken.detached.driven_job --run demo --segment 3 --start 20261121T022642Z-1a2b -- python -m snakemake ...
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from unbroken.detached.segment_command import SegmentCommand, become_deaf
from unbroken.runs import driver_start
from unbroken.runs.job_note import exit_code_for
from unbroken.runs.layout import RunFolder
from unbroken.slurm.this_job import own_job_id
from unbroken.system.clock import utc_now


def main(words: Sequence[str] | None = None) -> int:
    """Does the segment; the exit code is that of its command, or says why its work never began."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", required=True)
    parser.add_argument("--segment", type=int, required=True)
    parser.add_argument("--start", default="")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    given = parser.parse_args(words)
    command = given.command[1:] if given.command[:1] == ["--"] else given.command
    os.environ[driver_start.START] = given.start
    become_deaf()

    def tell(line: str) -> None:
        print(f"unbroken {utc_now()} {given.run} segment {given.segment}: {line}", file=sys.stderr, flush=True)

    job_id = own_job_id()
    ended = SegmentCommand(RunFolder(given.run), given.segment, job_id, command, tell).run()
    return exit_code_for(ended.why, ended.code)


if __name__ == "__main__":
    sys.exit(main())
