"""What a run's job asks of Slurm, in the plugin's words."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from support.making import ATTEMPT
from support.toyrun import toy_run

from unbroken.config.site import Site, read_site
from unbroken.engines.found import known_schemas
from unbroken.plan.limits import ClusterLimits
from unbroken.plan.resources import extra_words, resources
from unbroken.plan.slurm_jobs import SlurmPlan, missing_site, site_file
from unbroken.runs.history import History
from unbroken.runs.layout import RunFolder
from unbroken.runs.segment_end import EndKind
from unbroken.slurm.excluded_nodes import more_to_exclude
from unbroken.slurm.job_end import EndState
from unbroken.slurm.partitions import partitions_in
from unbroken.slurm.tables import rows_in

SITE = (
    "site: {account: physics, modules: [gcc], places: {short: {partition: batch}, gpu: {partition: g, gpu_type: a100}}}"
)


def site(text: str = SITE) -> Site:
    found = read_site(yaml.safe_load(text), known_schemas())
    assert found is not None
    return found


def asked(text: str = SITE, **keys: object) -> dict[str, str | int]:
    run = toy_run(**keys)
    return resources(run, site(text).request(run))


def test_a_plain_run_asks_for_its_partition_and_account_on_one_node():
    assert asked() == {"slurm_partition": "batch", "slurm_account": "physics", "nodes": 1}


def test_what_nobody_set_is_left_to_slurm():
    assert asked("site: {}") == {"nodes": 1}


def test_the_type_of_a_gpu_is_asked_for_only_with_a_gpu():
    assert asked(place="gpu", gpus=2)["gpu_model"] == "a100"
    assert "gpu_model" not in asked(place="gpu", gpus=0)


def test_everything_that_a_run_overrides_is_asked_for():
    found = asked(partition="long", account="mine", qos="high", constraint="fast&big", gpu_type="h100", gpus=1)

    assert found == {
        "slurm_partition": "long",
        "slurm_account": "mine",
        "qos": "high",
        "constraint": "fast&big",
        "gpu_model": "h100",
        "nodes": 1,
    }


def test_several_tasks_are_left_to_the_programs_own_srun():
    assert asked(tasks=8, nodes=2) == {
        "slurm_partition": "batch",
        "slurm_account": "physics",
        "nodes": 2,
        "tasks": 8,
        "mpi": "srun",
    }
    assert "nodes" not in asked(tasks=8)


def test_several_tasks_with_gpus_are_not_multiplied_by_them():
    assert asked(place="gpu", tasks=4, gpus=4)["tasks_per_gpu"] == 0
    assert "tasks_per_gpu" not in asked(tasks=4)


WARNED = [  # segment_minutes, warn_seconds, words
    (10, 90, "--signal=URG@90"),
    (5, 90, "--signal=URG@90"),
    (4.5, 90, "--signal=URG@90"),
    (4, 90, ""),
    (0.05, 90, ""),
    (480, 0, ""),
    (3, 30, "--signal=URG@30"),
]


@pytest.mark.parametrize(("minutes", "warn_seconds", "words"), WARNED)
def test_slurm_warns_only_jobs_that_are_long_beside_the_warning(minutes, warn_seconds, words):
    run = toy_run(segment_minutes=minutes)

    assert extra_words(run, site(f"site: {{warn_seconds: {warn_seconds}}}").request(run)) == words


def test_the_least_that_a_job_may_get_decides_whether_slurm_warns_it():
    run = toy_run(segment_minutes=480, least_minutes=4)

    assert extra_words(run, site("site: {warn_seconds: 90}").request(run)) == ""


def test_words_are_quoted_for_the_shell():
    run = toy_run(segment_minutes=60, slurm_extra=("--mail-user=$(id) a",))

    words = extra_words(run, site().request(run))

    assert words == "--signal=URG@90 '--mail-user=$(id) a'"


@pytest.mark.parametrize("own", [["--exclude=node9"], ["--exclude", "node9"], ["-x", "node9"], ["-xnode9"]])
def test_nodes_are_avoided_beside_those_that_the_user_excludes(own):
    run = toy_run(segment_minutes=60, slurm_extra=(*own, "--exclusive"))

    words = extra_words(run, site("site: {extra: [-x, 'big[1-2]']}").request(run), ["node1", "node2"])

    # sbatch takes the last --exclude alone.
    assert words == "--signal=URG@90 --exclusive '--exclude=big[1-2],node9,node1,node2'"


def plan(base: Path, *runs, told: list[str] | None = None, is_driver: bool = True) -> SlurmPlan:
    found = SlurmPlan(runs, site(), base, is_driver, (told if told is not None else []).append)
    found._cluster = ClusterLimits(partitions_in(rows_in("batch*|up|10:00|3|4|700|(null)|idle\n", 8)))
    return found


def test_the_modules_of_the_site_are_loaded_for_every_run(tmp_path):
    assert [run.modules for run in plan(tmp_path, toy_run(modules=("lammps",))).runs] == [("gcc", "lammps")]


def test_what_all_runs_share_costs_snakemake_no_question(tmp_path):
    found = plan(tmp_path, toy_run("a", qos="high"), toy_run("b")).rule_resources()

    assert (found["slurm_account"], found["slurm_partition"], found["nodes"]) == ("physics", "batch", 1)
    ask = found["qos"]
    assert [ask(SimpleNamespace(run=name, segment="001")) for name in ("a", "b")] == ["high", None]
    assert set(found) == {"slurm_account", "slurm_partition", "nodes", "qos", "slurm_extra"}


def killed_for_memory(base: Path, mem_mb: int, times: int) -> None:
    history = History(RunFolder("demo", base).history)
    for token in range(1, times + 1):
        history.append(
            replace(ATTEMPT, token=token, kind=EndKind.DIED, job_state=EndState.OUT_OF_MEMORY, mem_mb=mem_mb)
        )


def test_memory_grows_with_each_attempt_that_wanted_more_up_to_the_largest_node(tmp_path):
    run = toy_run(mem_mb=200, memory_growth=1.5)
    asked = []
    for times in range(5):
        killed_for_memory(tmp_path / str(times), 200, times)
        asked.append(plan(tmp_path / str(times), run).mem_mb("demo", "001"))

    assert asked == [200, 300, 450, 675, 700]


def test_the_user_is_told_once_that_memory_grew_and_what_to_type(tmp_path):
    told: list[str] = []
    killed_for_memory(tmp_path, 200, 2)
    found = plan(tmp_path, toy_run(mem_mb=200), told=told)

    assert [found.mem_mb("demo", "001"), found.mem_mb("demo", "001")] == [450, 450]
    assert told == ["demo: 2 attempts ran out of memory; asking for 450 MB; to start with that, set mem_mb: 450"]


def test_memory_is_asked_anew_at_each_attempt_and_the_segments_behind_it_ask_for_as_much(tmp_path):
    driver = plan(tmp_path, toy_run(mem_mb=200))
    job = plan(tmp_path, toy_run(mem_mb=200), is_driver=False)
    before = driver.mem_mb("demo", "001")

    killed_for_memory(tmp_path, 200, 1)

    assert (before, driver.mem_mb("demo", "001")) == (200, 300)
    assert driver.mem_mb("demo", "002") == 300  # without a driver it is submitted together with the first
    assert job.mem_mb("demo", "001") == 200


def test_nodes_on_which_a_run_failed_are_excluded_but_never_all_of_them(tmp_path):
    told: list[str] = []
    history = History(RunFolder("demo", tmp_path).history)
    for token, node in enumerate(["node1", "node1", "node2", "node2", "node3", "node3"], 1):
        stuck = replace(ATTEMPT, token=token, kind=EndKind.FAILED, slurm_node=node, to_checkpoint=None)
        history.append(replace(stuck, progress_from=10.0, progress_to=10.0))
    found = plan(tmp_path, toy_run(), told=told)

    words = [found.rule_resources()["slurm_extra"](SimpleNamespace(run="demo", segment=one)) for one in ("001", "002")]

    # Without a driver the second one is submitted together with the first.
    assert words == ["--exclude=node3,node2"] * 2
    assert told == ["demo: not on node3, node2, where it failed repeatedly"]


def test_the_file_to_edit_is_the_one_that_holds_the_site(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "profile").mkdir()
    (tmp_path / "link").symlink_to("profile")
    (tmp_path / "profile" / "site.yaml").write_text("site: {}\n")
    (tmp_path / "other.yaml").write_text("runs: {}\n")

    assert site_file([str(tmp_path / "link" / "site.yaml"), "other.yaml", "gone.yaml"]) == "profile/site.yaml"
    assert site_file(["other.yaml"]) == "site.yaml in the folder of the profile"


def test_slurm_without_a_site_is_refused_and_other_executors_pass():
    line = missing_site("slurm")

    assert line == missing_site("unbroken")
    assert line == (
        "site: jobs are to go to Slurm, but the config has no `site`: --configfile takes the place of the profile's "
        "own file; type --profile slurm without it, or name both: --configfile profiles/slurm/site.yaml YOURS"
    )
    assert [missing_site(name) for name in ("local", "dryrun", "lsf")] == ["", "", ""]


@pytest.mark.parametrize(("spare", "more"), [(0, []), (1, []), (2, ["node3"]), (3, ["node3", "node2"])])
def test_nodes_that_the_user_excludes_count_among_those_that_a_partition_can_spare(spare: int, more: list[str]) -> None:
    assert more_to_exclude(["node1"], ["node3", "node2", "node1"], spare) == more
