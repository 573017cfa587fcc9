"""A stage by itself: whose checkpoint counts, whose exit code, and how long it is waited for."""

import os
import subprocess
import sys
import threading

import pytest
from support.dmtcp_here import PROGRAMS, STAND_IN
from support.dmtcp_play import COUNT, count
from support.workdir import until

from unbroken.engines.dmtcp.checkpoint import BYTES_PER_SECOND, compress, images_in
from unbroken.engines.dmtcp.programs import FOREIGN, QUIET, Programs, clean_environment
from unbroken.engines.dmtcp.session import DmtcpSession, vitals
from unbroken.errors import SegmentError

pytestmark = pytest.mark.process

PATIENCE_SECONDS = 600.0


@pytest.fixture
def live(tmp_path):
    (tmp_path / "live").mkdir()
    return tmp_path / "live"


@pytest.fixture
def stage_of(tmp_path, live, monkeypatch):
    """A stage at work: a program that counts to 30 and waits at 5."""
    for name, value in QUIET.items():
        monkeypatch.setenv(name, value)
    stages = []

    def stage_of(programs, *words):
        stages.append(
            DmtcpSession(Programs(str(programs)), tmp_path / "stage", tmp_path / "images", live, tmp_path / "log")
        )
        stages[0].launch([], words or count(30, 5, code=0))
        until(lambda: (live / "numbers.txt").exists() and (live / "numbers.txt").read_text().endswith("5\n"))
        return stages[0]

    yield stage_of
    for stage in stages:
        stage.close()


@pytest.fixture
def stage(stage_of):
    return stage_of(PROGRAMS)


def ask(tmp_path, request):
    port = (tmp_path / "stage" / "port").read_text().strip()
    subprocess.run([PROGRAMS / "dmtcp_command", "--coord-port", port, request], check=False, stdout=subprocess.DEVNULL)


def test_somebody_elses_checkpoint_does_not_count_for_a_program_that_came_to_its_end(stage, tmp_path, live):
    ask(tmp_path, "--checkpoint")
    until(stage.is_complete, PATIENCE_SECONDS)
    (live / "pass5").touch()
    until(lambda: stage.has_ended(0.1), PATIENCE_SECONDS)

    assert stage.checkpoint(PATIENCE_SECONDS) is False
    assert stage.exit_code == 0


def test_a_program_that_comes_to_its_end_while_it_is_saved_has_come_to_its_end(stage_of, tmp_path, live):
    text = COUNT.replace("import os", "import signal; signal.signal(signal.SIGUSR2, signal.SIG_IGN)\nimport os")
    stage = stage_of(STAND_IN / "4.1.1", *[text if word == COUNT else word for word in count(30, 5, code=0)])

    def let_pass():
        until(lambda: "starting checkpoint" in (tmp_path / "stage" / "coordinator.txt").read_text())
        (live / "pass5").touch()

    thread = threading.Thread(target=let_pass)
    thread.start()
    has_saved = stage.checkpoint(PATIENCE_SECONDS)
    thread.join()

    assert has_saved is False
    assert stage.exit_code == 0


def test_somebody_elses_checkpoint_gives_way_to_ours(stage, tmp_path):
    ask(tmp_path, "--checkpoint")
    until(stage.is_complete, PATIENCE_SECONDS)
    before = {image: image.stat().st_mtime_ns for image in images_in(stage.images)}

    assert stage.checkpoint(PATIENCE_SECONDS) is True
    assert len(before) == 2
    assert images_in(stage.images) == list(before)
    assert [image for image, written_ns in before.items() if image.stat().st_mtime_ns <= written_ns] == []


def test_ours_counts_without_a_script_where_all_images_are_there(stage_of):
    stage = stage_of(STAND_IN / "3.2.0")

    assert stage.checkpoint(PATIENCE_SECONDS) is True
    assert list(stage.images.glob("*.sh")) == []
    images_in(stage.images)[0].unlink()
    assert stage.is_complete() is False


