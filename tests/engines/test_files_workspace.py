"""The program's folder, made again what it was at a checkpoint: nothing is lost, whatever came between."""

import errno
import os
import shutil
import stat
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.disks import mount_small, unmount
from support.kept_folder import KINDS, KeptFolder

from unbroken.engines.files import workspace as workspace_module
from unbroken.engines.files.content import is_changed_inside
from unbroken.engines.files.outputs import read_outputs
from unbroken.engines.files.results import fill_outputs, output_sizes, remarks
from unbroken.engines.files.workspace import put_path_back, put_state_back
from unbroken.errors import CheckpointError


def replaced(kept: KeptFolder) -> dict[str, str]:
    """What was moved away, by its name in the program's folder."""
    found = {}
    for path in (kept.root / "replaced").rglob("*"):
        if path.is_file():
            found["/".join(path.relative_to(kept.root / "replaced").parts[1:])] = path.read_text()
    return found


def pieces(kept: KeptFolder) -> dict[str, str]:
    root = kept.root / "pieces"
    return {path.relative_to(root).as_posix(): path.read_text() for path in root.rglob("*") if path.is_file()}


# --- a program that notes where it is ---


def test_the_path_of_a_program_s_folder_is_put_right_and_the_times_of_its_files_stay(tmp_path):
    work = tmp_path / "results" / "a run" / "work"
    before, now = work / "000001" / "program", work / "000002" / "program"
    now.mkdir(parents=True)
    note = now / "note"
    note.write_bytes(b"%s/out\0%s-other %s" % (os.fsencode(before), os.fsencode(before), os.fsencode(before)))
    os.utime(note, (1, 1))

    put_path_back(["note"], now, now)

    assert note.read_bytes() == b"%s/out\0%s-other %s" % (os.fsencode(now), os.fsencode(before), os.fsencode(now))
    assert note.stat().st_mtime == 1


# --- cutting ---


def test_a_program_that_copies_its_outputs_to_go_on_may_be_killed_with_the_copy_half_made(kept):
    """MrBayes renames each to another name first, and copies what belongs to the state."""
    text = "1\n"
    kept.write("table", text)
    checkpoint = kept.save()
    for number in range(2, 5):
        kept.again(checkpoint)
        (kept.folder / "table").rename(kept.folder / "state~")
        kept.write("table", text[:1])
        kept.again(checkpoint)
        assert (kept.folder / "table").read_text() == text
        (kept.folder / "table").rename(kept.folder / "state~")
        text += f"{number}\n"
        kept.write("table", text)
        checkpoint = kept.save()
        kept.append("table", "of nothing that is saved\n")


def test_a_file_is_cut_and_its_tail_is_kept_aside(kept):
    kept.write("table", "1\n2\n3\n")
    checkpoint = kept.save({"table": 4})
    kept.append("table", "4\n")

    kept.again(checkpoint)

    assert kept.files() == {"table": "1\n2\n"}
    assert replaced(kept) == {"table": "3\n4\n"}
    assert any("table" in line and "newer than the checkpoint" in line for line in kept.lines)


def test_files_that_are_newer_are_moved_away_with_their_folders(kept):
    kept.write("old/a", "a")
    checkpoint = kept.save()
    kept.write("old/new/b", "b")
    kept.write("c", "c")
    (kept.folder / "made empty").mkdir()

    kept.again(checkpoint)

    assert kept.files() == {"old/a": "a"}
    assert replaced(kept) == {"old/new/b": "b", "c": "c"}
    assert not (kept.folder / "old" / "new").exists()
    assert (kept.folder / "made empty").is_dir()  # we did not empty it


def test_restart_files_and_links_are_removed_for_those_of_the_checkpoint(kept):
    kept.write("states/state.5", "5")
    kept.write("data", "x")
    (kept.folder / "latest").symlink_to("states")
    checkpoint = kept.save()
    kept.write("states/state.6", "6")
    (kept.folder / "latest").unlink()
    (kept.folder / "latest").symlink_to("elsewhere")

    kept.again(checkpoint)
    put_state_back(checkpoint, {"states/state.5": "states/state.5"}, kept.folder)

    assert kept.files() == {"states/state.5": "5", "data": "x", "latest": "-> states"}


