"""One segment of a rehearsal as a process of its own: what a job of the run would do, in the folder it is started in.

python -m unbroken.rehearsal.segment_process .snakemake/unbroken/chains/demo/spec.json 2 4711

The last number is that of the rehearsal, with which it dies: nobody else would ever end it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from unbroken.engines.found import engine_of
from unbroken.errors import UnbrokenError
from unbroken.job.spec import read
from unbroken.program import guard
from unbroken.segment.job import Job, attempt_log
from unbroken.segment.lifecycle import run_segment
from unbroken.system import fs


def main(words: Sequence[str]) -> int:
    """0 if the segment ended as a segment does, and its record is there; 1 with the reason as the last line if not."""
    guard.die_with(int(words[2]))
    try:
        assignment = read(Path(words[0])).assignment
        job = Job(assignment.run, assignment.keys, int(words[1]), 1)
        with fs.os_errors(job.places.root):
            job = replace(job, attempt_log=attempt_log(job.places.log(job.segment)))
            run_segment(job, engine_of(job.run, job.base))
    except UnbrokenError as error:
        print(f"stopped: {error}", file=sys.stderr, flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
