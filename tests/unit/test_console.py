"""The logger plugin without a Snakemake around it: what it makes of each record, and what no fault of its own costs."""

import ast
import io
import logging
import signal
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyte
import pytest
import snakemake
from snakemake.common import NOTHING_TO_BE_DONE_MSG
from snakemake.settings.enums import Quietness
from snakemake.settings.types import OutputSettings
from snakemake_interface_logger_plugins.common import LogEvent

from snakemake_logger_plugin_unbroken import LogHandler, console, screen
from snakemake_logger_plugin_unbroken.console import CHATTER_FUNCTIONS, SLURM_PLUGIN, Console
from snakemake_logger_plugin_unbroken.screen import LiveArea
from unbroken.engines.found import read_checked_runs
from unbroken.plan import ctrl_c, load
from unbroken.plan.plan import Plan
from unbroken.store import driver_start
from unbroken.store.history import Attempt, EndKind, History
from unbroken.store.layout import RunFolder
from unbroken.store.times import NO_TIMES
from unbroken.system import log

SNAKEMAKE = Path(snakemake.__file__).parent
JOB = {"jobid": 7, "rule_name": "toy_segment", "wildcards": {"run": "demo", "segment": "002"}, "output": ["x"]}
DEFAULTS = {
    "rule_msg": None,
    "reason": "because",
    "local": True,
    "is_checkpoint": False,
    "input": [],
    "log": [],
    "benchmark": None,
    "priority": 0,
    "threads": 1,
    "resources": {},
    "msg": None,
    "conda_env": None,
    "shellcmd": None,
    "aux": {},
}


@pytest.fixture(autouse=True)
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver of one run, in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(driver_start.CONSOLE, raising=False)
    config = {"runs": {"demo": {"engine": "toy", "segments": 20, "segment_minutes": 1, "settings": {"goal": 300}}}}
    monkeypatch.setattr(load, "_driven", [Plan(tuple(read_checked_runs(config, tmp_path)))])


def handler(**settings: Any) -> tuple[LogHandler, io.StringIO]:
    stream = io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stderr", stream)
        patch.setattr(sys, "stdout", stream)
        return LogHandler(OutputSettings(**settings), None), stream


def record(
    text: str | None = None, level: int = logging.INFO, event: LogEvent | None = None, **more: Any
) -> logging.LogRecord:
    made = logging.LogRecord("snakemake.logging", level, __file__, 1, text, None, None)
    vars(made).update({**more, **({"event": event} if event else {})})
    return made


def of(module: str, function: str, text: str = "a line", **more: Any) -> logging.LogRecord:
    """Return a record as a function of Snakemake logs it."""
    return record(text, module=module, funcName=function, **more)


def job(event: LogEvent, level: int = logging.INFO, **more: Any) -> logging.LogRecord:
    return record("a job", level, event, **{**{k: v for k, v in DEFAULTS.items() if k != "msg"}, **JOB, **more})


def attempt(kind: EndKind, message: str = "", done: float = 193, log: str = "") -> Attempt:
    values: dict[str, Any] = dict.fromkeys(Attempt.__dataclass_fields__, "")
    numbers = {"token": 3, "segment": 2, "progress_from": 80, "progress_to": done, "work_seconds": 3.1, "unit": "steps"}
    return Attempt(**{**values, **numbers, "kind": kind, "message": message, "times": NO_TIMES, "log": log})


def note(of: Attempt) -> None:
    History(RunFolder("demo").history).append(of)


@pytest.mark.parametrize(
    ("ended", "line"),
    [
        (attempt(EndKind.PAUSED), "demo segment 2 of 20: saved at 193/300 steps, 3 s of work"),
        (
            attempt(EndKind.FINISHED, done=300),
            "demo segment 2 of 20: finished, 300/300 steps; results: results/demo/final",
        ),
        (
            attempt(EndKind.INTERRUPTED, "preempted or canceled; saved at 193 of 300 steps"),
            "demo segment 2 of 20: preempted or canceled; saved at 193 of 300 steps; start again and it goes on",
        ),
        (
            attempt(EndKind.FAILED, "exit code 1"),
            "demo segment 2 of 20: failed at 193/300 steps: exit code 1; read logs/demo/002.log",
        ),
        (
            attempt(EndKind.DIED, "killed", log="logs/demo/002.1.log"),
            "demo segment 2 of 20: died at 193/300 steps: killed; read logs/demo/002.1.log",
        ),
    ],
)
def test_each_attempt_is_one_line_however_it_ended(ended: Attempt, line: str) -> None:
    shown, stream = handler()
    shown.handle(job(LogEvent.JOB_INFO))
    note(ended)
    shown.handle(record("Finished jobid: 7", event=LogEvent.JOB_FINISHED, job_id=7))
    shown.close()

    first, *lines = stream.getvalue().splitlines()
    assert first.startswith("unbroken ")
    assert first.endswith(": 1 run: demo")
    assert [each.partition(" ")[2] for each in lines] == [line]


