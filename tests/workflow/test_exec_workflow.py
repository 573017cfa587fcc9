"""The example `interruptible`, somebody else's workflow, with real snakemake: whole, in pieces, killed, called again.

The programs rest for ever after a step, so what happens to them happens there, however slow the machine is.
"""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.gmx_systems import plain_mdrun
from support.interruptible import EPOCHS, FOR_EVER, KMERS, WATER, Interruptible, without_unbroken
from support.workdir import until

pytestmark = pytest.mark.xdist_group("exec_workflow")  # one process, one `whole`

STEPS = {"train": EPOCHS, "assemble": len(KMERS.split(","))}
AFTER_A_KILL = ("--nolock", "--rerun-incomplete")
# Ends by itself, without the seconds that torch takes to load.
CONTIGS = "results/contigs.fasta"
SIMULATION = "results/water.gro"
ONCE = [1, 1, int(bool(WATER))]


@pytest.fixture
def example(tmp_path: Path) -> Iterator[Interruptible]:
    found = Interruptible(tmp_path / "work")
    yield found
    found.work.kill_everything()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    return without_unbroken(tmp_path_factory.mktemp("whole") / "work")


def once(example: Interruptible) -> list[int]:
    """How often the rules without the line worked."""
    return [example.starts(name) for name in ("prepare", "plot", "water")]


@pytest.mark.slow
def test_without_limits_it_leaves_what_it_leaves_without_unbroken(example, whole):
    done = example.snakemake()

    assert done.code == 0, done.text
    assert example.results() == whole
    assert once(example) == ONCE
    assert [example.starts(name) for name in (*STEPS, "simulate")] == [1, 1, int(bool(WATER))]


@pytest.mark.slow
def test_in_segments_by_time_it_leaves_the_same_and_the_other_rules_work_once(example, whole):
    example.configure(FOR_EVER, minutes=0.7)

    done = example.snakemake()

    assert done.code == 0, done.text
    assert example.results() == whole
    assert once(example) == ONCE
    assert all(example.starts(name) >= steps for name, steps in STEPS.items())
    assert "exit status 85" in done.text
    assert "going on after [9, 11, 15]" in done.text  # by --resume


@pytest.mark.slow
def test_kills_of_program_exec_and_driver_change_no_byte(example, whole):
    example.configure(FOR_EVER)
    first = example.work.start("-c2")
    for name in STEPS:
        example.wait_for_checkpoint(name, 1)
        example.send(example.program(name), signal.SIGKILL)
        example.wait_for_checkpoint(name, 2)  # by a retry of Snakemake
    example.send(example.exec("assemble"), signal.SIGKILL)
    example.wait_for_checkpoint("assemble", 3)
    first.kill()
    for name in STEPS:
        for pid in example.exec(name):
            example.send([pid], signal.SIGKILL)
    until(lambda: not any(example.program(name) for name in STEPS))
    example.configure()

    done = example.snakemake(*AFTER_A_KILL)

    assert done.code == 0, done.text
    assert example.results() == whole
    assert once(example) == ONCE
    assert [example.starts(name) for name in STEPS] == [3, 4]


@pytest.mark.slow
@pytest.mark.needs("gromacs")
def test_a_simulation_that_is_killed_and_paused_leaves_what_an_uninterrupted_mdrun_leaves(example, tmp_path):
    example.configure(save_minutes=0.005)
    driver = example.work.start("-c1", SIMULATION)
    example.wait_for_mdrun(1)
    example.send(example.program("simulate"), signal.SIGKILL)
    example.wait_for_mdrun(2)  # by a retry of Snakemake
    example.send(example.exec("simulate"), signal.SIGTERM)
    example.wait_for_mdrun(3)
    driver.kill()
    for pid in example.exec("simulate"):
        example.send([pid], signal.SIGKILL)
    until(lambda: not example.program("simulate"))

    done = example.snakemake(*AFTER_A_KILL, SIMULATION)

    assert done.code == 0, done.text
    assert "exit status 85" in driver.text
    assert (example.starts("water"), example.starts("simulate")) == (1, 4)
    folder = plain_mdrun(example.work.root / "results" / "water.tpr", tmp_path / "plain")
    for name in WATER:
        plain = folder / name.replace("water", "md")
        assert (example.work.root / "results" / name).read_bytes() == plain.read_bytes()


