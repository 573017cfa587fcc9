"""What people asked for in public threads, rebuilt as they described it: one test for each thread."""

import os
import signal
import subprocess

from support.interruptible import exec_processes
from support.workdir import WorkDir, until

GO_ON = ("--nolock", "--rerun-incomplete")

# Goes on by itself from the newest epoch that it finds; rests at epoch 3 as long as there is a file `rest`.
TRAIN = """
import os, sys, time
data, folder, epochs = open(sys.argv[1]).read().strip(), sys.argv[2], int(sys.argv[3])
done = [n for n in range(1, epochs + 1) if os.path.exists(f"{folder}/{n}.ckpt")]
open("starts", "a").write(f"{data} from {max(done, default=0)}\\n")
os.makedirs(folder, exist_ok=True)
for epoch in range(max(done, default=0) + 1, epochs + 1):
    with open(f"{folder}/{epoch}.ckpt", "w") as file:
        file.write(f"{data} at epoch {epoch}\\n")
    while epoch == 3 and os.path.exists("rest"):
        time.sleep(0.02)
"""

# Begun anew it forgets what is in its folder; `--continue` goes on, and takes nothing but the folder.
ASSEMBLER = """
import os, sys, time
folder, state = sys.argv[-1], sys.argv[-1] + "/state"
open(os.environ["STARTS"], "a").write(" ".join(sys.argv[1:]) + "\\n")
steps = int(open(state).read()) if sys.argv[1] == "--continue" else 0
os.makedirs(folder, exist_ok=True)
while steps < 5:
    steps += 1
    with open(state, "w") as file:
        file.write(str(steps))
    while steps == 3 and os.path.exists(os.environ["STARTS"] + ".rests"):
        time.sleep(0.02)
        if os.path.exists(os.environ["STARTS"] + ".breaks"):
            sys.exit("out of luck")
with open("contigs.fasta", "w") as file:
    file.write(f">contig of {steps} steps\\n")
"""


def kept(work: WorkDir, name: str, path: str) -> list[str]:
    """The contents of a kept file in each of the checkpoints."""
    found = sorted((work.root / ".unbroken" / name / "checkpoints").glob(f"0*/kept/{path}"))
    return [file.read_text() for file in found]


def tell_to_leave(work: WorkDir, name: str) -> None:
    """What a job hears at its time limit."""
    for pid in exec_processes(work, name):
        os.kill(pid, signal.SIGTERM)


def starts(work: WorkDir) -> list[str]:
    return (work.root / "starts").read_text().splitlines()


def call(work: WorkDir, folder: str, line: str) -> subprocess.Popen[bytes]:
    """A task of Nextflow: each attempt in a new work folder, its input a link."""
    place = work.root / folder
    place.mkdir(parents=True)
    for name in ("data.txt", "program.py"):
        (place / name).symlink_to(work.root / name)
    environment = {**work.environment(), "STARTS": str(work.root / "starts")}
    return subprocess.Popen(["bash", "-c", line], cwd=place, env=environment, stdin=subprocess.DEVNULL)


def test_snakemake_2407_interruptible_rules(work):
    """A checkpoint that is an output survives an interruption; when the inputs change it goes like all other outputs.

    https://github.com/snakemake/snakemake/issues/2407
    """
    work.write("train.py", TRAIN)
    work.write("data.txt", "old\n")
    work.write("rest", "")
    work.snakefile = work.write(
        "Snakefile",
        """
rule train:
    input: "data.txt"
    output: "model/5.ckpt", "done.txt"
    shell:
        "unbroken exec --name train --inputs {input} --outputs model/5.ckpt --keep 'model/*' --save-minutes 0"
        " -- python train.py {input} model 5 && echo done > done.txt"
""",
    )
    work.start("-c1")
    until(lambda: "old at epoch 3\n" in kept(work, "train", "model/3.ckpt"))
    work.kill_everything()
    work.write("model/3.ckpt", "torn")
    (work.root / "rest").unlink()
    gone_on = work.snakemake("-c1", *GO_ON)
    first = (work.root / "model/5.ckpt").read_text()
    work.write("data.txt", "new\n")
    anew = work.snakemake("-c1", *GO_ON)

    assert (gone_on.code, anew.code) == (0, 0), gone_on.text + anew.text
    assert starts(work) == ["old from 0", "old from 3", "new from 0"]
    assert (first, (work.root / "model/5.ckpt").read_text()) == ("old at epoch 5\n", "new at epoch 5\n")


