"""For engine tests: a script of scripts/ as a module, without Snakemake; and what an engine's cases need."""

import importlib
import importlib.util
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.dmtcp_play import count
from support.dmtcp_runs import Run
from support.kept_folder import KeptFolder
from support.needs import require

from unbroken.config.package_files import root_folder
from unbroken.system import log


@pytest.fixture
def load_script():
    def load(name):
        spec = importlib.util.spec_from_file_location(name, root_folder() / "scripts" / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return load


@pytest.fixture(autouse=True)
def what_the_engine_needs(request):
    """A test that runs for each engine is skipped where that engine's program is missing (`NEEDS` of its tests)."""
    engine = getattr(request.node, "callspec", None) and request.node.callspec.params.get("engine")
    if engine and request.module.__name__.endswith("test_conformance"):
        require(*getattr(importlib.import_module(f"engines.test_{engine}"), "NEEDS", ()))


@pytest.fixture(scope="module")
def late_warnings():
    """A segment that was warned may be gone when the warning comes; then it hits the tests."""
    before = signal.signal(signal.SIGUSR1, lambda number, frame: None)
    yield
    signal.signal(signal.SIGUSR1, before)


@pytest.fixture
def dmtcp_run(tmp_path, late_warnings):
    """A run of the dmtcp engine that counts to 60, and waits at 20 and 40 until it may pass."""
    run = Run(tmp_path)
    run.settings["command"] = count(60, 20, 40, code=0, passes=f"{tmp_path}/pass")
    return run


@pytest.fixture(scope="module")
def dmtcp_paused(tmp_path_factory, late_warnings):
    """Such a run, and its checkpoint in the middle of the work."""
    run = Run(tmp_path_factory.mktemp("paused"))
    run.settings["command"] = count(60, 20, code=0, passes=f"{run.base}/pass")
    run.paused_at(20)
    run.let_pass(20)
    return run, run.checkpoints()[-1].folder


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[KeptFolder]:
    """A run's folder whose first attempt has begun; `lines` are what was logged."""
    (tmp_path / "run").mkdir()
    made = KeptFolder(tmp_path / "run")
    with log.lines_to(made.lines.append):
        made.take()
        yield made
