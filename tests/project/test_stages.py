"""How a stage of tests is run: pytest with the options of the Makefile, and our plugins, over small files of tests."""

import ast
import inspect
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from coverage import CoverageData

from unbroken.config.package_files import root_folder
from unbroken.system.clock import duration

ROOT = root_folder()
pytestmark = pytest.mark.process
STEP = ROOT / "tools" / "step.sh"
# Hypothesis, which nobody needs here, takes longer than all else.
PLUGINS = ("xdist.plugin", "pytest_timeout", "pytest_rerunfailures", "no:cacheprovider")
INI = f"[pytest]\naddopts = {' '.join(f'-p {name}' for name in PLUGINS)}\npythonpath = {ROOT / 'tests'}\nmarkers =\n"
INI += "  process: starts one\n  promise: no chance\n  slow: long\n"
# As that of tests/ does it for promises, which loads more.
CONFTEST = """
import pytest
pytest_plugins = {}

def pytest_collection_modifyitems(items):
    for item in items:
        if item.get_closest_marker("promise"):
            item.add_marker(pytest.mark.flaky(reruns=0))
"""
TOP = "import os, time\nfrom pathlib import Path\nimport pytest\n\n"
# Fails until it has been run once.
UNSURE = """
def test_unsure():
    print("what it printed")
    been = Path("been").exists()
    Path("been").touch()
    assert been, "the first time"
"""


def options():
    """What the Makefile gives to each run of pytest."""
    recipe = subprocess.run(["make", "-n", "unit-tests", "ARGS="], cwd=ROOT, capture_output=True, text=True).stdout
    line = next(line for line in recipe.splitlines() if " -m pytest " in line)
    return [word for word in shlex.split(line.split(" -m pytest ")[1]) if not word.startswith("-n")]


class Rig:
    """A folder with files of tests, and a stage over it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.write("test_try.py", "")
        (folder / "pytest.ini").write_text(INI)
        self.load()

    def write(self, name, text):
        (self.folder / name).write_text(TOP + text)

    def load(self, *plugins):
        (self.folder / "conftest.py").write_text(CONFTEST.format(list(plugins)))

    def start(self, *words, before=()):
        command = [*before, STEP, "try", sys.executable, *words]
        output = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        return subprocess.Popen(command, cwd=self.folder, **output)

    def run(self, text, *arguments):
        if text:
            self.write("test_try.py", text)
        process = self.start("-m", "pytest", *options(), *(arguments or ("-n0",)))
        printed, _ = process.communicate()
        return subprocess.CompletedProcess(process.args, process.returncode, printed)


@pytest.fixture
def rig(tmp_path, monkeypatch):
    # This process may be a worker of xdist itself, and part of a stage.
    for name in ("DEADLINE", "BEGIN_UNTIL", "HALF"):
        monkeypatch.delenv(f"UNBROKEN_TESTS_{name}", raising=False)
    for name in ("PYTEST_XDIST_WORKER", "PYTEST_XDIST_WORKER_COUNT", "PYTEST_XDIST_TESTRUNUID", "PYTEST_ADDOPTS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    return Rig(tmp_path)


@pytest.fixture
def in_time(rig):
    rig.load("support.ci_time")
    return rig


@pytest.mark.parametrize("workers", ["-n0", "-n1"])
def test_a_test_that_fails_once_and_passes_then_is_green_and_shown_with_its_first_text(rig, workers):
    done = rig.run("def test_sure():\n    pass\n" + UNSURE, workers)

    shown = done.stdout.split("rerun test summary info")[1]
    assert done.returncode == 0, done.stdout
    assert "RERUN test_try.py::test_unsure\n" in shown
    assert "AssertionError: the first time" in shown
    assert "2 passed, 1 rerun" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("== try            ok ")


@pytest.mark.parametrize(
    ("text", "workers"),
    [
        ("@pytest.mark.promise" + UNSURE, "-n0"),
        (UNSURE.replace("assert", "time.sleep(0 if been else 60)\n    assert"), "-n0"),
        (UNSURE.replace("assert", "been or os._exit(9)\n    assert"), "-n1"),
        ("import no_such_module", "-n0"),
    ],
    ids=["promise", "time-out", "crash", "no module"],
)
def test_there_is_no_second_run_for(rig, text, workers):
    done = rig.run(text, workers, "--timeout=1", "--dist=loadgroup")

    assert done.returncode in (1, 2)
    assert "1 failed" in done.stdout or "1 error" in done.stdout
    assert "rerun" not in done.stdout


def test_two_failures_run_again_and_a_third_does_not(rig):
    done = rig.run("".join(UNSURE.replace("unsure", name).replace("been", name) for name in ("one", "two", "three")))

    assert done.returncode == 1
    assert "1 failed, 2 passed, 2 rerun" in done.stdout


def test_tests_of_a_group_share_a_process(rig):
    """pytest 9.2 and pytest-xdist 3.8 drop the groups without a word, and each process makes its own `whole`."""
    tests = """
