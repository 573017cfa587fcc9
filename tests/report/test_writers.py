"""Who writes the page, when, and that nobody's work depends on it."""

import os
import time
from pathlib import Path

import psutil
import pytest
from support.histories import PLAIN
from support.many_runs import make_runs
from support.pages import facts_in
from support.terminal import Terminal
from support.toy_spec import toy_spec
from support.workdir import BIN, WorkDir, one_long_segment, one_step_segments, until

from unbroken.job.background import PAGE, PageProcess
from unbroken.job.spec import ChainJob
from unbroken.job.work import SegmentWork
from unbroken.store.history import History
from unbroken.store.layout import NOTES, RunFolder

pytestmark = pytest.mark.process


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of one run, in which we stand."""
    monkeypatch.setenv("UNBROKEN_REPORT", "on")
    make_runs(tmp_path, 1, segments=2)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def states_in(page: Path) -> dict[str, str]:
    return {run["name"]: run["state"] for run in facts_in(page)["runs"]}


def test_the_driver_writes_it_at_once_while_it_works_and_at_its_end(work: WorkDir) -> None:
    work.configure({"demo": one_long_segment(goal=20_000, segment_minutes=60)})
    driver = work.start()
    page = work.root / PAGE

    until(page.exists)
    first = facts_in(page)
    until(lambda: len(work.passports("demo")) > 1)
    driver.interrupt()
    driver.wait()

    last = facts_in(page)
    assert first["promise"] == {"seconds": 60, "writer": "The snakemake that drives these runs"}
    assert last["promise"]["seconds"] == 0
    assert [(run["state"], run["needs_a_hand"]) for run in last["runs"]] == [("paused", True)]
    assert last["runs"][0]["done"] == work.passports("demo")[-1].progress.done


def test_a_segment_s_end_brings_it_up_to_date(work: WorkDir) -> None:
    """The second run works all the while, so the driver is not at its end."""
    long = one_long_segment(goal=20_000, segment_minutes=60)
    work.configure({"short": one_step_segments(segments=1, goal=1), "long": long})
    driver = work.start()
    page = work.root / PAGE

    until(lambda: page.exists() and states_in(page)["short"] == "finished")

    assert facts_in(page)["promise"]["seconds"] == 60
    driver.interrupt()
    driver.wait()


def test_off_writes_none(work: WorkDir) -> None:
    work.added_environment["UNBROKEN_REPORT"] = "off"
    work.configure({"demo": one_step_segments(segments=1, goal=1)})

    assert work.snakemake().code == 0

    assert not (work.root / PAGE).exists()


def test_snakemake_s_report_has_it_in_the_middle_of_a_campaign(work: WorkDir) -> None:
    work.configure({"demo": one_step_segments(segments=1, goal=3)})
    work.snakemake()
    assert facts_in(work.root / PAGE)["runs"][0]["state"] == "segments used up"
    work.configure({"demo": one_step_segments(segments=3, goal=3)})

    done = work.snakemake("--report", "all.html")

    assert done.code == 0, done.text
    text = (work.root / "all.html").read_text()
    assert '"results/report.html"' in text
    assert "what needs a hand" in text  # its caption
    assert "Long computations as chains of time-limited segments" in text
    assert work.plan() == 2


def test_a_page_that_cannot_be_written_harms_no_run(work: WorkDir) -> None:
    work.configure({"demo": one_step_segments(segments=2, goal=2)})
    (work.root / PAGE).mkdir(parents=True)

    done = work.snakemake()

    assert done.code == 0
    assert work.final("demo")
    assert "report.html" in (work.root / NOTES / "report.log").read_text()


def test_a_config_that_is_just_edited_costs_no_page(base: Path) -> None:
    (base / "config" / "config.yaml").write_text("runs: [")
    page = PageProcess(base, "This test")

    page.begin(60.0)
    page.wait(240)

    assert [run["name"] for run in facts_in(base / PAGE)["runs"]] == ["run0001"]


def test_its_process_gives_way_to_all_others_and_outlives_a_hangup(base: Path) -> None:
    page = PageProcess(base, "This test")

    page.begin(60.0)

    assert page.is_at_work()
    assert page._process is not None
    process = psutil.Process(page._process.pid)
    assert process.nice() == max(psutil.Process().nice(), 10)
    assert os.getsid(process.pid) == process.pid
    page.kill()
    assert not page.is_at_work()


def test_it_goes_by_the_configuration_of_the_driver_whatever_files_that_came_from(work: WorkDir) -> None:
    """With --profile slurm too the last file is another one than that with the runs."""
    later = one_step_segments(segments=1, goal=9)
    del later["segments"]
    work.configure({"demo": one_step_segments(segments=1, goal=3), "later": later})
    more = work.write("more.yaml", "defaults: {segments: 7}\n")

    done = work.snakemake("results/demo/segments/001.json", "--configfile", str(more))

    assert done.code == 0, done.text
    told = {run["name"]: run for run in facts_in(work.root / PAGE)["runs"]}
    assert (told["later"]["state"], told["later"]["goal"], told["later"]["segments"]) == ("not started", 9, 7)
    assert (told["demo"]["segments"], told["demo"]["engine"]) == (1, "toy")


def test_what_a_killed_writer_left_is_removed_and_nothing_else(base: Path) -> None:
    old, young, users = (
        base / "results" / name
        for name in (
            f".report.html-{'0' * 32}",
            f".report.html-{'1' * 32}",
            f".other-{'0' * 32}",
        )
    )
    for path in (old, young, users):
        path.write_text("half a page")
    for path in (old, users):
        os.utime(path, (time.time() - 7200, time.time() - 7200))
    page = PageProcess(base, "This test")

    page.begin(0.0)
    page.wait(240)

    assert [path.exists() for path in (old, young, users)] == [False, True, True]


def test_of_many_who_look_one_writes(base: Path) -> None:
    first, second = PageProcess(base, "The first"), PageProcess(base, "The second")
    first.begin(600.0)
    first.wait(240)

    second.begin(600.0)

    assert not second.is_at_work()
    assert facts_in(base / PAGE)["promise"]["writer"] == "The first"


def test_after_a_clock_was_set_back_somebody_writes_it_again(base: Path) -> None:
    asked = base / NOTES / "report.asked"
    asked.parent.mkdir(parents=True)
    asked.touch()
    os.utime(asked, (time.time() + 86400, time.time() + 86400))
    page = PageProcess(base, "This test")

    page.begin(600.0)
    page.wait(240)

    assert (base / PAGE).exists()


def test_a_job_at_work_keeps_it_and_leaves_without_waiting(base: Path) -> None:
    job = ChainJob(toy_spec(refills=False), "17")
    work = SegmentWork(job)
    work.look_ahead()
    until((base / PAGE).exists)
    assert facts_in(base / PAGE)["promise"] == {"seconds": 600, "writer": "A job of a run, while one is at work,"}
    (base / PAGE).unlink()

    other = SegmentWork(job)
    other.look_ahead()
    work.end_page()
    other.end_page()

    assert not (base / PAGE).exists()  # the folder's next page is due in ten minutes


def test_the_command_names_the_page_and_refuses_what_it_cannot_show(work: WorkDir) -> None:
    nothing = work.unbroken("report")
    History(RunFolder("demo", work.root).history).append(PLAIN)
    (work.root / "results/demo/lease").mkdir()

    done, one = work.unbroken("report"), work.unbroken("report", "demo")
    several, unknown = work.unbroken("report", "demo", "demo2"), work.unbroken("report", "nobody")

    assert (nothing.code, nothing.text.splitlines()) == (
        1,
        [
            f"unbroken: config/config.yaml: not found in {work.root}; to begin here, type: unbroken init; "
            "for runs of another folder, add: -d FOLDER"
        ],
    )
    assert (done.code, done.text.strip()) == (0, str(work.root / PAGE))
    assert (one.code, one.text.strip()) == (0, str(work.root / "results/report-demo.html"))
    assert several.text.splitlines() == ["unbroken: report: for several runs, say where to write the page; add -o FILE"]
    assert unknown.text.splitlines() == ["unbroken: no run is named 'nobody', allowed: demo"]
    assert facts_in(work.root / PAGE)["promise"]["seconds"] == 0


def test_watch_shows_a_campaign_that_others_drive_and_writes_its_page(work: WorkDir) -> None:
    work.configure({"demo": one_long_segment(goal=20_000, segment_minutes=60)})
    work.added_environment["UNBROKEN_REPORT"] = "off"
    driver = work.start()
    until(lambda: work.passports("demo"))
    work.added_environment["UNBROKEN_REPORT"] = "on"

    with Terminal([str(BIN / "unbroken"), "watch"], work.root, work.environment(), 100, 12) as terminal:
        terminal.wait_for("demo +working")
        until((work.root / PAGE).exists)
        during = facts_in(work.root / PAGE)
        terminal.type("\x03")
        code = terminal.wait()
    until(lambda: facts_in(work.root / PAGE)["promise"]["seconds"] == 0)

    assert code == 0
    assert during["promise"] == {"seconds": 60, "writer": "unbroken watch"}
    assert states_in(work.root / PAGE) == {"demo": "working"}  # which goes on
    driver.interrupt()
    driver.wait()
