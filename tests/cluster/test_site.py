"""A site's settings on a real cluster: what Slurm is asked for, what it is not, and the profile as installed."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from cluster.lab import Cluster
from support.workdir import ROOT, Done, WorkDir

from unbroken.slurm.job import ListedJob

HERE = Path(__file__).parent
PATIENCE_SECONDS = 600.0
FIELDS = ("comment", "partition", "account", "qos", "constraints", "reqtres", "state")


def toy(**keys: object) -> dict[str, object]:
    """Done in its first segment."""
    return {"engine": "toy", "segments": 1, "segment_minutes": 1, "settings": {"goal": 3, "step_seconds": 0}, **keys}


def accounted(cluster: Cluster, work: WorkDir, *runs: str) -> dict[str, dict[str, str]]:
    """What accounting keeps of the last job of each run, once it knows how that ended."""
    numbers = {work.history(run)[-1].slurm_job for run in runs}
    words = ("--allocations", "--noheader", "--parsable2", "--delimiter=;", f"--format={','.join(FIELDS)}")

    def ended() -> list[dict[str, str]]:
        # A driver is done when the records are there, which is before their jobs are.
        text = cluster.run("sacct", f"--jobs={','.join(sorted(numbers))}", *words)
        jobs = [dict(zip(FIELDS, line.split(";"), strict=True)) for line in text.splitlines()]
        # Of a short job accounting may hear of the end first; what it asked for comes with its start, seconds later.
        over = [job for job in jobs if job["state"] not in {"PENDING", "RUNNING"} and job["partition"]]
        return over if len(over) == len(numbers) else []

    jobs = cluster.wait_until(ended)
    assert isinstance(jobs, list)
    chains = {ListedJob("", "", comment=job["comment"]).chain: job for job in jobs}
    return {chain: job for chain, job in chains.items() if chain}


def exact(command: str, work: WorkDir) -> Done:
    """A command as a user types it."""
    done = subprocess.run(
        command.split(),
        cwd=work.root,
        env=work.environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PATIENCE_SECONDS,
    )
    return Done(done.returncode, done.stdout)


def configure_site(work: WorkDir, site: dict[str, object]) -> None:
    """Installs the profile as a user does, then edits its site."""
    assert work.unbroken("profile", "slurm").code == 0
    work.write("profiles/slurm/site.yaml", yaml.safe_dump({"site": site}))


def test_the_exact_command_runs_the_runs_of_a_fresh_clone(slurm_work: WorkDir, cluster: Cluster) -> None:
    names = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split("\0")
    for name in filter(None, names):
        if (ROOT / name).exists():
            (slurm_work.root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, slurm_work.root / name, follow_symlinks=False)
    slurm_work.configure({"clone_a": toy(), "clone_b": toy(place="gpu")})

    done = exact("snakemake --profile slurm", slurm_work)

    assert done.code == 0, done.text
    jobs = accounted(cluster, slurm_work, "clone_a", "clone_b")
    assert {name: (jobs[name]["partition"], jobs[name]["state"]) for name in ("clone_a", "clone_b")} == {
        "clone_a": ("short", "COMPLETED"),
        "clone_b": ("gpu", "COMPLETED"),
    }
    assert "gres/gpu=1" in jobs["clone_b"]["reqtres"]
    assert "gres/gpu" not in jobs["clone_a"]["reqtres"]
    assert slurm_work.final("clone_b") == slurm_work.final("clone_a")


@pytest.mark.slow
def test_what_the_site_and_the_run_ask_for_is_what_slurm_is_asked_for(slurm_work: WorkDir, cluster: Cluster) -> None:
    places = {"short": {"partition": "short"}, "gpu": {"gpu_type": "fake"}}
    configure_site(slurm_work, {"account": "other", "qos": "normal", "constraint": "plain|fast", "places": places})
    runs = {
        "sites": toy(),
        "own": toy(
            account="science",
            constraint="fast",
            partition="gpu",
            gpus=2,
            gpu_type="fake",
            mem_mb=1234,
            slurm_extra=["--nice=7"],
        ),
        "chosen": toy(place="gpu", constraint="fast"),
    }
    slurm_work.configure(runs)

    done = exact(f"snakemake --snakefile {ROOT}/Snakefile --profile slurm", slurm_work)

    assert done.code == 0, done.text
    jobs = accounted(cluster, slurm_work, *runs)
    asked = [(jobs[name]["partition"], jobs[name]["account"], jobs[name]["constraints"]) for name in runs]
    assert asked == [("short", "other", "plain|fast"), ("gpu", "science", "fast"), ("gpu", "other", "fast")]
    assert [jobs[name]["qos"] for name in runs] == ["normal"] * 3
    assert "gres/gpu:fake=2" in jobs["own"]["reqtres"] or "gres/gpu=2" in jobs["own"]["reqtres"]
    assert "mem=1234M" in jobs["own"]["reqtres"]
    assert niced(cluster) == {"own"}
    assert "Auto-selected partition 'gpu'" in done.text


def niced(cluster: Cluster) -> set[str]:
    """Return the runs whose jobs ask for --nice=7."""
    return set(re.findall(r"Nice=7 .* Comment=unbroken chain (\w+)", cluster.run("scontrol", "show", "job", "-o")))


def test_what_the_cluster_cannot_do_is_refused_before_anything_is_queued(slurm_work: WorkDir, cluster: Cluster) -> None:
    slurm_work.configure(
        {
            "long": toy(segment_minutes=11),
            "wide": toy(threads=5, mem_mb=4001),
            "other": toy(account="scince", partition="shrt"),
            "gpus": toy(place="gpu", gpus=3, segment_minutes=6, gpu_type="h100"),
        }
    )

    done = slurm_work.snakemake()

    assert (done.code, cluster.jobs()) == (1, [])
    lines = [line.removeprefix("unbroken: ") for line in done.lines("unbroken: ")]
    accounts = re.search(r"\(sacctmgr\) are (.*?);", done.text)
    assert accounts is not None and "science" in accounts[1]
    assert [line for line in lines if not line.startswith("runs.other.account")] == [
        "runs.long.segment_minutes: found 11, but partition short ends jobs after 10 minutes (sinfo); "
        "type segment_minutes: 10 or less",
        "runs.wide.threads: found 5, but no node of partition short has more than 4 cores (sinfo); "
        "type threads: 4 or less",
        "runs.wide.mem_mb: found 4001, but no node of partition short has more than 4000 MB (sinfo); "
        "type mem_mb: 4000 or less",
        "runs.other.partition: found 'shrt', but the partitions of this cluster (sinfo) are short, gpu, preempt and "
        "urgent; did you mean `short`?",
        "runs.gpus.segment_minutes: found 6, but partition gpu ends jobs after 5 minutes (sinfo); "
        "type segment_minutes: 5 or less",
        "runs.gpus.gpu_type: found 'h100', but the GPUs of partition gpu are fake (sinfo); type gpu_type: fake",
    ]
    assert not (slurm_work.root / "results").exists()


def test_a_qos_that_the_cluster_does_not_know_is_refused_before_anything_is_queued(
    slurm_work: WorkDir, cluster: Cluster
) -> None:
    slurm_work.configure({"qos": toy(qos="normla"), "fits": toy()})

    done = slurm_work.snakemake()

    assert (done.code, cluster.jobs()) == (1, [])
    assert [line.removeprefix("unbroken: ") for line in done.lines("unbroken: ")] == [
        "runs.qos.qos: found 'normla', but the QOS of this cluster (sacctmgr) are normal; did you mean `normal`?",
    ]
    assert not (slurm_work.root / "results").exists()


def test_a_constraint_that_no_node_fulfills_is_refused_in_one_line_of_slurm_s(
    slurm_work: WorkDir, cluster: Cluster
) -> None:
    slurm_work.configure({"far": toy(place="gpu", constraint="nothing")})

    done = slurm_work.snakemake()

    assert (done.code, cluster.jobs()) == (1, [])
    assert "far segment 1: Slurm refuses the job (sbatch: error: " in done.text
    assert "; fix the config, then start snakemake again" in done.text


@pytest.mark.parametrize("key", ["cluster", "clusters", "slurm_cluster"])
def test_another_cluster_is_refused_before_anything_is_queued(slurm_work: WorkDir, cluster: Cluster, key: str) -> None:
    slurm_work.configure({"a": toy()})

    done = slurm_work.snakemake("--set-resources", f"toy_segment:{key}=other")

    assert (done.code, cluster.jobs()) == (1, [])
    assert f"unbroken: resources: found {key}, allowed: none of these; start snakemake on a login" in done.text
    assert "Traceback" not in done.text


@pytest.mark.slow
def test_a_partition_that_is_down_is_no_mistake(slurm_work: WorkDir, cluster: Cluster) -> None:
    slurm_work.configure({"demo": toy(place="gpu")})
    cluster.run("scontrol", "update", "PartitionName=gpu", "State=DOWN")

    done = slurm_work.snakemake("-n")

    assert (done.code, done.lines("unbroken: ")) == (0, [])


@pytest.mark.slow
def test_two_ranks_on_two_nodes_are_one_run_of_several_segments(slurm_work: WorkDir, cluster: Cluster) -> None:
    shutil.copy(HERE / "ranks.py", slurm_work.root)
    settings = {"script": "ranks.py", "goal": 60, "goal_unit": "steps"}
    ranks = {"engine": "torch", "segments": 12, "segment_minutes": 0.1, "tasks": 2, "nodes": 2, "settings": settings}
    slurm_work.configure({"ranks": ranks})

    done = slurm_work.start("--slurm-init-seconds-before-status-checks=1").wait(PATIENCE_SECONDS)

    final = {name: text.decode().split() for name, text in slurm_work.final("ranks").items()}
    assert done.code == 0, done.text
    assert len(slurm_work.history("ranks")) >= 2
    assert [final[f"rank_{rank}"][0] for rank in (0, 1)] == ["60", "60"]
    assert [final[f"rank_{rank}"][2:] for rank in (0, 1)] == [["of", "2"]] * 2
    assert final["rank_0"][1] != final["rank_1"][1]
    assert accounted(cluster, slurm_work, "ranks")["ranks"]["state"] == "COMPLETED"


@pytest.mark.slow
def test_a_heterogeneous_job_may_hold_a_driver_whose_program_spans_both_its_parts(
    slurm_work: WorkDir, cluster: Cluster
) -> None:
    shutil.copy(HERE / "ranks.py", slurm_work.root)
    settings = {"script": "ranks.py", "goal": 5, "goal_unit": "steps"}
    enter = ["srun", "--het-group=0,1", "--ntasks=1"]
    run = {"engine": "torch", "segments": 1, "segment_minutes": 1, "tasks": 2, "enter": enter, "settings": settings}
    slurm_work.configure({"both": run})
    driver = f"snakemake --snakefile {ROOT}/Snakefile --workflow-profile {ROOT}/profiles/default"

    parts = ("--time=2", "--partition=short", "--nodelist=node1", ":", "--partition=gpu", "--gres=gpu:fake:1")
    job = cluster.sbatch(driver, *parts, cwd=slurm_work.root)
    live = {"PENDING", "CONFIGURING", "RUNNING", "COMPLETING"}
    cluster.wait_until(lambda: not live & set(cluster.state(job).split()))

    final = {name: text.decode().split() for name, text in slurm_work.final("both").items()}
    assert cluster.state(job).split() == ["COMPLETED", "COMPLETED"]
    assert final["rank_0"] == ["5", "node1", "of", "2"]
    assert final["rank_1"][1] in ("node3", "node4")


def test_a_workflow_that_imports_unbroken_uses_the_installed_profile(slurm_work: WorkDir, cluster: Cluster) -> None:
    page = (ROOT / "docs" / "module.md").read_text()
    for name, text in re.findall(r"^`([^`]+)`:\n\n```\w+\n(.*?)^```", page, re.MULTILINE | re.DOTALL):
        slurm_work.write(name, text)
    slurm_work.write("config/config.yaml", yaml.safe_dump({"unbroken": {"runs": {"demo": toy(place="gpu")}}}))
    assert [slurm_work.unbroken("profile", name).code for name in ("default", "slurm")] == [0, 0]

    done = exact("snakemake --profile slurm", slurm_work)

    assert done.code == 0, done.text
    assert accounted(cluster, slurm_work, "demo")["demo"]["partition"] == "gpu"
    assert (slurm_work.root / "results" / "last_value.txt").read_text().startswith("3,")


@pytest.mark.slow
def test_the_profile_of_a_clone_is_filled_in_where_it_stands_until_somebody_edits_it(slurm_work: WorkDir) -> None:
    clone = slurm_work.copy_workflow()
    site = clone / "profiles" / "slurm" / "site.yaml"
    site.write_text(site.read_text().replace("account: null", "account: mine"))
    shutil.copytree(ROOT / "src", clone / "src")
    program = [sys.executable, "-c", "from unbroken.cli.main import main; main()", "profile", "slurm"]
    environment = {**slurm_work.environment(), "PYTHONPATH": str(clone / "src")}

    said = [
        subprocess.run(program, cwd=clone, env=environment, capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    ]

    assert said[0].splitlines()[:3] == [
        "profiles/slurm/partitions.yaml: written",
        "profiles/slurm/profile.yaml: is there already",
        "profiles/slurm/site.yaml: written",
    ]
    assert said[1].count("is there already") == 3
    assert "account: mine" in site.read_text()
    assert "short (the default): at most 10 minutes" in site.read_text()


@pytest.mark.slow
@pytest.mark.parametrize("key", ["short", "gpu"])
def test_an_installed_profile_names_the_partitions_that_sinfo_knows(slurm_work: WorkDir, key: str) -> None:
    assert slurm_work.unbroken("profile", "slurm").code == 0

    site = yaml.safe_load((slurm_work.root / "profiles/slurm/site.yaml").read_text())["site"]
    partitions = yaml.safe_load((slurm_work.root / "profiles/slurm/partitions.yaml").read_text())["partitions"]

    assert site["places"][key] == {"partition": key}
    assert partitions[key]["max_runtime"] == {"short": 10, "gpu": 5}[key]
    assert partitions[key]["available_gpu_models"] == ["fake"]
