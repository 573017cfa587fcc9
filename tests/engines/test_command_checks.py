"""Mistakes in the settings of the command engine: one line each, before anything is queued."""

import pytest
from support.command_jobs import command_run

from unbroken.errors import ConfigError

GOOD = {"start": ["run", "{seconds}"], "files": ["a.{progress}.rst"], "goal": 9}
NAMES = "{save}, {stop}, {base}, {seconds}, {minutes}, {hours}, {hms}, {threads}, {tasks}, {run}, {segment}"
WAYS = "type {progress} into their names, or progress_file, or progress_command"

MISTAKES = {
    "an unknown placeholder": (
        {"start": ["run", "-t", "{second}"], "resume": ["x"]},
        f"start: found '{{second}}' in '{{second}}', allowed: {NAMES}; a brace itself is typed twice",
    ),
    "a single brace": (
        {"start": ["awk", "{ print }"], "resume": ["x"]},
        f"start: found '{{' in '{{ print }}', allowed: {NAMES}; a brace itself is typed twice",
    ),
    "a checkpoint at the start": (
        {**GOOD, "start": ["run", "{file}"], "resume": ["x"]},
        "start: found '{file}' in '{file}', but at the start there is no checkpoint; use it in `resume`",
    ),
    "a goal that is not there": (
        {"start": ["run", "{goal}"]},
        "start: found '{goal}' in '{goal}', but there is no `goal`; type for example `goal: 5000`",
    ),
    "the file of no files": (
        {"start": ["run"], "resume": ["run", "{file}"]},
        "resume: found '{file}' in '{file}', but `files` is empty; name the restart file there",
    ),
    "a variable of ours": (
        {**GOOD, "environment": {"UNBROKEN_RUN": "x"}},
        "environment: found 'UNBROKEN_RUN', allowed: the name of a variable that does not begin with UNBROKEN_",
    ),
    "a placeholder in a template": (
        {**GOOD, "templates": ["job.in"]},
        "templates: found '@@secs@@' in job.in, allowed: @@save@@, ",
    ),
    "a template that is no text": (
        {**GOOD, "templates": ["binary"]},
        "templates: found 'binary', which cannot be read",
    ),
    "two inputs of one name": (
        {**GOOD, "inputs": ["one/x.in", "two/x.in"]},
        "inputs: found two files called 'x.in', which have one place in the program's folder; rename one",
    ),
    "a file elsewhere": (
        {**GOOD, "files": ["/scratch/a.{progress}"]},
        "files: found '/scratch/a.{progress}', allowed: a name in the program's own folder",
    ),
    "a file above": (
        {**GOOD, "outputs": {"../t": "rows"}},
        "outputs: found '../t', allowed: a name in the program's own",
    ),
    "a name of ours": (
        {**GOOD, "files": ["parts/a.{progress}"]},
        "files: found 'parts/a.{progress}', but that name in a checkpoint belongs to unbroken; rename yours",
    ),
    "another placeholder in files": (
        {**GOOD, "files": ["a.{step}"]},
        "files: found '{step}' in 'a.{step}', allowed: {progress}",
    ),
    "the number twice": (
        {**GOOD, "files": ["{progress}/{progress}"]},
        "files: found {progress} twice in '{progress}/{pro",
    ),
    "a way to read without files": (
        {"start": ["x"], "progress_file": "a"},
        "progress_file: does nothing without `files`; name the restart files there",
    ),
    "saved without files": (
        {"start": ["x"], "saved_by": "rename"},
        "saved_by: found 'rename', but `files` is empty; name the restart files there",
    ),
    "no marker": (
        {**GOOD, "saved_by": "marker"},
        "saved_marker: is missing; type for example `saved_marker: restart.done`",
    ),
    "a marker for nothing": (
        {**GOOD, "saved_marker": "done"},
        "saved_marker: does nothing with `saved_by: observed`; type `saved_by: marker`",
    ),
    "next without numbers": (
        {"start": ["x"], "files": ["a"], "saved_by": "next"},
        "saved_by: found 'next', but the names in `files` have no number; allowed: names such as",
    ),
    "several files renamed": (
        {"start": ["x"], "files": ["a", "b"], "saved_by": "rename"},
        "saved_by: found 'rename' with several `files`, which are not renamed together; allowed: names with",
    ),
    "a numbered marker": (
        {"start": ["x"], "files": ["a"], "saved_by": "marker", "saved_marker": "done.{progress}"},
        "saved_marker: found {progress} in it, but none in `files`",
    ),
    "a marker of stages that would not be put back": (
        {"start": ["x"], "files": ["a/**", "!a/log"], "saved_by": "stage", "saved_marker": "b/stage_*"},
        "saved_marker: found 'b/stage_*', which is none of `files`; name it there too",
    ),
    "numbers in the files of a stage": (
        {**GOOD, "saved_by": "stage", "saved_marker": "a.{progress}.rst"},
        "saved_by: found 'stage' with {progress} in `files`; leave it out",
    ),
    "two ways to read": (
        {**GOOD, "progress_command": ["wc"]},
        "progress_command: found beside {progress} in `files`; allowed: one of them",
    ),
    "a file without a way": (
        {"start": ["x"], "files": ["a"], "progress_file": "a"},
        "progress_file: says not where the number is; add `progress_pattern`",
    ),
    "a file beside a command": (
        {"start": ["x"], "files": ["a"], "progress_file": "a", "progress_command": ["x"]},
        "progress_file: found beside `progress_command`, which finds the number by itself; remove it",
    ),
    "a way without a file": (
        {"start": ["x"], "files": ["a"], "progress_pattern": "(n)"},
        "progress_file: is missing beside `progress_pattern`; name the restart file that has the number",
    ),
    "the number of another file": (
        {"start": ["x"], "files": ["a"], "saved_by": "rename", "progress_file": "log", "progress_pattern": "(1)"},
        "progress_file: found 'log', which is none of `files`: while the program runs it says another number than",
    ),
    "a goal that nothing compares": (
        {"start": ["x"], "files": ["a"], "goal": 9},
        f"goal: found 9, but nothing says how far the restart files are; {WAYS}",
    ),
    "a pattern that is none": (
        {**GOOD, "outputs": {"t": "(a"}},
        "outputs: found '(a', which is no regular expression: missing ), unterminated subpattern at position 0",
    ),
    "a pattern without a group": (
        {"start": ["x"], "files": ["a"], "progress_file": "a", "progress_pattern": r"Step \d+"},
        r"progress_pattern: found 'Step \\d+' with 0 groups (...), allowed: one, around the number",
    ),
    "rows without progress": (
        {"start": ["x"], "files": ["a"], "outputs": {"t": "rows"}},
        f"outputs: found 't', but nothing says how far the restart files are; {WAYS}",
    ),
    "an output that is a restart file": (
        {**GOOD, "outputs": {"a.1.rst": "rows"}},
        "outputs: found 'a.1.rst', which is one of `files` too; allowed: one of them",
    ),
    "a text for no file": ({**GOOD, "stop_text": "x"}, "stop_text: does nothing without `stop_file`"),
    "a code that means both": (
        {"start": ["x"], "files": ["a"], "exit_paused": [0]},
        "exit_paused: found 0, which is in `exit_finished` too, and nothing else says which it is; add `goal` or",
    ),
    "a code that means both in the contract": (
        {"start": ["x"], "goal": 9, "exit_paused": [0]},
        "exit_paused: found 0, which is in `exit_finished` too; allowed: one of them",
    ),
    "a signal that does not exist": (
        {**GOOD, "stop_signal": "SIGUSR1"},
        "stop_signal: found 'SIGUSR1', allowed: , HUP, INT, TERM, USR1 or USR2; did you mean `USR1`?",
    ),
    "a line for a shell": (
        {"start": "lmp -in melt.in"},
        'start: found \'lmp -in melt.in\', allowed: a list of words, at least one; type ["lmp", "-in", "melt.in"]',
    ),
    "no words": ({"start": []}, "start: found a list [], allowed: a list of words, at least one"),
    "an output without its kind": (
        {**GOOD, "outputs": ["t"]},
        "outputs: found a list [\"t\"], allowed: lines `name: rows` or `name: 'a regular expression'`",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_line_with_what_is_allowed(tmp_path, mistake):
    settings, line = MISTAKES[mistake]
    for name in ("one/x.in", "two/x.in"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).touch()
    (tmp_path / "job.in").write_text("time @@secs@@\n")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\xff")

    with pytest.raises(ConfigError) as error:
        command_run(base=tmp_path, **settings)

    assert [len(said.splitlines()) for said in error.value.mistakes] == [1] * len(error.value.mistakes)
    assert any(said.startswith(f"runs.demo.settings.{line}") for said in error.value.mistakes), error.value.mistakes


def test_braces_that_are_typed_twice_are_no_mistake(tmp_path):
    assert command_run(base=tmp_path, start=["awk", "{{ print }}"]).settings["start"] == ("awk", "{{ print }}")
