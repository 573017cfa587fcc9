"""`unbroken convert` as it is typed: a script becomes a run that comes to the same result, in pieces."""

import re

from support.site_jobs import WALK, answer, whole_walk
from support.workdir import WorkDir

from unbroken.runs.segment_end import EndKind

SCRIPT = """#!/bin/bash
#SBATCH --job-name=walk
#SBATCH --time=1
trap 'kill -TERM $pid' USR1
newest=$(ls walk.*.rst 2>/dev/null | tail -n 1)
if [ -n "$newest" ]; then
    python3 walk.py 200 0.02 "$newest" &
else
    python3 walk.py 200 0.02 &
fi
pid=$!
wait
[ -f walk.000200.rst ] || sbatch $0
"""


def test_a_converted_script_comes_to_the_result_of_one_walk(work: WorkDir) -> None:
    work.write("walk.py", WALK)
    work.write("job.sh", SCRIPT)

    done = work.unbroken("convert", "job.sh")
    config = work.root / "config" / "config.yaml"
    planned = work.plan()
    text = config.read_text()
    answer(config, goal="200")
    config.write_text(re.sub("segment_minutes: 1 ", "segment_minutes: 0.04 ", config.read_text()))
    made = work.snakemake()

    assert done.code == made.code == 0, done.text + made.text
    assert done.lines("config/config.yaml: written")
    assert planned == 20
    assert "start: [python3, walk.py, '200', '0.02']" in text
    assert "resume: [python3, walk.py, '200', '0.02', '{file}']" in text
    assert [attempt.kind for attempt in work.history("walk")].count(EndKind.PAUSED) >= 1
    assert work.final("walk") == {"walk.000200.rst": whole_walk(work.root.parent / "alone", 200)}


def test_a_script_that_cannot_be_a_run_writes_nothing(work: WorkDir) -> None:
    work.write("job.sh", "#!/bin/bash\n./one\n./two\n")

    done = work.unbroken("convert", "job.sh")

    assert done.code == 1
    assert done.text.startswith("unbroken: job.sh line 3: a second program, ./two, beside ./one of line 2;")
    assert [path.name for path in work.root.iterdir()] == ["job.sh"]


def test_a_config_that_is_there_is_left_and_the_run_to_add_is_printed(work: WorkDir) -> None:
    work.write("job.sh", SCRIPT)
    work.write("config/config.yaml", "runs: {}\n")

    done = work.unbroken("convert", "job.sh")
    printed = work.unbroken("convert", "--print", "--name", "other", "job.sh")

    assert (work.root / "config/config.yaml").read_text() == "runs: {}\n"
    assert done.lines("config/config.yaml: yours, left as it is; to add this run, put these lines into it:")
    assert "\n  walk:  " in done.text
    assert printed.lines("  other:  ")
