"""A run in an image of the real Apptainer: its program hears a stop, dies with its job, and its image is known."""

import hashlib
import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from support.images import COUNTED, apptainer, counted, counting_run, make_image, make_tree
from support.registry import registry
from support.workdir import WorkDir, until

from unbroken.store.history import EndKind

# A step each time it is started; /etc/fruit is in the image alone.
STEP = """
read fruit < /etc/fruit
done=0; [ -f state ] && read done < state
done=$((done + 1))
echo $done > state
echo $done $fruit $UNBROKEN_RUN "$@" >> seen.txt
[ $done -ge 3 ] || exit 85
"""
# Works until it is told to save, by whatever signal; `beat` is how one sees that it lives.
WORKING = """
done=0; [ -f state ] && read done < state
save() { echo $((done + 1)) > state; echo "heard $1" >> seen.txt; exit 85; }
trap 'save USR1' USR1
trap 'save TERM' TERM
while :; do echo beat >> {beat}; sleep 0.05; done
"""


@pytest.fixture(autouse=True)
def runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{apptainer()}:{os.environ['PATH']}")


def configure(work: WorkDir, script: str = STEP, segments: int = 3, settings: object = None, **keys: object) -> None:
    work.write("program.sh", script)
    own = {
        "start": ["sh", "{base}/program.sh", "two words"],
        "files": ["state"],
        "progress_file": "state",
        "progress_pattern": r"(\d+)",
        "goal": 3,
        "goal_unit": "steps",
        "exit_paused": [85],
        **(settings if isinstance(settings, dict) else {}),
    }
    run = {"engine": "command", "segments": segments, "segment_minutes": 0.5, "settings": own}
    work.configure({"demo": {**run, "container": "fruit.sif", **keys}})


def refused(work: WorkDir, **keys: object) -> Sequence[str]:
    configure(work, **keys)
    done = work.snakemake()
    assert done.code == 1
    assert not (work.root / "results").exists()
    return [line.removeprefix("unbroken: runs.demo.") for line in done.lines("unbroken:")]


def until_it_beats(work: WorkDir) -> Path:
    beat = work.root / "beat"
    until(beat.exists)
    return beat


def test_the_program_runs_in_the_image_and_the_passport_has_its_digest(work: WorkDir) -> None:
    image = make_image(work.root / "fruit.sif", "apple")
    configure(work)

    done = work.snakemake()

    assert done.code == 0, done.text
    assert work.final("demo")["seen.txt"].splitlines()[-1] == b"3 apple demo two words"
    found = work.passports("demo")[-1].environment["image"]
    assert str(found.pop("runtime")).startswith("apptainer 1.")
    assert found == {"path": "fruit.sif", "digest": f"sha256:{hashlib.sha256(image.read_bytes()).hexdigest()}"}


def test_another_image_under_the_same_name_is_told_and_a_strict_run_is_refused(work: WorkDir) -> None:
    make_image(work.root / "fruit.sif", "apple")
    configure(work, segments=1)
    work.snakemake()
    make_image(work.root / "fruit.sif", "pear")
    configure(work, environment="strict")

    strict = work.snakemake()
    configure(work)
    told = work.snakemake()

    assert strict.code == 1
    assert "runs.demo.environment: strict, and image changed since checkpoint 1: digest sha256:" in strict.text
    assert told.code == 0, told.text
    assert "segment 2: image changed since checkpoint 1: digest sha256:" in work.log("demo", 2)
    assert [attempt.progress_to for attempt in work.history("demo")] == [1, 2, 3]
    assert work.final("demo")["seen.txt"].splitlines()[-1] == b"3 pear demo two words"


def test_a_folder_can_be_the_image(work: WorkDir) -> None:
    make_tree(work.root / "tree", "plum")
    configure(work, container="tree")

    assert work.snakemake().code == 0

    assert work.final("demo")["seen.txt"].splitlines()[-1] == b"3 plum demo two words"


@pytest.mark.parametrize(("stop", "heard"), [({"stop_signal": "USR1"}, "USR1"), ({"stop_signal": "TERM"}, "TERM")])
def test_a_signal_to_stop_reaches_the_program_inside_which_saves(
    work: WorkDir, stop: dict[str, str], heard: str
) -> None:
    make_image(work.root / "fruit.sif", "apple")
    beat = work.root / "beat"
    configure(work, WORKING.replace("{beat}", str(beat)), segments=1, settings={**stop, "goal": 1}, segment_minutes=0.1)

    done = work.snakemake()

    assert done.code == 0, done.text
    assert work.final("demo")["seen.txt"].decode().splitlines()[-1] == f"heard {heard}"


