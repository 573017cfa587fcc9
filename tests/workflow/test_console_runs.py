"""What a person sees of a chain: at terminals of 80 and 64 columns, in a pipe, in a dry run, and where rules print."""

import re
import shutil
import signal
from pathlib import Path

import pytest
from support.terminal import Terminal
from support.workdir import BIN, ROOT, WorkDir, counting, one_step_segments, until

RULE = "─" * 10


@pytest.fixture
def shown(work: WorkDir) -> WorkDir:
    """A folder as `unbroken init toy` leaves it, with the console on."""
    work.added_environment["UNBROKEN_CONSOLE"] = ""
    return work


def terminal(work: WorkDir, *words: str, columns: int = 80, lines: int = 24) -> Terminal:
    command = [str(BIN / "snakemake"), "--snakefile", str(work.snakefile), *words]
    return Terminal(command, work.root, work.environment(), columns, lines)


def slow(segments: int, goal: int, seconds: float = 0.5) -> dict[str, object]:
    """A run whose single steps can be watched."""
    settings = {"goal": goal, "step_seconds": seconds, "save_steps": 1}
    return {"engine": "toy", "segments": segments, "segment_minutes": 5, "save_minutes": 0.001, "settings": settings}


def counting_until_seen(seen: Path) -> dict[str, object]:
    """A run that saves 193 of 300 steps, and goes on as soon as there is a file `seen`."""
    options = ("--steps", "193", "--save-every", "193", "--waits-for", str(seen), "--stop", "{stop}")
    return counting(*options, segments=3, segment_minutes=30, save_minutes=0.001)


def live_of(lines: list[str]) -> list[str]:
    """The lines below the rule that parts them from the text."""
    at = next((at for at, line in enumerate(lines) if line.startswith(RULE)), len(lines))
    return lines[at + 1 :]


def test_in_a_pipe_a_chain_is_a_line_for_each_segment(shown: WorkDir) -> None:
    shown.configure({"a": one_step_segments(segments=30, goal=3)})

    done = shown.snakemake()

    lines = [re.sub(r"\b[0-9:]{8} |, \d+ s of work", "", line) for line in done.text.splitlines()]
    assert done.code == 0
    assert [line for line in lines if "profile" not in line] == [
        "unbroken: not rehearsed: a; `unbroken rehearse a` shows within minutes whether it resumes",
        "unbroken 0.1.0: 1 run: a",
        "a segment 1 of 30: saved at 1/3 steps",
        "a segment 2 of 30: saved at 2/3 steps",
        "a segment 3 of 30: finished, 3/3 steps; results: results/a/final",
    ]
    assert "\x1b" not in done.text


@pytest.mark.parametrize("columns", [80, 64])
def test_at_a_terminal_each_run_at_work_has_a_live_line_until_the_end(shown: WorkDir, columns: int) -> None:
    seen = shown.root / "seen"
    shown.configure({"a": counting_until_seen(seen), "b": one_step_segments(segments=2, goal=1)})
    with terminal(shown, "--cores", "1", columns=columns) as screen:
        screen.wait_for(r"^a +working .*193/300 steps")
        during = live_of(screen.shown)
        seen.touch()
        code = screen.wait()
        after = screen.shown

    assert code == 0
    assert during[0].split()[:3] == ["run", "state", "progress"]
    assert during[1].split()[:2] == ["a", "working"]
    assert any(line.startswith("2 runs: ") for line in during)
    assert max(map(len, during)) <= columns
    assert live_of(after) == []
    text = " ".join(after)
    assert "a segment 1 of 3: saved at 193/300 steps" in text
    assert "a segment 2 of 3: finished, 300/300 steps" in text
    assert "b segment 1 of 2: finished, 1/1 steps" in text


def test_what_a_rule_prints_stays_above_the_live_lines(shown: WorkDir) -> None:
    shown.configure({"a": slow(segments=3, goal=12)})
    printed = 'for i in 1 2 3 4 5 6 7 8 9 10; do echo "printed $i"; sleep 0.3; done'
    shown.write(
        "Snakefile",
        f'include: "{ROOT}/workflow/Snakefile"\n\n\nrule own:\n    output: "own.txt"\n'
        f"    shell: '{printed}; touch {{output}}'\n\n\n"
        'rule everything:\n    default_target: True\n    input: rules.segments.input, "own.txt"\n',
    )
    shutil.copytree(ROOT / "profiles" / "default", shown.root / "profiles" / "default")
    shown.snakefile = shown.root / "Snakefile"
    with terminal(shown, "--cores", "2", lines=14) as screen:
        screen.wait_for("12/12 steps")
        code = screen.wait()
        text = screen.text

    assert code == 0
    assert [line for line in text if line.startswith("printed")] == [f"printed {number}" for number in range(1, 11)]
    assert "rule own: own.txt" in text
    assert not [line for line in text if line.startswith((RULE, "run "))]