@pytest.mark.parametrize("was_folder", [True, False])
def test_what_is_a_folder_now_and_was_a_file_then_becomes_a_file_again_and_the_other_way(kept, was_folder):
    kept.write("a/b" if was_folder else "a", "then")
    (kept.folder / "link").symlink_to("a")
    checkpoint = kept.save()
    shutil.rmtree(kept.folder / "a") if was_folder else (kept.folder / "a").unlink()
    (kept.folder / "link").unlink()
    kept.write("a" if was_folder else "a/b", "now")
    kept.write("link/c", "now")

    restored = kept.again(checkpoint)

    # The file of then is gone; it is said, and nothing is in its way.
    assert kept.files() == {"link": "-> a"}
    assert len(restored.doubts) == 1
    assert "now" in replaced(kept).values()


# --- files that are begun again ---


def test_a_file_that_is_begun_again_becomes_a_piece(kept, tmp_path):
    kept.write("run.log", "first\n")
    kept.leave_at = kept.save()
    kept.leave()
    kept.take(kept.leave_at)
    kept.write("run.log", "second\n")
    checkpoint = kept.save(is_at_end=True, is_finished=True)
    kept.leave()

    fill_outputs(checkpoint, kept.root, tmp_path / "final")

    assert (tmp_path / "final" / "segments" / "001" / "run.log").read_text() == "first\n"
    assert (tmp_path / "final" / "segments" / "002" / "run.log").read_text() == "second\n"


def test_of_a_file_that_is_always_written_as_a_whole_the_last_one_is_the_result(kept, tmp_path):
    kept.write("best.treefile", "(a,b);")
    origin = kept.save()
    kept.write("best.treefile", "after the save")
    kept.again(origin)
    before = (kept.folder / "best.treefile").read_text()
    kept.write("best.treefile", "(b,a);")
    checkpoint = kept.save(is_at_end=True, is_finished=True)
    kept.leave()

    fill_outputs(checkpoint, kept.root, tmp_path / "final")

    assert (before, (tmp_path / "final/best.treefile").read_text()) == ("(a,b);", "(b,a);")
    assert not (tmp_path / "final/segments").exists()


def test_an_output_that_the_program_cuts_by_itself_is_never_begun_again(kept, tmp_path):
    """It cuts to its state, which may be before the length that was seen then."""
    kept.write("run.samples", "1\n2\n3\n")
    checkpoint = kept.save({"run.samples": 6})
    for number in (4, 5):
        kept.again(checkpoint)
        assert (kept.folder / "run.samples").read_text() == f"1\n2\n{number - 1}\n"
        kept.write("run.samples", "1\n")  # killed
        kept.again(checkpoint)
        assert (kept.folder / "run.samples").read_text() == f"1\n2\n{number - 1}\n"
        kept.write("run.samples", f"1\n2\n{number}\n")
        checkpoint = kept.save()
    checkpoint = kept.save(is_at_end=True, is_finished=True)
    kept.leave()

    fill_outputs(checkpoint, kept.root, tmp_path / "final")

    assert (tmp_path / "final/run.samples").read_text() == "1\n2\n5\n"
    assert not (tmp_path / "final/segments").exists()


def test_of_a_series_the_file_that_two_segments_wrote_is_the_last_one(kept, tmp_path):
    """LAMMPS that stops at the step of a dump writes this dump again when it resumes, its atoms in another order."""
    for step in (500, 1000, 1500):
        kept.write(f"dump.{step}.txt", f"{step}: a b\n")
    kept.leave_at = kept.save()
    kept.leave()
    kept.take(kept.leave_at)
    kept.write("dump.1500.txt", "1500: b a\n")
    kept.write("dump.2000.txt", "2000: a b\n")
    checkpoint = kept.save(is_at_end=True, is_finished=True)
    kept.leave()
    final = tmp_path / "final"

    fill_outputs(checkpoint, kept.root, final)

    names = [f"dump.{step}.txt" for step in (1000, 1500, 2000, 500)]
    assert sorted(path.name for path in final.glob("dump.*")) == names
    assert (final / "dump.1500.txt").read_text() == "1500: b a\n"
    assert (final / "segments/001/dump.1500.txt").read_text() == "1500: a b\n"
    assert set(output_sizes(checkpoint)) == set(names)
    assert remarks(checkpoint, final) == [
        "dump.1500.txt: more than one segment wrote it; the last one counts, those before are segments/*/dump.1500.txt"
    ]