def test_an_end_that_the_console_tells_is_not_told_by_the_driver_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(driver_start.START, "this start")
    shown, stream = handler()
    shown.handle(job(LogEvent.JOB_INFO))
    note(replace(attempt(EndKind.INTERRUPTED, "stopped by Ctrl-C; saved at 38 of 300 steps"), start="this start"))
    (plan,) = load.driven_plans()
    told, next_told = list[str](), list[str]()
    with log.lines_to(told.append):
        plan.report()
    shown.close()
    monkeypatch.setenv(driver_start.START, "the next start")
    with log.lines_to(next_told.append):
        plan.report()

    assert told == []
    assert len([line for line in stream.getvalue().splitlines() if "Ctrl-C" in line]) == 1
    assert next_told == ["demo: stopped by Ctrl-C; saved at 38 of 300 steps; start again and it goes on"]


def test_attempts_of_earlier_starts_are_not_told_again() -> None:
    note(attempt(EndKind.PAUSED))
    shown, stream = handler()
    shown.handle(job(LogEvent.JOB_INFO))
    shown.close()

    assert len(stream.getvalue().splitlines()) == 1


def test_a_failed_job_without_a_line_in_the_history_is_told_by_its_log_once() -> None:
    log = RunFolder("demo").log(2)
    log.parent.mkdir(parents=True)
    lines = ["stopped: no further attempt is made", "log: logs/demo/002.log"]
    log.write_text("".join(f"unbroken 2026-11-24T02:55:18Z demo segment 2: {line}\n" for line in lines))
    shown, stream = handler()
    for _ in range(2):
        shown.handle(job(LogEvent.JOB_INFO))
        shown.handle(job(LogEvent.JOB_ERROR, logging.ERROR))
    shown.close()

    assert stream.getvalue().splitlines()[1:] == ["demo segment 2: stopped: no further attempt is made"]


def test_a_failed_job_that_left_nothing_is_told_in_the_words_of_snakemake() -> None:
    shown, stream = handler()
    shown.handle(job(LogEvent.JOB_INFO))
    shown.handle(job(LogEvent.JOB_ERROR, logging.ERROR))
    shown.close()

    assert "Error in rule toy_segment:" in stream.getvalue()


def test_a_segment_that_ctrl_c_ended_before_it_began_is_a_line(
    monkeypatch: pytest.MonkeyPatch, signals_kept: None
) -> None:
    shown, stream = handler()
    shown.handle(job(LogEvent.JOB_INFO))
    ctrl_c.listen([])
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    shown.handle(of("job_scheduler", "schedule"))
    shown.handle(job(LogEvent.JOB_ERROR, logging.ERROR))
    shown.close()

    assert stream.getvalue().splitlines()[1:] == [
        "stopping: the segments at work save and leave",
        "demo segment 2: stopped by Ctrl-C before it began",
    ]


@pytest.mark.parametrize("level", [logging.WARNING, logging.ERROR, logging.CRITICAL])
def test_every_warning_and_error_is_shown(level: int) -> None:
    shown, stream = handler()
    shown.handle(record("Building DAG of jobs is hard today", level))
    shown.close()

    assert stream.getvalue() == "Building DAG of jobs is hard today\n"


def test_the_exit_code_of_a_segment_s_script_is_no_line_of_its_own() -> None:
    shown, stream = handler()
    for script in ("tmp1.torch_segment.py", "tmp1.segment.py", "tmp1.mine.py"):
        where = 'RuleException:\nCalledProcessError in file "/x/the.smk", line 25:\n'
        shown.handle(
            record(
                f"{where}Command 'python x/.snakemake/scripts/{script}' returned non-zero exit status 1.",
                logging.ERROR,
                LogEvent.ERROR,
                exception="RuleException",
            )
        )
    shown.close()

    assert stream.getvalue().count("RuleException") == 1
    assert "tmp1.mine.py" in stream.getvalue()


