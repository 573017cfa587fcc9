"""Programs of several tasks: what starts them, and what is refused."""

import pytest
import yaml
from support.toyrun import toy_run

from unbroken.config.load import read_runs
from unbroken.config.package_files import root_folder
from unbroken.config.tasks import mistakes_in_a_step, mistakes_outside_slurm, settled_enter
from unbroken.engines.found import known_schemas
from unbroken.errors import ConfigError

NUMBERS = ("--ntasks=4", "--cpus-per-task=2")
SETTLED = [
    (None, 1, ()),
    (None, 4, ("srun", *NUMBERS)),
    ([], 4, ()),
    (["srun", "--mpi=pmix"], 4, ("srun", *NUMBERS, "--mpi=pmix")),
    (["/opt/slurm/bin/srun"], 4, ("/opt/slurm/bin/srun", *NUMBERS)),
    (["srun", "-n2"], 4, ("srun", "--cpus-per-task=2", "-n2")),
    (["srun", "--ntasks-per-node=1", "-c", "8"], 4, ("srun", "--ntasks-per-node=1", "-c", "8")),
    (["srun", "apptainer", "exec", "-c", "a.sif"], 4, ("srun", *NUMBERS, "apptainer", "exec", "-c", "a.sif")),
    (["mpirun", "-n", "4"], 4, ("mpirun", "-n", "4")),
    (["apptainer", "exec", "a.sif"], 1, ("apptainer", "exec", "a.sif")),
    (["srun", "--overlap"], 1, ("srun", "--overlap")),
]


@pytest.mark.parametrize(("words", "tasks", "settled"), SETTLED, ids=str)
def test_srun_is_told_the_numbers_unless_the_user_names_them(words, tasks, settled):
    assert settled_enter(words, tasks, threads=2) == settled


def said(**keys: object) -> list[str]:
    run = {"engine": "toy", "segments": 4, "segment_minutes": 2, "settings": {"goal": 9}, **keys}
    with pytest.raises(ConfigError) as error:
        read_runs({"runs": {"demo": run}}, known_schemas(), root_folder())
    return error.value.mistakes


def test_more_nodes_than_tasks_are_refused():
    assert said(nodes=2) == ["runs.demo.nodes: found 2, but tasks is 1, and each node needs one; type tasks: 2 or more"]


def test_a_container_that_would_start_one_task_of_many_is_refused():
    assert said(tasks=4, enter=["apptainer", "exec", "a.sif"]) == [
        "runs.demo.enter: apptainer starts the program once, but tasks is 4; put srun before it: "
        "enter: [srun, apptainer, exec, a.sif]"
    ]


@pytest.mark.parametrize("enter", [["apptainer", "exec", "a.sif", "mpirun"], ["./start.sh"], [], ["mpiexec"]])
def test_whatever_may_start_the_tasks_is_believed(enter):
    config = yaml.safe_load("runs: {a: {engine: toy, segments: 4, segment_minutes: 2, settings: {goal: 9}, tasks: 4}}")
    config["runs"]["a"]["enter"] = enter

    assert read_runs(config, known_schemas(), root_folder())[0].environment.enter == tuple(enter)


def test_srun_for_a_single_task_inside_unbrokens_own_step_is_refused():
    assert list(mistakes_in_a_step(toy_run(enter=("srun",)))) == [
        "runs.demo.enter: srun with a single task waits for the step in which unbroken itself runs, for ever; "
        "leave srun out, or type tasks: 2 or more"
    ]
    assert list(mistakes_in_a_step(toy_run(enter=("srun", "--overlap")))) == []
    assert list(mistakes_in_a_step(toy_run(enter=("srun",), tasks=2))) == []


def test_srun_outside_slurm_is_refused():
    assert list(mistakes_outside_slurm(toy_run(tasks=4, enter=("srun", *NUMBERS)))) == [
        'runs.demo.tasks: found 4, and outside Slurm srun cannot start them; type enter: [mpirun, -n, "4"] to start '
        "them here, or snakemake --profile slurm for the cluster"
    ]
    assert list(mistakes_outside_slurm(toy_run(tasks=4, enter=("mpirun", "-n", "4")))) == []
    assert list(mistakes_outside_slurm(toy_run())) == []
