"""What a user of Slurm sees: names of jobs, one site.yaml, one true line at Ctrl-C."""

import re

from cluster.lab import Cluster
from support.workdir import WorkDir, until

LONG = {
    "engine": "toy",
    "segments": 3,
    "segment_minutes": 5,
    "settings": {"goal": 2000, "step_seconds": 0.05, "save_steps": 20},
}


def test_the_jobs_of_an_attached_driver_bear_the_name_of_their_run(slurm_work: WorkDir, cluster: Cluster) -> None:
    slurm_work.configure({"train": LONG})
    slurm_work.start()
    until(cluster.jobs)

    names = cluster.run("squeue", "--noheader", "--format=%j").split()

    assert [name for name in names if "train" in name] == names


def test_ctrl_c_of_an_attached_driver_is_one_true_line(slurm_work: WorkDir) -> None:
    slurm_work.added_environment = {**slurm_work.added_environment, "UNBROKEN_CONSOLE": ""}
    slurm_work.configure({"train": LONG})
    driver = slurm_work.start()
    until(lambda: slurm_work.saved("train") > 0)

    driver.interrupt()
    done = driver.wait()

    told = [line for line in done.lines("") if re.search(r"\btrain\b", line) and "runs: train" not in line]
    assert "not started" not in done.text
    assert "preempted or canceled" not in done.text
    assert len([line for line in told if "Ctrl-C" in line]) == 1, told


def test_what_is_edited_in_the_one_site_holds_for_both_ways(slurm_work: WorkDir, cluster: Cluster) -> None:
    slurm_work.configure({"train": LONG})
    assert slurm_work.unbroken("profile", "slurm").code == 0
    site = slurm_work.root / "profiles" / "slurm" / "site.yaml"
    site.write_text(re.sub(r"(?m)^(  extra:).*", r"\1 [--nice=77]", site.read_text()))
    driver = slurm_work.unbroken("run", "--slurm", "--", "-n", columns=300)

    done = slurm_work.unbroken("run", "--detached", columns=300)

    assert (driver.code, done.code) == (0, 0), driver.text + done.text
    assert "--profile slurm --immediate-submit --notemp\n" in done.text
    assert {path.resolve() for path in slurm_work.root.rglob("site.yaml")} == {site.resolve()}
    (array,) = {job.partition("_")[0] for job in cluster.jobs()}
    assert "Nice=77" in cluster.run("scontrol", "show", "job", array)
