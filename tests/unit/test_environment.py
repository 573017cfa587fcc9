"""What a run's program is started in: how it is read, and what follows from a change."""

from dataclasses import replace
from pathlib import Path

import pytest
from support.making import PASSPORT
from support.toyrun import checkpoints, history, program, run_program, toy_job, toy_run
from support.venvs import install, make_venv

from unbroken.errors import AbsentFileError, ChangedEnvironmentError
from unbroken.program.environment import changes, described, entered, on_disk
from unbroken.program.python_environment import Conda, Venv, packages_in
from unbroken.system.host import nvidia_version, this_host


def packages(**versions: str) -> dict[str, dict[str, object]]:
    return {"venv": {"path": "/env", "python": "3.11.2", "packages": versions}}


def found(before: dict[str, dict[str, object]], now: dict[str, dict[str, object]]) -> list[str]:
    return changes(toy_run(), now, replace(PASSPORT, sequence=12, environment=before))


# --- compared ------------------------------------------------------------------------------------------------------


def test_the_same_environment_elsewhere_is_no_change() -> None:
    now = packages(numpy="1.26.4")
    now["venv"]["path"] = "/moved"

    assert found(packages(numpy="1.26.4"), now) == []


def test_each_kind_of_change_is_told_and_many_are_counted() -> None:
    before = packages(a="1", b="1", c="1", d="1", e="1", f="1", old="1")

    assert found(before, packages(a="1", b="1", c="1", d="2", e="1", f="1", new="3")) == [
        "venv changed since checkpoint 12: d 1 -> 2, new 3 is new, old 1 is gone"
    ]
    assert found(before, packages()) == [
        "venv changed since checkpoint 12: a 1 is gone, b 1 is gone, c 1 is gone, d 1 is gone, e 1 is gone and 2 more"
    ]


def test_a_checkpoint_that_does_not_say_what_it_was_made_in_says_nothing_of_a_change() -> None:
    assert found({}, packages(a="1")) == []


def test_an_environment_that_the_run_names_no_more_is_told() -> None:
    assert found(packages(a="1"), {}) == ["venv was there at checkpoint 12, and is not any more"]


# --- read ----------------------------------------------------------------------------------------------------------


def test_names_and_versions_are_read_as_pip_and_setuptools_leave_them(tmp_path: Path) -> None:
    for name in ("Flask_SQLAlchemy-3.1.1.dist-info", "ruamel.yaml-0.18.6.dist-info", "old-1.0-py3.11.egg-info", "x.py"):
        (tmp_path / name).mkdir()

    assert packages_in(tmp_path) == {"flask-sqlalchemy": "3.1.1", "ruamel-yaml": "0.18.6", "old": "1.0"}


