"""Images of a program that was started under DMTCP by hand become a run, to the bytes of one uninterrupted program."""

import gzip
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.dmtcp_here import PROGRAMS
from support.dmtcp_play import Play, count, numbers
from support.dmtcp_runs import Run
from support.workdir import until

from unbroken.engines.dmtcp.adopt import confirm_leads_to
from unbroken.engines.dmtcp.engine import DmtcpEngine
from unbroken.engines.foreign import Foreign
from unbroken.errors import CheckpointError, ConfigError, SegmentError
from unbroken.runs.checkpoint import Checkpoint
from unbroken.runs.segment_end import EndKind
from unbroken.runs.store import Store
from unbroken.segment.adopt import adopt

pytestmark = pytest.mark.slow
GOAL, SAVED, KILLED = 300, 100, 150


class ByHand(Play):
    """A program in `old`, with its images there, as dmtcp_launch puts them without an option."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        super().__init__(PROGRAMS, folder)
        self.live.rename(folder / "old")
        self.live = folder / "old"

    def begin(self, passes: Path) -> None:
        """It counts, and waits at the gates; its own settings of DMTCP, so gzip too."""
        port_file = self.folder / "port"
        words = self.programs.coordinator(port_file, self.live)
        self.coordinator = self.start(words, self.folder, quiet=0)
        while not (port_file.exists() and port_file.read_text().strip()):
            assert self.coordinator.poll() is None
        self.port = int(port_file.read_text())
        words = [self.programs.path("dmtcp_launch"), "--join-coordinator", "--coord-port", str(self.port)]
        words += ["--ckptdir", str(self.live)]
        environment = {name: text for name, text in os.environ.items() if not name.startswith("DMTCP_")}
        command = count(GOAL, SAVED, KILLED, 200, code=0, passes=f"{passes}/pass")
        self.started.append(
            subprocess.Popen(
                [*words, *command],
                cwd=self.live,
                env={**environment, "DMTCP_QUIET": "1"},
                start_new_session=True,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        )
        self.until_running()
        self.until_at(SAVED)

    def save(self, request: str) -> None:
        """Until the images are there, and with `--kcheckpoint` until the program is gone."""
        self.ask(request)
        until(lambda: any(self.live.glob("dmtcp_restart_script*")) and not any(self.live.glob("*.temp")))

    def end(self) -> None:
        self.ask("--kill")
        self.started[-1].wait(60)


@pytest.fixture
def by_hand(tmp_path: Path) -> Iterator[ByHand]:
    play = ByHand(tmp_path / "hand")
    yield play
    play.close()


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    base = tmp_path / "base"
    base.mkdir()
    found = Run(base)
    found.settings["command"] = count(GOAL, SAVED, KILLED, 200, code=0, passes=f"{base}/pass")
    yield found
    for gate in (SAVED, KILLED, 200):
        found.let_pass(gate)


def taken(run: Run, source: Path, done: float | None = None) -> Checkpoint:
    return adopt(run.job(), DmtcpEngine(run.base), Foreign(source, done), print)


def moved(by_hand: ByHand, run: Run) -> Path:
    """As `adopt` says: the folder under another name, and a link to the run's in its place."""
    aside = by_hand.live.with_name("old.by-hand")
    by_hand.live.rename(aside)
    by_hand.live.symlink_to(run.live)
    return aside


def test_a_program_that_was_saved_and_ended_goes_on_as_a_run_to_the_same_bytes(by_hand: ByHand, run: Run) -> None:
    by_hand.begin(run.base)
    by_hand.save("--kcheckpoint")
    source = moved(by_hand, run)

    passport = taken(run, source, done=3.5).passport
    run.let_pass(SAVED)
    first = run.paused_at(KILLED)
    run.let_pass(KILLED)
    run.let_pass(200)
    last = run.segment(2)

    assert passport.adopted is not None
    assert (passport.progress.done, passport.segment) == (3.5, 0)
    assert passport.adopted.checked[0].startswith("images, whole to their end marks: ckpt_python")
    assert (
        passport.adopted.checked[1] == f"their program knows {by_hand.live}, which leads to the run's folder {run.live}"
    )
    assert "no file was written after the images" in passport.adopted.checked
    assert passport.adopted.lost == ("what it printed so far: output.txt begins here",)
    assert (first.kind, last.kind) == (EndKind.PAUSED, EndKind.FINISHED)
    assert (run.places.final / "numbers.txt").read_bytes() == numbers(GOAL)
    assert sorted(path.name for path in run.places.final.iterdir()) == ["numbers.txt", "output.txt", "summary.json"]
    assert (source / "numbers.txt").read_bytes() == numbers(SAVED)


def test_what_a_killed_program_wrote_after_its_images_is_cut_back(by_hand: ByHand, run: Run) -> None:
    by_hand.begin(run.base)
    by_hand.save("--bcheckpoint")
    run.let_pass(SAVED)
    by_hand.until_at(KILLED)
    by_hand.end()
    source = moved(by_hand, run)

    passport = taken(run, source).passport
    run.let_pass(KILLED)
    run.let_pass(200)
    record = run.segment()

    assert passport.adopted is not None
    what = "DMTCP cuts back what the program has open, and in another file stands twice what it writes again"
    assert f"numbers.txt: written on after the images; {what}" in passport.adopted.not_checked
    assert record.kind is EndKind.FINISHED
    assert (run.places.final / "numbers.txt").read_bytes() == numbers(GOAL)