def test_variables_and_the_usual_port_of_dmtcp_do_no_harm(stage_of, tmp_path, monkeypatch):
    foreign = {"DMTCP_COORD_PORT": "7779", "DMTCP_CHECKPOINT_DIR": "/nonexistent", "DMTCP_CHECKPOINT_INTERVAL": "1"}
    for name, value in foreign.items():
        monkeypatch.setenv(name, value)
    with monkeypatch.context() as undone:
        for name in [name for name in os.environ if name.startswith(FOREIGN)]:
            undone.setenv(name, os.environ[name])  # so that they come back
        clean_environment()
        stage = stage_of(PROGRAMS)
        left = [name for name in foreign if name in os.environ]

    assert left == []
    assert (tmp_path / "stage" / "port").read_text().strip() != "7779"
    assert stage.checkpoint(PATIENCE_SECONDS) is True


@pytest.mark.parametrize("request_to_die", ["--quit", "--kill"])
def test_what_a_shell_notes_while_its_program_is_killed_is_not_the_programs_exit_code(stage, tmp_path, request_to_die):
    ask(tmp_path, request_to_die)
    until(lambda: stage.has_ended(0.1), PATIENCE_SECONDS)

    assert stage.exit_code is None


def test_a_checkpoint_that_hangs_is_given_up(stage_of, tmp_path, monkeypatch):
    monkeypatch.setenv("STAND_IN_HANG", str(tmp_path / "hang"))
    stage = stage_of(STAND_IN / "4.1.1")
    (tmp_path / "hang").touch()

    with pytest.raises(SegmentError) as error:
        stage.checkpoint(1.0)

    assert str(error.value).startswith(f"DMTCP made no checkpoint within 1 s; it left nothing in {tmp_path}/images, ")


def test_a_restart_that_hangs_is_given_up(stage_of, tmp_path, live, monkeypatch):
    monkeypatch.setenv("STAND_IN_HANG", str(tmp_path / "hang"))
    stage = stage_of(STAND_IN / "4.1.1")
    stage.checkpoint(PATIENCE_SECONDS)
    (tmp_path / "hang").touch()
    again = DmtcpSession(Programs(str(STAND_IN / "4.1.1")), tmp_path / "s2", tmp_path / "i2", live, tmp_path / "log")

    with pytest.raises(SegmentError) as error:
        again.restart(images_in(stage.images), 2.0)

    again.close()
    assert str(error.value) == (
        "dmtcp_restart did not bring the program back within 2 s (settings.restart_seconds); it was killed"
    )


def test_images_that_cannot_be_compressed_in_time_stay_as_they_are(tmp_path):
    sizes = {"ckpt_large.dmtcp": int(BYTES_PER_SECOND), "ckpt_small.dmtcp": int(BYTES_PER_SECOND / 10)}
    for name, size in sizes.items():
        (tmp_path / name).write_bytes(bytes(size))

    done = compress(tmp_path, 0.5)

    assert done == 1
    assert (tmp_path / "ckpt_large.dmtcp").read_bytes() == bytes(sizes["ckpt_large.dmtcp"])
    assert (tmp_path / "ckpt_small.dmtcp").read_bytes()[:2] == b"\x1f\x8b"


def test_a_process_that_computes_can_be_told_from_one_that_waits(tmp_path):
    code = "import sys\nsys.stdout.write('x'); sys.stdout.flush(); sys.stdin.read(1)\nwhile True: pass"
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    process.stdout.read(1)
    waiting = vitals([process.pid])
    process.stdin.write(b"x")
    process.stdin.flush()

    until(lambda: vitals([process.pid]).ticks > waiting.ticks)

    process.kill()
    process.communicate()
    assert waiting.memory_bytes > 1_000_000
    assert vitals([process.pid]) == vitals([])
    assert vitals([os.getpid()]).ticks > 0
