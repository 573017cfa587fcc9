"""Real Slurm clusters for the tests in this folder, which are all marked `slurm`."""

import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from cluster.lab import Cluster, has_cgroups
from cluster.site_scripts import Site
from support.needs import skip_or_fail
from support.workdir import ROOT, WorkDir

HERE = Path(__file__).parent
CHARACTERS_SHOWN = 20_000
COMPONENTS = ("slurm-wlm", "slurmdbd", "munge", "mariadb-server")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.needs(*COMPONENTS))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failure shows what its jobs did and said, which is gone with the folder before anybody reads of it."""
    report = yield
    if report.failed:
        for work in (value for value in vars(item).get("funcargs", {}).values() if isinstance(value, WorkDir)):
            report.sections += [(title, text[-CHARACTERS_SHOWN:]) for title, text in _left_in(work)]
    return report


def _left_in(work: WorkDir) -> Iterator[tuple[str, str]]:
    for pattern in ("results/*/history.jsonl", "logs/*/*.log", ".snakemake/slurm_logs/**/*.log", "alone/*.out"):
        for path in sorted(work.root.rglob(pattern)):
            yield str(path.relative_to(work.root)), path.read_text(errors="replace")


def _running(**options: bool) -> Iterator[Cluster]:
    # A socket's path has 108 characters at most, which pytest's own folders exceed.
    cluster = Cluster(Path(tempfile.mkdtemp(prefix="unbroken_test_")), **options).start()
    try:
        yield cluster
        cluster.check_alive()
    finally:
        cluster.stop()


@pytest.fixture(scope="session")
def _plain_cluster() -> Iterator[Cluster]:
    yield from _running()


@pytest.fixture(scope="session")
def _cgroup_cluster() -> Iterator[Cluster]:
    if not has_cgroups():
        skip_or_fail("missing: cgroups (version 1) that this machine lets us make")
    yield from _running(has_cgroups=True)


@pytest.fixture
def cluster(_plain_cluster: Cluster) -> Iterator[Cluster]:
    """A cluster that follows processes by their parents; at the end of a test it has no job and all its nodes."""
    yield _plain_cluster
    _tidy(_plain_cluster)


@pytest.fixture
def cgroup_cluster(_cgroup_cluster: Cluster) -> Iterator[Cluster]:
    """The same with cgroups, which find every process of a job and keep its memory limit."""
    yield _cgroup_cluster
    _tidy(_cgroup_cluster)


@pytest.fixture
def silent_cluster() -> Iterator[Cluster]:
    """A cluster without accounting: sacct does not answer."""
    yield from _running(has_accounting=False)


@pytest.fixture
def pmix(cluster: Cluster) -> None:
    """That Slurm's srun speaks PMIx, by which the ranks of Debian's Open MPI find each other."""
    if "pmix" not in cluster.run("srun", "--mpi=list").split():
        skip_or_fail("missing: PMIx in this Slurm (configure --with-pmix)")


@pytest.fixture
def slurm_work(tmp_path: Path, cluster: Cluster) -> Iterator[WorkDir]:
    """A working directory whose drivers use the Slurm profile on `cluster`."""
    yield from _slurm_work(tmp_path, cluster)


@pytest.fixture
def site(slurm_work: WorkDir, cluster: Cluster) -> Site:
    """Where a site's script runs by itself, and converted."""
    return Site(slurm_work, cluster).make()


@pytest.fixture
def cgroup_work(tmp_path: Path, cgroup_cluster: Cluster) -> Iterator[WorkDir]:
    """The same on `cgroup_cluster`."""
    yield from _slurm_work(tmp_path, cgroup_cluster)


@pytest.fixture
def silent_work(tmp_path: Path, silent_cluster: Cluster) -> Iterator[WorkDir]:
    """The same on `silent_cluster`."""
    yield from _slurm_work(tmp_path, silent_cluster)


def _slurm_work(tmp_path: Path, cluster: Cluster) -> Iterator[WorkDir]:
    work = WorkDir(
        tmp_path / "work",
        profile=ROOT / "profiles" / "slurm",
        added_environment=cluster.environment,
    )
    work.root.mkdir()
    try:
        yield work
    finally:
        for driver in work.drivers:  # else it would submit again what is cancelled below
            driver.process.kill()
        cluster.cancel_everything()
        work.kill_everything()


def _tidy(cluster: Cluster) -> None:
    """Whatever a test did to it, the next one finds it whole."""
    cluster.cancel_everything()
    cluster.mend()
    cluster.check_alive()
