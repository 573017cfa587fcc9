"""What a run's job asks of Slurm, in the plugin's words."""

from types import SimpleNamespace

import pytest
import yaml
from support.toyrun import toy_run

from unbroken.config.site import Site, read_site
from unbroken.engines.found import known_schemas
from unbroken.plan.plan import Plan
from unbroken.plan.slurm_jobs import SlurmPlan, extra_words, missing_site, resources, site_file
from unbroken.slurm.sbatch import more_to_exclude

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


PLAIN = {"slurm_partition": "batch", "slurm_account": "physics", "nodes": 1}
OWN = {"qos": "high", "constraint": "fast&big"}
ASKED = {
    "its partition and account, on one node": ({}, PLAIN),
    "the type of a GPU only with a GPU": ({"place": "gpu"}, {**PLAIN, "slurm_partition": "g"}),
    "the type of its GPUs": ({"place": "gpu", "gpus": 2}, {**PLAIN, "slurm_partition": "g", "gpu_model": "a100"}),
    "what the run overrides": (
        {**OWN, "partition": "long", "account": "mine", "gpu_type": "h100", "gpus": 1},
        {**OWN, "slurm_partition": "long", "slurm_account": "mine", "gpu_model": "h100", "nodes": 1},
    ),
    "several tasks, which the program's own srun starts": (
        {"tasks": 8, "nodes": 2},
        {**PLAIN, "nodes": 2, "tasks": 8, "mpi": "srun"},
    ),
    "several tasks with GPUs, which the plugin would multiply": (
        {"place": "gpu", "tasks": 4, "gpus": 4, "nodes": 1},
        {**PLAIN, "slurm_partition": "g", "gpu_model": "a100", "tasks": 4, "mpi": "srun", "tasks_per_gpu": 0},
    ),
}


@pytest.mark.parametrize(("keys", "found"), ASKED.values(), ids=ASKED)
def test_a_run_asks_for(keys, found):
    assert asked(**keys) == found


def test_what_nobody_set_is_left_to_slurm():
    assert asked("site: {}") == {"nodes": 1}
    assert "nodes" not in asked(tasks=8)


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
def test_nodes_that_site_and_run_exclude_are_one_option(own):
    run = toy_run(segment_minutes=60, slurm_extra=(*own, "--exclusive"))

    words = extra_words(run, site("site: {extra: [-x, 'big[1-2]']}").request(run))

    # sbatch takes the last --exclude alone.
    assert words == "--signal=URG@90 --exclusive '--exclude=big[1-2],node9'"


def test_the_modules_of_the_site_are_loaded_for_every_run():
    assert [run.environment.modules for run in SlurmPlan([toy_run(modules=("lammps",))], site()).runs] == [
        ("gcc", "lammps")
    ]


def test_what_all_runs_share_costs_snakemake_no_question():
    found = Plan([toy_run("a", qos="high", mem_mb=500), toy_run("b", mem_mb=700)], site=site()).resources()

    assert (found["slurm_account"], found["slurm_partition"], found["nodes"]) == ("physics", "batch", 1)
    assert [found["qos"](SimpleNamespace(run=name)) for name in ("a", "b")] == ["high", None]
    assert [found["mem_mb"](SimpleNamespace(run=name)) for name in ("a", "b")] == [500, 700]
    assert {"slurm_account", "slurm_partition", "nodes", "qos", "slurm_extra"} < set(found)


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
