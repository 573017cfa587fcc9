"""Which runs are one job array, and which single jobs and why: a real Snakemake, whose sbatch takes no job."""

import shutil

import pytest
from support.slurm_at_hand import SlurmAtHand, single_jobs
from support.workdir import ROOT, WorkDir

from unbroken.cli.run_command import DETACHED
from unbroken.job.spec import path_of, read

RUN = {"engine": "toy", "segments": 3, "segment_minutes": 1, "settings": {"goal": 3}}
MORE = "its rule needs more of Snakemake than to start a script (conda:, container:, shadow: ...)"
CHANGED = "the input, output, params or log of its rule were changed"
TMPDIR = "only Snakemake can say its resource tmpdir"
SEGMENT = "its resources depend on the segment"
ATTEMPT = "its resources depend on the attempt"
# What a user writes below `use rule toy_segment ... with:`, and why the run is single jobs; nothing if it is an array.
VARIANTS = {
    "plain": ("threads: 1", ""),
    "shadow": ('shadow: "minimal"', MORE),
    "conda": ('conda: "{folder}/env.yaml"', MORE),
    "container": ('container: "docker://debian"', MORE),
    "modules": ('envmodules: "gcc"', MORE),
    "shell": ('resources: shell_exec="bash"', MORE),
    "benchmark": ('benchmark: "benchmarks/{run}.{segment}.tsv"', MORE),
    "more_input": ('input: previous=[], content=[], more="more.txt"', CHANGED),
    "more_params": ("params: more=1", CHANGED),
    "own_log": ('log: "own/{run}/{segment}.log"', CHANGED),
    "own_tmpdir": ("resources: tmpdir=lambda wildcards: 'made'", TMPDIR),
    "literal_tmpdir": ("resources: tmpdir=\"'/scratch'\"", ""),
    "path_tmpdir": ("resources: tmpdir='/scratch'", ""),
    "variable_tmpdir": ("resources: tmpdir=\"'$SCRATCH/x'\"", TMPDIR),
    "by_segment": ("resources: mem_mb=lambda wildcards: 100 * int(wildcards.segment)", SEGMENT),
    "by_attempt": ("resources: mem_mb=lambda wildcards, attempt: 100 * attempt", ATTEMPT),
    "by_run": ("resources: mem_mb=lambda wildcards: 100 * len(wildcards.run)", ""),
    "licensed": ("resources: licenses_of_ours=1", "--resources limits licenses_of_ours"),
}
SNAKEFILE = """
configfile: "config/config.yaml"
module unbroken:
    snakefile: "{workflow}"
    config: config
use rule * from unbroken
{rules}
rule all:
    default_target: True
    input: rules.segments.input
"""


@pytest.fixture
def slurm(work: WorkDir, tmp_path) -> SlurmAtHand:  # type: ignore[no-untyped-def]
    slurm = SlurmAtHand(work, tmp_path / "slurm")
    slurm.refuses()
    return slurm


def changed(name: str, words: str) -> str:
    return (
        f"use rule toy_segment from unbroken as {name}_segment with:\n"
        f"    wildcard_constraints:\n        run='{name}',\n        segment=r'\\d+',\n"
        f"    {words}\n"
        f"ruleorder: {name}_segment > toy_segment\n"
    )


def snakefile(work: WorkDir, rules: str, workflow: str = str(ROOT / "workflow" / "Snakefile")) -> None:
    work.snakefile = work.write("Snakefile", SNAKEFILE.format(workflow=workflow, rules=rules))


