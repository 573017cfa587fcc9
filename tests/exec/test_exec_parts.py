import fnmatch
import itertools
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unbroken.engines.files.stored import original, stored
from unbroken.errors import ConfigError
from unbroken.exec.call import Call, call_of, is_same_program
from unbroken.exec.options import parse, parser
from unbroken.exec.stores import may_share

GLOBS = st.lists(st.sampled_from(["a", "b", "*", "?", "[ab]", "/"]), min_size=1, max_size=5).map("".join)
PATHS = ["".join(letters) for count in range(1, 7) for letters in itertools.product("ab/", repeat=count)]


def matches(path: str, glob: str) -> bool:
    names, patterns = path.split("/"), os.path.normpath(glob).split("/")
    return len(names) == len(patterns) and all(map(fnmatch.fnmatchcase, names, patterns))


@given(GLOBS, GLOBS)
def test_globs_that_match_one_path_may_share_it(one, other):
    assert may_share(one, other) or not any(matches(path, one) and matches(path, other) for path in PATHS)


@pytest.mark.parametrize(
    ("one", "other", "do_share"),
    [
        ("/w/ckpt/de/*", "/w/ckpt/en/*", False),
        ("/w/ckpt/*.de.pt", "/w/ckpt/*.en.pt", False),
        ("/w/ckpt/de", "/w/ckpt/de2", False),
        ("/w/ckpt/*", "/w/ckpt/de/a", True),
        ("/w/ckpt/**", "/w/ckpt/de/a", True),
        ("/w/{progress}.pt", "/w/12.pt", True),
        ("/w/{progress}.pt", "/w/a.pt", False),
        ("/w/de_*", "/w/de_at_*", True),
        ("/w/[0-9]*/U", "/w/10/U", True),
    ],
)
def test_globs_of_two_runs(one, other, do_share):
    assert may_share(one, other) == may_share(other, one) == do_share


@pytest.mark.parametrize("name", ["a/b", "/root/x", "../up/x", "../../x", "a b/ü"])
def test_a_name_below_the_store_leads_back(name):
    assert original(stored(name)) == name
    assert ".." not in stored(name).split("/")


def call(*program: str, volatile: tuple[str, ...] = ()) -> Call:
    return Call(program, (), volatile, "/")


def test_command_lines_that_differ_by_themselves_are_the_same():
    was = call("p", "/scratch/17/x", "--epochs", "17", volatile=("17",))

    assert is_same_program(was, call("p", "/scratch/18/x", "--epochs", "17", volatile=("18",)), ())
    assert not is_same_program(was, call("p", "/scratch/18/x", "--epochs", "19", volatile=("18",)), ())


@pytest.mark.parametrize("words", [["p", "--threads", "8"], ["p", "--threads=8"], ["p", "--threads"], ["p"]])
def test_ignored_words_are_left_out(words):
    assert is_same_program(call("p"), call(*words), ["--threads"])


def test_ignored_words_are_left_out_of_the_line_that_goes_on_too():
    one, other = (
        call_of(parse(["--resume", f"p --continue --threads {threads}", "--", "p"]), Path(), None)
        for threads in ("4", "8")
    )

    assert is_same_program(one, other, ["--threads"])
    assert not is_same_program(one, other, [])


def test_a_word_that_is_no_value_of_an_ignored_option_counts():
    assert not is_same_program(call("p"), call("p", "--threads", "8", "more"), ["--threads"])


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--name", "a/../b", "--", "p"], "exec: --name: found 'a/../b', allowed: letters, digits and"),
        (["--name", ".restarted/x", "--", "p"], "exec: --name: found '.restarted/x', allowed: letters, digits and"),
        (["--name", "x"], "exec: no program behind --; type: unbroken exec [OPTIONS] -- PROGRAM ARGUMENTS..."),
        (["--minutes", "0", "--", "p"], "exec: --minutes: found 0, allowed: more than 0"),
        (["--checkpoints", "1", "--", "p"], "exec: --checkpoints: found 1, allowed: 2 or more"),
        (
            ["--saved-by", "marker", "--keep", "a", "--", "p"],
            "exec: --marker FILE and --saved-by marker, or stage, go together",
        ),
        (["--saved-by", "next", "--keep", "a*", "--", "p"], "exec: --saved-by next: no {progress} in --keep"),
        (
            ["--progress", "log:(1)", "--keep", "a.{progress}", "--", "p"],
            "exec: --progress: found beside {progress} in --keep, whose numbers say how far it is; allowed: one",
        ),
        (["--progress", "log:step", "--", "p"], "exec: --progress: found log:step, allowed: FILE:PATTERN"),
        (["--resume", "p 'x", "--", "p"], "exec: --resume: invalid split value: "),
        (["--goal", "3", "--", "p"], "exec: --goal: nothing says how far the program is"),
        (["--inputs", "", "--", "p"], "exec: --inputs: found an empty word"),
        (["--saved-by", "luck", "--", "p"], "exec: --saved-by: invalid choice: 'luck' (choose from "),
        (["--zzz", "--", "p"], "exec: no such option: --zzz; type: unbroken exec --help"),
        (
            ["--engine", "gromacs", "--keep", "a", "--stdout", "b", "--", "p"],
            "exec: --engine gromacs: --keep, --std",
        ),
    ],
)
def test_a_mistake_is_one_line(words, line):
    with pytest.raises(ConfigError) as error:
        parse(words)

    assert str(error.value).startswith(line)
    assert "\n" not in str(error.value)


def test_the_page_names_every_option():
    page = (Path(__file__).parents[2] / "docs/exec.md").read_text()
    options = {word for action in parser()._actions for word in action.option_strings if word.startswith("--")}

    assert {option for option in options - {"--help"} if f"`{option}`" not in page} == set()


@pytest.mark.parametrize(
    ("program", "name"),
    [
        (["gmx", "mdrun"], "gmx"),
        (["gmx", "mdrun", "-deffnm", "results/prod"], "prod"),
        (["/usr/bin/python3.11", "-u", "src/train.py", "8"], "train.py"),
        (["bash", "-c", "echo a b"], "echo-a-b"),
        (["python3"], "python3"),
    ],
)
def test_without_a_name_it_is_that_of_the_program_or_script(program, name):
    assert parse(["--", *program]).name == name
