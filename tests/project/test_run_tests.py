"""How a stage of tests is run: tools/run_tests.py over small test files of its own, with real pytest."""

import inspect
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import run_tests
import stage_times
from coverage import CoverageData

from unbroken.config.package_files import root_folder
from unbroken.system.clock import duration

RUNNER = root_folder() / "tools" / "run_tests.py"
# Hypothesis, which nobody needs here, takes longer than all else.
INI = "[pytest]\naddopts = -p xdist.plugin -p pytest_timeout -p no:cacheprovider\nmarkers =\n  promise: no chance\n"
OTHERWISE = ("UNBROKEN_SECOND_CHANCE", "UNBROKEN_TESTS_DEADLINE", "UNBROKEN_KEEP_TIMES")
OTHERWISE += ("UNBROKEN_TESTS_BEGIN_UNTIL", "UNBROKEN_TESTS_FIRST_FILE")
OTHERWISE += ("UNBROKEN_TEST_SECONDS", "PYTEST_XDIST_WORKER", "PYTEST_XDIST_WORKER_COUNT", "PYTEST_XDIST_TESTRUNUID")
OTHERWISE += ("PYTEST_ADDOPTS",)
TOP = "import os, time\nfrom pathlib import Path\nimport pytest\n\n"
A_LONG_TIME = 1_000_000
# Fails until it has been run once.
UNSURE = """
def test_unsure():
    print("what it printed")
    been = Path("been").exists()
    Path("been").touch()
    assert been, "the first time"
"""
BROKEN = "def test_broken():\n    assert 1 == 2\n"


class Rig:
    """A folder with one test file, and the runner over it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "pytest.ini").write_text(INI)

    def write(self, text):
        (self.folder / "test_try.py").write_text(TOP + text)

    def start(self, *options, arguments=("-n0",), before=()):
        command = [sys.executable, str(RUNNER), "try", f"--times={self.folder / 'times.json'}", *options]
        output = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        return subprocess.Popen([*before, *command, "--", *arguments], cwd=self.folder, **output)

    def run(self, text, *options, arguments=("-n0",)):
        self.write(text)
        process = self.start(*options, arguments=arguments)
        printed, _ = process.communicate()
        return subprocess.CompletedProcess(process.args, process.returncode, printed)


class Impatient(subprocess.Popen):
    """Its time is up as soon as the test that it runs says so, by a file."""

    def wait(self, timeout=None):
        if timeout is None or timeout < A_LONG_TIME / 2:
            return super().wait(timeout)
        while self.poll() is None:
            if Path("time-is-up").exists():
                raise subprocess.TimeoutExpired(self.args, timeout)
            time.sleep(0.02)
        return self.returncode


@pytest.fixture
def rig(tmp_path, monkeypatch):
    # This process may be a worker of xdist itself, and part of a stage.
    for name in OTHERWISE:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    return Rig(tmp_path)


@pytest.fixture
def stage_here(rig, monkeypatch):
    """A stage in this process, whose limit is reached when a test says so."""
    monkeypatch.chdir(rig.folder)
    monkeypatch.setattr(subprocess, "Popen", Impatient)
    return run_tests.Stage("try", ["-n0"], time.time() + A_LONG_TIME)


def test_a_test_that_fails_once_and_passes_alone_is_green_and_told_with_both_texts(rig):
    done = rig.run("def test_sure():\n    pass\n" + UNSURE)

    block = done.stdout.split("failed once, passed alone:\n")[1]
    assert done.returncode == 0
    assert "1 failed, 1 passed" in done.stdout
    assert block.startswith("  test_try.py::test_unsure\n    first:\n")
    assert "AssertionError: the first time" in block.split("    alone, ")[0]
    assert "| passed\n" in block.split("    alone, ")[1]
    assert block.count("what it printed\n") == 2
    assert block.splitlines()[-1].startswith("== try            ok ")


def test_the_second_run_is_of_that_test_alone_in_one_process(rig):
    others = "def test_other():\n    with open('runs', 'a') as runs:\n        runs.write('x')\n"
    told = "def test_where():\n    first = not Path('been').exists()\n    Path('been').touch()\n"
    told += "    assert not first\n    assert 'PYTEST_XDIST_WORKER' not in os.environ\n"

    done = rig.run(others + told, arguments=("-n1", "-k", "other or where", "test_try.py"))

    assert done.returncode == 0, done.stdout
    assert (rig.folder / "runs").read_text() == "x"


def test_a_test_of_a_group_is_found_again(rig):
    unsure = UNSURE.replace("def", '@pytest.mark.xdist_group("g")\n@pytest.mark.parametrize("at", ["a@b"])\ndef')

    done = rig.run(unsure.replace("unsure()", "unsure(at)"), arguments=("-n1", "--dist=loadgroup"))

    assert done.returncode == 0, done.stdout
    assert "failed once, passed alone:\n  test_try.py::test_unsure[a@b]\n" in done.stdout


def test_tests_of_a_group_share_a_process(rig):
    """pytest 9.2 and pytest-xdist 3.8 drop the groups without a word, and each process makes its own `whole`."""
    tests = """