def test_ctrl_c_saves_says_so_and_leaves_nothing_in_red(shown: WorkDir) -> None:
    shown.configure({"a": slow(segments=3, goal=1000)})
    with terminal(shown, columns=120) as screen:
        screen.wait_for(r"\b([3-9]|\d\d)/1000 steps")
        screen.type("\x03")
        code = screen.wait()
        text = " ".join(screen.shown)
        reds = screen.colors

    assert code == 1
    assert re.search(
        r"stopping: the segments .* a segment 1 of 3: stopped by Ctrl-C; saved at \d+ of 1000 steps; start again", text
    )
    assert text.count("stopped by Ctrl-C") == 1
    assert "red" not in reds, text
    assert shown.saved("a") >= 3


# What Python imports at its start: the Snakemake of `unbroken run` waits where it would import a certain module.
HOLD = """
import sys, time
from pathlib import Path


class Hold:
    def find_spec(self, name, path=None, target=None):
        if name == "{module}":
            Path("{held}").touch()
            time.sleep(600)


if any("become_snakemake" in word for word in sys.orig_argv):
    sys.meta_path.insert(0, Hold())
"""


@pytest.mark.parametrize("module", ["snakemake.cli", "unbroken.plan"])
def test_ctrl_c_before_anything_has_begun_shows_no_traceback(shown: WorkDir, module: str) -> None:
    shown.configure({"a": slow(segments=2, goal=400)})
    held = shown.root / "held"
    shown.write("start/sitecustomize.py", HOLD.format(module=module, held=held))
    path = f"{BIN}:{shown.environment()['PATH']}"
    environment = {**shown.environment(), "PATH": path, "PYTHONPATH": str(shown.root / "start")}
    with Terminal(["unbroken", "run"], shown.root, environment) as screen:
        until(held.exists)
        screen.type("\x03")
        code = screen.wait()

    assert code in {130, -signal.SIGINT}, screen.text  # both are what a shell takes for Ctrl-C
    assert screen.text[0].startswith("unbroken: snakemake ")
    assert screen.text[-1].endswith("unbroken: stopped by Ctrl-C; to go on, type the same again")
    assert len(screen.text) <= 4
    assert not shown.history("a")


def test_a_program_that_fails_is_told_by_its_own_error_among_the_last_lines(shown: WorkDir) -> None:
    shown.write("train.py", "print({}['x'])\n")
    settings = {"script": "train.py", "goal": 5}
    shown.configure({"a": {"engine": "torch", "segments": 3, "segment_minutes": 5, "settings": settings}})

    done = shown.snakemake()

    assert done.code == 1
    assert len(done.text.splitlines()) < 20
    last = done.text.splitlines()[-10:]
    assert any("KeyError: 'x' in train.py, line 1" in line for line in last)


def test_a_dry_run_is_a_line_for_each_run(shown: WorkDir) -> None:
    shown.configure({"a": one_step_segments(segments=3, goal=2), "b": one_step_segments(segments=600, goal=9)})

    done = shown.snakemake("-n")

    assert done.text.splitlines()[-3:] == [
        "a: 3 of 3 segments at most; not started",
        "b: 600 of 600 segments at most; not started",
        "This was a dry-run (flag -n). The order of jobs does not reflect the order of execution.",
    ]


@pytest.mark.parametrize("plain", [{"NO_COLOR": "1"}, {"TERM": "dumb"}, {}])
def test_who_wants_no_colors_gets_plain_lines_at_a_terminal_too(shown: WorkDir, plain: dict[str, str]) -> None:
    shown.configure({"a": one_step_segments(segments=3, goal=2)})
    words = [] if plain else ["--nocolor"]
    environment = {**shown.environment(), **plain}
    command = [str(BIN / "snakemake"), "--snakefile", str(shown.snakefile), *words]
    with Terminal(command, shown.root, environment) as screen:
        code = screen.wait()

    assert code == 0
    assert b"\x1b" not in screen.raw
    assert any("finished, 2/2 steps" in line for line in screen.shown)


def test_what_prints_a_graph_or_a_table_prints_nothing_else(shown: WorkDir) -> None:
    shown.configure({"a": one_step_segments(segments=2, goal=2)})
    for words, start in ((["--dag"], "digraph"), (["--rulegraph"], "digraph"), (["--summary"], "output_file")):
        done = shown.snakemake(*words)

        lines = [line for line in done.text.splitlines() if "profile" not in line]
        assert lines[0].startswith(start), done.text
