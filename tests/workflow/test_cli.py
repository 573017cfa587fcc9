"""The command line over every state that a run can be in; exit codes and lines as they stand on a terminal."""

import json
import os
import re
import shutil
from pathlib import Path

import pytest
from support.terminal import Terminal
from support.workdir import BIN, WorkDir, one_long_segment, one_step_segments, until

from unbroken.store.lease import current_claim

# All read what one chain of calls has made.
pytestmark = pytest.mark.xdist_group("cli")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one run in each state that needs no living process."""
    work = WorkDir(tmp_path_factory.mktemp("made"))
    work.write("program.py", "raise SystemExit(7)\n")
    # Time enough to end by itself, not by a signal.
    stopped = {"engine": "torch", "segment_minutes": 2, "settings": {"script": "program.py", "goal": 5}}
    work.configure(
        {
            "done": one_step_segments(segments=3, goal=2),
            "paused": one_step_segments(segments=3, goal=9),
            "used": one_step_segments(segments=1, goal=1234567),
            "stopped": one_step_segments(segments=2, goal=5) | stopped,
            "fresh": one_step_segments(segments=4, goal=5),
        }
    )
    segments = ["done/segments/003", "paused/segments/001", "used/segments/001", "stopped/segments/001"]
    work.snakemake(*(f"results/{name}.json" for name in segments))
    return work.root


@pytest.fixture
def states(made: Path, work: WorkDir) -> WorkDir:
    """The same in a folder of the test's own."""
    shutil.copytree(made, work.root, symlinks=True, dirs_exist_ok=True)
    return work


def checkpoint(work: WorkDir, run: str) -> Path:
    """The newest checkpoint of a run."""
    return sorted(work.places(run).checkpoints.glob("0*"))[-1]


def test_status_shows_every_state_within_eighty_columns(states: WorkDir) -> None:
    done = states.unbroken("status")

    table, said = done.text.splitlines()[:6], done.text.splitlines()[6:]
    assert done.code == 0
    assert max(map(len, table)) <= 80
    assert [re.sub(r"\d+ (s|min) ago", "AGE", row).split() for row in table[:5]] == [
        ["run", "state", "progress", "segments", "checkpoint", "still"],
        ["done", "finished", "2/2", "steps", "2/3", "AGE", "0", "s"],
        ["paused", "paused", "1/9", "steps", "1/3", "AGE", *table[2].split()[-2:]],
        ["used", "segments", "used", "up", "1/1234567", "steps", "1/1", "AGE", *table[3].split()[-2:]],
        ["stopped", "stopped", "0/2", "none", "?"],
    ]
    assert table[5].split() == ["fresh", "not", "started", "0/4", "none", "?"]
    # Behind what to type stands the forecast.
    assert [line.partition("; done ")[0] for line in said] == [
        "5 runs: stopped 1, segments used up 1, paused 1, not started 1, finished 1",
        "done: results: results/done/final",
        "paused: nothing works on it; to continue, type: unbroken run",
        "used: all its segments are used, and the goal is not reached; raise runs.used.segments (now 1) in "
        "config/config.yaml, then type: unbroken run",
        "stopped: the program ended with exit code 7; nothing new was saved; read logs/stopped/001.2.log; fix the "
        "cause, then type: unbroken run",
        "fresh: has not started; type: unbroken run",
    ]


def test_status_of_a_run_shows_its_attempts_and_the_log_to_open(states: WorkDir) -> None:
    done = states.unbroken("status", "stopped", "paused")

    text = re.sub(r"  [^ ]+ (s|min) on [^ ]+  \d{4}-\d\d-\d\dT[0-9:]+Z", "  TIME", done.text)
    why = "    the program ended with exit code 7; nothing new was saved; read logs/stopped/001"
    assert done.code == 0
    assert text.splitlines()[-9:] == [
        "stopped:",
        "segment 1  failed  0 -> 0  TIME",
        f"{why}.1.log",
        "segment 1  failed  0 -> 0  TIME",
        f"{why}.2.log",
        "log: logs/stopped/001.log",
        "paused:",
        "segment 1  paused  0 -> 1 steps  TIME",
        "log: logs/paused/001.log",
    ]
    assert "done: " not in text