def test_other_rules_are_named_with_what_they_make() -> None:
    shown, stream = handler()
    shown.handle(job(LogEvent.JOB_INFO, rule_name="plot", wildcards={}, output=["results/plot.svg"]))
    shown.handle(job(LogEvent.JOB_INFO, rule_name="all", wildcards={}, output=[]))
    shown.handle(job(LogEvent.JOB_ERROR, logging.ERROR, rule_name="plot", jobid=9))
    shown.close()

    assert stream.getvalue().startswith("rule plot: results/plot.svg\n")
    assert "Error in rule plot:" in stream.getvalue()


def test_what_snakemake_says_of_its_jobs_is_left_out_and_what_nobody_knows_is_shown() -> None:
    shown, stream = handler()
    for module, function in [*sorted(CHATTER_FUNCTIONS), ("workflow", "execute")]:
        shown.handle(of(module, function))
    shown.handle(of("__init__", "run_job", pathname=f"/x/{SLURM_PLUGIN}/__init__.py"))
    shown.handle(record("unbroken: its work is done", is_routine=True))
    shown.handle(record("1 of 21 steps (5%) done", event=LogEvent.PROGRESS, done=1, total=21))
    summary = "At least one job did not complete successfully."
    shown.handle(record(summary, logging.ERROR, LogEvent.ERROR, exception="WorkflowError"))
    shown.handle(of("workflow", "execute", NOTHING_TO_BE_DONE_MSG))
    shown.handle(record("something new"))
    shown.close()

    assert stream.getvalue().splitlines() == [NOTHING_TO_BE_DONE_MSG, "something new"]


@pytest.mark.parametrize(("module", "function"), [*sorted(CHATTER_FUNCTIONS), ("workflow", "execute")])
def test_snakemake_logs_there_what_is_left_out(module: str, function: str) -> None:
    source = (SNAKEMAKE / ("scheduling" if module == "job_scheduler" else "") / f"{module}.py").read_text()
    functions = [node for node in ast.walk(ast.parse(source)) if getattr(node, "name", "") == function]

    assert any("logger.info(" in ast.unparse(node) for node in functions)


def test_what_has_no_field_of_its_own_is_known_by_a_text_of_snakemake_s() -> None:
    assert f'WorkflowError("{console._SUMMARY}.")' in (SNAKEMAKE / "workflow.py").read_text()
    assert '".snakemake/scripts"' in (SNAKEMAKE / "script" / "__init__.py").read_text()


def test_a_dry_run_is_a_line_for_each_run_on_standard_output() -> None:
    shown, stream = handler(dryrun=True, stdout=True)
    for number in ("002", "003"):
        shown.handle(job(LogEvent.JOB_INFO, wildcards={"run": "demo", "segment": number}))
    shown.handle(record("Job stats: ...", event=LogEvent.RUN_INFO, stats={}))
    shown.handle(record("This was a dry-run (flag -n)."))
    shown.close()

    assert stream.getvalue().splitlines() == [
        "demo: 2 of 20 segments at most; not started",
        "This was a dry-run (flag -n).",
    ]


def test_quiet_all_is_quiet() -> None:
    shown, stream = handler(quiet={Quietness.ALL})
    shown.handle(job(LogEvent.JOB_INFO))
    shown.handle(record("a line"))
    shown.close()

    assert stream.getvalue() == ""


def test_off_is_snakemake_s_own_output_and_the_segments_print_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(driver_start.CONSOLE, "off")
    shown, stream = handler()
    shown.handle(job(LogEvent.JOB_INFO))
    shown.handle(of("job_scheduler", "schedule", "Select jobs to execute..."))
    shown.close()

    assert "toy_segment:" in stream.getvalue()
    assert "Select jobs to execute..." in stream.getvalue()
    assert not driver_start.is_screen_taken()


def test_only_segments_of_this_machine_leave_the_screen_to_the_console(monkeypatch: pytest.MonkeyPatch) -> None:
    handler()
    here = driver_start.is_screen_taken()
    monkeypatch.setenv("SLURM_JOB_ID", "17")

    assert (here, driver_start.is_screen_taken()) == (True, False)


EVENTS = [
    job(LogEvent.JOB_INFO),
    job(LogEvent.JOB_ERROR, logging.ERROR),
    record("done", event=LogEvent.JOB_FINISHED, job_id=7),
    record("stats", event=LogEvent.RUN_INFO, stats={}),
    record("a line"),
]


