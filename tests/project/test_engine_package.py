"""An engine in a package of its own: installed beside unbroken, killed, resumed, shown; nothing of ours changes."""

import json
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
import yaml
from support.workdir import ROOT

pytestmark = [pytest.mark.process, pytest.mark.xdist_group("engine_package")]  # one process, one installed package

EXAMPLE = ROOT / "examples" / "engine_package"
STEPS = 500
PAGE = ROOT / "docs" / "engines" / "your-own.md"
TALLY_PROJECT = """
[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"
[project]
name = "unbroken-tally"
version = "0.1.0"
[project.entry-points."unbroken.engines"]
tally = "unbroken_tally.engine:TallyEngine"
[tool.setuptools]
packages = ["unbroken_tally"]
[tool.setuptools.package-data]
unbroken_tally = ["schema.yaml"]
"""
DISCARD = """
  discard:
    description: Files that are not kept.
    type: array
    items: {type: string}
    unit: none
    identity: none
    default: []
"""
# What the page supposes: a state that is replaced by a rename, SIGTERM, exit code 0.
TALLY = """
import os, signal, sys, time
options, told = OPTIONS, []
signal.signal(signal.SIGTERM, lambda number, frame: told.append(number))
step, value = map(int, open("tally.txt").read().split()) if os.path.exists("tally.txt") else (0, 1)
if "only the step" in options:
    value = 1
while step < int(sys.argv[1]) and not told:
    time.sleep(0.01)
    step, value = step + 1, (value * 1103515245 + step) % 2**31
    if step % 100 == 0 and "snapshots" in options:
        open(f"snap_{step}.txt", "w").write(f"{value}\\n")
    is_time = step % 5 == 0 and "saves when it leaves" not in options
    if is_time or told or step == int(sys.argv[1]):
        open("tally.tmp", "w").write(f"{step} {value}\\n")
        os.replace("tally.tmp", "tally.txt")
"""


def installed(fresh: Path, source: Path) -> Path:
    """A fresh environment that sees what is installed here, and has the package; its Python."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", fresh], check=True)
    python = fresh / "bin" / "python"
    (folder,) = fresh.glob("lib/*/site-packages")
    (folder / "ours.pth").write_text(f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n")
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-index", "--no-deps"]
    subprocess.run([*pip, "--no-build-isolation", str(source)], check=True)
    return python


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    source = tmp_path_factory.mktemp("source") / "package"
    shutil.copytree(EXAMPLE, source, ignore=shutil.ignore_patterns("results", "logs", ".snakemake"))
    return installed(tmp_path_factory.mktemp("fresh"), source)


def on_the_page(name: str) -> str:
    """A file of the example that stands on the page on engines."""
    text = PAGE.read_text()
    return re.search(rf"<!-- example: {re.escape(name)} -->\n```\w+\n(.*?)```", text, re.DOTALL)[1]


def tally_package(tmp_path_factory: pytest.TempPathFactory, example: str) -> Path:
    """Return the Python of a package with an engine that stands on the page, and nothing else in it."""
    source = tmp_path_factory.mktemp("tally")
    package = source / "unbroken_tally"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "engine.py").write_text(on_the_page(example))
    (package / "schema.yaml").write_text(on_the_page("schema.yaml") + DISCARD)
    (source / "pyproject.toml").write_text(TALLY_PROJECT)
    return installed(tmp_path_factory.mktemp("fresh"), source)


@pytest.fixture(scope="module")
def tally_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tally_package(tmp_path_factory, "engine.py")


@pytest.fixture(scope="module")
def files_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tally_package(tmp_path_factory, "files_engine.py")


def rehearsed(python: Path, folder: Path, *options: str, **settings: object) -> subprocess.CompletedProcess[str]:
    (folder / "config").mkdir()
    (folder / "tally.py").write_text(TALLY.replace("OPTIONS", repr(options)))
    run = {"engine": "tally", "segments": 9, "segment_minutes": 30, "settings": {"goal": 400, **settings}}
    (folder / "config" / "config.yaml").write_text(yaml.safe_dump({"runs": {"demo": run}}))
    command = [python, "-m", "unbroken", "rehearse", "demo"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run that no clock cuts."""
    config = tmp_path / "work" / "config" / "config.yaml"
    config.parent.mkdir(parents=True)
    config.write_text(
        re.sub(r"segment_minutes: .*", "segment_minutes: 30", (EXAMPLE / "config/config.yaml").read_text())
    )
    return tmp_path / "work"


def snakemake(python: Path, folder: Path, *words: str) -> subprocess.Popen[str]:
    command = [str(python), "-m", "snakemake", "-s", str(ROOT / "Snakefile"), "--cores", "1", *words]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


@pytest.mark.slow
def test_the_engine_of_another_package_keeps_the_promises_by_its_own_test(python: Path, tmp_path: Path) -> None:
    words = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", EXAMPLE / "tests"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)

    assert done.returncode == 0, done.stdout
    assert (EXAMPLE / "tests" / "test_walk.py").read_text().endswith(on_the_page("test_walk.py"))