def test_status_of_a_run_that_there_is_not_names_those_that_there_are(states: WorkDir) -> None:
    done = states.unbroken("status", "pausd")

    assert (done.code, done.text) == (
        1,
        "unbroken: no run is named 'pausd', allowed: done, paused, used, stopped, fresh; did you mean `paused`?\n",
    )


def test_status_on_a_wide_terminal_draws_bars(states: WorkDir) -> None:
    rows = states.unbroken("status", columns=120).text.splitlines()

    assert "━" * 16 in rows[1]
    assert "━" in rows[2]


def test_a_long_name_is_folded_and_nothing_is_cut_off(work: WorkDir) -> None:
    name = "a_name_that_is_much_longer_than_anybody_should_need_for_one_of_many_runs"
    work.configure({name: one_step_segments(segments=3, goal=5)})

    rows = work.unbroken("status").text.splitlines()[1:-1]

    assert "".join(row.split()[0] for row in rows) == name
    assert rows[0].split()[1:] == ["not", "started", "0/3", "none", "?"]
    assert "…" not in "".join(rows)


@pytest.mark.parametrize("columns", [64, 40])
def test_status_on_a_narrow_terminal_has_every_name_whole_and_nothing_beyond_its_edge(
    states: WorkDir, columns: int
) -> None:
    done = states.unbroken("status", columns=columns)

    lines = done.text.splitlines()
    table = lines[: next(at for at, line in enumerate(lines) if line.startswith("5 runs:"))]
    assert max(map(len, table)) <= columns
    assert [line.split()[0] for line in table if line[:1].isalpha()] == [
        "run",
        "done",
        "paused",
        "used",
        "stopped",
        "fresh",
    ]
    assert all("…" not in line for line in table)


def test_watch_follows_the_runs_until_ctrl_c(work: WorkDir) -> None:
    work.configure({"demo": one_step_segments(segments=3, goal=2), "other": one_step_segments(segments=3, goal=2)})
    with watched(work, columns=64, lines=12) as terminal:
        terminal.wait_for("2 runs: not started 2")
        work.snakemake("results/demo/segments/001.json")
        terminal.wait_for("2 runs: paused 1, not started 1")
        work.snakemake()
        terminal.wait_for("2 runs: finished 2")
        shown = terminal.shown
        terminal.type("\x03")

        assert terminal.wait() == 0
    at = shown.index("2 runs: finished 2")
    assert [line.split()[:5] for line in shown[at - 3 : at]] == [
        ["run", "state", "progress", "segments", "checkpoint"],
        ["demo", "finished", "2/2", "steps", "2/3"],
        ["other", "finished", "2/2", "steps", "2/3"],
    ]
    assert shown[at + 1 : at + 4] == [
        "demo: results: results/demo/final",
        "other: results: results/other/final",
        "Ctrl-C ends this; the runs continue",
    ]


def test_watch_shows_first_what_needs_a_look_where_the_screen_is_too_small(states: WorkDir) -> None:
    with watched(states, columns=80, lines=9) as terminal:
        terminal.wait_for("1 more: unbroken status")
        names = [line.split()[0] for line in terminal.shown if line[:1].isalpha()]

    assert names[:5] == ["run", "paused", "used", "stopped", "fresh"]  # not the one that is finished
    assert len(terminal.shown) <= 9


def test_watch_needs_a_terminal(states: WorkDir) -> None:
    done = states.unbroken("watch")

    assert (done.code, done.text) == (
        1,
        "unbroken: watch: needs a terminal; type: unbroken status, or --json for programs\n",
    )


def watched(work: WorkDir, columns: int, lines: int) -> Terminal:
    """`unbroken watch` at work."""
    return Terminal([str(BIN / "unbroken"), "watch"], work.root, work.environment(), columns, lines)


