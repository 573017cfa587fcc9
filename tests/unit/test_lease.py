"""Who holds a run.  Races between real processes are in tests/protocol/test_one_writer.py."""

import errno
import getpass
import json
import os
import platform
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from unbroken.errors import FencedError, LeaseError, OutageError, StorageError
from unbroken.slurm import client
from unbroken.slurm.job import ListedJob
from unbroken.store import claim as holder
from unbroken.store import lease
from unbroken.store.claim import Claim, HolderWatch
from unbroken.store.driver_start import START
from unbroken.store.layout import RunFolder
from unbroken.store.lease import current_claim, take, take_if_idle
from unbroken.store.select import refuse_newer
from unbroken.system import fs, host, log

OTHER_HOST = {"host": "elsewhere", "boot_id": "another", "pid": 1, "pid_start": "1"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "demo" / "lease"
    folder.mkdir(parents=True)
    return folder


def our_claim(token: int = 1, **changes: object) -> Claim:
    """A claim as this very process would make it."""
    claim = Claim(
        token,
        1,
        platform.node(),
        os.getpid(),
        host.process_start(os.getpid()),
        host.pid_namespace(),
        host.boot_id(),
        "",
        "somebody",
        "2026-11-21T00:00:00Z",
    )
    return replace(claim, **changes)  # type: ignore[arg-type]


def put(folder: Path, claim: Claim, silent_seconds: float = 0.0) -> Path:
    path = folder / f"{claim.token:06d}.json"
    path.write_text(json.dumps(vars(claim)))
    last = time.time() - silent_seconds
    os.utime(path, (last, last))
    return path


def dead_process() -> tuple[int, str]:
    """The pid and start of a process that is gone."""
    process = subprocess.Popen(["sleep", "60"])
    start = host.process_start(process.pid)
    process.kill()
    process.wait()
    return process.pid, start


def take_now(folder: Path, told: list[str] | None = None) -> lease.Lease:
    with log.lines_to((told if told is not None else []).append):
        return take(folder, 2, 0)


def test_the_first_one_gets_the_run(folder: Path) -> None:
    with take_now(folder) as held:
        assert (held.claim.token, held.claim.pid, held.claim.segment) == (1, os.getpid(), 2)


def test_a_claim_says_which_process_of_which_job_holds_the_run(folder: Path) -> None:
    job = {"SLURM_JOB_ID": "17", "SLURMD_NODENAME": "n1", "SLURM_CLUSTER_NAME": "big", START: "4711"}
    with take(folder, 2, 0, environment=job, mem_mb=4000) as held:
        claim = held.claim
    assert (claim.slurm_job, claim.slurm_node, claim.slurm_cluster, claim.start) == ("17", "n1", "big", "4711")
    assert claim.mem_mb == 4000
    assert (claim.host, claim.pid, claim.pid_start) == (platform.node(), os.getpid(), host.process_start(os.getpid()))
    assert (claim.pid_namespace, claim.boot_id, claim.user) == (host.pid_namespace(), host.boot_id(), getpass.getuser())

    with take(folder, 2, 0, environment={}) as held:
        claim = held.claim
    assert (claim.slurm_job, claim.slurm_node, claim.slurm_cluster, claim.start) == ("", "", "", "")
    assert claim.mem_mb == 0


def test_a_lease_knows_how_far_this_clock_is_ahead_of_the_file_servers(folder: Path) -> None:
    """Both are one here."""
    with take_now(folder) as held:
        assert abs(held.clock_ahead_seconds) < 60

    assert lease._ahead_seconds(folder / "none") == 0


def test_numbers_only_grow(folder: Path) -> None:
    for token in (1, 2, 3):
        with take_now(folder) as held:
            held.forget_earlier()
            assert held.claim.token == token
            assert [path.name for path in folder.iterdir()] == [f"{token:06d}.json"]


def test_a_released_run_is_free_at_once(folder: Path) -> None:
    with take_now(folder):
        pass

    held, reason = current_claim(folder)

    assert held is not None and held.released_utc != ""
    assert reason == "released"


def test_a_live_holder_is_named_to_whoever_comes_second(folder: Path) -> None:
    told: list[str] = []
    with take_now(folder), pytest.raises(LeaseError) as caught:
        take_now(folder, told)

    who = f"segment 2 by process {os.getpid()} on {platform.node()}"
    assert f"{folder.parent}: held, {who}" in str(caught.value)
    assert "let it finish (or stop that job) and start again" in str(caught.value)
    assert len(told) == 1 and told[0].startswith(f"waiting: the run is held, {who}")


@pytest.mark.parametrize(("longest", "lines"), [(60.0, 0), (0.0, 1)])
def test_the_segment_before_on_its_way_out_is_told_of_only_if_it_takes_long(
    folder: Path, monkeypatch: pytest.MonkeyPatch, longest: float, lines: int
) -> None:
    monkeypatch.setattr(lease, "LEAVING_SECONDS", longest)
    told: list[str] = []
    with take(folder, 1, 0), pytest.raises(LeaseError):
        take_now(folder, told)

    assert len(told) == lines


def test_waiting_can_be_given_up(folder: Path) -> None:
    def give_up() -> None:
        raise KeyboardInterrupt

    with take_now(folder), pytest.raises(KeyboardInterrupt):
        take(folder, 1, 60, check=give_up)


@pytest.mark.process
def test_a_dead_process_is_replaced_at_once(folder: Path) -> None:
    pid, start = dead_process()
    put(folder, our_claim(pid=pid, pid_start=start))
    told: list[str] = []

    with take_now(folder, told) as held:
        assert held.claim.token == 2

    assert told == [
        f"took the run over from segment 1 by process {pid} on {platform.node()} since 2026-11-21T00:00:00Z: "
        "its process is gone"
    ]


def test_a_process_id_that_was_given_to_another_process_is_not_the_holder(folder: Path) -> None:
    put(folder, our_claim(pid_start="1"))

    with take_now(folder) as held:
        assert held.claim.token == 2


@pytest.mark.process
def test_a_zombie_process_holds_nothing(folder: Path) -> None:
    process = subprocess.Popen(["sleep", "60"])
    claim = our_claim(pid=process.pid, pid_start=host.process_start(process.pid))
    put(folder, claim)
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    _, reason = current_claim(folder)
    process.wait()

    assert reason == "its process is gone"


UNSEEN = [
    {"host": "elsewhere", "boot_id": "another"},
    {"host": "elsewhere"},  # a clone of a machine carries its boot id along
    {"pid_namespace": "pid:[1]"},  # a container, where the same number is another process
]


class Waiter:
    """Somebody who waits for a claim: its polls are made when the test says so, on a clock of its own."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._folder, self._now = folder, 1000.0
        self._watch = HolderWatch(lease.HEARTBEAT_SECONDS)
        monkeypatch.setattr(time, "monotonic", lambda: self._now)

    def look(self, after_seconds: float = lease.HEARTBEAT_SECONDS) -> str:
        """Why the run is free, so many seconds later on its clock."""
        self._now += after_seconds
        held, reason = current_claim(self._folder)
        assert held is not None
        return reason or self._watch.why_free(self._folder / f"{held.token:06d}.json", held)

    def remark(self) -> str:
        held, _ = current_claim(self._folder)
        assert held is not None
        return self._watch.remark(held)


@pytest.fixture
def waiter(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Waiter:
    return Waiter(folder, monkeypatch)


@pytest.mark.process
@pytest.mark.parametrize("changes", UNSEEN)
def test_whom_we_cannot_see_is_dead_after_twelve_looks_without_a_heartbeat_and_not_before(
    folder: Path, waiter: Waiter, changes: dict[str, object]
) -> None:
    pid, start = dead_process()
    put(folder, our_claim(**{"pid": pid, "pid_start": start, **changes}))

    first, *looks = [waiter.look() for _ in range(13)]

    assert [first, *looks[:-1]] == [""] * 12
    assert looks[-1] == "no heartbeat in 12 looks, one every 10 s"


@pytest.mark.parametrize("silent_seconds", [10**6, -(10**6), 0])
def test_no_time_stamp_makes_anybody_dead_or_alive(folder: Path, waiter: Waiter, silent_seconds: float) -> None:
    """Restored files, a clock that was set back, a file server with a time of its own."""
    put(folder, our_claim(**OTHER_HOST), silent_seconds)

    looks = [waiter.look() for _ in range(13)]

    assert [bool(look) for look in looks] == [False] * 12 + [True]


def test_a_heartbeat_starts_the_count_again(folder: Path, waiter: Waiter) -> None:
    path = put(folder, our_claim(**OTHER_HOST), 10**6)
    for _ in range(12):
        assert waiter.look() == ""
    os.utime(path)

    looks = [waiter.look() for _ in range(13)]

    assert [bool(look) for look in looks] == [False] * 12 + [True]


def test_however_long_the_waiter_itself_slept_that_was_one_look(folder: Path, waiter: Waiter) -> None:
    put(folder, our_claim(**OTHER_HOST))

    looks = [waiter.look(after_seconds=86400) for _ in range(12)]

    assert looks == [""] * 12


def test_looks_that_follow_each_other_sooner_are_one_look(folder: Path, waiter: Waiter) -> None:
    put(folder, our_claim(**OTHER_HOST))

    assert [waiter.look(after_seconds=0.5) for _ in range(240)] == [""] * 240
    assert waiter.look() != ""


def test_a_file_server_that_does_not_answer_shows_nobodys_silence(
    folder: Path, waiter: Waiter, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(folder, our_claim(**OTHER_HOST))
    with monkeypatch.context() as patch:
        patch.setattr(Path, "stat", raising(errno.EIO))
        patch.setattr(Path, "is_dir", lambda path: True)
        looks = [waiter.look() for _ in range(30)]

    assert looks + [waiter.look() for _ in range(12)] == [""] * 42


def raising(number: int) -> Callable[..., object]:
    def fail(*_: object, **__: object) -> object:
        raise OSError(number, os.strerror(number))

    return fail


def test_a_machine_that_was_restarted_holds_nothing(folder: Path, waiter: Waiter) -> None:
    put(folder, our_claim(boot_id="before"))

    assert [waiter.look() for _ in range(4)] == ["", "", "", "its machine was restarted"]


def test_another_machine_of_the_same_name_whose_heart_beats_is_alive(folder: Path, waiter: Waiter) -> None:
    path = put(folder, our_claim(boot_id="another", pid=1))
    looks = []
    for _ in range(12):
        os.utime(path)
        looks.append(waiter.look())

    assert looks == [""] * 12


def test_a_process_that_lives_here_is_never_robbed_however_silent_and_whatever_slurm_says(
    folder: Path, waiter: Waiter, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    monkeypatch.setattr(holder, "ended", lambda *words: asked.append(words) or ListedJob("17", "CANCELLED"))
    put(folder, our_claim(slurm_job="17"), 10**6)

    looks = [waiter.look() for _ in range(30)]

    assert (looks, asked) == ([""] * 30, [])
    hint = f"if it hangs, type kill -KILL {os.getpid()}"
    assert waiter.remark() == f"process {os.getpid()} lives, but sends no heartbeat; {hint}"


@pytest.mark.process
def test_a_stopped_process_is_named_with_what_to_type(folder: Path) -> None:
    process = subprocess.Popen(["sleep", "60"])
    put(folder, our_claim(pid=process.pid, pid_start=host.process_start(process.pid)))
    process.send_signal(signal.SIGSTOP)
    os.waitpid(process.pid, os.WUNTRACED)
    told: list[str] = []
    with pytest.raises(LeaseError) as caught:
        take_now(folder, told)
    process.kill()
    process.wait()

    number = process.pid
    todo = f"type kill -CONT {number} and it goes on, or kill -KILL {number} and the run is free"
    assert told[1:] == [f"process {number} is stopped (SIGSTOP, or Ctrl-Z); {todo}"]
    assert str(caught.value).endswith(f"{todo} and start again")


def test_a_process_that_the_system_hides_is_not_taken_for_gone(
    folder: Path, waiter: Waiter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """/proc that is mounted with hidepid shows no process of another user."""
    monkeypatch.setattr(os, "kill", raising(errno.EPERM))
    put(folder, our_claim(pid=2**22 + 1))

    assert waiter.look() == ""


# As squeue is asked for it.
ENDED_JOB = "ada|node1|17|CANCELLED|None|1700000000|1700000000|1700003600||/"

# --- what Slurm says -----------------------------------------------------------------------------------------------


@pytest.mark.process
@pytest.mark.parametrize(
    ("own", "of_the_claim", "may_ask"),
    [("alpha", "alpha", True), ("alpha", "beta", False), ("alpha", "", True), ("", "beta", True)],
)
def test_a_job_is_asked_for_on_its_own_cluster_alone(
    folder: Path, waiter: Waiter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: str, of_the_claim: str,
    may_ask: bool,
) -> None:  # fmt: skip
    """Another cluster's job of the same number may have ended long ago."""
    slurm_that_says(tmp_path, monkeypatch, squeue=ENDED_JOB, scontrol=f"ClusterName = {own}" * bool(own))
    put(folder, our_claim(**OTHER_HOST, slurm_job="17", slurm_cluster=of_the_claim))

    assert waiter.look() == ("its job ended as CANCELLED" if may_ask else "")


def test_a_job_knows_its_cluster_without_asking(
    folder: Path, waiter: Waiter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slurm_that_says(tmp_path, monkeypatch, squeue=ENDED_JOB, scontrol="ClusterName = beta")
    monkeypatch.setenv("SLURM_CLUSTER_NAME", "alpha")
    put(folder, our_claim(**OTHER_HOST, slurm_job="17", slurm_cluster="beta"))

    assert waiter.look() == ""


def slurm_that_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **answers: str) -> None:
    """Commands of Slurm with recorded answers in front of all others."""
    commands = tmp_path / "bin"
    commands.mkdir()
    for name, text in answers.items():
        (commands / name).write_text(f"#!/bin/sh\ncat <<'END'\n{text}\nEND\n")
        (commands / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{commands}:{os.environ['PATH']}")
    monkeypatch.delenv("SLURM_CLUSTER_NAME", raising=False)
    client._cluster_of_controller.cache_clear()


# --- those who look once -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("changes", UNSEEN)
def test_one_look_takes_nothing_from_whom_we_cannot_see(folder: Path, changes: dict[str, object]) -> None:
    put(folder, our_claim(**changes), 10**6)

    held, reason = current_claim(folder)

    assert held is not None and reason == ""
    assert lease.long_silence(folder, held) == "no sign of life for 11.6 d"


@pytest.mark.parametrize(
    ("changes", "silent"), [({}, 10**6), (OTHER_HOST, 60), (OTHER_HOST, -(10**6)), ({**OTHER_HOST, "token": 2}, 10**6)]
)
def test_silence_is_said_of_those_alone_who_cannot_be_seen_and_were_silent_for_long(
    folder: Path, changes: dict[str, object], silent: float
) -> None:
    held = our_claim(**changes)
    if held.token == 1:  # else somebody has replaced it
        put(folder, held, silent)

    assert lease.long_silence(folder, held) == ""


@pytest.mark.parametrize(
    ("leaves", "error", "words"),
    [
        (True, LeaseError, "held, .* at work$"),
        (False, LookupError, "asked twice"),
    ],
)
def test_a_job_leaves_a_run_to_a_holder_that_is_seen_at_work_if_it_is_told_to(
    folder: Path, monkeypatch: pytest.MonkeyPatch, leaves: bool, error: type[Exception], words: str
) -> None:
    """Whoever waits occupies a node."""
    monkeypatch.setattr(lease, "HEARTBEAT_SECONDS", 0.01)
    path = put(folder, our_claim(**OTHER_HOST))
    asked, looks, told = list[str](), list[int](), list[str]()

    def look() -> None:
        if len(asked) == 2:
            raise LookupError("asked twice")
        looks.append(1)
        os.utime(path, (len(looks), len(looks)))

    def leaves_to(held: Claim) -> bool:
        assert looks  # not before its heart was seen to beat
        asked.append(held.describe())
        return leaves

    with pytest.raises(error, match=words), log.lines_to(told.append):
        take(folder, 1, 60, check=look, leaves_to=leaves_to)

    assert asked == [our_claim(**OTHER_HOST).describe()] * (1 if leaves else 2)
    assert told == [f"waiting: the run is held, {asked[0]}; only one job may write it"]


def test_what_to_type_about_a_holder_that_does_nothing_is_told_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "HEARTBEAT_SECONDS", 0.01)
    monkeypatch.setattr(HolderWatch, "remark", lambda watch, held: "it is stopped; type kill -CONT 1")
    claim, told = our_claim(**OTHER_HOST), list[str]()
    put(folder, claim)
    looks = iter(range(3))

    with pytest.raises(StopIteration), log.lines_to(told.append):
        take(folder, 2, 60, check=lambda: next(looks) and None)

    assert told == [
        f"waiting: the run is held, {claim.describe()}; only one job may write it",
        "it is stopped; type kill -CONT 1",
    ]


@pytest.mark.parametrize("changes", [{}, OTHER_HOST])
def test_whoever_would_move_a_run_waits_only_until_it_is_clear_that_its_holder_lives(
    folder: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, object]
) -> None:
    monkeypatch.setattr(lease, "HEARTBEAT_SECONDS", 0.01)
    path = put(folder, our_claim(**changes), 10**6)

    with pytest.raises(LeaseError, match="held, segment 1 by process"), log.lines_to(lambda line: os.utime(path)):
        take_if_idle(folder, 0)