def test_the_log_of_one_rank_that_is_begun_again_stays_in_pieces(kept, tmp_path):
    """It is no step of a series: the logs of the other ranks, with higher numbers, are older."""
    for rank in range(4):
        kept.write(f"rank{rank}.log", "first\n")
    kept.leave_at = kept.save()
    kept.leave()
    kept.take(kept.leave_at)
    kept.write("rank1.log", "second\n")
    checkpoint = kept.save(is_at_end=True, is_finished=True)
    kept.leave()
    final = tmp_path / "final"

    fill_outputs(checkpoint, kept.root, final)

    assert sorted(path.name for path in final.glob("rank*")) == ["rank0.log", "rank2.log", "rank3.log"]
    assert [(final / f"segments/00{number}/rank1.log").read_text() for number in (1, 2)] == ["first\n", "second\n"]


@pytest.mark.process
def test_many_pieces_of_one_segment_stand_in_the_order_in_which_a_shell_names_them(kept, tmp_path):
    checkpoint = None
    for number in range(12):
        kept.token = 0  # each attempt is of segment 1
        shutil.rmtree(kept.root / "work" / "000001", ignore_errors=True)
        kept.take(checkpoint)
        kept.write("run.log", f"{number}\n")
        checkpoint = kept.save()
        kept.leave()
    fill_outputs(checkpoint, kept.root, tmp_path / "final")

    for locale in ("C", "C.UTF-8", "en_US.UTF-8"):
        command = ["bash", "-c", "cat segments/*/run.log"]
        done = subprocess.run(command, cwd=tmp_path / "final", env={"LC_ALL": locale, "PATH": os.environ["PATH"]},
                              capture_output=True, text=True, check=True)  # fmt: skip
        assert done.stdout.split() == [str(number) for number in range(12)]


def test_a_log_that_grows_over_two_saves_of_one_attempt_is_still_known_to_be_begun_again(kept):
    kept.write("run.log", "first\n")
    one = kept.save()
    kept.again(one)
    kept.write("run.log", "second\n")
    kept.save()
    kept.append("run.log", "more\n")
    two = kept.save()

    kept.again(two)

    assert read_outputs(two).files["run.log"].is_continued is False
    assert "run.log" not in kept.files()
    kept.write("run.log", "third\n")
    assert [(piece.segment, piece.size_bytes) for piece in read_outputs(kept.save()).pieces] == [(1, 6), (2, 12)]


def test_a_log_that_is_begun_again_after_the_second_save_of_its_attempt_is_not_lost(kept):
    kept.write("late.log", "first\n")
    one = kept.save()
    kept.again(one)
    kept.write("other", "1")
    two = kept.save()
    kept.write("late.log", "second\n")
    kept.origin = two  # a killed attempt is listed by its successor, on from what the attempt itself had saved
    kept.tracker = kept._tracker(read_outputs(two))
    kept.tracker.is_own = True

    three = kept.save()

    assert [(piece.name, piece.sequence) for piece in read_outputs(three).pieces] == [("late.log", 1)]
    assert not read_outputs(three).files["late.log"].is_rewritten


def test_an_empty_log_says_nothing_of_whether_it_is_continued(kept):
    kept.write("run.log", "")
    one = kept.save()
    kept.again(one)
    kept.write("run.log", "second\n")
    two = kept.save()

    kept.again(two)

    assert pieces(kept) == {"000002/run.log": "second\n"}


def test_a_fall_back_finds_the_content_of_then_in_the_pieces(kept):
    kept.write("run.log", "first\n")
    one = kept.save()
    kept.again(one)
    kept.write("run.log", "second, and longer\n")
    two = kept.save()
    kept.again(two)
    kept.write("run.log", "third\n")

    kept.again(one)

    kept.write("run.log", "second once more\n")
    assert [piece.size_bytes for piece in read_outputs(kept.save()).pieces] == [6]
    assert "first\n" in pieces(kept).values()
    assert "third\n" in replaced(kept).values()