def test_status_as_json_says_the_same(states: WorkDir) -> None:
    done = states.unbroken("status", "--json")

    rows = {row["run"]: row for row in json.loads(done.text)}
    assert done.code == 0
    assert {name: row["state"] for name, row in rows.items()} == {
        "done": "finished",
        "paused": "paused",
        "used": "segments used up",
        "stopped": "stopped",
        "fresh": "not started",
    }
    assert rows["used"]["progress"] == {"done": 1, "goal": 1234567, "unit": "steps", "metrics": {}}
    assert rows["done"]["checkpoint"] == checkpoint(states, "done").name


def test_status_of_a_working_run_shows_progress_that_is_not_saved_yet(work: WorkDir) -> None:
    work.configure({"demo": one_long_segment(goal=10_000) | {"settings": {"goal": 10_000}}})
    work.start()
    until(lambda: (work.places("demo").work / "000001" / "progress.json").exists())

    (row,) = json.loads(work.unbroken("status", "--json").text)

    assert (row["state"], row["checkpoint"]) == ("working", None)
    assert row["progress"]["done"] > 0
    assert row["advice"].startswith(f"segment 1 by process {work.holder('demo')} on ")


def test_status_without_a_config_shows_what_is_in_results(states: WorkDir) -> None:
    (states.root / "config" / "config.yaml").unlink()

    rows = states.unbroken("status").text.splitlines()

    assert [row.split()[0] for row in rows[1:5]] == ["done", "paused", "stopped", "used"]
    assert rows[3].split()[:3] == ["stopped", "stopped", "0/?"]


def test_status_where_there_is_nothing_says_where_it_looked(work: WorkDir) -> None:
    done = work.unbroken("status")

    assert (done.code, done.text) == (
        1,
        f"unbroken: config/config.yaml: not found in {work.root}; to begin here, type: unbroken init; "
        "for runs of another folder, add: -d FOLDER\n",
    )


def test_status_in_another_directory_names_its_files(states: WorkDir) -> None:
    done = states.unbroken("status", "--directory", str(states.root), columns=300)

    assert done.lines("done: ") == [f"done: results: {states.root}/results/done/final"]


def test_status_of_a_bad_config_is_one_line_a_mistake(states: WorkDir) -> None:
    states.write("config/config.yaml", "runs: {demo: {engine: toyy, segments: 1, segment_minutes: 1}}\n")

    done = states.unbroken("status")

    assert done.code == 1
    assert done.text == (
        "unbroken: runs.demo.engine: found 'toyy', allowed: command, dmtcp, gromacs, jax, tensorflow, torch or toy; "
        "did you mean `toy`?\n"
    )


def test_verify_reads_every_checkpoint(states: WorkDir) -> None:
    done = states.unbroken("verify")

    assert (done.code, done.text) == (0, "4 of 4 checkpoints are whole\n")


def test_verify_names_the_file_that_has_changed_and_fails(states: WorkDir) -> None:
    bad = checkpoint(states, "done")
    (bad / "trace.csv").write_bytes((bad / "trace.csv").read_bytes().replace(b"2", b"3"))

    done = states.unbroken("verify")

    first, last = done.text.splitlines()
    assert done.code == 1
    assert first.startswith(f"bad {bad.relative_to(states.root)}: {bad.relative_to(states.root)}/trace.csv: ")
    assert last == "3 of 4 checkpoints are whole"


def test_verify_of_one_run_reads_that_run_alone(states: WorkDir) -> None:
    bad = checkpoint(states, "done")
    (bad / "state.json").unlink()

    assert states.unbroken("verify", "paused").text == "1 of 1 checkpoints are whole\n"
    assert states.unbroken("verify", "done").code == 1


def test_verify_of_nothing_is_no_success(states: WorkDir) -> None:
    assert states.unbroken("verify", "stopped").text == (
        "unbroken: no checkpoint in results/stopped/checkpoints, so there is nothing to verify; type: unbroken run\n"
    )
    shutil.rmtree(states.root / "results")
    done = states.unbroken("verify")

    assert done.code == 1
    assert done.text.startswith("unbroken: no checkpoint in results/*/checkpoints, so there is nothing to verify")