@pytest.mark.parametrize("broken", EVENTS, ids=lambda made: str(getattr(made, "event", "none")))
def test_where_the_console_fails_snakemake_s_own_output_goes_on(
    broken: logging.LogRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown, stream = handler()
    usual = Console.handle

    def fails(self: Console, given: logging.LogRecord) -> None:
        if given is broken:
            raise ZeroDivisionError("a fault")
        usual(self, given)

    monkeypatch.setattr(Console, "handle", fails)
    shown.handle(broken)
    shown.handle(record("the next line"))
    shown.close()

    text = stream.getvalue()
    assert text.startswith(
        "unbroken: the console failed (ZeroDivisionError: a fault); Snakemake's own output follows\n"
    )
    assert text.endswith("the next line\n")
    assert len(text.splitlines()) > 2  # the record itself is shown


def test_where_looking_after_the_runs_fails_snakemake_s_own_output_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("snakemake_logger_plugin_unbroken.console.LOOK_SECONDS", 0.01)
    monkeypatch.setattr(Console, "look", lambda self: 1 / 0)
    shown, stream = handler()
    shown.handle(job(LogEvent.JOB_INFO))
    console = shown._console
    assert console is not None
    assert console._looking is not None
    console._looking.join(60)
    shown.handle(of("job_scheduler", "schedule", "Select jobs to execute..."))

    assert "the console failed (ZeroDivisionError: division by zero)" in stream.getvalue()
    assert stream.getvalue().endswith("Select jobs to execute...\n")


# --- the live lines ---


class Terminal(io.StringIO):
    """What is written, on a screen."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, columns: int = 30, lines: int = 12) -> None:
        super().__init__()
        self.screen = pyte.HistoryScreen(columns, lines, history=100)
        self.screen.set_mode(pyte.modes.LNM)  # as a terminal driver does it: a newline begins at the left
        self._stream = pyte.Stream(self.screen)
        self.size = columns, lines
        monkeypatch.setattr(
            screen.os, "get_terminal_size", lambda _: SimpleNamespace(columns=self.size[0], lines=self.size[1])
        )

    def fileno(self) -> int:
        return 2

    def write(self, text: str) -> int:
        self._stream.feed(text)
        return len(text)

    def resize(self, columns: int, lines: int) -> None:
        self.screen.resize(lines, columns)
        self.size = columns, lines

    @property
    def lines(self) -> list[str]:
        return [line.rstrip() for line in self.screen.display]

    @property
    def text(self) -> list[str]:
        """All that has scrolled, and what is on the screen."""
        above = [
            "".join(line[at].data for at in range(self.screen.columns)).rstrip() for line in self.screen.history.top
        ]
        return [line for line in [*above, *self.lines] if line]


def test_text_scrolls_above_the_live_lines_and_nothing_of_it_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal(monkeypatch)
    area = LiveArea(terminal)
    for number in range(30):
        area.draw([f"live {number}", "second"])
        terminal.write(f"text {number}\n" if number % 3 else f"text {number}\nof two lines\n")
        assert terminal.lines[-2:] == [f"live {number}", "second"]
    area.close()

    expected = [
        line for number in range(30) for line in ([f"text {number}"] + ([] if number % 3 else ["of two lines"]))
    ]
    assert terminal.text == expected
    assert terminal.screen.margins is None


def test_more_and_fewer_live_lines_leave_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal(monkeypatch)
    area = LiveArea(terminal)
    for count in (1, 5, 2, 0, 4):
        area.draw([f"live {at}" for at in range(count)])
        terminal.write(f"text with {count}\n")
        assert [line for line in terminal.lines if line.startswith("live")] == [f"live {at}" for at in range(count)]
    area.close()

    assert terminal.text == [f"text with {count}" for count in (1, 5, 2, 0, 4)]


def test_live_lines_follow_the_size_of_the_terminal_and_leave_room_for_text(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal(monkeypatch)
    area = LiveArea(terminal)
    area.draw(["live 1", "live 2"])
    for size in ((40, 20), (20, 7)):
        terminal.resize(*size)
        terminal.write(f"text of {size[0]}\n")
        area.draw([f"live {at}" for at in range(10)])
        assert len([line for line in terminal.lines if line.startswith("live")]) == min(10, size[1] - 5)
    area.close()

    assert terminal.text[-1] == "text of 20"
    assert not any("live" in line for line in terminal.text)
