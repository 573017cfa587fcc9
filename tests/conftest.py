"""What every test may use: real components, asked for by name."""

import os
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import gpu
from support.needs import require
from support.promises import is_promise

# The second where CI, which has little time, asks for it.
pytest_plugins = ["support.no_process", "support.after_failure"]
if any(name.startswith("UNBROKEN_TESTS_") for name in os.environ):
    pytest_plugins += ["support.ci_time"]

# All tests of these folders have a marker.
FOLDERS = {"cluster": "slurm", "workflow": "process"}
ALL_START_PROCESSES = re.compile(r"^pytestmark = [^=]*pytest\.mark\.process\b", re.MULTILINE)
READ_BY_US = ("UNBROKEN_", "SLURM_", "SBATCH_", "SNAKEMAKE_", "WANDB_", "MLFLOW_")
# A training that is started by hand sets these, for all that its process does after it.
SET_BY_TRAININGS = ("UNBROKEN_TRACKERS", "WANDB_", "MLFLOW_")


def pytest_configure() -> None:
    """What the tests' processes inherit."""
    _listen_to_signals()
    # `python3` is the one of these tests, and no script of a version manager, which takes longer than Python's start.
    os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    # Most tests read what each segment says, which the console leaves to the logs.
    os.environ["UNBROKEN_CONSOLE"] = "off"
    # Each driver would write it at its end; tests of it set this anew.
    os.environ["UNBROKEN_REPORT"] = "off"
    # Else each process compiles its modules again.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


def _listen_to_signals() -> None:
    """In the background of a script, or under nohup, Ctrl-C or HUP are ignored, and unbroken keeps to what it inherits.

    Tests send both, and mean them.
    """
    for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, usual)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Read no file of which all tests are left out; some take seconds to load."""
    if f"not {FOLDERS.get(collection_path.parent.name)}" in config.option.markexpr:
        return True
    if "not process" in config.option.markexpr and collection_path.name.startswith("test_"):
        return True if ALL_START_PROCESSES.search(collection_path.read_text()) else None
    return None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if marker := FOLDERS.get(item.path.parent.name):
            item.add_marker(marker)
        if is_promise(item.path):
            item.add_marker("promise")
            if config.pluginmanager.hasplugin("rerunfailures"):
                item.add_marker(pytest.mark.flaky(reruns=0))
        is_there = item.path.parent.name == "cluster" or item.path.stem == "test_benchmarks"
        if item.get_closest_marker("slurm") and not is_there:
            raise pytest.UsageError(f"{item.nodeid}: marked slurm, but not in a folder of ON_SLURM (Makefile)")
    # They take minutes: begun last, each would keep a stage waiting alone.
    items.sort(key=lambda item: item.path.stem != "test_benchmarks")


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Keep what a worker has measured: pytest-xdist kills one that takes more than ten seconds to leave."""
    measured = sys.modules.get("coverage")
    if hasattr(session.config, "workerinput") and measured and (coverage := measured.Coverage.current()):
        coverage.save()


def pytest_runtest_setup(item: pytest.Item) -> None:
    for marker in item.iter_markers("needs"):
        require(*marker.args)
    if item.get_closest_marker("gpu"):
        gpu.require()


@pytest.fixture(autouse=True)
def environment_kept() -> Iterator[None]:
    """A variable that a test leaves behind would make another one fail, somewhere, on some days."""
    before = dict(os.environ)
    yield
    # Libraries set some of their own when they are imported.
    changed = {name for name, _ in before.items() ^ os.environ.items() if name.startswith(READ_BY_US)}
    for name in changed:
        os.environ.pop(name, None)
        if name in before:
            os.environ[name] = before[name]
    changed = {name for name in changed if not name.startswith(SET_BY_TRAININGS)}
    assert not changed, f"left behind in the environment: {', '.join(sorted(changed))}"


@pytest.fixture
def signals_kept() -> Iterator[None]:
    """A training in this process takes the handlers of signals; afterwards they are as they were."""
    before = {number: signal.getsignal(number) for number in (signal.SIGUSR1, signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)