CHECKED = """
import sys
from pathlib import Path
from unbroken.engines.testing import BrokenPromiseError, Case, check_engine
case = Case("tally", {"goal": 400}, 6, 0.03, 0.003, ("tally.txt",), {}, None, files=(Path("tally.py").resolve(),))
try:
    check_engine(case, Path("checked"))
except BrokenPromiseError as error:
    sys.exit(f"found: {error}"[:200])
"""


@pytest.mark.slow
def test_a_promise_that_an_engine_does_not_keep_is_found(tally_python: Path, tmp_path: Path) -> None:
    (tmp_path / "tally.py").write_text(TALLY.replace("OPTIONS", repr(("only the step",))))

    done = subprocess.run([tally_python, "-c", CHECKED], cwd=tmp_path, capture_output=True, text=True)

    assert done.stderr.startswith("found: tally.txt: not as of one uninterrupted run")


def test_its_settings_are_checked_by_its_schema_and_by_itself(python: Path, folder: Path) -> None:
    config = folder / "config" / "config.yaml"
    good = config.read_text()

    def said(line: str) -> str:
        config.write_text(f"{good}      {line}\n")
        driver = snakemake(python, folder, "-n")
        text, _ = driver.communicate()
        assert driver.returncode == 1, text
        return text

    assert "runs.walk.settings.sed: unknown key; did you mean `seed`?" in said("sed: 3")
    assert "runs.walk.settings.seed: is the goal, which is most likely a slip" in said(f"seed: {STEPS}")


@pytest.mark.slow
def test_the_engine_of_another_package_is_rehearsed_with_kills_and_the_control_finds_a_wrong_restore(
    python: Path, folder: Path
) -> None:
    done = subprocess.run([python, "-m", "unbroken", "rehearse", "walk"], cwd=folder, capture_output=True, text=True)

    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^walk: a SIGKILL in a save of state\.tmp after ", done.stdout, re.M), done.stdout
    assert re.search(r"^walk: control: with a wrong state\.json at \d+ steps it was found ", done.stdout, re.M), (
        done.stdout
    )
    assert done.stdout.endswith("walk: rehearsed: identical\n")


IDENTICAL = r"\ndemo: rehearsed: identical\n\Z"
# What the program does otherwise, the settings, the exit code, and what is said.
REHEARSED = {
    "as on the page": (
        (),
        {},
        0,
        [
            r"^demo: a SIGKILL in a save of tally\.tmp after ",
            r"^demo: control: with a wrong tally\.txt at \d+ steps it was found ",
            IDENTICAL,
        ],
    ),
    "saves only when it leaves": (
        ("saves when it leaves",),
        {},
        0,
        [r"^demo: a SIGKILL in a save of (tally\.\w+|copy-\d+) after ", IDENTICAL],
    ),
    "puts half of its state back": (("only the step",), {}, 1, [r"^demo: rehearsed: differs \(tally\.txt: "]),
    "leaves files out of the results": (
        ("snapshots",),
        {},
        1,
        [r"^demo: rehearsed: loses output \(work/snap_100.txt, work/snap_200.txt, work/snap_300.txt and 1 more: "],
    ),
    "drops files by its settings": (
        ("snapshots",),
        {"discard": ["snap_*.txt"]},
        0,
        [r"\ndemo: rehearsed: identical \(but for what settings\.discard drops: snap_\*\.txt\)\n\Z"],
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("what", REHEARSED)
def test_a_rehearsal_of_an_engine_as_it_stands_on_the_page_finds(tally_python: Path, tmp_path: Path, what: str) -> None:
    options, settings, code, said = REHEARSED[what]

    done = rehearsed(tally_python, tmp_path, *options, **settings)

    assert done.returncode == code, done.stdout + done.stderr
    assert [line for line in said if not re.search(line, done.stdout, re.M)] == [], done.stdout


@pytest.mark.slow
def test_an_engine_that_names_the_files_of_its_program_keeps_all_that_it_writes(
    files_python: Path, tmp_path: Path
) -> None:
    done = rehearsed(files_python, tmp_path, "snapshots")

    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("demo: rehearsed: identical\n")


def test_a_run_of_such_an_engine_has_every_file_in_its_result(files_python: Path, tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "tally.py").write_text(TALLY.replace("OPTIONS", repr(("snapshots",))))
    run = {"engine": "tally", "segments": 9, "segment_minutes": 0.05, "settings": {"goal": 400}}
    (tmp_path / "config" / "config.yaml").write_text(yaml.safe_dump({"runs": {"demo": run}}))

    said, _ = snakemake(files_python, tmp_path).communicate()

    final = tmp_path / "results/demo/final"
    names = {path.name for path in final.iterdir()}
    assert names == {"summary.json", "tally.txt", *(f"snap_{step}.txt" for step in (100, 200, 300, 400))}, said
    assert json.loads((final / "summary.json").read_text())["progress"]["done"] == 400
    assert len(list((tmp_path / "results/demo/segments").glob("*.json"))) > 1