@pytest.mark.parametrize("released", ["", "2026-11-21T00:00:00Z"])
def test_whoever_would_move_a_run_gets_it_from_nobody(
    folder: Path, monkeypatch: pytest.MonkeyPatch, released: str
) -> None:
    monkeypatch.setattr(lease, "HEARTBEAT_SECONDS", 0.01)
    put(folder, our_claim(**OTHER_HOST, released_utc=released))

    with take_if_idle(folder, 0) as held:
        assert held.claim.token == 2


def test_a_run_whose_holder_is_out_of_sight_is_taken_by_looking_alone(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "HEARTBEAT_SECONDS", 0.01)
    put(folder, our_claim(**OTHER_HOST), -(10**6))
    told: list[str] = []

    with log.lines_to(told.append), take(folder, 2, 60) as held:
        assert held.claim.token == 2

    assert told[-1].endswith("no heartbeat in 12 looks, one every 0.01 s")


def test_whoever_may_only_read_still_sees_who_holds_the_run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(folder, our_claim(**OTHER_HOST), 10)
    monkeypatch.setattr(Path, "touch", raising(errno.EACCES))

    held, reason = current_claim(folder)

    assert held is not None and (held.host, reason) == ("elsewhere", "")
    assert lease.long_silence(folder, held) == ""


