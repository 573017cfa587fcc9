"""A driver's end is told by the command of `notify:`, once, without anybody who looks."""

import json

import yaml
from support.workdir import WorkDir, one_step_segments, until

TORCH = {"engine": "torch", "segment_minutes": 2, "settings": {"script": "program.py", "goal": 5}}


def configure(work: WorkDir, command: str, **runs: object) -> None:
    work.configure(runs)
    path = work.root / "config" / "config.yaml"
    path.write_text(yaml.safe_dump({"notify": {"command": command}, **yaml.safe_load(path.read_text())}))


def told(work: WorkDir) -> list[tuple[str, str]]:
    path = work.root / "told.txt"
    lines = path.read_text().splitlines() if path.exists() else []
    return sorted((said["event"], said["run"]) for said in map(json.loads, lines))


def test_runs_that_finish_and_stop_are_told_once(work: WorkDir) -> None:
    work.write("program.py", "raise SystemExit(7)\n")
    configure(work, "cat >> told.txt", good=one_step_segments(segments=3, goal=2), bad=one_step_segments(1, 5) | TORCH)
    work.snakemake("--keep-going")
    expected = [("finished", "good"), ("stopped", "bad")]
    until(lambda: told(work) == expected)
    assert work.unbroken("notify", "--check").code == 0
    assert told(work) == expected


def test_a_command_that_fails_harms_no_run_and_the_next_look_tells(work: WorkDir) -> None:
    configure(work, "test -e online && cat >> told.txt", good=one_step_segments(segments=3, goal=2))
    done = work.snakemake()
    assert done.code == 0, done.text
    log = work.root / ".snakemake/unbroken/notify/log.txt"
    until(lambda: log.exists() and "exit code 1" in log.read_text())
    work.write("online", "")
    said = work.unbroken("notify", "--check")
    assert said.code == 0 and "finished: told" in said.text, said.text
    assert told(work) == [("finished", "good")]


def test_the_command_can_be_tried_and_its_failure_is_a_line(work: WorkDir) -> None:
    configure(work, "cat >> told.txt", good=one_step_segments(segments=3, goal=2))
    assert work.unbroken("notify", "--test").code == 0
    assert told(work) == [("test", "test")]
    configure(work, "echo no; exit 2", good=one_step_segments(segments=3, goal=2))
    said = work.unbroken("notify", "--test")
    assert said.code == 1
    assert said.text == "unbroken: notify.command: echo no; exit 2: exit code 2, no\n"
    work.configure({"good": one_step_segments(segments=3, goal=2)})
    said = work.unbroken("notify", "--check")
    assert said.code == 1 and "has no `notify:`" in said.text
