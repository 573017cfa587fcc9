"""Which segments' jobs work without Snakemake, and which runs are one array; the reason for every other one."""

import json
import shutil

from support.workdir import ROOT, WorkDir

RUN = {"engine": "toy", "segments": 3, "segment_minutes": 1, "settings": {"goal": 3}}
MORE_OF_SNAKEMAKE = "its rule needs more of Snakemake than to start a script (conda:, container:, shadow: ...)"
CHANGED = "the input, output, params or log of its rule were changed"
REPEATED = "its benchmark: is repeated or extended"
OTHER_SCRIPT = "its rule has another script than unbroken's"
# What a rule has more than ours, and why its jobs need Snakemake; of those that need none what they are given instead.
VARIANTS = {
    "plain": ("threads: 1", ""),
    "shadow": ('shadow: "minimal"', MORE_OF_SNAKEMAKE),
    "conda": ('conda: "env.yaml"', MORE_OF_SNAKEMAKE),
    "container": ('container: "docker://debian"', MORE_OF_SNAKEMAKE),
    "modules": ('envmodules: "gcc"', MORE_OF_SNAKEMAKE),
    "benchmark": ('benchmark: "benchmarks/{run}.{segment}.tsv"', ""),
    "benchmark_repeated": ('benchmark: repeat("benchmarks/{run}.{segment}.tsv", 2)', REPEATED),
    "more_input": ('input: previous=[], content=[], more="more.txt"', CHANGED),
    "more_params": ("params: more=1", CHANGED),
    "own_log": ('log: "own/{run}/{segment}.log"', CHANGED),
    "own_tmpdir": ("resources: tmpdir=lambda wildcards: 'made'", "only Snakemake can say its resource tmpdir"),
    "literal_tmpdir": ("resources: tmpdir=\"'/scratch'\"", ""),
    "shell": ('resources: shell_exec="bash"', MORE_OF_SNAKEMAKE),
}
GIVEN = {"literal_tmpdir": "/scratch", "benchmark": "benchmarks/{run}.{segment}.tsv"}
# The same of the array: its tasks all ask for the same.
RESOURCES = {
    "constant": ("resources: mem_mb=300", ""),
    "by_segment": (
        "resources: mem_mb=lambda wildcards: 100 * int(wildcards.segment)",
        "its resources depend on the segment",
    ),
    "by_attempt": (
        "resources: mem_mb=lambda wildcards, attempt: 100 * attempt",
        "its resources depend on the attempt",
    ),
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
onstart:
    import json
    from snakemake_executor_plugin_unbroken.segments import segment_of
    from snakemake_executor_plugin_unbroken.job_specs import NotAsItCame, rule_job_of, why_no_array
    runs = {{}}
    for job in sorted(workflow.dag.needrun_jobs(), key=str):
        if (segment := segment_of(job)) is not None:
            runs.setdefault(segment.run.name, []).append((segment, job))
    found = {{}}
    for name, pairs in runs.items():
        pairs.sort(key=lambda pair: pair[0].number)
        segment, job = pairs[0]
        words = lambda job: [str(job.resources.get("mem_mb")), str(job.resources.get("runtime"))]
        array = why_no_array(job, [job for _, job in pairs], words)
        try:
            made = rule_job_of(job, segment, 5.0)
            found[name] = [made.resources.get("tmpdir", made.benchmark), "", array]
        except NotAsItCame as error:
            found[name] = [None, error.why, array]
    with open("found.json", "w") as file:
        json.dump(found, file)
    raise SystemExit(0)
"""


def test_only_a_rule_and_a_script_as_they_came_work_without_snakemake(work: WorkDir) -> None:
    found = asked(work, {name: words for name, (words, _) in VARIANTS.items()})

    assert {name: why for name, (_, why, _) in found.items()} == {name: why for name, (_, why) in VARIANTS.items()}
    assert {name: given for name, (given, why, _) in found.items() if not why} == {"plain": "", **GIVEN}


def test_a_run_is_one_array_if_all_its_segments_ask_for_the_same_at_each_attempt(work: WorkDir) -> None:
    found = asked(work, {name: words for name, (words, _) in RESOURCES.items()})

    assert {name: why for name, (_, _, why) in found.items()} == {name: why for name, (_, why) in RESOURCES.items()}


def test_a_resource_that_the_start_limits_for_all_jobs_together_makes_single_jobs(work: WorkDir) -> None:
    """An array runs ahead of Snakemake, which counts them."""
    found = asked(work, {"constant": RESOURCES["constant"][0]}, "--resources", "mem_mb=1000")

    assert found["constant"][2] == "--resources limits mem_mb"


def test_a_script_that_asks_snakemake_for_more_is_run_by_it(work: WorkDir) -> None:
    copied = work.root / "copied"
    for name in ("workflow", "scripts"):
        shutil.copytree(ROOT / name, copied / name)
    script = copied / "scripts" / "toy_segment.py"
    work.configure({"a": RUN})
    answers = {}
    for more in ("", "print('an edit that concerns the engine')", "print(snakemake.rule)", "import snakemake"):
        script.write_text((ROOT / "scripts" / "toy_segment.py").read_text() + f"\n{more}\n")
        answers[more] = ask(work, str(copied / "workflow" / "Snakefile"), "")["a"][1]

    assert answers == {
        "": "",
        "print('an edit that concerns the engine')": "",
        "print(snakemake.rule)": OTHER_SCRIPT,
        "import snakemake": OTHER_SCRIPT,
    }


def asked(work: WorkDir, variants: dict[str, str], *words: str) -> dict[str, list[str]]:
    """What comes of runs whose rules have these words more than ours."""
    work.configure(dict.fromkeys(variants, RUN))
    work.write("more.txt", "more")
    work.write("env.yaml", "dependencies: []")
    rules = [
        f"use rule toy_segment from unbroken as {name}_segment with:\n"
        f"    wildcard_constraints:\n        run='{name}',\n        segment=r'\\d+',\n"
        f"    {text}\n"
        f"ruleorder: {name}_segment > toy_segment\n"
        for name, text in variants.items()
    ]
    return ask(work, str(ROOT / "workflow" / "Snakefile"), "\n".join(rules), *words)


def ask(work: WorkDir, workflow: str, rules: str, *words: str) -> dict[str, list[str]]:
    work.snakefile = work.write("Snakefile", SNAKEFILE.format(workflow=workflow, rules=rules))
    (work.root / "found.json").unlink(missing_ok=True)
    done = work.snakemake("--cores", "1", *words)
    assert (work.root / "found.json").exists(), done.text
    return json.loads((work.root / "found.json").read_text())