def test_a_file_that_is_written_again_and_again_is_one_file(kept):
    kept.write("status", "1")
    one = kept.save()
    kept.write("status", "2")
    two = kept.save()
    assert read_outputs(two).files["status"].is_rewritten
    kept.write("status", "3")

    kept.again(two)
    assert kept.files()["status"] == "2"
    kept.write("status", "4")
    kept.save()

    kept.again(one)  # before it was known
    assert "status" not in kept.files()


def test_a_whole_file_that_was_written_again_after_the_checkpoint_is_moved_away_with_a_doubt(kept):
    kept.write("summary.txt", "step 1\n")
    checkpoint = kept.save()
    time.sleep(0.02)
    kept.write("summary.txt", "step 2\n")

    restored = kept.again(checkpoint)

    assert (kept.files(), replaced(kept)) == ({}, {"summary.txt": "step 2\n"})
    assert "summary.txt" in restored.doubts[0]
    kept.write("summary.txt", "step 2\n")
    assert read_outputs(kept.save()).doubts == ()  # the program has written it again: nothing lacks


def test_a_file_that_is_gone_is_a_doubt_in_the_result(kept):
    kept.write("snap", "x")
    checkpoint = kept.save()
    (kept.folder / "snap").unlink()

    kept.again(checkpoint)

    assert "snap" in read_outputs(kept.save()).doubts[0]


def test_a_table_that_was_continued_and_then_begun_again_is_a_doubt(kept):
    kept.write("table", "1\n")
    one = kept.save()
    kept.again(one)
    kept.append("table", "2\n")
    two = kept.save(is_at_end=True)
    kept.again(two)
    kept.write("table", "begun again\n")

    assert "table" in read_outputs(kept.save()).doubts[0]


# --- what is refused ---


@pytest.mark.parametrize("what", ["shorter", "altered"])
def test_an_output_that_is_not_as_listed_is_refused_by_name(kept, what):
    kept.write("table", "1\n2\n")
    kept.save(opened=["table"])
    kept.append("table", "3\n")
    checkpoint = kept.save(opened=["table"])
    kept.leave()
    resting = kept.workspace.resting / "table"
    resting.write_text("1\n" if what == "shorter" else "1\nX\n3\n")

    with pytest.raises(CheckpointError, match=r"table: \d bytes that are not those of the checkpoint, which has 6"):
        kept.take(checkpoint)

    assert (kept.folder / "table").exists()


def test_bit_rot_in_a_snapshot_is_refused(kept):
    path = kept.write("snap", "whole")
    checkpoint = kept.save()
    before = path.stat()
    path.write_text("rotte")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    kept.leave()

    with pytest.raises(CheckpointError, match="snap"):
        kept.take(checkpoint)


# --- kinds of files ---


def test_a_result_that_has_the_same_bytes_as_an_output_does_not_grow_with_it(kept, tmp_path):
    kept.write("table", "1\n2\n")
    done = kept.save(is_at_end=True, is_finished=True)
    kept.leave()
    fill_outputs(done, kept.root, kept.root / "final")
    assert (kept.root / "final" / "table").stat().st_nlink == 2

    kept.take(done)  # the goal was raised
    kept.append("table", "3\n")

    assert (kept.root / "final" / "table").read_text() == "1\n2\n"
    assert kept.files()["table"] == "1\n2\n3\n"