def test_snakemake_509_preserve_output_files_before_executing_the_rule(work):
    """All checkpoints are outputs; after a power cut at the third, the same command goes on from there.

    https://github.com/snakemake/snakemake/issues/509
    """
    work.write("train.py", TRAIN)
    work.write("data.txt", "text\n")
    work.write("rest", "")
    work.snakefile = work.write(
        "Snakefile",
        """
rule train:
    input: "data.txt"
    output: expand("ckpt/{n}.ckpt", n=range(1, 6))
    shell:
        "unbroken exec --name train --inputs {input} --outputs {output} --keep 'ckpt/*' --save-minutes 0"
        " -- python train.py {input} ckpt 5"
""",
    )
    work.start("-c1")
    until(lambda: kept(work, "train", "ckpt/3.ckpt"))
    work.kill_everything()
    (work.root / "rest").unlink()

    done = work.snakemake("-c1", *GO_ON)

    assert done.code == 0, done.text
    assert starts(work) == ["text from 0", "text from 3"]
    assert [(work.root / f"ckpt/{n}.ckpt").read_text() for n in range(1, 6)] == [
        f"text at epoch {n}\n" for n in range(1, 6)
    ]


def test_snakemake_2357_job_continuation_keep_output_files(work):
    """Three outputs from which the program restarts outlive the TERM at the queue's limit, with `retries: 3`.

    https://github.com/snakemake/snakemake/issues/2357
    """
    work.write("rest", "")
    work.write(
        "program.py",
        """
import os, time
files = ["a.ext1", "a.ext2", "a.ext3"]
numbers = {int(open(file).read()) for file in files if os.path.exists(file)} or {0}
assert len(numbers) == 1, "not of one state"
(done,) = numbers
open("starts", "a").write(f"from {done}\\n")
while done < 5:
    done += 1
    for file in files:
        with open(file, "w") as out:
            out.write(str(done))
    open("saved", "w").write("all three")
    while done == 3 and os.path.exists("rest"):
        time.sleep(0.02)
""",
    )
    work.snakefile = work.write(
        "Snakefile",
        """
rule expensive:
    output: "a.ext1", "a.ext2", "a.ext3"
    retries: 3
    shell:
        "unbroken exec --name expensive --outputs {output} --keep 'a.ext*' --saved-by marker --marker saved"
        " --save-minutes 0 -- python program.py"
""",
    )
    driver = work.start("-c1")
    until(lambda: "3" in kept(work, "expensive", "a.ext3"))
    tell_to_leave(work, "expensive")
    until(lambda: len(starts(work)) == 2)
    (work.root / "rest").unlink()

    done = driver.wait()

    assert done.code == 0, done.text
    assert "exit status 85" in done.text
    assert starts(work) == ["from 0", "from 3"]
    assert [(work.root / f"a.ext{n}").read_text() for n in (1, 2, 3)] == ["5", "5", "5"]


def test_snakemake_2234_resume_failed_rules_without_wiping_existing_output_files(work):
    """A pipeline that fails at its step B skips step A when the rule is run again, though its output was wiped.

    https://github.com/snakemake/snakemake/issues/2234
    """
    work.write(
        "pipeline.sh",
        """
[ -e out/a.txt ] || { mkdir -p out; echo A >> starts; echo counted > out/a.txt; }
echo B >> starts
while [ ! -e repaired ]; do sleep 0.1; [ ! -e broken ] || exit 3; done
sed s/counted/table/ out/a.txt > out/gene_counts.txt
""",
    )
    work.snakefile = work.write(
        "Snakefile",
        """
rule rule_2:
    input: "filtered.fastq"
    output: "out/a.txt", "out/gene_counts.txt"
    shell:
        "unbroken exec --name rule_2 --inputs {input} --outputs {output} --keep out/a.txt --save-minutes 0"
        " -- bash pipeline.sh"


rule rule_1:
    output: "filtered.fastq"
    shell: "echo filtered >> starts; echo reads > {output}"
""",
    )
    driver = work.start("-c1")
    until(lambda: kept(work, "rule_2", "out/a.txt"))
    work.write("broken", "")
    failed = driver.wait()
    was_wiped = not (work.root / "out/a.txt").exists()
    work.write("repaired", "")

    done = work.snakemake("-c1")

    assert (failed.code, was_wiped, done.code) == (1, True, 0), done.text
    assert starts(work) == ["filtered", "A", "B", "B"]
    assert (work.root / "out/gene_counts.txt").read_text() == "table\n"