@pytest.mark.xdist_group("g")
@pytest.mark.parametrize("number", range(6))
def test_of_the_group(number):
    Path(f"process-{os.getpid()}").touch()
"""

    done = rig.run(tests, arguments=("-n3", "--dist=loadgroup"))

    assert done.returncode == 0, done.stdout
    assert len(list(rig.folder.glob("process-*"))) == 1


def test_a_test_that_fails_twice_is_red_with_what_it_said_the_second_time(rig):
    done = rig.run(BROKEN)

    assert done.returncode == 1
    assert done.stdout.count("assert 1 == 2") >= 2
    assert "failed twice: test_try.py::test_broken" in done.stdout
    assert "passed alone" not in done.stdout


def test_a_failing_tear_down_has_its_second_chance_too(rig):
    text = "@pytest.fixture\ndef thing():\n    yield\n    assert Path('been').exists() or Path('been').touch()\n"

    done = rig.run(text + "def test_with(thing):\n    pass\n")

    assert done.returncode == 0, done.stdout
    assert "failed once, passed alone:\n  test_try.py::test_with\n" in done.stdout


@pytest.mark.parametrize(
    ("text", "arguments", "reason"),
    [
        ("@pytest.mark.promise" + UNSURE, ("-n0",), "test_try.py::test_unsure: a promise"),
        (
            UNSURE.replace("assert", "time.sleep(0 if been else 60)\n    assert"),
            ("-n0", "--timeout=1"),
            "test_try.py::test_unsure: a time-out",
        ),
        (
            UNSURE.replace("assert", "been or os._exit(9)\n    assert"),
            ("-n1",),
            "test_try.py::test_unsure: a crashed worker",
        ),
    ],
    ids=["promise", "time-out", "crash"],
)
def test_there_is_no_second_chance_for(rig, text, arguments, reason):
    done = rig.run(text, arguments=arguments)

    assert done.returncode == 1
    assert f"== try            no second chance: {reason}\n" in done.stdout
    assert "passed alone" not in done.stdout


def test_there_is_no_second_chance_beside_a_file_that_cannot_be_collected(rig):
    (rig.folder / "test_torn.py").write_text("import no_such_module\n")

    done = rig.run(UNSURE, arguments=("-n0", "--continue-on-collection-errors"))

    assert done.returncode == 1
    assert "no second chance: test_torn.py could not be collected" in done.stdout


def test_a_stage_that_cannot_be_collected_or_started_is_red(rig):
    assert rig.run("import no_such_module\n").returncode == 2
    assert rig.run("", arguments=("--no-such-option",)).returncode == 4
    assert rig.run("").returncode == 5


def test_two_failures_have_a_second_chance_each_and_three_none(rig):
    two = "".join(UNSURE.replace("unsure", name).replace("been", name) for name in ("one", "two"))

    done = rig.run(two)
    for name in ("one", "two"):
        (rig.folder / name).unlink()
    more = rig.run(two + BROKEN)

    assert done.returncode == 0, done.stdout
    assert more.returncode == 1
    assert "no second chance: 3 tests failed, more than 2" in more.stdout


def test_the_second_chance_can_be_switched_off(rig, monkeypatch):
    monkeypatch.setenv("UNBROKEN_SECOND_CHANCE", "0")

    done = rig.run(UNSURE)

    assert done.returncode == 1
    assert "no second chance: UNBROKEN_SECOND_CHANCE=0" in done.stdout


def test_at_the_limit_pytest_ends_gently_and_what_did_not_run_is_named(rig, stage_here, capfd):
    text = "@pytest.fixture\ndef held():\n    yield\n    Path('released').touch()\n"
    long = "def test_long(held):\n    Path('time-is-up').touch()\n    time.sleep(600)\n"
    rig.write(f"{text}def test_first():\n    pass\n{long}def test_last():\n    pass\n")

    code = stage_here.run()

    assert code == 124
    named = "the time was up; did not run, or not to the end (2):\n  test_try.py::test_long\n  test_try.py::test_last\n"
    assert named in capfd.readouterr().out
    assert (rig.folder / "released").exists()


def test_what_did_not_run_is_red_and_what_failed_before_is_named(rig, stage_here, capfd):
    rig.write(
        "def test_first():\n    assert False\ndef test_long():\n    Path('time-is-up').touch()\n    time.sleep(600)\n"
    )

    assert stage_here.run() == 124

    told = capfd.readouterr().out
    assert "did not run, or not to the end (1):\n  test_try.py::test_long\n" in told
    assert "failed before that (1):\n  test_try.py::test_first\n" in told


# The first test is the last that begins in time.
LATE = "def test_first(held):\n    import stage_report, types\n"
LATE += "    stage_report.time = types.SimpleNamespace(time=lambda: 4e9 + 1)\n    {}\n"
LATE += "def test_second(held):\n    Path('ran').touch()\n"
HELD = "@pytest.fixture(scope='module')\ndef held():\n    yield\n    Path('released').touch()\n"


@pytest.mark.parametrize("workers", ["-n0", "-n1"])
@pytest.mark.parametrize("first", ["pass", "assert Path('been').exists() or Path('been').touch()", "assert False"])
def test_what_would_begin_too_late_is_named_and_red_only_for_what_failed(rig, monkeypatch, workers, first):
    monkeypatch.setenv("UNBROKEN_TESTS_BEGIN_UNTIL", "4000000000")

    done = rig.run(HELD + LATE.format(first), arguments=(workers,))

    assert done.returncode == (1 if first == "assert False" else 0), done.stdout
    assert "no time was left to begin these (1):\n  test_try.py::test_second\n" in done.stdout
    assert (rig.folder / "released").exists()
    assert not (rig.folder / "ran").exists()


@pytest.mark.parametrize("number", [1, 4])
def test_a_stage_can_begin_with_another_file(rig, monkeypatch, number):
    monkeypatch.setenv("UNBROKEN_TESTS_FIRST_FILE", str(number))
    for name in "abc":
        (rig.folder / f"test_{name}.py").write_text("def test_one():\n    pass\ndef test_two():\n    pass\n")

    done = rig.run("", arguments=("-v", "test_a.py", "test_b.py", "test_c.py"))

    ran = [line.split()[0] for line in done.stdout.splitlines() if " PASSED " in line]
    assert ran == [f"test_{name}.py::test_{which}" for name in "bca" for which in ("one", "two")]


def test_the_limit_holds_for_the_second_run_too(rig, stage_here, capfd):
    rig.write(UNSURE.replace("assert", "been and (Path('time-is-up').touch(), time.sleep(600))\n    assert"))

    code = stage_here.run()

    assert code == 124
    assert "failed twice: test_try.py::test_unsure" in capfd.readouterr().out


def test_a_stage_after_the_limit_runs_nothing_and_names_all(rig, monkeypatch):
    monkeypatch.setenv("UNBROKEN_TESTS_DEADLINE", str(int(time.time()) - 1))

    done = rig.run("def test_some():\n    Path('ran').touch()\n")

    assert done.returncode == 124
    assert "did not run, or not to the end (1):\n  test_try.py::test_some\n" in done.stdout
    assert not (rig.folder / "ran").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("before", [(), ("sh", "-c", "trap '' INT; exec \"$@\"", "sh")], ids=["", "in the background"])
def test_a_stage_that_is_interrupted_leaves_no_process_and_is_red(rig, number, before):
    rig.write(
        "@pytest.fixture\ndef cluster():\n    yield\n    Path('stopped').touch()\n\n"
        "def test_on(cluster):\n    Path('pid').write_text(str(os.getpid()))\n    time.sleep(600)\n"
    )
    runner = rig.start(before=before)
    while runner.poll() is None and not ((rig.folder / "pid").exists() and (rig.folder / "pid").read_text()):
        time.sleep(0.02)

    runner.send_signal(number)
    printed, _ = runner.communicate()

    assert runner.returncode == 130, printed
    assert (rig.folder / "stopped").exists()
    assert not Path("/proc", (rig.folder / "pid").read_text()).exists()


def test_a_green_stage_says_which_tests_were_slowest_above_the_line_with_which_pytest_closes(rig):
    texts = [f"def test_{at}():\n    time.sleep({at / 100})\n" for at in range(12)]
    slow = "@pytest.fixture\ndef slow():\n    time.sleep(0.5)\n\ndef test_with_a_slow_set_up(slow):\n    pass\n"

    done = rig.run("".join(texts) + slow)

    lines = done.stdout.splitlines()
    at = next(number for number, line in enumerate(lines) if "slowest tests" in line)
    assert done.returncode == 0
    told = [line.split() for line in lines[at + 1 : at + 11]]
    # On a busy machine any test may take longer than it sleeps.
    assert [float(seconds) for seconds, *_ in told] == sorted((float(seconds) for seconds, *_ in told), reverse=True)
    assert "test_try.py::test_with_a_slow_set_up" in [line[-1] for line in told]
    assert "13 passed in" in lines[at + 11]
    assert lines[-1].startswith("== try            ok ")


def test_a_stage_that_took_longer_than_kept_says_so_and_is_green(rig):
    # Every stage is slower than that.
    (rig.folder / "times.json").write_text('{"try": -10}')

    done = rig.run("def test_some():\n    pass\n")

    assert done.returncode == 0
    assert done.stdout.splitlines()[-1].startswith("== try            slower than kept: ")


@pytest.mark.parametrize(("seconds", "is_told"), [(100, False), (125, False), (126, True), (60, False)])
def test_a_quarter_more_is_longer(tmp_path, capsys, seconds, is_told):
    (tmp_path / "times.json").write_text('{"try": 100}')

    stage_times.tell("try", seconds, 0, tmp_path / "times.json")
    stage_times.tell("other", seconds, 0, tmp_path / "times.json")

    line = f"== try            slower than kept: {seconds} s, not 100 (tests/times.json)\n"
    assert capsys.readouterr().out == (line if is_told else "")


def test_a_step_of_a_moment_is_not_slow_because_it_took_two(tmp_path, capsys):
    (tmp_path / "times.json").write_text('{"try": 1}')

    stage_times.tell("try", 3, 0, tmp_path / "times.json")

    assert capsys.readouterr().out == ""


def test_the_times_of_green_stages_are_kept_on_demand(rig, monkeypatch):
    times = rig.folder / "times.json"
    times.write_text('{"other": 7, "try": 999}')
    monkeypatch.setenv("UNBROKEN_KEEP_TIMES", "1")

    rig.run(BROKEN)
    behind_a_red_one = json.loads(times.read_text())
    rig.run("def test_some():\n    pass\n")
    behind_a_green_one = json.loads(times.read_text())

    assert behind_a_red_one == {"other": 7, "try": 999}
    assert behind_a_green_one.keys() == {"other", "try"}
    assert behind_a_green_one["try"] < 999


def test_the_seconds_of_each_test_are_kept_on_demand(rig, monkeypatch):
    monkeypatch.setenv("UNBROKEN_TEST_SECONDS", str(rig.folder / "seconds.tsv"))

    rig.run("def test_quick():\n    pass\n\ndef test_slow():\n    time.sleep(0.3)\n")

    rows = [line.split("\t") for line in (rig.folder / "seconds.tsv").read_text().splitlines()]
    assert [test for _, test in rows] == ["test_try.py::test_slow", "test_try.py::test_quick"]
    assert float(rows[0][0]) >= 0.3


def test_a_step_that_is_no_pytest_says_its_time_and_keeps_its_exit_code():
    step = root_folder() / "tools" / "step.sh"

    done = subprocess.run([step, "no-such-step", "bash", "-c", "exit 3"], capture_output=True, text=True)

    assert done.returncode == 3
    assert done.stdout.startswith("== no-such-step   FAILED (3) ")


@pytest.mark.slow
def test_what_a_worker_has_measured_is_kept_although_it_takes_too_long_to_leave_and_is_killed(rig, monkeypatch):
    monkeypatch.setenv("UNBROKEN_COVERAGE", str(rig.folder / "data"))
    monkeypatch.delenv("COVERAGE_PROCESS_CONFIG", raising=False)
    text = "import atexit\nfrom unbroken.system.clock import duration\natexit.register(time.sleep, 600)\n"

    rig.run(f"{text}\ndef test_it():\n    assert duration(3)\n", arguments=("-n1",))

    ran = set()
    for path in rig.folder.glob("data.*"):
        found = CoverageData(str(path))
        found.read()
        ran |= {line for file in found.measured_files() if file.endswith("/clock.py") for line in found.lines(file)}
    source, first = inspect.getsourcelines(duration)
    assert ran & set(range(first + 1, first + len(source)))
