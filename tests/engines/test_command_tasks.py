"""The command engine and programs of several tasks: what a launcher passes on, and what of it makes no sense."""

import pytest
from support.command_jobs import command_job, command_run, command_segment, task_at
from support.toyrun import history

from unbroken.engines.command.placeholders import seconds_left
from unbroken.engines.files.settings import program_of
from unbroken.engines.found import known_schemas
from unbroken.errors import ConfigError
from unbroken.store.history import EndKind

SETTINGS = {"start": ["run"], "files": ["a.{progress}.rst"], "goal": 9}

# Each rank notes what it hears and leaves with 85, once the other one has noted it too: with the first that leaves so,
# mpirun ends the others.
RANK = """
    trap 'told=USR1' USR1
    n=0; while [ -z "$told" ] && [ $n -lt 3000 ]; do n=$((n + 1)); sleep 0.05; done
    echo $told $n > rank_$OMPI_COMM_WORLD_RANK
    n=0; while [ ! -s rank_$((1 - OMPI_COMM_WORLD_RANK)) ] && [ $n -lt 100 ]; do n=$((n + 1)); sleep 0.05; done
    exit 85
"""


@pytest.mark.process
@pytest.mark.needs("openmpi-bin")
def test_mpirun_passes_usr1_on_to_every_task(tmp_path):
    settings = {
        "start": ["bash", "-c", RANK],
        "files": ["rank_0", "rank_1"],
        "stop_signal": "USR1",
    }
    enter = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "2"]
    keys = {"tasks": 2, "enter": enter, "segment_minutes": 0.2, "first_margin_seconds": 6}

    record = command_segment(tmp_path, settings, **keys)

    job = command_job(tmp_path, settings, **keys)
    (newest,) = job.places.checkpoints.glob("[0-9]*")
    assert record.kind is EndKind.PAUSED
    assert [(newest / f"rank_{rank}").read_text().split()[0] for rank in (0, 1)] == ["USR1", "USR1"]
    assert [attempt.exit_code for attempt in history(job)] == [85]


@pytest.mark.parametrize("number", ["TERM", "HUP", "INT"])
@pytest.mark.parametrize("run_keys", [{"tasks": 2}, {"enter": ["apptainer", "exec", "a.sif", "mpirun"]}])
def test_a_signal_on_which_a_launcher_kills_its_tasks_is_refused(number, run_keys):
    with pytest.raises(ConfigError) as error:
        command_run(run_keys, **SETTINGS, stop_signal=number)

    assert error.value.mistakes == [
        f"runs.demo.settings.stop_signal: found '{number}', on which srun and mpirun kill the program, or do nothing; "
        "allowed: USR1 or USR2, which they pass on to each task, or `stop_file`, or a time limit of its own"
    ]


def test_a_launcher_behind_srun_is_refused():
    with pytest.raises(ConfigError) as error:
        command_run({"tasks": 4}, **{**SETTINGS, "start": ["mpirun", "-n", "4", "lmp"]})

    assert error.value.mistakes == [
        "runs.demo.settings.start: found 'mpirun', which srun would start in each task; type enter: [] in the run, or "
        "leave mpirun out"
    ]


def test_another_number_of_tasks_is_another_computation():
    from unbroken.store.run import identity_of

    one, four = (
        identity_of(command_run({"tasks": tasks}, **SETTINGS), known_schemas().engines["command"].identity)
        for tasks in (1, 4)
    )

    assert four.differences(one.parts) == ["tasks was 1, is 4"]


@pytest.mark.parametrize(("start", "lead"), [(["run"], 1), (["/opt/mpi/bin/mpirun", "-n", "4", "run"], 16)])
def test_a_program_behind_a_launcher_is_told_to_leave_earlier_by_its_own_clock(tmp_path, start, lead):
    settings = {"start": start}
    task = task_at(command_job(tmp_path, settings))  # of a minute

    assert 60 - lead - 10 < seconds_left(task, program_of(command_run(**settings))) <= 60 - lead
