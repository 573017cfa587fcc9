"""The data behind the page: what its charts and tables draw, from the files of the runs."""

import json
import re
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from urllib.parse import unquote

import pytest
from support.histories import MONDAY, PLAIN, chain
from support.making import publish
from support.many_runs import make_runs
from support.pages import facts_in

from unbroken.report.charts import BLOCK_BYTES, BLOCKS, POINTS, SPANS, curves_of, progress_points, thinned_spans
from unbroken.report.facts import NO_PROMISE, SHOWN_ATTEMPTS, Promise, folder_facts
from unbroken.report.page import json_in_html, library, page_text, write_report
from unbroken.report.spans import Kind, Span
from unbroken.report.status import RunState, status_of
from unbroken.slurm.queue import Queue
from unbroken.store.checkpoints import Store
from unbroken.store.history import EndKind, History
from unbroken.store.layout import RunFolder
from unbroken.store.progress import Progress
from unbroken.store.record import Record

NO_SLURM = Queue(is_known=False)
BESIDE = re.compile(r"""<(?:script|link|img|iframe)[^>]*(?:src|href)=["']?(?!["']?data:)[^"'> ]*""")


def facts(base: Path, *names: str, promise: Promise = NO_PROMISE) -> dict[str, object]:
    rows = [status_of(name, base, None) for name in names]
    return folder_facts(rows, {}, base, NO_SLURM, page=base / "results" / "report.html", promise=promise)


@pytest.fixture
def places(tmp_path: Path) -> RunFolder:
    found = RunFolder("demo", tmp_path)
    found.live.mkdir(parents=True)
    found.lease.mkdir()
    return found


# ---- the life of a run


def test_the_spans_cover_the_life_of_a_run_and_add_up_to_its_account(tmp_path: Path) -> None:
    (name,) = make_runs(tmp_path, 1, segments=5)

    (run,) = facts(tmp_path, name)["runs"]

    assert all(before[2] == after[1] for before, after in pairwise(run["spans"]))
    summed = dict.fromkeys((kind.name.lower() for kind in Kind), 0.0)
    for kind, begin, end in run["spans"]:
        summed[list(Kind)[kind].name.lower()] += end - begin
    account = run["account"]["seconds"]
    assert {kind: seconds for kind, seconds in summed.items() if kind in account} == pytest.approx(account, abs=2)


def test_many_short_spans_become_fewer_that_cover_the_same_time_by_their_main_kind() -> None:
    short = [Span(Kind.USEFUL if n % 3 else Kind.SAVING, float(n), float(n + 1)) for n in range(30_000)]
    spans = [*short, Span(Kind.QUEUED, 30_000.0, 60_000.0)]

    found = thinned_spans(spans)

    assert len(found) <= 2 * SPANS
    assert (found[0].begin, found[-1].end) == (0.0, 60_000.0)
    assert all(before.end == after.begin for before, after in pairwise(found))
    assert {span.kind for span in found[:-1]} == {Kind.USEFUL}
    assert found[-1] == spans[-1]


def test_progress_is_drawn_from_attempts_and_checkpoints_until_now(places: RunFolder) -> None:
    first, second = chain(100, 50)
    killed = replace(second, kind=EndKind.DIED, progress_to=120.0)
    checkpoint = publish(Store(places.checkpoints), 1, progress=Progress(60, 400), created_utc="2026-01-05T09:30:00Z")

    points = progress_points([first, killed], [checkpoint], MONDAY + 9000, 130.0)

    assert points == [
        (MONDAY, 0.0),
        (MONDAY + 1800, 60),
        (MONDAY + 3500, 100.0),
        (MONDAY + 3510, 100.0),
        (MONDAY + 7010, 120.0),
        (MONDAY + 9000, 130.0),
    ]


def test_an_attempt_that_never_began_to_work_is_no_point_of_progress() -> None:
    assert progress_points([replace(PLAIN, kind=EndKind.REFUSED)], [], MONDAY, 5.0) == []


# ---- curves


def test_the_metrics_of_a_training_become_curves_and_what_is_no_number_a_gap(places: RunFolder) -> None:
    rows = [{"epoch": 0, "step": 1, "loss": 2.0}, {"epoch": 0, "step": 2, "loss": None, "note": "x", "is_ok": True}]
    rows += [{"epoch": 1, "step": 3, "loss": 1.0, "accuracy": 0.5}, {"epoch": 1, "step": 4, "accuracy": 0.6}]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (places.live / "metrics.jsonl").write_text(text + '{"step": 5, "lo')

    found = {curve.name: (curve.over, curve.points) for curve in curves_of(places, [], "steps")}

    assert found == {
        "loss": ("step", [(1, 2.0), (2, None), (3, 1.0)]),
        "accuracy": ("step", [(3, 0.5), (4, 0.6)]),
    }