def test_a_look_leaves_nothing_behind(folder: Path) -> None:
    put(folder, our_claim(**OTHER_HOST), 10)

    held, _ = current_claim(folder)
    assert held is not None
    lease.long_silence(folder, held)

    assert [path.name for path in folder.iterdir()] == ["000001.json"]


def test_earlier_claims_go_with_what_lies_beside_them_and_only_what_a_killed_writer_left_long_ago(folder: Path) -> None:
    with take_now(folder) as held:
        (folder / "000000.json.gone").write_text("")
        (folder / "000001.json.more").write_text("")
        new, old = (folder / fs.unique_name("draft") for _ in range(2))
        new.write_text("")
        old.write_text("")
        os.utime(old, (1, 1))

        held.forget_earlier()

    assert {path.name for path in folder.iterdir()} == {"000001.json", "000001.json.more", new.name}


@pytest.mark.parametrize(
    ("number", "kind", "words"),
    [
        (
            errno.ENOENT,
            StorageError,
            "gone; somebody moved, removed or linked .* while this job worked; nothing more ",
        ),
        (errno.ESTALE, OutageError, "Stale file handle; wait until that is over, then start again"),
        (errno.EACCES, StorageError, "Permission denied$"),
    ],
)
def test_a_folder_that_is_not_there_is_told_from_one_that_cannot_be_seen(
    folder: Path, number: int, kind: type[Exception], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def newest(folder: Path) -> int:
        raise OSError(number, os.strerror(number))

    with take_now(folder) as held, monkeypatch.context() as patch:
        patch.setattr(lease, "_newest_token", newest)
        with pytest.raises(kind, match=f"^{folder}: {words}"):
            held.confirm()


def test_a_run_that_cannot_be_given_back_hides_no_error_of_the_work(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, text: str) -> None:
        raise StorageError("the disk is full")

    def away(path: Path, text: str) -> None:
        raise OSError(errno.EIO, "no answer")

    with pytest.raises(ZeroDivisionError), take_now(folder):
        monkeypatch.setattr(fs, "write_atomic", full)
        monkeypatch.setattr(fs, "overwrite", away)
        raise ZeroDivisionError


@pytest.mark.parametrize("is_there", [True, False])
def test_a_claim_that_is_spoilt_or_just_forgotten_is_of_no_newer_unbroken(
    folder: Path, is_there: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = folder / "000003.json"
    if is_there:
        path.write_text("{")
    monkeypatch.setattr(f"{refuse_newer.__module__}.claim_paths", lambda folder: [path])

    refuse_newer(RunFolder("demo", store=folder.parent))


def test_claims_that_cannot_be_removed_end_no_work(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with take_now(folder) as held:
        monkeypatch.setattr(Path, "iterdir", lambda path: (_ for _ in ()).throw(OSError(errno.EIO, "no answer")))
        held.forget_earlier()


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"token": 1}', "null"])
def test_a_malformed_claim_stops_with_the_file_to_remove(folder: Path, text: str) -> None:
    (folder / "000003.json").write_text(text)

    with pytest.raises(LeaseError, match=r"000003\.json: not a claim of unbroken .* if no job of this run lives, remo"):
        take_now(folder)


def test_a_claim_that_cannot_be_read_says_so(folder: Path) -> None:
    (folder / "000003.json").mkdir()

    with pytest.raises(LeaseError, match=r"/000003\.json: Is a directory; it says who holds the run$"):
        take_now(folder)


def test_other_files_in_the_folder_are_no_claims(folder: Path) -> None:
    (folder / "notes.json").write_text("mine")
    (folder / ".nfs01").touch()

    with take_now(folder) as held:
        held.forget_earlier()
        assert held.claim.token == 1

    assert sorted(path.name for path in folder.iterdir()) == [".nfs01", "000001.json", "notes.json"]


def test_the_heart_beats_while_the_run_is_held(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "HEARTBEAT_SECONDS", 0.01)
    path = folder / "000001.json"
    with take_now(folder):
        os.utime(path, (1, 1))
        give_up = time.monotonic() + 30
        while path.stat().st_mtime == 1:
            assert time.monotonic() < give_up
            time.sleep(0.01)

    assert current_claim(folder)[1] == "released"


def test_the_heart_beats_on_after_the_file_server_was_away(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "HEARTBEAT_SECONDS", 0.01)
    asked: list[Path] = []

    def newest(folder: Path) -> int:
        asked.append(folder)
        if len(asked) < 3:
            raise OSError(errno.EIO, "no answer")
        return 1

    with take_now(folder):
        monkeypatch.setattr(lease, "_newest_token", newest)
        give_up = time.monotonic() + 30
        while len(asked) < 5:
            assert time.monotonic() < give_up
            time.sleep(0.01)


@pytest.mark.parametrize("is_forgotten", [True, False])
def test_a_holder_that_was_replaced_hears_it_from_its_heart_and_writes_nothing_more(
    folder: Path, monkeypatch: pytest.MonkeyPatch, is_forgotten: bool
) -> None:
    monkeypatch.setattr(lease, "HEARTBEAT_SECONDS", 0.01)
    with take_now(folder) as held:
        newer = put(folder, our_claim(2))
        if is_forgotten:
            (folder / "000001.json").unlink()
        give_up = time.monotonic() + 30
        while not held.is_lost:
            assert time.monotonic() < give_up, "the heart did not notice"
            time.sleep(0.01)
        text = newer.read_text()

    assert newer.read_text() == text
    assert sorted(path.name for path in folder.iterdir()) == ["000002.json"] if is_forgotten else True


def test_a_replaced_holder_is_told_by_whom(folder: Path) -> None:
    with take_now(folder) as held:
        put(folder, our_claim(5))

        with pytest.raises(FencedError) as caught:
            held.confirm()

    assert str(caught.value) == (
        f"{folder}: this job (claim 1) was taken for dead and the run was taken over by claim 5; nothing was written; "
        "the other job goes on"
    )


def test_a_claim_that_comes_too_late_under_a_number_that_was_used_is_withdrawn(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between our look and our claim others took numbers 2 and 3 and removed 1 and 2: ours must not stand beside."""
    put(folder, our_claim(1, released_utc="now"))
    create = fs.create_exclusive
    calls = []

    def slow(path: Path, text: str) -> bool:
        if not calls:
            (folder / "000001.json").unlink()
            put(folder, our_claim(3))
        calls.append(path.name)
        return create(path, text)

    monkeypatch.setattr(fs, "create_exclusive", slow)

    with pytest.raises(LeaseError):
        take_now(folder)

    assert [path.name for path in folder.iterdir()] == ["000003.json"]
    assert calls == ["000002.json"]


def test_a_claim_that_is_removed_while_we_look_is_looked_for_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(folder, our_claim(1, released_utc="now"))
    read = lease.read_claim

    def raced(path: Path) -> Claim:
        if path.name == "000001.json":
            path.unlink()
            put(folder, our_claim(2, released_utc="now"))
        return read(path)

    monkeypatch.setattr(lease, "read_claim", raced)

    with take_now(folder) as held:
        assert held.claim.token == 3


def test_no_heart_beats_on_after_the_run_was_given_back(folder: Path) -> None:
    before = set(threading.enumerate())  # a training of another test may still have its folder
    with take_now(folder):
        during = [(thread.name, thread.daemon) for thread in set(threading.enumerate()) - before]

    assert during == [("lease-heartbeat", True)]  # a process that is leaving does not wait for it
    assert set(threading.enumerate()) <= before


@pytest.mark.process
def test_earlier_claims_stay_until_they_are_in_the_history(folder: Path) -> None:
    pid, start = dead_process()
    for token in (1, 2):
        put(folder, our_claim(token, pid=pid, pid_start=start))

    with take_now(folder) as held:
        earlier = held.earlier_claims()
        held.forget_earlier()

    assert [claim.token for claim in earlier] == [1, 2]
    assert [path.name for path in folder.iterdir()] == ["000003.json"]
