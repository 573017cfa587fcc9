"""Run one segment of a rehearsal as a process of its own, as a job of the run would, in the folder it is started in.

    python -m unbroken.rehearsal.segment_process .snakemake/unbroken/chains/demo/spec.json 2 4711 left.json

The numbers are the segment, and the process of the rehearsal with which it dies.  The files that the program wrote in
the folder of its attempt are listed in the last argument.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from unbroken.engines.base import Engine, Task, When
from unbroken.engines.found import engine_of
from unbroken.errors import UnbrokenError
from unbroken.job.attempt import Job
from unbroken.job.lifecycle import run_segment
from unbroken.job.spec import read
from unbroken.program import guard
from unbroken.program.handover import HandedOver
from unbroken.store.times import read_times
from unbroken.system import fs


def main(spec: str, segment: str, parent: str, left: str) -> int:
    """Return 0 if the segment has its record; 1, with the reason as the last line, if not."""
    guard.die_with(int(parent))
    try:
        assignment = read(Path(spec)).assignment
        job = Job(assignment.run, assignment.keys, int(segment), 1)
        with fs.os_errors(job.places.root):
            run_segment(job, _listing(engine_of(job.run, job.base), Path(left)))
    except UnbrokenError as error:
        print(error, file=sys.stderr, flush=True)
        return 1
    return 0


def _listing(engine: Engine, left: Path) -> Engine:
    """Let an engine list what its program wrote, once the program is gone and nothing is moved yet."""
    states = engine.states

    def listing_states(task: Task, when: When) -> list[HandedOver]:
        if when is When.WORKS:
            return states(task, when)
        times = read_times(task.attempt_folder.note)
        begun = (times.program_started or 0.0) + (times.clock_ahead_seconds or 0.0)
        left.write_text(json.dumps(list(_written_since(begun, task.attempt_folder.root))))
        return states(task, when)

    engine.states = listing_states  # type: ignore[method-assign]
    return engine


def _written_since(begun: float, folder: Path) -> Iterator[str]:
    for name in fs.tree_files(folder):
        with suppress(FileNotFoundError):
            if not (folder / name).is_symlink() and (folder / name).stat().st_mtime > begun:
                yield str(name)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