def test_packages_of_the_system_count_where_the_environment_sees_them(tmp_path: Path) -> None:
    (tmp_path / "usr/lib/python3.11/site-packages/wheel-0.38.4.dist-info").mkdir(parents=True)
    (tmp_path / "usr/lib/python3/dist-packages/six-1.16.0.egg-info").mkdir(parents=True)
    (tmp_path / "env/lib/python3.11/site-packages/six-1.17.0.dist-info").mkdir(parents=True)
    sees = "include-system-site-packages = true"
    (tmp_path / "env/pyvenv.cfg").write_text(f"home = {tmp_path}/usr/bin\n{sees}\nversion = 3.11.2\n")

    assert Venv("env", tmp_path / "env").described()["packages"] == {"six": "1.17.0", "wheel": "0.38.4"}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a home with environments of conda in it and elsewhere, one name twice."""
    places = ("one/envs/a", "two/b", "three/c", "four/f", "home/miniforge3", "home/miniforge3/envs/d", "e")
    for place in (*places, "home/miniforge3/envs/e"):
        (tmp_path / place / "conda-meta").mkdir(parents=True)
    condarc = f"channels:\n  - x\nenvs_dirs:\n  - {tmp_path}/three  # mine\n  - ~/../four\n"
    (tmp_path / "home/.condarc").write_text(condarc)
    (tmp_path / "home/.conda").mkdir()
    (tmp_path / "home/.conda/environments.txt").write_text(f"{tmp_path}/e\n{tmp_path}/home/miniforge3/envs/d\n")
    around = {"HOME": tmp_path / "home", "CONDA_EXE": tmp_path / "one/bin/conda", "CONDA_ENVS_PATH": tmp_path / "two"}
    for name, value in around.items():
        monkeypatch.setenv(name, str(value))
    return tmp_path / "home"


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("a", "one/envs/a"),
        ("b", "two/b"),
        ("c", "three/c"),
        ("f", "four/f"),
        ("base", "home/miniforge3"),
        ("d", "home/miniforge3/envs/d"),
        ("./e", "e"),
    ],
)
def test_a_conda_environment_is_found_where_conda_keeps_it(home: Path, name: str, place: str) -> None:
    found = Conda.of(name, home.parent)

    assert (found.folder.resolve(), found.mistake()) == (home.parent / place, None)


def test_which_of_several_conda_environments_of_a_name_is_meant_is_not_guessed(home: Path) -> None:
    found = Conda.of("e", home.parent).mistake()

    several = f"{home}/miniforge3/envs/e, {home.parent}/e"
    assert str(found) == f"found 'e', of which there are several: {several}; type its folder"


def test_variables_that_conda_keeps_are_set_and_one_that_it_marks_as_unset_is_not(tmp_path: Path) -> None:
    (tmp_path / "conda-meta").mkdir()
    (tmp_path / "conda-meta/state").write_text('{"version": 1, "env_vars": {"A": "x y", "B": "***unset***"}}')
    (tmp_path / "etc/conda/env_vars.d").mkdir(parents=True)
    (tmp_path / "etc/conda/env_vars.d/p.json").write_text('{"A": "package", "C": "1"}')

    words = Conda("e", tmp_path).activated(["env"])

    assert words[words.index("unbroken") + 1 :] == [str(tmp_path), str(tmp_path), "2", "A=x y", "C=1", "env"]


def test_what_cannot_be_looked_at_now_is_no_change(tmp_path: Path) -> None:
    run = toy_run(container="docker://fruit:ripe", modules=("no/such/module",), gpus=1)
    made = replace(PASSPORT, environment={name: {"version": "1"} for name in ("image", "modules", "driver", "conda")})

    parts = on_disk(run, tmp_path)

    assert parts == {}
    assert changes(run, parts, made) == ["conda was there at checkpoint 1, and is not any more"]


def test_the_driver_is_read_where_no_program_says_it() -> None:
    closed = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023\nGCC: 12.2.0\n"
    opened = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build  (dvs@x)  Thu Jan 23\n"

    assert [nvidia_version(text) for text in (closed, opened, "")] == ["535.104.05", "570.86.15", ""]


@pytest.mark.process
def test_the_driver_is_part_of_a_run_with_gpus_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = "#!/bin/sh\necho NVIDIA H100, 550.54.15\n"
    (tmp_path / "nvidia-smi").write_text(answer)
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    this_host.cache_clear()
    try:
        found = [described(toy_run(gpus=gpus), tmp_path) for gpus in (0, 1)]
    finally:
        this_host.cache_clear()

    assert found == [{}, {"driver": {"version": "550.54.15"}}]


# --- entered -------------------------------------------------------------------------------------------------------


def test_each_task_enters_the_image_and_the_environment_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")  # neither apptainer nor singularity
    monkeypatch.setenv("TMPDIR", str(tmp_path / "scratch"))
    (tmp_path / "scratch").mkdir()
    (tmp_path / "here").mkdir()
    run = toy_run(
        container="a.sif", container_options=("--bind=/data",), venv="/opt/env", enter=("srun", "-n2"), gpus=1
    )

    words = entered(["prog", "a b"], run, tmp_path / "here")

    image = ["--bind", str(tmp_path / "here"), "--bind", str(tmp_path / "scratch"), "--bind=/data"]
    assert words[:-8] == ["srun", "-n2", "apptainer", "exec", "--nv", *image]
    assert words[-8:-6] == [str(tmp_path / "here/a.sif"), "sh"]
    assert words[-4:] == ["unbroken", "/opt/env", "prog", "a b"]


def test_what_asks_the_program_enters_without_its_launcher(tmp_path: Path) -> None:
    run = toy_run(venv="env", enter=("srun", "-n2"))

    assert entered(["prog"], run, tmp_path, launcher=())[0] == "sh"


# --- of a segment --------------------------------------------------------------------------------------------------


@pytest.mark.process
def test_a_strict_segment_is_refused_on_its_node_and_its_checkpoint_stays(tmp_path: Path) -> None:
    make_venv(tmp_path / "env", "1.0")
    run_program(tmp_path, program("one_step"), 1, venv="env")
    install(tmp_path / "env", "2.0")

    with pytest.raises(ChangedEnvironmentError, match=r"strict, and venv changed since checkpoint 1: fruit 1.0 -> 2.0"):
        run_program(tmp_path, program("one_step"), 2, venv="env", environment="strict")

    job = toy_job(tmp_path)
    assert [checkpoint.passport.progress.done for checkpoint in checkpoints(job)] == [1]
    assert not (job.places.checkpoints / ".quarantine").exists()
    run_program(tmp_path, program("one_step"), 2, venv="env")
    assert [attempt.progress_to for attempt in history(job)] == [1, 1, 2]


def test_a_venv_that_a_node_lacks_is_a_file_that_is_absent(tmp_path: Path) -> None:
    with pytest.raises(AbsentFileError, match=r"runs\.demo\.venv: found 'env', but there is no such file"):
        run_program(tmp_path, program("one_step"), 1, venv="env")