@pytest.mark.xdist_group("g")
@pytest.mark.parametrize("number", range(6))
def test_of_the_group(number):
    Path(f"process-{os.getpid()}").touch()
"""

    done = rig.run(tests, "-n3", "--dist=loadgroup")

    assert done.returncode == 0, done.stdout
    assert len(list(rig.folder.glob("process-*"))) == 1


HELD = "@pytest.fixture(scope='module')\ndef held():\n    yield\n    Path('released').touch()\n"


# On a busy machine the time must not be up before that.
NOW_UP = """
def test_first(held):
    from support import ci_time
    ci_time.BEGIN_UNTIL = time.time() + {}
    {}

"""


@pytest.mark.parametrize("workers", ["-n0", "-n1"])
def test_at_the_deadline_a_test_ends_with_its_fixtures_and_those_that_did_not_run_are_named(
    in_time, monkeypatch, workers
):
    monkeypatch.setenv("UNBROKEN_TESTS_DEADLINE", "4000000000")
    first = NOW_UP.format(2, "ci_time.DEADLINE = ci_time.BEGIN_UNTIL")
    long = "def test_long(held):\n    time.sleep(600)\n\n"

    done = in_time.run(f"{HELD}{first}{long}def test_last(held):\n    Path('ran').touch()\n", workers, "--timeout=600")

    assert done.returncode == 1
    assert "from pytest-timeout" in done.stdout and "1 failed, 1 passed" in done.stdout
    assert re.search(r"did not run, or not to the end: 1 =+\ntest_try.py::test_last\n", done.stdout)
    assert (in_time.folder / "released").exists() and not (in_time.folder / "ran").exists()


def test_a_stage_after_the_deadline_runs_nothing_and_names_all(in_time, monkeypatch):
    monkeypatch.setenv("UNBROKEN_TESTS_DEADLINE", str(int(time.time()) - 1))

    done = in_time.run("def test_some():\n    Path('ran').touch()\n")

    assert done.returncode == 1
    assert re.search(r"did not run, or not to the end: 1 =+\ntest_try.py::test_some\n", done.stdout)
    assert not (in_time.folder / "ran").exists()


@pytest.mark.parametrize(("first", "code"), [("pass", 0), ("assert False", 1)])
def test_what_would_begin_too_late_is_named_and_red_only_for_what_failed(in_time, monkeypatch, first, code):
    monkeypatch.setenv("UNBROKEN_TESTS_BEGIN_UNTIL", "4000000000")

    last = "def test_second(held):\n    Path('ran').touch()\n"
    done = in_time.run(f"{HELD}{NOW_UP.format(0, first)}{last}", "-n0", "--reruns=0")

    assert done.returncode == code, done.stdout
    assert re.search(r"did not run, or not to the end: 1 =+\ntest_try.py::test_second\n", done.stdout)
    assert (in_time.folder / "released").exists() and not (in_time.folder / "ran").exists()


def test_a_stage_may_begin_too_late_for_all_its_tests(in_time, monkeypatch):
    monkeypatch.setenv("UNBROKEN_TESTS_BEGIN_UNTIL", "1")

    done = in_time.run("def test_some():\n    Path('ran').touch()\n", "-n1")

    assert done.returncode == 0, done.stdout
    assert re.search(r"did not run, or not to the end: 1 =+\ntest_try.py::test_some\n", done.stdout)
    assert not (in_time.folder / "ran").exists()


def test_what_a_stage_passes_over_without_a_reason_makes_it_red(in_time, monkeypatch):
    monkeypatch.setenv("UNBROKEN_TESTS_HALF", "0")
    with (in_time.folder / "conftest.py").open("a") as conftest:
        conftest.write("def pytest_runtest_protocol(item):\n    return True\n")

    done = in_time.run("def test_some():\n    pass\n")

    assert done.returncode == 1
    assert "did not run, or not to the end: 1" in done.stdout


def test_each_slow_test_runs_at_one_of_two_commits_and_the_others_at_both(in_time, monkeypatch):
    test = "@pytest.mark.slow\n@pytest.mark.parametrize('number', range(20))\ndef test_slow(number):\n    pass\n"
    ran = []
    for commit in ("1234", "1235"):
        monkeypatch.setenv("UNBROKEN_TESTS_HALF", commit)
        printed = in_time.run(f"{test}def test_quick():\n    pass\n", "-n0", "-v").stdout
        assert f"slow tests: half {int(commit) % 2 + 1} of 2\n" in printed
        ran.append(set(re.findall(r"::(\S+) PASSED", printed)))

    assert ran[0] & ran[1] == {"test_quick"}
    assert len(ran[0] | ran[1]) == 21
    assert min(map(len, ran)) > 4


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("workers", ["-n0", "-n1"])
def test_a_stage_that_is_interrupted_leaves_no_process_and_is_red(rig, number, workers):
    rig.write(
        "test_try.py",
        "@pytest.fixture\ndef cluster():\n    yield\n    Path('stopped').touch()\n\n"
        "def test_on(cluster):\n    Path('pid').write_text(str(os.getpid()))\n    time.sleep(600)\n",
    )
    stage = rig.start("-m", "pytest", workers)
    while stage.poll() is None and not ((rig.folder / "pid").exists() and (rig.folder / "pid").read_text()):
        time.sleep(0.02)

    stage.send_signal(number)
    printed, _ = stage.communicate()

    assert stage.returncode == 2, printed
    assert (rig.folder / "stopped").exists()
    assert not Path("/proc", (rig.folder / "pid").read_text()).exists()


def test_a_step_that_is_no_pytest_says_its_time_and_keeps_its_exit_code():
    done = subprocess.run([STEP, "no-such-step", "bash", "-c", "exit 3"], capture_output=True, text=True)

    assert done.returncode == 3
    assert done.stdout.startswith("== no-such-step   FAILED (3) ")


PROCESSES = """
import multiprocessing
import subprocess
import threading

