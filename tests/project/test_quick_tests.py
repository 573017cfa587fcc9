"""Which tests `make quick` runs: those that start no process, as an audit hook knows, and not by hand."""

import re
import subprocess
import sys

import pytest
import quick_tests

from unbroken.config.package_files import root_folder

ROOT = root_folder()
PLUGIN = ROOT / "tools" / "stage_report.py"
INI = "[pytest]\naddopts = -p xdist.plugin -p no:cacheprovider -rs\n"
PROCESSES = """
import multiprocessing
import os
import subprocess
import threading

import pytest


def test_none():
    pass

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
"""
PLAIN = "import subprocess\n\ndef test_first():\n    pass\n\ndef test_second():\n    subprocess.run(['true'])\n"
KEPT = """
import subprocess

import pytest

@pytest.fixture(scope="module")
def shared():
    subprocess.run(["touch", "begun"])
    yield
    subprocess.run(["touch", "ended"])

def test_listed(shared):
    pass

def test_new():
    subprocess.run(["touch", "new"])

def test_none(shared):
    pass
"""


class Rig:
    """A folder with tests, and pytest with the plugin over it."""

    def __init__(self, folder):
        self.folder = folder
        (folder / "pytest.ini").write_text(INI)

    def run(self, *words):
        command = [sys.executable, PLUGIN, "-p", "quick_tests", "--quick-file=list.txt", *words]
        return subprocess.run(command, cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def listed(self):
        return quick_tests.read_list(self.folder / "list.txt")


@pytest.fixture
def rig(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    for name in ("PYTEST_XDIST_WORKER", "PYTEST_XDIST_WORKER_COUNT", "PYTEST_XDIST_TESTRUNUID"):
        monkeypatch.delenv(name, raising=False)
    return Rig(tmp_path)


@pytest.mark.parametrize("workers", ["-n0", "-n1"])
def test_whatever_starts_a_process_is_stopped_and_fails_with_what_to_type(rig, workers):
    (rig.folder / "test_it.py").write_text(PROCESSES)

    done = rig.run("--quick", "-rfE", workers)

    failed = set(re.findall(r"^(?:FAILED|ERROR) test_it\.py::test_(\w+)", done.stdout, re.MULTILINE))
    assert failed == set(re.findall(r"def test_(\w+)", PROCESSES)) - {"none"}
    assert "a process was started (subprocess.Popen ['touch', 'started']); if it has to be: " in done.stdout
    assert "make quick-list FILES=test_it.py" in done.stdout
    assert not (rig.folder / "started").exists()


def test_the_list_is_written_and_leaves_out_what_starts_a_process(rig):
    (rig.folder / "test_it.py").write_text(PROCESSES)
    (rig.folder / "test_all.py").write_text(PROCESSES.replace("def test_none():\n    pass\n", "1 / 1\n"))

    tried = rig.run("--quick-list", "-n1")
    (rig.folder / "test_all.py").write_text("a file that is listed is not even read")
    quick = rig.run("--quick", "-n0")

    names = re.findall(r"def (test_\w+)", PROCESSES)[1:]
    assert tried.returncode == 0, tried.stdout
    assert rig.listed() == {"test_all.py": "process"} | {f"test_it.py::{name}": "process" for name in names}
    assert not (rig.folder / "started").exists()
    assert quick.returncode == 0, quick.stdout
    assert "1 passed" in quick.stdout


def test_the_list_is_written_anew_for_the_files_that_are_named_and_files_that_are_gone_go(rig):
    (rig.folder / "test_it.py").write_text(PLAIN)
    (rig.folder / "test_other.py").write_text(PLAIN)
    rows = ("test_it.py::test_first", "test_it.py::test_gone", "test_other.py::test_first", "test_gone.py")
    (rig.folder / "list.txt").write_text("".join(f"{row}  process\n" for row in rows))

    rig.run("--quick-list", "-n0", "test_it.py")

    assert rig.listed() == {"test_it.py::test_second": "process", "test_other.py::test_first": "process"}


def test_what_takes_long_is_listed_with_its_seconds(rig):
    (rig.folder / "test_it.py").write_text("import time\n\ndef test_long():\n    time.sleep(2.1)\n")

    rig.run("--quick-list", "-n0")

    assert rig.listed() == {"test_it.py::test_long": "2 s"}


def test_a_test_that_fails_because_another_could_start_nothing_is_listed_too(rig):
    (rig.folder / "test_it.py").write_text("def test_plain():\n    pass\n\ndef test_broken():\n    assert False\n")

    done = rig.run("--quick-list", "-n0")

    assert done.returncode == 0
    assert rig.listed() == {"test_it.py::test_broken": "failed"}


def test_a_new_test_is_quick_until_it_starts_a_process(rig):
    (rig.folder / "list.txt").write_text("test_it.py::test_second  process\n")
    (rig.folder / "test_it.py").write_text(PLAIN + "\ndef test_new():\n    pass\n")

    done = rig.run("--quick", "-n0")

    assert done.returncode == 0, done.stdout
    assert "2 passed, 1 deselected" in done.stdout


@pytest.mark.parametrize("workers", ["-n0", "-n1"])
def test_where_all_tests_run_only_what_is_not_listed_may_start_no_process(rig, workers):
    (rig.folder / "test_it.py").write_text(KEPT)
    (rig.folder / "test_other.py").write_text(PLAIN)
    (rig.folder / "list.txt").write_text("test_it.py::test_listed  process\ntest_other.py  process\n")

    done = rig.run("--quick-kept", "-rfE", workers)

    assert set(re.findall(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)) == {"test_it.py::test_new"}
    assert "make quick-list FILES=test_it.py" in done.stdout
    assert (rig.folder / "begun").exists() and (rig.folder / "ended").exists()
    assert not (rig.folder / "new").exists()


def test_the_stage_of_all_unit_tests_watches_those_that_make_quick_runs():
    recipe = subprocess.run(["make", "-n", "unit-tests"], cwd=ROOT, capture_output=True, text=True).stdout

    assert re.search(r"tools/run_tests\.py pytest -- .*-p quick_tests --quick-kept", recipe)


def test_each_line_of_the_list_names_a_test_or_a_file_that_exists():
    unknown = [name for name in quick_tests.read_list(ROOT / quick_tests.LIST) if not is_there(*name.split("::"))]

    assert unknown == [], "to write it anew: make quick-list"


def is_there(file, test=None):
    path = ROOT / file
    return path.exists() and (test is None or re.search(rf"def {test}\(", path.read_text()) is not None)