def sparse(path: Path, size: int) -> None:
    with path.open("wb") as file:
        file.write(b"head")
        file.seek(size // 2)
        file.write(b"middle")
        file.truncate(size)


def disk_bytes(folder: Path) -> int:
    return sum(path.lstat().st_blocks * 512 for path in folder.rglob("*"))


def test_fifty_gigabytes_with_holes_are_listed_and_put_back_in_seconds(kept, tmp_path):
    size = 50 * 1024**3
    sparse(kept.folder / "grid", size)
    began = time.monotonic()

    first = kept.save({"grid": 10})
    kept.again(first)  # a copy may be begun again, and the tail is kept aside
    sparse(kept.folder / "grid", size)
    last = kept.save()
    kept.leave()
    fill_outputs(last, kept.root, tmp_path / "final")
    kept.take(last)
    kept.leave()
    kept.workspace.take()
    kept.workspace.copy_back()

    assert time.monotonic() - began < 10
    assert disk_bytes(kept.root) < 10_000_000
    with (kept.workspace.resting / "grid").open("rb") as file:
        file.seek(size // 2)
        assert file.read(6) == b"middle"
    assert (kept.workspace.resting / "grid").stat().st_size == size


@pytest.mark.parametrize("special", ["pipe", "socket"])
def test_pipes_and_sockets_are_left_out_with_a_line(kept, special, caplog):
    kept.write("data", "x")
    if special == "pipe":
        os.mkfifo(kept.folder / "special")
    else:
        os.mknod(kept.folder / "special", stat.S_IFSOCK | 0o600)

    checkpoint = kept.save()
    kept.save()
    kept.again(checkpoint)
    kept.workspace.copy_back()

    assert caplog.messages.count("special is no file (a pipe, socket or device), and is not kept") == 1
    assert sorted(read_outputs(checkpoint).files) == ["data"]
    assert [path.name for path in kept.workspace.resting.iterdir()] == ["data"]


def dcd(frames: int) -> bytes:
    head = bytearray(276)
    head[:24] = struct.pack("<i4s4i", 84, b"CORD", frames, 10, 10, 10 * frames)
    head[268:272] = struct.pack("<i", 5)  # atoms
    return bytes(head) + b"x" * 3 * (4 * 5 + 8) * frames


def netcdf(records: int) -> bytes:
    """Return a trajectory of two atoms with the time of each record."""

    def named(text: str) -> bytes:
        return struct.pack(">I", len(text)) + text.encode() + b"\0" * (-len(text) % 4)

    dimensions = (
        struct.pack(">2I", 10, 2) + named("frame") + struct.pack(">I", 0) + named("atom") + struct.pack(">I", 2)
    )
    title = struct.pack(">2I", 12, 1) + named("title") + struct.pack(">2I", 2, 3) + b"two\0"
    time = named("time") + struct.pack(">2I", 1, 0) + bytes(8) + struct.pack(">3I", 5, 4, 200)
    places = named("x") + struct.pack(">3I", 2, 0, 1) + bytes(8) + struct.pack(">3I", 6, 16, 204)
    variables = struct.pack(">2I", 11, 2) + time + places
    head = b"CDF\x01" + struct.pack(">I", records) + dimensions + title + variables
    return head.ljust(200, b"\0") + b"a record of 20 bytes" * records


@pytest.mark.parametrize("made", [dcd, netcdf])
def test_a_head_that_counts_frames_is_put_back(kept, made):
    kept.write("traj", made(3))
    kept.save(opened=["traj"])
    kept.write("traj", made(5))
    checkpoint = kept.save(opened=["traj"])
    assert not read_outputs(checkpoint).files["traj"].is_rewritten
    kept.write("traj", made(9))

    kept.again(checkpoint)

    assert (kept.folder / "traj").read_bytes() == made(5)


@pytest.mark.parametrize("made", [dcd, netcdf])
@pytest.mark.parametrize("counted", [9, 6])
def test_a_head_that_counts_frames_after_the_state_is_put_back_as_it_was(kept, made, counted):
    """A killed program has written more frames, or has counted one that is not there yet."""
    kept.write("traj", made(3))
    kept.save(opened=["traj"])
    kept.write("traj", made(counted)[: len(made(9 if counted == 9 else 5))])

    checkpoint = kept.save(lengths={"traj": len(made(5))}, opened=["traj"])
    kept.again(checkpoint)

    assert (kept.folder / "traj").read_bytes() == made(5)


def ulm(frames: int) -> bytes:
    """Return a trajectory of ASE, whose table of frames lies behind the first one and is filled in place."""
    table = struct.pack("<42q", *(number * (number < frames) for number in range(42)))
    return b"- of UlmASE-Trajectory  " + struct.pack("<3q", 3, frames, 148) + b"first" * 20 + table + b"frame" * frames


def test_a_trajectory_of_ase_is_put_back_with_its_table(kept):
    kept.write("md.traj", ulm(3))
    kept.again(kept.save(opened=["md.traj"]))
    for frames in (4, 5):
        kept.write("md.traj", ulm(frames))
        checkpoint = kept.save(opened=["md.traj"])
    kept.write("md.traj", ulm(9))
    kept.again(checkpoint)

    assert (kept.folder / "md.traj").read_bytes() == ulm(5)
    assert is_changed_inside(kept.folder / "md.traj")  # so `exec` does not cut it
    assert read_outputs(checkpoint).doubts == ()


def test_times_are_those_of_the_checkpoint(kept):
    path = kept.write("status", "1")
    kept.write("table", "1\n")
    kept.save()
    kept.write("status", "2")
    for each, second in ((path, 1_000_000_000), (kept.folder / "table", 1_000_000_100)):
        os.utime(each, ns=(second * 10**9, second * 10**9))
    checkpoint = kept.save()
    kept.append("table", "2\n")
    kept.write("status", "3")

    kept.again(checkpoint)

    assert (kept.folder / "status").stat().st_mtime == 1_000_000_000
    assert (kept.folder / "table").stat().st_mtime == 1_000_000_100


# --- killed, and no room ---

KILLED = """
import os, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from support.kept_folder import KeptFolder
root, token, steps, what = Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), sys.argv[5]

def counted(function):
    def or_die(*words, **more):
        global steps
        if steps == 0:
            os._exit(9)
        steps -= 1
        return function(*words, **more)
    return or_die

kept = KeptFolder(root)
kept.token = token
checkpoints = kept.store.readable()
kept.origin = checkpoints[-1] if checkpoints else None
for name in ("rename", "replace", "unlink", "truncate", "symlink", "utime", "mkdir", "rmdir", "ftruncate", "fchmod"):
    setattr(os, name, counted(getattr(os, name)))
if what == "restore":
    kept.restore()
    kept.leave()
else:
    kept.workspace.copy_back()
"""


def killed(kept: KeptFolder, root: Path, steps: int, what: str) -> bool:
    """Do it in a process that dies after so many system calls; False if it came to its end before."""
    tests = Path(__file__).parents[1]
    words = [sys.executable, "-c", KILLED, str(tests), str(root), str(kept.token), str(steps), what]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode in (0, 9), done.stderr
    return done.returncode == 9


def with_everything(kept: KeptFolder) -> None:
    """Leave a run whose folder has of every kind something to be put back."""
    kept.write("run.log", "first\n")
    kept.write("table", "1\n")
    kept.write("status", "1")
    kept.write("deep/er/snap", "s")
    kept.write("state", "s1")
    (kept.folder / "link").symlink_to("deep")
    first = kept.save(opened=["table"])
    kept.again(first)
    kept.write("run.log", "second\n")
    kept.append("table", "2\n")
    kept.write("status", "2")
    kept.save()
    kept.write("status", "3")
    kept.save()
    kept.append("table", "tail\n")
    kept.write("status", "4")
    kept.write("newer/file", "n")
    (kept.folder / "link").unlink()
    kept.append("run.log", "tail\n")


@pytest.mark.process
def test_a_kill_between_any_two_steps_of_a_restore_loses_nothing(kept, tmp_path):
    with_everything(kept)
    kept.leave()
    kept.token += 1
    for steps in range(1000):
        root = tmp_path / "copy"
        shutil.rmtree(root, ignore_errors=True)
        shutil.copytree(kept.root, root, symlinks=True)
        (root / "work" / f"{kept.token:06d}").mkdir(parents=True, exist_ok=True)
        if not killed(kept, root, steps, "restore"):
            break
        later = KeptFolder(root)
        later.token = kept.token
        later.origin = later.store.readable()[-1]
        later.workspace.give_back()  # as the successor does with the folder of a killed attempt
        later.take(later.origin)
        assert later.files() == {"table": "1\n2\n", "status": "3", "deep/er/snap": "s", "link": "-> deep"}
        assert sorted(text for name, text in pieces(later).items() if name.endswith("run.log")) == [
            "first\n",
            "second\n",
        ]
        assert not [line for line in kept.lines if "lacks" in line]
    assert steps > 15


@pytest.mark.process
def test_a_kill_between_any_two_steps_of_a_copy_loses_nothing_and_leaves_nothing(kept, tmp_path):
    with_everything(kept)
    whole = kept.files()
    for steps in range(1000):
        root = tmp_path / "copy"
        shutil.rmtree(root, ignore_errors=True)
        shutil.copytree(kept.root, root, symlinks=True)
        is_killed = killed(kept, root, steps, "copy_back")
        later = KeptFolder(root)
        later.token = kept.token
        if is_killed and not later.workspace.resting.exists():
            later.workspace.copy_back()
        assert later.files() == whole
        later.token += 1
        later.workspace.take()
        assert later.files() == whole
        assert not list(root.glob(".output-*"))
        if not is_killed:
            break
    assert steps > 8


def test_what_vanishes_while_the_folder_of_a_living_program_is_copied_is_left_out(kept, monkeypatch):
    kept.write("a", "a")
    kept.write("b.tmp", "b")
    copy = workspace_module.copying.copy_file

    def renamed_meanwhile(source, target):
        if Path(source).name == "b.tmp":
            os.rename(source, Path(source).with_name("b"))
        copy(source, target)

    monkeypatch.setattr(workspace_module.copying, "copy_file", renamed_meanwhile)

    kept.workspace.copy_back()

    assert [path.name for path in kept.workspace.resting.iterdir()] == ["a"]


@pytest.fixture
def small(tmp_path):
    place = tmp_path / "small"
    place.mkdir()
    yield lambda options: mount_small(place, options) or KeptFolder(place)
    unmount(place)


@pytest.mark.process
@pytest.mark.parametrize("options", ["size=1m", "size=64m,nr_inodes=40"], ids=["full", "no inodes"])
@pytest.mark.parametrize("what", ["restore", "copy", "final"])
def test_a_disk_that_is_full_loses_nothing_and_names_the_path(small, options, what):
    kept = small(options)
    kept.take()
    for number in range(6):
        kept.write(f"log.{number}", f"{number}\n" * 10_000)
    kept.write("table", "1\n" * 5000)
    kept.save(opened=["table"])
    kept.append("table", "2\n" * 5000)
    checkpoint = kept.save({f"log.{n}": 20_000 for n in range(6)} | {"table": 15_000}, opened=["table"])
    whole = kept.files()
    kept.leave()
    filler = _fill(kept.root)

    with pytest.raises(OSError, match="No space left") as raised:
        if what == "restore":
            kept.take(checkpoint)
        elif what == "copy":
            kept.workspace.take()
            kept.workspace.copy_back()
        else:
            (kept.root / "final").mkdir()
            for number in range(100):
                fill_outputs(checkpoint, kept.root, kept.root / "final" / str(number))

    assert raised.value.errno == errno.ENOSPC
    assert str(kept.root) in f"{raised.value.filename}{raised.value.filename2}"
    assert not list(kept.root.glob(".output-*"))
    for path in filler:
        path.unlink()
    kept.workspace.give_back()
    kept.take(checkpoint)
    expected = {name: text[: 15_000 if name == "table" else None] for name, text in whole.items()}
    assert kept.files() == expected


def _fill(root: Path) -> list[Path]:
    """Fill the disk, bytes and inodes."""
    made = []
    for number in range(10_000):
        path = root / f"filler-{number}"
        try:
            made.append(path)
            with path.open("wb", buffering=0) as file:
                file.write(b"x" * 65536 if number < 1000 else b"x")
        except OSError:
            break
    return [path for path in made if path.exists()]


def test_a_quota_that_is_used_up_while_a_file_is_copied_leaves_it_where_it_was(kept, monkeypatch):
    kept.write("run.log", "first\n")
    checkpoint = kept.save()
    kept.leave()
    monkeypatch.setattr(workspace_module.copying, "copy_range", _no_quota)

    with pytest.raises(OSError, match="Disk quota exceeded") as raised:
        kept.take(checkpoint)

    assert "run.log" in str(raised.value.filename2)
    monkeypatch.undo()
    kept.workspace.give_back()
    kept.take(checkpoint)
    assert kept.files() == {"run.log": "first\n"}


def _no_quota(*_: object) -> int:
    raise OSError(errno.EDQUOT, "Disk quota exceeded")


def test_state_is_put_back_in_one_step(kept, monkeypatch):
    kept.write("state", "whole state")
    checkpoint = kept.save()
    monkeypatch.setattr(workspace_module.copying, "copy_range", _no_quota)
    (kept.folder / "state").unlink()

    with pytest.raises(OSError, match="quota"):
        put_state_back(checkpoint, {"state": "state"}, kept.folder)

    assert not (kept.folder / "state").exists()
    assert not any(KINDS.is_output(path.name) for path in kept.folder.iterdir())