def test_it_is_saved_and_brought_back_within_a_segment(by_hand: ByHand, run: Run) -> None:
    by_hand.begin(run.base)
    by_hand.save("--kcheckpoint")
    taken(run, moved(by_hand, run))
    run.keys["save_minutes"] = 0.05

    def saves_then_passes() -> None:
        run.until_back()
        until(lambda: len(run.checkpoints()) > 1 or run.is_over)
        for gate in (SAVED, KILLED, 200):
            run.let_pass(gate)

    record = run.segment(1, saves_then_passes)

    assert record.kind is EndKind.FINISHED
    assert (run.places.final / "numbers.txt").read_bytes() == numbers(GOAL)


def test_images_whose_old_path_does_not_lead_to_the_run_are_refused_with_what_to_type(
    by_hand: ByHand, run: Run
) -> None:
    by_hand.begin(run.base)
    by_hand.save("--kcheckpoint")
    old, aside = by_hand.live, by_hand.live.with_name("old.by-hand")
    link = f"ln -s {run.live} {old}"

    with pytest.raises(ConfigError) as there:
        taken(run, old)
    old.rename(aside)
    with pytest.raises(ConfigError) as gone:
        taken(run, aside)
    old.mkdir()
    with pytest.raises(ConfigError) as another:
        taken(run, aside)
    old.rmdir()
    old.symlink_to(run.live)
    (aside / "numbers.txt").unlink()  # so that no open file is there either
    taken(run, aside)
    old.unlink()
    with pytest.raises(SegmentError, match=f"the images know {old}, which must lead to the run's folder; type: {link}"):
        run.segment()

    then = f"mv {old} {aside} && {link}"
    writes = f"demo: the images know {old}, and DMTCP would write there; type: {then}"
    assert str(there.value) == f"{writes} && unbroken adopt demo --from {aside}"
    assert str(gone.value) == f"demo: the images know {old}, which must lead to the run's folder; type: {link}"
    assert str(another.value) == writes


def test_a_file_of_the_same_name_that_the_program_knows_elsewhere_is_named(by_hand: ByHand, run: Run) -> None:
    by_hand.begin(run.base)
    by_hand.save("--kcheckpoint")
    source = moved(by_hand, run)
    for folder in (source, run.base):
        (folder / "pass").touch()  # a word of its command

    adopted = taken(run, source).passport.adopted

    assert adopted is not None
    line = f"{run.base}/pass: known to the program beside its folder; it goes on with what is there"
    assert line in adopted.not_checked


def test_a_folder_that_the_program_knows_too_is_not_to_be_moved(by_hand: ByHand, run: Run) -> None:
    """As the folder of a script, of which there is another one where the program worked."""
    by_hand.begin(run.base)
    by_hand.save("--kcheckpoint")
    source = moved(by_hand, run)
    image = next(source.glob("ckpt_python*.dmtcp"))
    with gzip.open(image) as file:
        data = file.read()
    mark = len(data) - 4096
    known = f"\0{run.base}\0{run.base}/script.py\0".encode()
    image.write_bytes(gzip.compress(data[: mark - len(known)] + known + data[mark:], 1))
    (source / "script.py").touch()
    (run.base / "script.py").touch()

    with pytest.raises(ConfigError) as refused:
        taken(run, source)

    other = f"{run.base}/script.py, and the program would go on with that, not with {source}/script.py"
    assert str(refused.value) == f"demo: the images know {other}; take script.py out of one of the two folders"


def test_images_that_are_not_whole_are_refused_and_leave_nothing(by_hand: ByHand, run: Run) -> None:
    by_hand.begin(run.base)
    by_hand.save("--kcheckpoint")
    source = moved(by_hand, run)
    image = next(source.glob("ckpt_*.dmtcp"))
    whole = image.read_bytes()

    for data, line in ((whole[:-100], "cut short or damaged"), (b"", "cut short"), (b"#!/bin/sh\n", "not an image")):
        image.write_bytes(data)
        with pytest.raises(CheckpointError, match=line):
            taken(run, source)
    image.rename(image.with_name("ckpt_other_1.dmtcp"))
    with pytest.raises(CheckpointError, match=f"has no {image.name}, which DMTCP's restart script names"):
        taken(run, source)

    assert Store(run.places.checkpoints).names() == []


def test_what_is_no_folder_of_images_is_refused(run: Run) -> None:
    folder = run.base / "old"
    folder.mkdir()
    (folder / "file").touch()

    with pytest.raises(ConfigError, match=r"found .*file, a file; allowed: the folder in which the program ran"):
        taken(run, folder / "file")
    with pytest.raises(CheckpointError, match=r"no ckpt_\*\.dmtcp in it"):
        taken(run, folder)
    for name in ("a", "b"):
        (folder / name).mkdir()
        (folder / name / "ckpt_sh_1.dmtcp").touch()
    with pytest.raises(ConfigError, match=r"has images in .*a, .*b; leave those of one checkpoint there"):
        taken(run, folder)
    (folder / "b" / "ckpt_sh_1.dmtcp").unlink()
    for name in ("ckpt_sh_2.dmtcp", "ckpt_sh_2.dmtcp.temp"):
        (folder / "a" / name).touch()
    with pytest.raises(CheckpointError, match="the program was being saved when it ended, or is now"):
        taken(run, folder)


def test_a_link_that_leads_to_the_run_by_another_way_is_taken(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "way").symlink_to("real")
    (tmp_path / "old").symlink_to("way/live")

    confirm_leads_to("demo", str(tmp_path / "old"), tmp_path / "real" / "live")
