"""Segments of the DMTCP engine: in pieces, after kills, with their files and images."""

import gzip
import json
import os
import shutil
import signal
import sys

import pytest
from support.dmtcp_here import REAL
from support.dmtcp_play import numbers
from support.workdir import until

from unbroken.engines.base import Task, When
from unbroken.engines.dmtcp.checkpoint import read_state
from unbroken.engines.dmtcp.engine import DmtcpEngine
from unbroken.errors import SegmentError
from unbroken.program.contract import AttemptFolder
from unbroken.store.history import EndKind

pytestmark = [pytest.mark.process, pytest.mark.xdist_group("dmtcp_segments")]  # one process, one `dmtcp_paused`


def test_the_pieces_are_the_whole_and_the_passport_knows_the_machine(dmtcp_run):
    paused = dmtcp_run.paused_at(20)
    dmtcp_run.let_pass(20)
    again = dmtcp_run.paused_at(40, segment=2)
    dmtcp_run.let_pass(40)

    finished = dmtcp_run.segment(3)

    final = dmtcp_run.places.final
    versions = dmtcp_run.checkpoints()[-1].passport.versions
    assert [record.kind for record in (paused, again, finished)] == [EndKind.PAUSED] * 2 + [EndKind.FINISHED]
    assert (final / "numbers.txt").read_bytes() == numbers(60)
    assert sorted(path.name for path in final.iterdir()) == ["numbers.txt", "output.txt", "summary.json"]
    assert paused.progress.done < again.progress.done <= finished.progress.done
    assert finished.progress.unit == "seconds"
    assert versions["dmtcp"] == "4.1.1" if not REAL else versions["dmtcp"]
    assert "sse2" in versions["cpu_features"] or "asimd" in versions["cpu_features"]
    assert dmtcp_run.pids("dmtcp_") == []


@pytest.mark.slow
def test_files_come_from_the_checkpoint_whatever_became_of_the_folder(dmtcp_run):
    dmtcp_run.paused_at(20)
    dmtcp_run.let_pass(20)
    shutil.rmtree(dmtcp_run.live)
    dmtcp_run.let_pass(40)

    dmtcp_run.segment(2)

    assert (dmtcp_run.places.final / "numbers.txt").read_bytes() == numbers(60)


@pytest.mark.slow
def test_a_file_that_is_opened_anew_for_each_line_is_exact_over_saves_and_a_kill(dmtcp_run):
    text = "import time\nfor n in range(1, 401):\n    open('numbers.txt', 'a').write(f'{n}\\n')\n    time.sleep(0.01)\n"
    (dmtcp_run.base / "append.py").write_text(text)
    dmtcp_run.settings |= {"command": [sys.executable, "append.py"], "inputs": ["append.py"]}
    dmtcp_run.keys["save_minutes"] = 0.01

    def kill():
        until(lambda: dmtcp_run.is_over or (dmtcp_run.places and dmtcp_run.checkpoints() and dmtcp_run.counted() > 0))
        os.kill(dmtcp_run.pids("unbroken.engines.dmtcp.supervisor")[0], signal.SIGKILL)

    with pytest.raises(SegmentError):
        dmtcp_run.segment(meanwhile=kill)
    dmtcp_run.segment(1)

    assert (dmtcp_run.places.final / "numbers.txt").read_bytes() == numbers(400)
    assert [attempt.kind for attempt in dmtcp_run.history()] == [EndKind.FAILED, EndKind.FINISHED]
    assert len([attempt for attempt in dmtcp_run.history() if attempt.to_checkpoint]) == 2


@pytest.mark.slow
def test_images_are_compressed_where_that_is_wanted_and_there_is_time(dmtcp_run):
    dmtcp_run.settings["compress"] = True
    dmtcp_run.paused_at(20)
    dmtcp_run.let_pass(20)
    dmtcp_run.let_pass(40)
    (checkpoint,) = dmtcp_run.checkpoints()
    images = list(checkpoint.folder.glob("images/*.dmtcp"))

    dmtcp_run.segment(2)

    assert [image.read_bytes()[:2] for image in images if image.exists()] == [b"\x1f\x8b"] * len(images)
    assert gzip.decompress(images[0].read_bytes())
    assert (dmtcp_run.places.final / "numbers.txt").read_bytes() == numbers(60)


def test_what_was_handed_over_but_not_published_is_saved_from_a_killed_attempt(dmtcp_paused, tmp_path):
    run, folder = dmtcp_paused
    attempt_folder = AttemptFolder(tmp_path / "000007")
    attempt_folder.prepare()
    shutil.copytree(folder, attempt_folder.save / "000001.ready")
    handover = {"done": 12.5, "unit": "seconds"}
    (attempt_folder.save / "000001.ready" / "progress.json").write_text(json.dumps(handover))
    (attempt_folder.save / "draft").mkdir()

    (found,) = DmtcpEngine(tmp_path).states(Task(run.job().run, 1, None, attempt_folder, 0.0), When.KILLED)

    assert found.handover.progress.done == 12.5
    assert read_state(found.draft).images == read_state(folder).images
    assert (attempt_folder.save / "000001.ready" / "state.json").exists()
