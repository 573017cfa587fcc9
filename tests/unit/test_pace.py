"""A program's own pace and forecast, as `unbroken status` shows them."""

from pathlib import Path

import pytest
from support.making import publish
from typer.testing import CliRunner

from unbroken.cli import main as cli
from unbroken.cli import verify_command
from unbroken.cli.main import app
from unbroken.program.contract import AttemptFolder
from unbroken.report.status import RunState, status_of
from unbroken.store import lease
from unbroken.store.checkpoint import Passport
from unbroken.store.checkpoints import Store
from unbroken.store.layout import RunFolder


@pytest.mark.process
def test_a_live_run_shows_its_pace_and_its_own_forecast(tmp_path: Path) -> None:
    places = RunFolder("demo", tmp_path)
    with lease.take(places.lease, 1, 1.0) as held:
        attempt_folder = AttemptFolder(places.work / f"{held.claim.token:06d}")
        attempt_folder.prepare()
        attempt_folder.progress.write_text(
            '{"done": 500, "goal": 1000, "unit": "steps", "metrics": {"pace": "93.4 ns/day", "left_seconds": 7200}}'
        )

        row = status_of("demo", tmp_path, None)
        shown = CliRunner(env={"COLUMNS": "200"}).invoke(app, ["status", "--directory", str(tmp_path)]).output

    assert (row.state, row.left_seconds) == (RunState.WORKING, 7200)
    assert "500/1000 steps, 93.4 ns/day" in shown
    assert "2.0 h" in shown


def test_verify_reads_the_pieces_of_pruned_checkpoints_too(tmp_path: Path) -> None:
    places = RunFolder("demo", tmp_path)
    places.lease.mkdir(parents=True)
    store = Store(places.checkpoints)
    for number in (1, 2):
        publish(store, number, {"state": "x", "parts/piece": f"{number}"})
    store.prune(keep=1, milestone_every=0)

    good = CliRunner().invoke(app, ["verify", "--directory", str(tmp_path)])
    (store.archive / store.archived()[0] / "parts" / "piece").write_text("9")
    bad = CliRunner().invoke(app, ["verify", "--directory", str(tmp_path)])

    assert (good.exit_code, bad.exit_code) == (0, 1)
    assert "2 of 2 checkpoints are whole" in good.output
    assert "parts/piece: the content changed since it was published (digest)" in bad.output


def test_verify_calls_nothing_bad_that_is_pruned_while_it_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = RunFolder("demo", tmp_path)
    places.lease.mkdir(parents=True)
    store = Store(places.checkpoints)
    for number in (1, 2):
        publish(store, number)
    read = verify_command.read_passport

    def read_late(folder: Path) -> Passport:
        store.prune(keep=1, milestone_every=0)
        return read(folder)

    monkeypatch.setattr(verify_command, "read_passport", read_late)

    answer = CliRunner().invoke(cli.app, ["verify", "--directory", str(tmp_path)])

    assert (answer.exit_code, answer.output) == (0, "1 of 1 checkpoints are whole\n")
