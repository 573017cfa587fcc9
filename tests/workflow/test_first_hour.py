"""What somebody types in the first hour: no config, an empty folder, a file that is not there, a slip of the finger.

Each command answers with one line that says what was found and what to type; only `init` may name several ways.
"""

import re
import shlex
from dataclasses import replace
from pathlib import Path

import pytest
from support.histories import PLAIN
from support.workdir import WorkDir, one_step_segments

from unbroken.store.history import EndKind, History

pytestmark = pytest.mark.xdist_group("first hour")

NEED_A_RUN = ["logs", "accept", "restart", "back", "export", "rehearse"]
# Each command as it is typed where there is nothing yet.
COMMANDS = ["status", "account", "run", "report", "verify", "run demo", "status demo", "account demo"]
COMMANDS += ["report demo", "verify demo", "notify --check", "notify --test", "import demo --from old"]
COMMANDS += [f"{name} demo" for name in NEED_A_RUN]


def only_line(work: WorkDir, line: str, code: int = 1) -> str:
    """What one command says in its one line."""
    done = work.unbroken(*shlex.split(line), columns=200)
    lines = done.text.splitlines()
    assert (done.code, len(lines)) == (code, 1), f"{line}\n{done.text}"
    assert lines[0].startswith("unbroken: "), line
    assert "unbroken: unbroken" not in lines[0], line
    return lines[0].removeprefix("unbroken: ")


@pytest.mark.parametrize("line", COMMANDS)
def test_in_an_empty_folder_each_command_names_the_config_and_what_makes_one(work: WorkDir, line: str) -> None:
    assert only_line(work, line) == (
        f"config/config.yaml: not found in {work.root}; to begin here, type: unbroken init; "
        "for runs of another folder, add: -d FOLDER"
    )
    assert list(work.root.iterdir()) == []


def test_below_the_folder_of_a_config_the_line_says_how_to_get_there(work: WorkDir) -> None:
    work.configure({"demo": one_step_segments(segments=3, goal=2)})
    below = work.root / "config"

    done = WorkDir(below).unbroken("status", columns=200)

    assert done.text == f"unbroken: config/config.yaml: not found in {below}; it is in {work.root}, so add: -d ..\n"
    assert WorkDir(below).unbroken("status", "-d", "..").code == 0


@pytest.mark.parametrize("line", [*COMMANDS, "init toy", "convert job.sh"])
def test_a_folder_that_is_not_there_is_named_before_anything_is_looked_for(work: WorkDir, line: str) -> None:
    (work.root / "runs").mkdir()

    assert only_line(work, f"{line} -d rusn") == (
        "--directory: found 'rusn', but there is no such folder; did you mean `runs`?"
    )
    assert not (work.root / "rusn").exists()


@pytest.mark.parametrize("line", ["status", "account", "report", "import demo --from x", "rehearse demo"])
def test_a_config_that_is_named_and_not_there_is_answered_with_those_beside_it(work: WorkDir, line: str) -> None:
    work.configure({"demo": one_step_segments(segments=3, goal=2)})

    assert only_line(work, f"{line} --config config/confg.yaml") == (
        "--config: found 'config/confg.yaml', but there is no such file; did you mean `config/config.yaml`?"
    )


@pytest.fixture
def configured(work: WorkDir) -> WorkDir:
    """A folder in which `demo` is configured, and nothing was started."""
    work.configure({"demo": one_step_segments(segments=3, goal=2), "other": one_step_segments(segments=3, goal=2)})
    return work


OF_A_RUN = ["status", "account", "run", "report", "verify", *NEED_A_RUN, "import --from old"]


@pytest.mark.parametrize("line", OF_A_RUN)
def test_a_misspelt_run_is_answered_with_the_one_that_was_meant(configured: WorkDir, line: str) -> None:
    name, *options = line.split()

    assert only_line(configured, shlex.join([name, "dmo", *options])) == (
        "no run is named 'dmo', allowed: demo, other; did you mean `demo`?"
    )


@pytest.mark.parametrize("name", ["logs", "verify", "accept", "restart", "back", "export"])
def test_a_run_that_has_not_started_is_answered_with_what_starts_it(configured: WorkDir, name: str) -> None:
    said = only_line(configured, f"{name} demo")

    assert said == "demo: has no checkpoint yet; to start it, type: unbroken run" or said == (
        "demo: has not started; to start it, type: unbroken run"
    )


