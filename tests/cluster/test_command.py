"""Programs of several tasks under the command engine, on a real cluster: as the engine's page says it."""

import os
import shutil
import signal
from pathlib import Path

import pytest
import yaml
from cluster.lab import Cluster
from support.workdir import ROOT, WorkDir, until

from unbroken.engines.testing.chain import is_alive
from unbroken.engines.testing.kills import children_of, programs_of
from unbroken.store.history import EndKind

PATIENCE_SECONDS = 900.0

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1000)]

# Each rank leaves when it hears USR1; the progress is rank 0's.
RANK = """
    trap 'told=1' USR1
    n=$(cat rank_0 2>/dev/null || echo 0)
    while [ -z "$told" ] && [ $n -lt 80 ]; do n=$((n + 1)); sleep 0.1; done
    echo $n > rank_$SLURM_PROCID
    [ $n -ge 80 ] || exit 85
"""

# A task with a process of a session of its own, whose number it leaves in the folder that is its argument.
TASK = """
    setsid sleep 600 & echo $! > "$1/draft$SLURM_PROCID"
    mv "$1/draft$SLURM_PROCID" "$1/task$SLURM_PROCID"
    wait
"""


@pytest.mark.needs("libpmix-dev")
@pytest.mark.usefixtures("pmix")
def test_clusters_side_by_side_have_other_job_numbers_and_folders_of_pmix(cluster: Cluster, tmp_path: Path) -> None:
    """Else a step of one keeps that of the same number of another from starting."""
    said = tmp_path / "said"
    job = cluster.sbatch(f"srun --mpi=pmix ls {cluster.folder}/tmp > {said}; ls /tmp > {said}.elsewhere")
    cluster.wait_until(lambda: not cluster.jobs())

    assert int(job) >= cluster.plan.first_port * 1000
    assert said.read_text().split() == [f"spmix_appdir_{os.geteuid()}_{job}.0"]
    assert f"_{job}." not in Path(f"{said}.elsewhere").read_text()


@pytest.mark.needs("lammps", "openmpi-bin", "libpmix-dev")
@pytest.mark.usefixtures("pmix")
def test_lammps_of_two_ranks_in_pieces_leaves_the_bytes_of_one_run(slurm_work: WorkDir) -> None:
    example = ROOT / "examples" / "lammps"
    for name in ("start.in", "resume.in", "run.in"):
        shutil.copy(example / name, slurm_work.root / name)
    (settings,) = (
        run["settings"] for run in yaml.safe_load((example / "config" / "config.yaml").read_text())["runs"].values()
    )
    # Ranks that wait must not keep the others from working, where cores are few.
    settings["environment"] = {"OMPI_MCA_mpi_yield_when_idle": "1"}
    # LAMMPS ends a segment by its own timer: more steps than any machine makes in one.
    settings |= {"goal": 10**6, "margin_seconds": 15}
    run = {"engine": "command", "tasks": 2, "enter": ["srun", "--mpi=pmix"], "save_minutes": 0.02, "settings": settings}

    slurm_work.configure({"pieces": {**run, "segments": 1, "segment_minutes": 0.6}})
    paused = slurm_work.start().wait(PATIENCE_SECONDS)
    goal = (int(slurm_work.saved("pieces")) // 100 + 5) * 100
    to_the_end = {**run, "settings": {**settings, "goal": goal}, "segment_minutes": 9}
    slurm_work.configure({"pieces": {**to_the_end, "segments": 2}, "whole": {**to_the_end, "segments": 1}})
    done = slurm_work.start().wait(PATIENCE_SECONDS)

    assert (paused.code, done.code) == (0, 0), paused.text + done.text
    outcomes = [attempt.kind for attempt in slurm_work.history("pieces")]
    assert outcomes == [EndKind.PAUSED, EndKind.FINISHED]
    assert "1 by 1 by 2 MPI processor grid" in slurm_work.log("whole", 1)
    pieces, whole = slurm_work.final("pieces"), slurm_work.final("whole")
    assert sorted(whole) == ["log.lammps", f"melt.{goal}.rst", "melt.lammpstrj", "thermo.dat"]
    # Each segment begins a log with times again.
    assert sorted(pieces) == sorted([*whole.keys() - {"log.lammps"}, *(f"segments/00{n}/log.lammps" for n in (1, 2))])
    assert {name: whole[name] for name in whole.keys() & pieces.keys()} == {
        name: pieces[name] for name in whole.keys() & pieces.keys()
    }


def test_srun_passes_usr1_on_to_every_task(slurm_work: WorkDir) -> None:
    settings = {
        "start": ["bash", "-c", RANK],
        "files": ["rank_0", "rank_1"],
        "progress_file": "rank_0",
        "progress_pattern": r"^(\d+)$",
        "goal": 80,
        "stop_signal": "USR1",
    }
    run = {"engine": "command", "tasks": 2, "nodes": 1, "segments": 20, "segment_minutes": 0.1, "settings": settings}
    slurm_work.configure({"ranks": run})

    done = slurm_work.start().wait(PATIENCE_SECONDS)

    assert done.code == 0, done.text
    attempts = slurm_work.history("ranks")
    assert [attempt.exit_code for attempt in attempts] == [85] * (len(attempts) - 1) + [0]
    assert len(attempts) >= 2
    assert sorted(slurm_work.final("ranks")) == ["rank_0", "rank_1"]


def test_tasks_whose_srun_was_killed_are_gone_when_their_attempt_ends(slurm_work: WorkDir, tmp_path: Path) -> None:
    """They are no descendants of ours, and Slurm lets them work on until the job ends: their step is cancelled."""
    settings = {
        "start": ["bash", "-c", TASK, "task", str(tmp_path)],
        "files": ["rank_0"],
        "progress_file": "rank_0",
        "progress_pattern": r"^(\d+)$",
        "goal": 80,
    }
    run = {"engine": "command", "tasks": 2, "nodes": 1, "segments": 1, "segment_minutes": 5, "settings": settings}
    slurm_work.configure({"ranks": run})
    driver = slurm_work.start("--retries", "0")
    until(lambda: len(list(tmp_path.glob("task*"))) == 2, PATIENCE_SECONDS)
    tasks = [int(path.read_text()) for path in tmp_path.glob("task*")]
    assert all(map(is_alive, tasks))

    (srun,) = programs_of(slurm_work.holder("ranks"))
    for pid in (*children_of(srun), srun):  # its child would cancel the step
        os.kill(pid, signal.SIGKILL)
    until(lambda: slurm_work.history("ranks"), PATIENCE_SECONDS)

    assert not any(map(is_alive, tasks))
    assert driver.wait(PATIENCE_SECONDS).code != 0