def test_none():
    pass

@pytest.mark.process
def test_marked_none():
    subprocess.run(["true"])

def test_popen():
    subprocess.run(["touch", "started"])

def test_caught():
    try:
        os.system("touch started")
    except BaseException:
        pass

def test_fork():
    if os.fork() == 0:
        open("started", "w").close()
        os._exit(0)

def test_posix_spawn():
    os.posix_spawn("/bin/touch", ["touch", "started"], {})

def test_thread():
    thread = threading.Thread(target=os.system, args=("touch started",))
    thread.start()
    thread.join()

@pytest.mark.parametrize("way", ["spawn", "forkserver", "fork"])
def test_multiprocessing(way):
    multiprocessing.get_context(way).Process(target=print).start()

@pytest.fixture(scope="module")
def shared():
    subprocess.run(["touch", "started"])

def test_first_user(shared):
    pass

def test_second_user(shared):
    pass

@pytest.fixture(scope="module")
def begun():
    subprocess.run(["true"])
    yield
    subprocess.run(["touch", "ended"])

@pytest.mark.process
def test_begun_none(begun):
    pass

def test_ended_none(begun):
    pass
"""


@pytest.mark.parametrize("workers", ["-n0", "-n1"])
def test_a_test_without_the_marker_that_starts_a_process_is_stopped_and_fails_with_what_to_type(rig, workers):
    rig.load("support.no_process")

    done = rig.run(PROCESSES, "-rfE", "--reruns=0", workers)

    failed = set(re.findall(r"^(?:FAILED|ERROR) test_try\.py::test_(\w+)", done.stdout, re.MULTILINE))
    assert failed == {name for name in re.findall(r"def test_(\w+)", PROCESSES) if "none" not in name}
    assert "started: subprocess.Popen ['touch', 'started']; if it has to be: @pytest.mark.process" in done.stdout
    assert (rig.folder / "ended").exists() and not (rig.folder / "started").exists()


@pytest.mark.slow
def test_what_a_worker_has_measured_is_kept_although_it_takes_too_long_to_leave_and_is_killed(rig, monkeypatch):
    monkeypatch.setenv("UNBROKEN_COVERAGE", str(rig.folder / "data"))
    monkeypatch.delenv("COVERAGE_PROCESS_CONFIG", raising=False)
    conftest = (ROOT / "tests" / "conftest.py").read_text()
    hook = next(each for each in ast.parse(conftest).body if getattr(each, "name", "") == "pytest_sessionfinish")
    (rig.folder / "conftest.py").write_text(f"import sys, pytest\n{ast.get_source_segment(conftest, hook)}\n")
    text = "import atexit\nfrom unbroken.system.clock import duration\natexit.register(time.sleep, 600)\n"
    rig.write("test_try.py", f"{text}\ndef test_it():\n    assert duration(3)\n")

    measured = ("-m", "coverage", "run", f"--rcfile={ROOT / 'pyproject.toml'}")
    rig.start(*measured, "-m", "pytest", "-n1").communicate()

    ran = set()
    for path in rig.folder.glob("data.*"):
        found = CoverageData(str(path))
        found.read()
        ran |= {line for file in found.measured_files() if file.endswith("/clock.py") for line in found.lines(file)}
    source, first = inspect.getsourcelines(duration)
    assert ran & set(range(first + 1, first + len(source)))


LEAVES_A_FILE_OPEN = """
def test_it():
    file = open(__file__)
    assert Path("been").exists() or Path("been").touch()

def test_another():
    import gc, sys
    for name in ("last_value", "last_traceback", "last_exc", "last_type"):
        sys.__dict__.pop(name, None)
    gc.collect()
"""


def test_what_a_failed_test_left_open_fails_no_other_one(rig):
    (rig.folder / "pytest.ini").write_text(f"{INI}filterwarnings = error\n")
    alone = rig.run(LEAVES_A_FILE_OPEN, "-n0", "--reruns=0", "--tb=no", "--show-capture=no")
    rig.load("support.after_failure")
    (rig.folder / "been").unlink()

    done = rig.run("", "-n0", "--reruns=0", "--tb=no", "--show-capture=no")

    assert "2 failed" in alone.stdout, alone.stdout
    assert "1 failed, 1 passed" in done.stdout, done.stdout
