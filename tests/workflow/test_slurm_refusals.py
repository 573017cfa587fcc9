"""What `snakemake --profile slurm` says where it cannot work; no cluster is needed for that."""

import os
from pathlib import Path

import pytest
from support.workdir import BIN, ROOT, WorkDir, one_step_segments

COMMANDS = ("sinfo", "squeue", "sacct", "sacctmgr", "scontrol", "sbatch", "srun", "scancel", "sshare")
MISSING = (
    "unbroken: sinfo: not found here; snakemake --profile slurm belongs on a login node of the cluster; type snakemake "
    "to run on this machine"
)


@pytest.fixture
def without_slurm(tmp_path: Path) -> dict[str, str]:
    """An environment with every program but Slurm's."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for path in (path for name in ("/usr/local/bin", "/usr/bin", "/bin") for path in Path(name).glob("*")):
        if path.name not in COMMANDS and not (folder / path.name).exists():
            (folder / path.name).symlink_to(path)
    return {"PATH": f"{BIN}:{folder}"}


@pytest.fixture
def profiled(work: WorkDir) -> WorkDir:
    """A working directory whose drivers are told to use Slurm."""
    work.profile = ROOT / "profiles" / "slurm"
    work.configure({"demo": one_step_segments(2, 2)})
    return work


def test_a_machine_without_slurm_is_told_where_the_command_belongs(profiled: WorkDir, without_slurm) -> None:
    profiled.added_environment = without_slurm

    done = profiled.snakemake()

    assert (done.code, done.lines("unbroken: ")) == (1, [MISSING])
    assert not (profiled.root / "results").exists()


def test_where_nothing_is_to_do_slurm_is_not_asked(profiled: WorkDir, without_slurm) -> None:
    profiled.profile, profile = None, profiled.profile
    assert profiled.snakemake().code == 0
    profiled.profile, profiled.added_environment = profile, without_slurm

    done = profiled.snakemake("-n")

    assert (done.code, done.lines("unbroken: ")) == (0, []), done.text


@pytest.mark.needs("slurm-wlm")
def test_a_controller_that_does_not_answer_is_one_line(profiled: WorkDir) -> None:
    profiled.added_environment = {"SLURM_CONF": str(profiled.root / "none")}

    done = profiled.snakemake("-n")

    assert (done.code, done.lines("unbroken: ")) == (
        1,
        [
            "unbroken: sinfo: Slurm's controller does not answer, so nothing can be queued; see what `scontrol ping` "
            "says, then type the same command again"
        ],
    )


def test_a_configfile_that_takes_the_place_of_the_site_is_refused(profiled: WorkDir, without_slurm) -> None:
    profiled.added_environment = without_slurm

    done = profiled.snakemake("--configfile", "config/config.yaml")

    assert done.code == 1
    assert done.lines("unbroken: ") == [
        "unbroken: site: jobs are to go to Slurm, but the config has no `site`: --configfile takes the place of the "
        "profile's own file; type --profile slurm without it, or name both: --configfile profiles/slurm/site.yaml YOURS"
    ]
    assert not (profiled.root / "results").exists()


def test_tasks_for_srun_are_refused_on_a_machine_without_slurm(work: WorkDir) -> None:
    work.configure({"demo": one_step_segments(2, 2, tasks=4)})

    done = work.snakemake()

    assert done.lines("unbroken: ") == [
        'unbroken: runs.demo.tasks: found 4, and outside Slurm srun cannot start them; type enter: [mpirun, -n, "4"] '
        "to start them here, or snakemake --profile slurm for the cluster"
    ]


def test_tasks_start_here_by_what_the_user_names(work: WorkDir) -> None:
    work.write("both.sh", '#!/bin/sh\necho "starting $1 tasks"\nshift\nexec "$@"\n').chmod(0o755)
    work.configure({"demo": one_step_segments(2, 2, tasks=4, enter=["./both.sh", "4"])})

    done = work.snakemake()

    assert done.code == 0
    assert "starting 4 tasks\n" in work.log("demo", 1)


def test_a_profile_is_installed_once_and_what_was_edited_stays(work: WorkDir, without_slurm) -> None:
    work.added_environment = without_slurm
    unfilled = "sinfo: not found here, so the partitions' names could not be filled in; edit profiles/slurm/site.yaml"

    first = work.unbroken("profile", "slurm")
    site = work.root / "profiles" / "slurm" / "site.yaml"
    site.write_text(site.read_text().replace("account: null", "account: mine"))
    second = work.unbroken("profile", "slurm")

    assert first.text.splitlines() == [
        "profiles/slurm/partitions.yaml: written",
        "profiles/slurm/profile.yaml: written",
        "profiles/slurm/site.yaml: written",
        unfilled,
        "slurm: a link to profiles/slurm, by which snakemake finds it",
        "type: snakemake --profile slurm",
    ]
    assert second.text.splitlines() == [
        "profiles/slurm/partitions.yaml: is there already",
        "profiles/slurm/profile.yaml: is there already",
        "profiles/slurm/site.yaml: yours, left as it is; compare: diff profiles/slurm/site.yaml "
        "profiles/slurm/site.yaml.new",
        unfilled,
        "type: snakemake --profile slurm",
    ]
    assert "account: mine" in site.read_text()
    assert (site.with_name("site.yaml.new")).read_text() == (ROOT / "profiles/slurm/site.yaml").read_text()
    assert os.readlink(work.root / "slurm") == "profiles/slurm"


def test_a_profile_goes_where_it_is_told_or_to_the_users_own(work: WorkDir, without_slurm) -> None:
    work.added_environment = {**without_slurm, "XDG_CONFIG_HOME": str(work.root / "xdg")}

    told = work.unbroken("profile", "slurm", "--to", "here/cluster")
    users = work.unbroken("profile", "slurm", "--user")

    assert (work.root / "here" / "cluster" / "profile.yaml").is_file()
    assert told.text.splitlines()[-1] == "type: snakemake --profile here/cluster"
    assert (work.root / "xdg" / "snakemake" / "slurm" / "profile.yaml").is_file()
    assert users.text.splitlines()[-1] == "type: snakemake --profile slurm"
    assert not (work.root / "slurm").exists()


def test_a_profile_of_the_user_is_found_by_its_name(profiled: WorkDir, without_slurm) -> None:
    profiled.added_environment = {**without_slurm, "XDG_CONFIG_HOME": str(profiled.root / "xdg")}
    profiled.unbroken("profile", "slurm", "--user")
    profiled.profile = None

    done = profiled.snakemake("--profile", "slurm")

    assert (done.code, done.lines("unbroken: ")) == (1, [MISSING])


WRONG = {
    ("slrum",): "unbroken: profile: found 'slrum', allowed: {known}; did you mean `slurm`?",
    ("slurm", "--to", "x", "--user"): "unbroken: profile: found --to and --user; type one of them",
    ("slurm", "--to", "config/config.yaml"): (
        "unbroken: config/config.yaml: is a file, and the profile needs a folder; type --to and another name"
    ),
}


@pytest.mark.parametrize("words", WRONG, ids=" ".join)
def test_a_profile_that_cannot_be_installed_is_refused_in_one_line(profiled: WorkDir, words) -> None:
    *most, last = sorted(path.parent.name for path in ROOT.glob("profiles/*/profile.yaml"))

    done = profiled.unbroken("profile", *words)

    assert (done.code, done.text) == (1, WRONG[words].replace("{known}", f"{', '.join(most)} or {last}") + "\n")