def test_a_figure_that_came_once_is_no_curve(places: RunFolder) -> None:
    (places.live / "metrics.jsonl").write_text('{"step": 1, "loss": 2.0}\n')

    assert curves_of(places, [], "steps") == []


def test_of_a_long_training_the_rare_figures_and_the_last_value_are_kept(places: RunFolder) -> None:
    lines = []
    for step in range(60_000):
        row = {"epoch": step // 1000, "step": step, "loss": 60_000.0 - step}
        lines.append(json.dumps(row | ({"accuracy": step / 60_000} if step % 1000 == 999 else {})) + "\n")
    (places.live / "metrics.jsonl").write_text("".join(lines))
    assert (places.live / "metrics.jsonl").stat().st_size > 2 * BLOCKS * BLOCK_BYTES

    curves = {curve.name: curve for curve in curves_of(places, [], "steps")}

    assert len(curves["loss"].to_json()["points"]) <= POINTS
    assert (curves["loss"].points[0], curves["loss"].points[-1]) == ((0, 60_000.0), (59_999, 1.0))
    assert [at for at, _ in curves["loss"].points] == sorted({at for at, _ in curves["loss"].points})
    assert len(curves["accuracy"].points) > 5
    assert all((at + 1) % 1000 == 0 and value == at / 60_000 for at, value in curves["accuracy"].points)


def test_a_program_s_own_figures_are_drawn_from_records_and_checkpoints(places: RunFolder) -> None:
    for segment, done in ((1, 100), (2, 200)):
        told = Progress(done, 400, "steps", {"ns_per_day": 90 + segment, "part": segment, "note": "text"})
        record = Record("demo", segment, EndKind.PAUSED, True, "one", told, "2026-01-05T09:00:00Z")
        record.write(places.record(segment))
    told = Progress(250, 400, "steps", {"ns_per_day": 95.5})
    checkpoint = publish(Store(places.checkpoints), 1, progress=told)

    (curve,) = curves_of(places, [checkpoint], "steps")

    assert (curve.name, curve.over) == ("ns_per_day", "steps")
    assert curve.points == [(100, 91.0), (200, 92.0), (250, 95.5)]


def test_the_energies_of_a_simulation_are_drawn_with_their_units(places: RunFolder) -> None:
    places.final.mkdir()
    table = "time_ps\tBond\tTemperature\tPressure\n0.0\t1.0\t300.0\t1.0\n2.0\t1.5\t301.0\t2.0\nspoilt\n"
    (places.final / "energy.tsv").write_text(table)

    found = {(curve.name, curve.over): curve.points for curve in curves_of(places, [], "steps")}

    assert found == {
        ("Temperature (K)", "ps"): [(0.0, 300.0), (2.0, 301.0)],
        ("Pressure (bar)", "ps"): [(0.0, 1.0), (2.0, 2.0)],
    }


# ---- tables, links, the folder


def test_attempts_and_checkpoints_are_told_with_links_to_files_that_exist(tmp_path: Path) -> None:
    (name,) = make_runs(tmp_path, 1, segments=4, seed=3)

    (run,) = facts(tmp_path, name)["runs"]

    links = [each["log"] for each in run["attempts"]] + [each["passport"] for each in run["checkpoints"]]
    links += run["links"].values()
    assert len(links) > 6
    assert all((tmp_path / "results" / unquote(link)).exists() for link in links)


def test_a_link_that_is_not_there_is_none(places: RunFolder) -> None:
    History(places.history).append(PLAIN)

    (run,) = facts(places.base, "demo")["runs"]

    assert [each["log"] for each in run["attempts"]] == [""]
    assert list(run["links"]) == ["history"]


def test_those_that_need_a_hand_come_first_and_what_is_too_much_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("unbroken.report.facts.DETAILED_RUNS", 5)
    names = make_runs(tmp_path, 9, segments=2, metrics=2)
    stopped = next(name for name in names if status_of(name, tmp_path, None).state is not RunState.FINISHED)
    for number in range(SHOWN_ATTEMPTS + 10):
        line = replace(PLAIN, token=100 + number, kind=EndKind.FAILED, message="out of memory", progress_to=0.0)
        History(RunFolder(stopped, tmp_path).history).append(line)

    told = facts(tmp_path, *names)["runs"]

    assert len(told) == 9
    assert "attempts" in told[0]
    assert sum("attempts" in run for run in told) == 5
    assert all("account" in run for run in told)
    (found,) = (run for run in told if run["name"] == stopped)
    is_needy = [run["needs_a_hand"] for run in told]
    assert is_needy == sorted(is_needy, reverse=True)
    assert found["state"] == "stopped"
    assert len(found["attempts"]) == SHOWN_ATTEMPTS
    assert found["attempts_made"] > SHOWN_ATTEMPTS


def test_a_paused_run_needs_a_hand_once_nobody_goes_on_with_it(places: RunFolder) -> None:
    History(places.history).append(PLAIN)

    (left,), (driven,) = (
        facts(places.base, "demo")["runs"],
        facts(places.base, "demo", promise=Promise(60, "it"))["runs"],
    )

    assert (left["state"], left["needs_a_hand"]) == ("paused", True)
    assert (driven["state"], driven["needs_a_hand"]) == ("paused", False)


def test_a_run_whose_history_is_unreadable_is_told_and_the_others_are_shown(tmp_path: Path) -> None:
    one, other = make_runs(tmp_path, 2, segments=2)
    (tmp_path / "results" / one / "history.jsonl").unlink()
    (tmp_path / "results" / one / "history.jsonl").mkdir()

    told = {run["name"]: run for run in facts(tmp_path, one, other)["runs"]}

    assert told[one]["state"] == "unreadable"
    assert told[one]["needs_a_hand"]
    assert "attempts" in told[other]


@pytest.mark.process
def test_a_spoilt_line_of_one_run_takes_the_page_from_nobody(tmp_path: Path) -> None:
    one, other = make_runs(tmp_path, 2, segments=3, seed=2)
    history = RunFolder(one, tmp_path).history
    lines = history.read_text().splitlines()
    lines[0] = json.dumps({**json.loads(lines[0]), "progress_from": float("nan"), "work_seconds": float("inf")})
    history.write_text("\n".join(lines) + "\n")

    write_report(tmp_path, Path("config/config.yaml"), (), tmp_path / "page.html")

    told = {run["name"]: run for run in facts_in(tmp_path / "page.html")["runs"]}
    assert told[one]["attempts"][0]["from"] is None
    assert told[other]["attempts"][0]["from"] == 0


def test_a_working_run_whose_segments_will_not_do_comes_before_those_that_work_well(tmp_path: Path) -> None:
    names = make_runs(tmp_path, 3, segments=2)
    rows = [replace(status_of(name, tmp_path, None), state=RunState.WORKING, budget="") for name in names]
    rows[2] = replace(rows[2], budget="`segments: 2` will not do")

    told = folder_facts(rows, {}, tmp_path, NO_SLURM, page=tmp_path / "page.html")["runs"]

    assert [(run["name"], run["needs_a_hand"]) for run in told] == [
        (names[2], True),
        (names[0], False),
        (names[1], False),
    ]


def test_an_attempt_that_failed_leads_to_its_own_log(places: RunFolder) -> None:
    for name in ("001.1.log", "001.log"):
        places.log(1).parent.mkdir(parents=True, exist_ok=True)
        places.log(1).with_name(name).touch()
    failed = replace(PLAIN, kind=EndKind.FAILED, message="exit code 1", log="logs/demo/001.1.log")
    History(places.history).append(failed)
    History(places.history).append(replace(PLAIN, token=2))

    (run,) = facts(places.base, "demo")["runs"]

    assert [each["log"] for each in run["attempts"]] == ["../logs/demo/001.1.log", "../logs/demo/001.log"]


# ---- the file


def test_what_stands_in_the_facts_ends_no_script_element() -> None:
    names = ["</script><script>alert(1)</script>", "<!--", "]]>", "&amp;", "\u2028"]

    text = json_in_html({"names": names})

    assert not set("<>&") & set(text)
    assert json.loads(text)["names"] == names


def test_the_page_needs_nothing_beside_it(tmp_path: Path) -> None:
    (name,) = make_runs(tmp_path, 1, segments=2)

    text = page_text(facts(tmp_path, name))

    assert BESIDE.findall(text.replace(library(), "")) == []
    assert text.count("</script>") == 3  # the facts, the library, our own
    assert "BSD" in text or "Redistribution and use" in text


@pytest.mark.process
def test_the_page_of_all_runs_is_written_in_one_step_beside_theirs(tmp_path: Path) -> None:
    make_runs(tmp_path, 3, segments=2)
    before = time.time()

    write_report(tmp_path, Path("config/config.yaml"), (), tmp_path / "results" / "report.html")

    page = tmp_path / "results" / "report.html"
    told = facts_in(page)
    assert {run["name"] for run in told["runs"]} == {"run0001", "run0002", "run0003"}
    assert told["written"] >= before
    assert [path.name for path in page.parent.iterdir() if path.name.startswith(".")] == []