def test_a_run_is_single_jobs_only_where_its_tasks_could_not_run_ahead_and_a_line_says_why(
    work: WorkDir, slurm: SlurmAtHand
) -> None:
    slurm.configure(dict.fromkeys(VARIANTS, RUN))
    work.write("more.txt", "more")
    work.write("env.yaml", "dependencies: []")
    rules = [changed(name, words.replace("{folder}", str(work.root))) for name, (words, _) in VARIANTS.items()]
    snakefile(work, "\n".join(rules))

    done = work.snakemake("--resources", "licenses_of_ours=5")

    assert single_jobs(done) == {name: why for name, (_, why) in VARIANTS.items() if why}
    assert slurm.arrays == {name: "" if why else "1-5%1" for name, (_, why) in VARIANTS.items()}
    specs = {name: read(work.root / path_of(name)) for name in VARIANTS}
    assert {name for name, spec in specs.items() if spec.submission.refills} == {
        name for name, (_, why) in VARIANTS.items() if not why
    }
    assert specs["literal_tmpdir"].rule_job.resources["tmpdir"] == "/scratch"
    assert specs["path_tmpdir"].rule_job.resources["tmpdir"] == "/scratch"
    # What only Snakemake can run is run by it, inside of the job.
    by_snakemake = {name for name, (_, why) in VARIANTS.items() if why in (MORE, CHANGED, TMPDIR)}
    assert {name for name, spec in specs.items() if spec.rule_job.command} == by_snakemake
    assert done.code == 1


def test_a_run_that_may_start_with_less_time_is_an_array_and_says_so_where_slurm_gives_all_the_time(
    work: WorkDir, slurm: SlurmAtHand
) -> None:
    less = {**RUN, "segment_minutes": {"at_least": 5, "at_most": 10}}
    slurm.configure({"a": less, "b": RUN})

    new = work.snakemake()
    slurm.answer("scontrol", "echo SLURM_VERSION = 22.05.8")
    old = work.snakemake()

    assert single_jobs(new) == single_jobs(old) == {}
    words = [found for found in slurm.told if "--comment=unbroken chain a" in found]
    assert ["--time-min=5" in found for found in words] == [True, False]


def test_a_script_that_asks_snakemake_for_more_is_run_by_it(work: WorkDir, slurm: SlurmAtHand) -> None:
    copied = work.root / "copied"
    for name in ("workflow", "scripts"):
        shutil.copytree(ROOT / name, copied / name)
    script = copied / "scripts" / "segment.py"
    slurm.configure({"a": RUN})
    snakefile(work, "", str(copied / "workflow" / "Snakefile"))
    answers = {}
    for more in ("", "print('an edit that concerns the engine')", "print(snakemake.rule)", "import snakemake"):
        script.write_text((ROOT / "scripts" / "segment.py").read_text() + f"\n{more}\n")
        answers[more] = single_jobs(work.snakemake())

    other = {"a": "its rule has another script than unbroken's"}
    assert answers == {
        "": {},
        "print('an edit that concerns the engine')": {},
        "print(snakemake.rule)": other,
        "import snakemake": other,
    }


BEHIND_A_LOCAL_RULE = """
rule count:
    input: "data.txt"
    output: "result.txt"
    resources: runtime=5, segments=3
    shell: "exit 1"
rule fetch:
    output: "data.txt"
    localrule: True
    shell: "touch {output}"
"""


def test_without_a_driver_a_line_names_the_local_rule_for_which_a_chain_is_not_submitted(
    work: WorkDir, slurm: SlurmAtHand
) -> None:
    work.snakefile = work.write("Snakefile", BEHIND_A_LOCAL_RULE)

    done = work.snakemake(*DETACHED)
    fetched = work.snakemake("--until", "fetch")
    work.snakemake(*DETACHED)

    (line,) = done.lines("unbroken: count: not submitted: it needs files of rule fetch, a local rule")
    assert line.endswith("; type: snakemake --until fetch")
    assert fetched.code == 0, fetched.text
    assert list(slurm.arrays.values()) == ["1-5%1"]


def test_a_target_in_mid_chain_submits_as_many_tasks_as_it_needs(work: WorkDir, slurm: SlurmAtHand) -> None:
    slurm.configure({"a": {**RUN, "segments": 30}})

    work.snakemake("results/a/segments/003.json")
    work.snakemake()

    assert [word for words in slurm.told for word in words if word.startswith("--array=")] == [
        "--array=1-5%1",
        "--array=1-33%1",
    ]