def test_a_config_that_is_named_and_not_there_is_refused(states: WorkDir) -> None:
    done = states.unbroken("status", "--config", "config/other.yaml")

    assert (done.code, done.text) == (
        1,
        "unbroken: --config: found 'config/other.yaml', but there is no such file; looked in "
        f"{states.root / 'config'}\n",
    )


@pytest.mark.parametrize("command", ["verify", "restart"])
def test_an_unknown_run_is_answered_with_those_that_there_are(states: WorkDir, command: str) -> None:
    done = states.unbroken(command, "pausd")

    assert (done.code, done.text) == (
        1,
        "unbroken: no run is named 'pausd', allowed: done, paused, used, stopped, fresh; did you mean `paused`?\n",
    )


def test_accept_of_an_unknown_run_names_those_of_the_config(states: WorkDir) -> None:
    done = states.unbroken("accept", "pausd")

    assert (done.code, done.text) == (
        1,
        "unbroken: no run is named 'pausd', allowed: done, paused, used, stopped, fresh; did you mean `paused`?\n",
    )


def test_accept_where_nothing_has_changed_says_so(states: WorkDir) -> None:
    done = states.unbroken("accept", "paused")

    name = checkpoint(states, "paused").name
    assert (done.code, done.text) == (0, f"paused: nothing has changed since {name}; type: unbroken run\n")


def test_accept_of_a_run_without_a_checkpoint_says_so(states: WorkDir) -> None:
    done = states.unbroken("accept", "fresh")

    assert (done.code, done.text) == (
        1,
        "unbroken: fresh: has no checkpoint yet; to start it, type: unbroken run\n",
    )


def test_accept_without_a_config_says_so(work: WorkDir) -> None:
    done = work.unbroken("accept", "demo")

    assert (done.code, done.text) == (
        1,
        f"unbroken: config/config.yaml: not found in {work.root}; to begin here, type: unbroken init; "
        "for runs of another folder, add: -d FOLDER\n",
    )


def test_restart_is_refused_while_a_job_writes_the_run(work: WorkDir) -> None:
    work.configure({"demo": one_long_segment(goal=10_000)})
    work.start()
    until(lambda: work.saved("demo") >= 20)

    done = work.unbroken("restart", "demo")

    assert done.code == 1
    assert re.search(
        rf"\nunbroken: demo: results/demo: held, segment 1 by process {work.holder('demo')} on \S+ since \S+; "
        r"let it finish \(or stop that job\) and start again\n",
        done.text,
    )
    assert work.places("demo").checkpoints.is_dir()


def test_restart_twice_in_one_second_keeps_both(states: WorkDir) -> None:
    first = states.unbroken("restart", "paused")
    os.mkdir(states.places("paused").root)
    second = states.unbroken("restart", "paused")

    aside = list((states.root / "results" / ".restarted").iterdir())
    assert (first.code, second.code, len(aside)) == (0, 0, 2)


def test_restart_of_a_run_whose_folder_is_a_link_moves_nothing_at_its_other_end(
    states: WorkDir, tmp_path: Path
) -> None:
    disk, root = tmp_path / "disk", states.places("paused").root
    shutil.move(root, disk)
    root.symlink_to(os.path.relpath(disk, root.parent))

    def at_the_other_end() -> list[Path]:
        return sorted(path for path in disk.rglob("*") if path.parent.name != "lease")

    before = at_the_other_end()

    done = states.unbroken("restart", "paused")

    (aside,) = (states.root / "results" / ".restarted").iterdir()
    assert (done.code, at_the_other_end(), root.exists()) == (0, before, False)
    assert current_claim(disk / "lease")[1] == "released"
    assert aside.resolve() == disk
    assert f"everything so far stays in {disk}" in done.text


def test_the_version_is_printed(work: WorkDir) -> None:
    done = work.unbroken("--version")

    assert done.code == 0
    assert re.fullmatch(r"unbroken \d+\.\d+\.\d+\n", done.text)
