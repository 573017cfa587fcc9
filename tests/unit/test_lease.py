"""Who holds a run.  Races between real processes are in tests/protocol/test_one_writer.py."""

import errno
import json
import os
import platform
import subprocess
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from longhaul import fs, host, lease
from longhaul.errors import FencedError, LeaseError
from longhaul.lease import Claim, current_claim, take

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


def put(folder: Path, claim: Claim, silent_seconds: float = 0.0, now: float | None = None) -> Path:
    path = folder / f"{claim.token:06d}.json"
    path.write_text(json.dumps(vars(claim)))
    last = (time.time() if now is None else now) - silent_seconds
    os.utime(path, (last, last))
    return path


@pytest.fixture
def server_time(monkeypatch: pytest.MonkeyPatch) -> float:
    """The time on the file server, which stands still: that of every probe."""
    touch, now = Path.touch, time.time()

    def touch_by_server(path: Path) -> None:
        touch(path)
        os.utime(path, (now, now))

    monkeypatch.setattr(Path, "touch", touch_by_server)
    return now


def dead_process() -> tuple[int, str]:
    """The pid and start of a process that is gone."""
    process = subprocess.Popen(["sleep", "60"])
    start = host.process_start(process.pid)
    process.kill()
    process.wait()
    return process.pid, start


def take_now(folder: Path, told: list[str] | None = None) -> lease.Lease:
    return take(folder, 2, 0, (told if told is not None else []).append)


def test_the_first_one_gets_the_run(folder: Path) -> None:
    with take_now(folder) as held:
        assert (held.claim.token, held.claim.pid, held.claim.segment) == (1, os.getpid(), 2)


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


def test_waiting_can_be_given_up(folder: Path) -> None:
    def give_up() -> None:
        raise KeyboardInterrupt

    with take_now(folder), pytest.raises(KeyboardInterrupt):
        take(folder, 1, 60, lambda line: None, give_up)


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


def test_a_zombie_process_holds_nothing(folder: Path) -> None:
    process = subprocess.Popen(["sleep", "60"])
    claim = our_claim(pid=process.pid, pid_start=host.process_start(process.pid))
    put(folder, claim)
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    _, reason = current_claim(folder)
    process.wait()

    assert reason == "its process is gone"


@pytest.mark.parametrize(
    "changes",
    [
        {"host": "elsewhere", "boot_id": "another"},
        {"host": "elsewhere"},  # a clone of a machine carries its boot id along
        {"pid_namespace": "pid:[1]"},  # a container, where the same number is another process
    ],
)
@pytest.mark.parametrize(("silent", "is_free"), [(lease.STALE_SECONDS - 20, False), (lease.STALE_SECONDS + 20, True)])
def test_whom_we_cannot_see_is_dead_when_its_heart_stopped_and_not_before(
    folder: Path, server_time: float, changes: dict[str, object], silent: float, is_free: bool
) -> None:
    pid, start = dead_process()
    put(folder, our_claim(**{"pid": pid, "pid_start": start, **changes}), silent, server_time)

    _, reason = current_claim(folder)

    assert reason == (f"no heartbeat for {silent:.0f} s" if is_free else "")


def test_a_machine_that_was_restarted_holds_nothing(folder: Path) -> None:
    put(folder, our_claim(boot_id="before"), 3 * lease.HEARTBEAT_SECONDS + 10)

    assert current_claim(folder)[1] == "its machine was restarted"


def test_another_machine_of_the_same_name_whose_heart_beats_is_alive(folder: Path) -> None:
    put(folder, our_claim(boot_id="another", pid=1), lease.HEARTBEAT_SECONDS)

    assert current_claim(folder)[1] == ""


def test_a_sleeping_process_of_ours_is_dead_when_its_heart_stopped(folder: Path, server_time: float) -> None:
    put(folder, our_claim(), lease.STALE_SECONDS + 20, server_time)

    assert current_claim(folder)[1] == f"no heartbeat for {lease.STALE_SECONDS + 20:.0f} s"


@pytest.mark.parametrize("skew", [-86400, 86400])
def test_a_clock_that_is_wrong_here_makes_nobody_dead_or_alive(
    folder: Path, skew: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(folder, our_claim(**OTHER_HOST), 10)
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + skew)

    assert current_claim(folder)[1] == ""


def test_a_file_servers_clock_that_is_wrong_makes_nobody_dead(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server gives both times: that of the claim and that of the probe."""
    put(folder, our_claim(**OTHER_HOST), -86400)
    touch = Path.touch

    def touch_by_server(path: Path) -> None:
        touch(path)
        os.utime(path, (time.time() + 86400 + 50, time.time() + 86400 + 50))

    monkeypatch.setattr(Path, "touch", touch_by_server)

    assert current_claim(folder)[1] == ""


def test_whoever_may_only_read_still_sees_who_holds_the_run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(folder, our_claim(**OTHER_HOST), 10)

    def forbidden(*_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "touch", forbidden)

    held, reason = current_claim(folder)

    assert held is not None and held.host == "elsewhere"
    assert reason == ""


def test_a_probe_leaves_nothing_behind(folder: Path) -> None:
    put(folder, our_claim(**OTHER_HOST), 10)

    current_claim(folder)

    assert [path.name for path in folder.iterdir()] == ["000001.json"]


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"token": 1}', "null"])
def test_a_malformed_claim_stops_with_the_file_to_remove(folder: Path, text: str) -> None:
    (folder / "000003.json").write_text(text)

    with pytest.raises(LeaseError, match=r"000003\.json: not a claim of longhaul .* if no job of this run lives, remo"):
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
    read = lease._read_claim

    def raced(path: Path) -> Claim:
        if path.name == "000001.json":
            path.unlink()
            put(folder, our_claim(2, released_utc="now"))
        return read(path)

    monkeypatch.setattr(lease, "_read_claim", raced)

    with take_now(folder) as held:
        assert held.claim.token == 3


def test_a_run_that_cannot_be_given_back_hides_no_error(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(ZeroDivisionError), take_now(folder):
        monkeypatch.setattr(os, "write", full)
        raise ZeroDivisionError


def test_no_heart_beats_on_after_the_run_was_given_back(folder: Path) -> None:
    with take_now(folder):
        during = [thread.name for thread in threading.enumerate()]

    assert "lease-heartbeat" in during
    assert "lease-heartbeat" not in [thread.name for thread in threading.enumerate()]


def test_earlier_claims_stay_until_they_are_in_the_history(folder: Path) -> None:
    pid, start = dead_process()
    for token in (1, 2):
        put(folder, our_claim(token, pid=pid, pid_start=start))

    with take_now(folder) as held:
        earlier = held.earlier_claims()
        held.forget_earlier()

    assert [claim.token for claim in earlier] == [1, 2]
    assert [path.name for path in folder.iterdir()] == ["000003.json"]