SLIPS = {
    "status --jsn": "status: no such option: --jsn; did you mean `--json`?",
    "watch --dirctory .": "watch: no such option: --dirctory; did you mean `--directory`?",
    "account --jsn": "account: no such option: --jsn; did you mean `--json`?",
    "run --slrum": "run: no such option: --slrum; did you mean `--slurm`?",
    "logs demo --folow": "logs: no such option: --folow; did you mean `--follow`?",
    "verify --x": "verify: no such option: --x",
    "accept demo --x": "accept: no such option: --x",
    "restart demo --x": "restart: no such option: --x",
    "back demo --too 3": "back: no such option: --too; did you mean `--to`?",
    "restore demo --frm x": "restore: no such option: --frm; did you mean `--from`?",
    "notify --chek": "notify: no such option: --chek; did you mean `--check`?",
    "import demo --frm .": "import: no such option: --frm; did you mean `--from`?",
    "export demo --too x": "export: no such option: --too; did you mean `--to`?",
    "rehearse demo --gol 3": "rehearse: no such option: --gol; did you mean `--goal`?",
    "report --opn": "report: no such option: --opn; did you mean `--open`?",
    "profile slurm --usr": "profile: no such option: --usr; did you mean `--user`?",
    "init --dif": "init: no such option: --dif; did you mean `--diff`?",
    "convert --prnt job.sh": "convert: no such option: --prnt; did you mean `--print`?",
    "launcher --x": "launcher: no such option: --x",
    "logs demo --segment two": "logs: --segment: Input should be a valid integer, unable to parse string as an integer",
    "notify more": "notify: got unexpected extra argument(s) (more)",
}
SLIPS |= {f"{name}": f"{name}: missing argument 'RUN'" for name in [*NEED_A_RUN, "import", "restore"]}
SLIPS |= {f"{name} demo": f"{name}: missing option '--from'" for name in ["import", "restore"]}
SLIPS |= {"convert": "convert: missing argument 'SCRIPT'", "profile": "profile: missing argument 'NAME'"}


@pytest.mark.parametrize("line", SLIPS)
def test_a_slip_of_the_finger_is_one_line_with_the_help_to_type(work: WorkDir, line: str) -> None:
    name = line.split()[0]

    assert only_line(work, line, code=2) == f"{SLIPS[line]}; type: unbroken {name} --help"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("logs demo --segment", "option '--segment' requires an argument; type: unbroken --help"),
        ("stauts", "no such command 'stauts'; did you mean `status`?; type: unbroken --help"),
        ("--versio", "no such option: --versio; did you mean `--version`?; type: unbroken --help"),
        ("exec --kep x -- true", "exec: no such option: --kep; did you mean `--keep`?; type: unbroken exec --help"),
        ("exec --minutes x -- true", "exec: --minutes: invalid number value: 'x'; type: unbroken exec --help"),
    ],
)
def test_a_misspelt_command_and_the_options_of_exec_are_answered_alike(work: WorkDir, line: str, said: str) -> None:
    assert only_line(work, line, code=1 if line.startswith("exec") else 2) == said


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("convert jbo.sh", "convert: found 'jbo.sh', but there is no such file; did you mean `job.sh`?"),
        ("init torch trian.py", "init torch: found 'trian.py', but there is no such file; did you mean `train.py`?"),
        ("exec --inputs moer.yaml -- true", "/more.yaml`?"),
        (
            "import demo --from odl",
            "demo: --from: found 'odl', but there is no such file or folder; did you mean `old`?",
        ),
    ],
)
def test_a_file_that_is_not_there_is_answered_with_the_one_that_was_meant(
    configured: WorkDir, line: str, said: str
) -> None:
    for name in ("job.sh", "train.py", "more.yaml", "old"):
        configured.write(name, "\n")

    assert said in only_line(configured, line)


def helped(work: WorkDir, name: str) -> list[str]:
    done = work.unbroken(name, "--help", columns=100)
    assert done.code == 0, done.text
    return done.text.splitlines()


def test_the_help_of_exec_is_there_without_typer(work: WorkDir, tmp_path: Path) -> None:
    (tmp_path / "none" / "typer").mkdir(parents=True)
    (tmp_path / "none" / "typer" / "__init__.py").write_text("raise ImportError\n")
    work.added_environment["PYTHONPATH"] = str(tmp_path / "none")

    own = helped(work, "exec")

    assert "unbroken exec [OPTIONS] -- PROGRAM ARGUMENTS..." in own[0]
    for option in ("--keep", "--saved-by", "--requeue"):
        assert any(option in line for line in own), option


def test_the_help_names_no_argument_twice(work: WorkDir) -> None:
    for name in ("status", "report", "init", "logs", "run"):
        (usage,) = [line for line in helped(work, name) if "Usage:" in line]
        assert "[[" not in usage, usage


def test_of_a_thousand_runs_status_shows_those_that_need_a_hand_and_how_many_there_are_more(work: WorkDir) -> None:
    names = [f"run{number:04d}" for number in range(1000)]
    work.configure({name: one_step_segments(segments=3, goal=2) for name in names})
    failed = replace(PLAIN, kind=EndKind.FAILED, message="it broke")
    History(work.places(names[-1]).history).append(failed)

    done = work.unbroken("status", columns=120)
    one, unknown = work.unbroken("status", names[500]), only_line(work, "status rnu0500")

    rows = [line.split()[0] for line in done.text.splitlines() if re.match(r"run\d{4} ", line)]
    assert rows == [*names[:99], names[-1]]
    assert "1000 runs: stopped 1, not started 999" in done.text
    assert "900 more runs are not shown; type: unbroken status RUN, or: unbroken report" in done.text
    assert len(done.text.splitlines()) < 210
    assert one.lines(f"{names[500]} ") != []
    assert unknown.startswith(
        "no run is named 'rnu0500', allowed: those 1000 that `unbroken status` lists; did you mean"
    )