def test_snakemake_3011_keep_incomplete_for_a_single_rule(work):
    """One rule is tried again with `--continue`; what another one left when it failed is removed as always.

    https://github.com/snakemake/snakemake/issues/3011
    """
    work.added_environment["STARTS"] = str(work.root / "starts")
    work.write("starts.rests", "")
    work.write("assembler.py", ASSEMBLER)
    work.snakefile = work.write(
        "Snakefile",
        """
rule all:
    input: "contigs.fasta", "picky.txt"


rule assemble:
    output: "contigs.fasta"
    shell:
        "unbroken exec --name assemble --outputs {output} --keep 'assembly/*' --save-minutes 0"
        " --resume 'python assembler.py --continue -o assembly' -- python assembler.py reads.fasta -o assembly"


rule picky:
    output: "picky.txt"
    shell: "test ! -e {output}; echo half > {output}; test ! -e starts.rests; echo whole > {output}"
""",
    )
    driver = work.start("-c2", "--keep-going")
    until(lambda: "3" in kept(work, "assemble", "assembly/state"))
    work.write("starts.breaks", "")
    failed = driver.wait()
    left = [name for name in ("contigs.fasta", "picky.txt") if (work.root / name).exists()]
    (work.root / "starts.rests").unlink()

    done = work.snakemake("-c2")

    assert (failed.code, left, done.code) == (1, [], 0), done.text
    assert starts(work) == ["reads.fasta -o assembly", "--continue -o assembly"]
    assert (work.root / "contigs.fasta").read_text() == ">contig of 5 steps\n"
    assert (work.root / "picky.txt").read_text() == "whole\n"


def test_nextflow_459_error_strategy_resume(work):
    """A retry in a new work folder has the checkpoint files of the attempt that the scheduler killed.

    https://github.com/nextflow-io/nextflow/issues/459, with Nextflow's part played by hand.
    """
    work.write("data.txt", "")
    work.write(
        "program.py",
        """
import os, time
for name in ("checkpoint.txt", "checkpoint_1.txt"):
    with open(name, "a") as file:
        file.write("1\\n")
open(os.environ["STARTS"], "a").write("start\\n")
while len(open(os.environ["STARTS"]).readlines()) < 3:
    time.sleep(0.02)
with open("output.txt", "w") as out:
    out.write(open("checkpoint.txt").read() + open("checkpoint_1.txt").read())
""",
    )
    line = (
        f"unbroken exec --name restart --store {work.root}/.unbroken --outputs output.txt --keep 'checkpoint*.txt'"
        " --save-minutes 0 -- python program.py"
    )
    for attempt in (1, 2):
        process = call(work, f"work/{attempt}", line)
        until(lambda attempt=attempt: "1\n" * attempt in kept(work, "restart", "checkpoint_1.txt"))
        work.kill_everything()
        process.wait()

    last = call(work, "work/3", line)

    assert last.wait(600) == 0
    assert (work.root / "work/3/output.txt").read_text() == "1\n" * 6
    assert not (work.root / "work/1/output.txt").exists()


def test_nextflow_1728_over_running_cluster_jobs(work):
    """An assembler that overran its job is submitted again and gets the other words with which it goes on.

    https://github.com/nextflow-io/nextflow/issues/1728, with Nextflow's part played by hand.
    """
    work.write("data.txt", "reads\n")
    work.write("program.py", ASSEMBLER)
    work.write("starts.rests", "")
    line = (
        f"unbroken exec --name assemble --store {work.root}/.unbroken --inputs data.txt --outputs contigs.fasta"
        " --keep 'assembly/*' --save-minutes 0 --resume 'python program.py --continue -o assembly'"
        " -- python program.py data.txt -o assembly"
    )
    first = call(work, "work/1", line)
    until(lambda: "3" in kept(work, "assemble", "assembly/state"))
    tell_to_leave(work, "assemble")
    code = first.wait(600)
    (work.root / "starts.rests").unlink()

    second = call(work, "work/2", line)

    assert (code, second.wait(600)) == (85, 0)
    assert starts(work) == ["data.txt -o assembly", "--continue -o assembly"]
    assert (work.root / "work/2/contigs.fasta").read_text() == ">contig of 5 steps\n"
    assert not (work.root / "work/1/contigs.fasta").exists()