def test_what_runs_inside_dies_with_its_job_and_writes_no_more(work: WorkDir) -> None:
    make_image(work.root / "fruit.sif", "apple")
    configure(work, WORKING.replace("{beat}", str(work.root / "beat")), segments=1)
    driver = work.start()
    beat = until_it_beats(work)
    inside = work.processes("program.sh")

    driver.kill()  # else it would begin the next attempt
    os.kill(work.holder("demo"), signal.SIGKILL)
    until(lambda: not work.processes("program.sh"))
    size = beat.stat().st_size
    time.sleep(0.5)

    assert inside
    assert beat.stat().st_size == size


def test_an_image_of_a_registry_is_fetched_once_and_stays_the_same_whatever_its_tag_means_later(work: WorkDir) -> None:
    with registry() as held:
        held.put(make_tree(work.root / "tree", "apple"))
        work.added_environment |= {"APPTAINER_NOHTTPS": "1", "APPTAINER_CACHEDIR": str(work.root / "cache")}
        configure(work, segments=1, container=held.reference)
        work.snakemake()
        asked = held.asked
        held.put(make_tree(work.root / "tree", "pear"))
        configure(work, container=held.reference)

        done = work.snakemake()

    assert done.code == 0, done.text
    assert asked > 0
    assert held.asked == asked
    assert work.final("demo")["seen.txt"].splitlines()[-1] == b"3 apple demo two words"
    assert [image.name[:16] for image in (work.root / ".snakemake/unbroken/images").glob("*.sif")] == [
        "docker-127.0.0.1"
    ]


def test_an_image_that_cannot_be_fetched_says_so(work: WorkDir) -> None:
    configure(work, container="docker://127.0.0.1:9/fruit:ripe")

    done = work.snakemake()

    assert done.code == 1
    told = "runs.demo.container: apptainer pull docker://127.0.0.1:9/fruit:ripe: exit code 255: FATAL: "
    assert told in work.log("demo", 1), done.text
    assert not list((work.root / ".snakemake/unbroken/images").glob("*.sif"))
    assert not list((work.root / ".snakemake/unbroken/images").glob(".image-*"))


def test_killed_again_and_again_inside_it_leaves_the_table_of_one_run(work: WorkDir) -> None:
    work.configure({"demo": counting_run(work.root)})
    for attempt in (1, 2):
        driver = work.start()
        until(lambda attempt=attempt: counted(work.root, attempt) >= 50, 60)
        driver.kill()
        os.kill(work.holder("demo"), signal.SIGKILL)
        driver.wait()
        until(lambda: not work.processes("program.sh"), 60)

    done = work.snakemake()

    assert done.code == 0, done.text
    outcomes = [attempt.kind for attempt in work.history("demo")]
    assert outcomes.count(EndKind.DIED) == 2
    assert EndKind.PAUSED in outcomes
    assert work.final("demo")["rows.txt"] == COUNTED


def test_a_bad_image_is_named_before_anything_is_queued(work: WorkDir) -> None:
    work.write("notes.txt", "no image\n")
    make_tree(work.root / "tree", "plum")
    told = "the program would not hear what unbroken tells it; leave it out"

    found = [
        refused(work, container="no/image.sif"),
        refused(work, container="ubuntu:24.04"),
        refused(work, container="notes.txt"),
        refused(work, container="tree", container_options=["--cleanenv"]),
        refused(work, container=None, container_options=["--bind=/scratch"]),
    ]

    assert found == [
        [f"container: found 'no/image.sif', but there is no such file; looked in {work.root}/no"],
        ["container: found 'ubuntu:24.04', but there is no such file; to fetch it, type docker://ubuntu:24.04"],
        ["container: found 'notes.txt', which is no image of Apptainer, allowed: a .sif file, or a folder as image"],
        [f"container_options: found --cleanenv, with which {told}"],
        ["container_options: found --bind=/scratch, but the run names no `container`; leave it out"],
    ]


def test_an_engine_that_starts_our_own_python_says_that_it_is_not_in_the_image(work: WorkDir) -> None:
    make_tree(work.root / "tree", "plum")
    run = {"engine": "toy", "segments": 1, "segment_minutes": 0.5, "settings": {"goal": 1}}
    work.configure({"demo": {**run, "container": "tree"}})

    done = work.snakemake()

    assert done.lines("unbroken:") == [
        "unbroken: runs.demo.container: found 'tree', but engine toy starts the Python of unbroken, which is not in it"
        "; leave it out"
    ]