def test_a_signal_is_a_pause_and_a_retry_goes_on(example):
    example.configure(FOR_EVER)
    driver = example.work.start("-c2", CONTIGS)
    for number in (1, 2):
        example.wait_for_checkpoint("assemble", number)
        example.send(example.exec("assemble"), signal.SIGTERM)
    example.wait_for_checkpoint("assemble", 3)
    example.configure()
    example.send(example.exec("assemble"), signal.SIGKILL)
    driver.kill()

    done = example.snakemake(*AFTER_A_KILL, CONTIGS)

    assert done.code == 0, done.text
    assert driver.text.count("exit status 85") >= 2
    assert (example.starts("prepare"), example.starts("assemble")) == (1, 4)


def test_forcerun_and_a_deleted_output_put_the_result_back_and_compute_nothing(example):
    assert example.snakemake(CONTIGS).code == 0
    path = example.work.root / CONTIGS
    before = path.read_bytes()
    forced = example.snakemake("--forcerun", "assemble", "--", CONTIGS)
    after_force = path.read_bytes()
    path.unlink()
    deleted = example.snakemake(CONTIGS)

    assert (forced.code, deleted.code) == (0, 0), deleted.text
    assert (after_force, path.read_bytes()) == (before, before)
    assert "done before, nothing is computed; put back: results/contigs.fasta" in deleted.text
    assert example.starts("assemble") == 1


def test_a_changed_input_begins_anew(example):
    assert example.snakemake(CONTIGS).code == 0
    reads = example.work.root / "results" / "reads.fasta"
    reads.write_text(reads.read_text().replace("A", "C", 1))

    done = example.snakemake(CONTIGS)

    assert done.code == 0, done.text
    assert "begins anew (the inputs have changed: results/reads.fasta)" in done.text
    assert example.starts("assemble") == 2


def test_a_changed_command_line_is_refused_in_one_line_and_another_pace_is_not(example):
    example.without_retries()
    example.configure(FOR_EVER)
    driver = example.work.start("-c1", CONTIGS)
    example.wait_for_checkpoint("assemble", 1)
    driver.kill()
    example.send(example.exec("assemble"), signal.SIGKILL)
    until(lambda: not example.program("assemble"))
    example.configure(kmers="9,11")
    refused = example.snakemake(*AFTER_A_KILL, CONTIGS)
    example.configure()
    accepted = example.snakemake(*AFTER_A_KILL, CONTIGS)

    lines = [line for line in refused.lines("unbroken: ") if "took the run over" not in line]
    assert (refused.code, len(lines)) == (1, 1), refused.text
    assert "assemble: the command line is another one; was: " in lines[0]
    assert accepted.code == 0, accepted.text
    assert example.starts("assemble") == 2


def test_a_later_command_that_fails_computes_nothing_again(example):
    example.without_retries()
    snakefile = example.work.root / "Snakefile"
    text = snakefile.read_text()
    line = '-o assembly --pace {config[pace]}"\n\n\nrule prepare_water'
    assert text.count(line) == 1
    snakefile.write_text(text.replace(line, line.replace('"\n', ' && test -e is-fine"\n', 1)))
    failed = example.snakemake(CONTIGS)
    (example.work.root / "is-fine").touch()

    done = example.snakemake(CONTIGS)

    assert (failed.code != 0, done.code) == (True, 0), done.text
    assert example.starts("assemble") == 1


# --- rows of the table: kinds of rules ---

