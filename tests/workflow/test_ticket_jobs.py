"""Which segments' jobs work by a ticket: those whose rule and script are ours as they came, and no other."""

import json
import shutil

from support.workdir import ROOT, WorkDir

RUN = {"engine": "toy", "segments": 1, "segment_minutes": 1, "settings": {"goal": 3}}
VARIANTS = {
    "plain": "threads: 1",
    "shadow": 'shadow: "minimal"',
    "conda": 'conda: "env.yaml"',
    "container": 'container: "docker://debian"',
    "modules": 'envmodules: "gcc"',
    "benchmark": 'benchmark: "benchmarks/{run}.{segment}.tsv"',
    "benchmark_repeated": 'benchmark: repeat("benchmarks/{run}.{segment}.tsv", 2)',
    "more_input": 'input: previous=[], content=[], more="more.txt"',
    "more_params": "params: more=1",
    "own_log": 'log: "own/{run}/{segment}.log"',
    "own_tmpdir": "resources: tmpdir=lambda wildcards: 'made'",
    "literal_tmpdir": "resources: tmpdir=\"'/scratch'\"",
    "shell": 'resources: shell_exec="bash"',
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
    from snakemake_executor_plugin_unbroken.ticket_jobs import ticket_of
    found = {{}}
    for job in workflow.dag.needrun_jobs():
        if (segment := segment_of(job)) is not None and segment.number == 1:
            ticket = ticket_of(job, segment, 5.0)
            found[segment.run.name] = None if ticket is None else ticket.resources.get("tmpdir", ticket.benchmark)
    with open("found.json", "w") as file:
        json.dump(found, file)
    raise SystemExit(0)
"""


def test_only_a_rule_and_a_script_as_they_came_work_by_a_ticket(work: WorkDir) -> None:
    work.configure(dict.fromkeys(VARIANTS, RUN))
    work.write("more.txt", "more")
    work.write("env.yaml", "dependencies: []")
    rules = [
        f"use rule toy_segment from unbroken as {name}_segment with:\n"
        f"    wildcard_constraints:\n        run='{name}',\n        segment=r'\\d+',\n"
        f"    {words}\n"
        f"ruleorder: {name}_segment > toy_segment\n"
        for name, words in VARIANTS.items()
    ]
    _ask(work, str(ROOT / "workflow" / "Snakefile"), "\n".join(rules))

    found = json.loads((work.root / "found.json").read_text())
    assert set(found) == set(VARIANTS)
    assert {name: value for name, value in found.items() if value is not None} == {
        "plain": "",
        "literal_tmpdir": "/scratch",
        "benchmark": "benchmarks/{run}.{segment}.tsv",
    }


def test_a_script_that_asks_snakemake_for_more_is_run_by_it(work: WorkDir) -> None:
    copied = work.root / "copied"
    for name in ("workflow", "scripts"):
        shutil.copytree(ROOT / name, copied / name)
    script = copied / "scripts" / "toy_segment.py"
    work.configure({"a": RUN})
    answers = {}
    for more in ("", "print('an edit that concerns the engine')", "print(snakemake.rule)", "import snakemake"):
        script.write_text((ROOT / "scripts" / "toy_segment.py").read_text() + f"\n{more}\n")
        _ask(work, str(copied / "workflow" / "Snakefile"), "")
        answers[more] = json.loads((work.root / "found.json").read_text())["a"]

    assert answers == {
        "": "",
        "print('an edit that concerns the engine')": "",
        "print(snakemake.rule)": None,
        "import snakemake": None,
    }


def _ask(work: WorkDir, workflow: str, rules: str) -> None:
    work.snakefile = work.write("Snakefile", SNAKEFILE.format(workflow=workflow, rules=rules))
    (work.root / "found.json").unlink(missing_ok=True)
    done = work.snakemake("--cores", "1")
    assert (work.root / "found.json").exists(), done.text