COUNTER = """
import json, os, sys, time
path = os.path.join(sys.argv[1], "state.json")
done = json.load(open(path)) if os.path.exists(path) else 0
open(sys.argv[3], "a").write(f"{done}\\n")
os.makedirs(sys.argv[1], exist_ok=True)
while done < 3:
    done += 1
    with open(path, "w") as file:
        json.dump(done, file)
    while done == 2 and os.path.exists(sys.argv[3] + ".rest"):
        time.sleep(0.02)
with open(sys.argv[2], "w") as file:
    file.write(f"{done}\\n")
"""
LINE = (
    "unbroken exec --name count {more} --outputs out.txt --keep 'ckpt/*' --save-minutes 0"
    " -- python {root}/counter.py ckpt out.txt {root}/counted"
)
SCRIPT = "import subprocess\nsubprocess.run({line!r}, shell=True, check=True)\n"
KINDS = {
    "plain": ('    shell: "{line}"', ""),
    "script": ('    script: "script.py"', ""),
    "shadow": ('    shadow: "minimal"\n    shell: "{line}"', ""),
    "group": ('    group: "together"\n    shell: "{line}"', ""),
    "local_rule": ('    shell: "{line}"', "localrules: count\n"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_rule_of_any_kind_goes_on(example, kind):
    root, work = example.work.root, example.work
    body, head = KINDS[kind]
    line = LINE.format(root=root, more="")
    work.write("counter.py", COUNTER)
    work.write("script.py", SCRIPT.format(line=line))
    work.write("Snakefile", f'{head}rule count:\n    output: "out.txt"\n    retries: 5\n{body.format(line=line)}\n')
    (root / "counted.rest").touch()
    driver = work.start("-c1")
    example.wait_for_checkpoint("count", 1)
    until(lambda: any(path.read_text() == "2" for path in example.store("count").glob("checkpoints/0*/kept/ckpt/*")))
    example.send(example.exec("count"), signal.SIGTERM)
    until(lambda: (root / "counted").read_text() == "0\n2\n")
    (root / "counted.rest").unlink()

    done = driver.wait()

    assert done.code == 0, done.text
    assert (root / "out.txt").read_text() == "3\n"
    assert (root / "counted").read_text() == "0\n2\n"


STORAGE = """
storage:
    provider="fs",


rule data:
    output: storage.fs("far/data.txt")
    shell: "echo data > {{output}}"


rule count:
    input: storage.fs("far/data.txt")
    output: storage.fs("far/out.txt")
    retries: 5
    shell: "unbroken exec --name count --inputs {{input}} --outputs {{output}} --keep 'ckpt/*' --save-minutes 0"
           " -- python {root}/counter.py ckpt {{output}} {root}/counted"
"""


@pytest.mark.needs("rsync")
def test_a_rule_whose_files_lie_in_a_storage_goes_on(example):
    root, work = example.work.root, example.work
    work.write("counter.py", COUNTER)
    work.write("Snakefile", STORAGE.format(root=root))
    (root / "far").mkdir()
    (root / "counted.rest").touch()
    driver = work.start("-c1", "count")
    until(lambda: any(path.read_text() == "2" for path in example.store("count").glob("checkpoints/0*/kept/ckpt/*")))
    example.send(example.exec("count"), signal.SIGTERM)
    until(lambda: (root / "counted").read_text() == "0\n2\n")
    (root / "counted.rest").unlink()

    done = driver.wait()

    assert done.code == 0, done.text
    # The local copy of the input was removed at the pause, and fetched again: the same contents are the same input.
    assert "Retrieving from storage: far/data.txt" in done.text
    assert (root / "far/out.txt").read_text() == "3\n"


# --- Nextflow: each attempt of a task has a new folder ---


@pytest.mark.slow
def test_an_attempt_in_another_folder_with_the_same_store_goes_on(example):
    """What Nextflow does with `errorStrategy 'retry'`; Nextflow itself is in no package registry."""
    work, root = example.work, example.work.root
    work.write("counter.py", COUNTER)
    work.write("data.txt", "data\n")
    (root / "counted.rest").touch()
    line = LINE.format(root=root, more=f"--store {root}/.unbroken --inputs data.txt")
    codes = []
    for attempt in ("work/a1", "work/b2", "work/c3"):
        folder = root / attempt
        folder.mkdir(parents=True)
        (folder / "data.txt").symlink_to(root / "data.txt")
        process = example.shell(line, folder)
        if attempt == "work/a1":
            until(lambda: (root / "work/a1/ckpt/state.json").exists())
            kept = example.store("count") / "checkpoints"
            until(lambda kept=kept: any(path.read_text() == "2" for path in kept.glob("0*/kept/ckpt/*")))
            example.send(example.exec("count"), signal.SIGTERM)
        (process.wait(600) == 85) and (root / "counted.rest").unlink()
        codes.append(process.returncode)

    assert codes == [85, 0, 0]
    assert [(root / attempt / "out.txt").exists() for attempt in ("work/a1", "work/b2", "work/c3")] == [
        False,
        True,
        True,
    ]
    assert (root / "work/c3/out.txt").read_text() == "3\n"
    assert (root / "counted").read_text() == "0\n2\n"
    assert (root / "work/b2/ckpt/state.json").read_text() == "3"
