"""The page in a real browser: of a finished campaign, of one with kills, of a thousand runs."""

import json
import os
import re
import shutil
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote, urlparse

import pytest
from support.browser import Browser
from support.histories import PLAIN, chain
from support.many_runs import make_runs
from support.workdir import WorkDir, until

from unbroken.report.facts import NO_PROMISE, Promise
from unbroken.report.page import write_report
from unbroken.store.history import EndKind, History
from unbroken.store.layout import RunFolder
from unbroken.system.clock import utc_text

pytestmark = [pytest.mark.process, pytest.mark.xdist_group("browser")]

CONFIG = Path("config/config.yaml")
OPEN_ALL = "for (const run of document.querySelectorAll('details.run')) run.open = true"
CHOOSE = """
const field = document.querySelector('[name=q]')
field.value = arguments[0]
field.dispatchEvent(new Event('input', {bubbles: true}))
"""
OPENED = "return [...document.querySelectorAll('details.run[open]')].map((run) => run.dataset.run)"
DESCRIBED = "return [...document.querySelectorAll('[data-chart]')].map((each) => each.getAttribute('aria-label'))"
ROWS = "return [...document.querySelectorAll('figure')].map((each) => each.querySelectorAll('tbody tr').length)"
LINKS = "return [...document.querySelectorAll('a[href]')].map((each) => each.href)"


def written(base: Path, promise: Promise = NO_PROMISE) -> Path:
    page = base / "results" / "report.html"
    write_report(base, CONFIG, (), page, promise)
    return page


def older(page: Path, seconds: float) -> None:
    """As if it had been written so long ago."""
    text = page.read_text()
    (when,) = re.findall(r'"written":([0-9.]+)', text)
    page.write_text(text.replace(f'"written":{when}', f'"written":{float(when) - seconds}'))


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six runs with a page that nobody changes."""
    base = tmp_path_factory.mktemp("few")
    make_runs(base, 6, segments=5)
    written(base)
    return base


@pytest.fixture
def page(few: Path, tmp_path: Path) -> Path:
    """That page in a place of its own, where a test may change it."""
    return Path(shutil.copy(few / "results" / "report.html", tmp_path / "report.html"))


@pytest.fixture(autouse=True)
def quiet(browser: Browser) -> Iterator[None]:
    """No page complains about anything in the browser's console."""
    browser.complaints()
    browser.width(1100)
    browser.is_dark(False)
    yield
    assert browser.complaints() == []


def check_links(browser: Browser) -> int:
    links = browser.run(LINKS)
    assert [link for link in links if not Path(unquote(urlparse(link).path)).exists()] == []
    return len(links)


def test_a_finished_campaign(browser: Browser, work: WorkDir) -> None:
    settings = {"engine": "toy", "segments": 4, "segment_minutes": 0.05, "settings": {"goal": 40, "step_seconds": 0.02}}
    work.configure({"left": settings, "right": settings})

    assert work.snakemake().code == 0

    browser.open(work.root / "results" / "report.html")
    browser.run(OPEN_ALL)
    browser.wait_for_charts()
    assert browser.texts("#totals .card")[0] == "2finished"
    assert browser.run("return document.getElementById('hand').hidden")
    marks = browser.marks()
    assert {name for name, _ in marks} == {"account", "timeline", "progress", "life"}
    assert [name for name, count in marks if count == 0] == []
    assert check_links(browser) >= 6
    assert "OVERDUE" not in browser.text("#age")


def test_a_campaign_with_kills(browser: Browser, work: WorkDir) -> None:
    settings = {"goal": 60, "step_seconds": 0.05, "save_steps": 10}
    work.configure({"demo": {"engine": "toy", "segments": 9, "segment_minutes": 1, "settings": settings}})
    driver = work.start()
    until(lambda: len(work.passports("demo")) >= 2)
    work.kill_everything()
    driver.wait()

    assert work.snakemake().code == 0

    browser.open(work.root / "results" / "report.html")
    assert "1 kill cost" in browser.text("details.run .body")
    assert "killed" in browser.text("[data-chart=life] + figcaption")
    assert browser.texts("details.run table td:nth-child(2)")[:2] == ["finished", "died"]
    assert [name for name, count in browser.marks() if count == 0] == []
    assert check_links(browser) >= 3


@pytest.mark.parametrize("count", [210, pytest.param(1000, marks=pytest.mark.slow)])
def test_of_many_runs_a_hundred_are_shown_at_a_time_and_each_is_found(
    browser: Browser, tmp_path: Path, count: int
) -> None:
    make_runs(tmp_path, count, segments=3, metrics=0, checkpoints=1)
    last = f"run{count - 1:04d}"

    browser.open(written(tmp_path))

    assert browser.text("#count") == f"{count} runs"
    assert len(browser.texts("details.run")) == 100
    browser.run("document.getElementById('more').click()")
    assert len(browser.texts("details.run")) == 200
    browser.run(CHOOSE, last)
    browser.wait_for_charts()
    assert (browser.text("#count"), browser.texts("details.run strong")) == (f"1 of {count} runs", [last])
    browser.run(OPEN_ALL)
    browser.wait_for_charts()
    assert [name for name, count in browser.marks() if count == 0] == []
    shutil.rmtree(tmp_path)  # thousands of files


def test_every_chart_of_a_training_has_its_numbers_in_a_table(browser: Browser, page: Path) -> None:
    browser.open(page, "#open=run0001")
    browser.run("for (const each of document.querySelectorAll('details.data')) each.open = true")
    browser.until("return [...document.querySelectorAll('details.data')].every((each) => each.querySelector('table'))")

    charts = [name for name, count in browser.marks() if count]
    assert charts == ["account", "timeline", "account", "progress", "life", "curve"]
    rows = browser.run(ROWS)
    assert len(rows) == len(charts)
    assert min(rows) > 1
    assert all(browser.run(DESCRIBED))


def test_names_messages_and_metrics_stay_text(browser: Browser, tmp_path: Path) -> None:
    bad = "<img src=x onerror=document.title='broken'><script>document.title='broken'</script>"
    make_runs(tmp_path, 1, segments=3)
    places = RunFolder("run0001", tmp_path)
    line = replace(PLAIN, token=99, segment=9, kind=EndKind.FAILED, message=bad, slurm_node=bad, unit=bad, cause=bad)
    History(places.history).append(replace(line, started_utc=utc_text(time.time()), ended_utc=utc_text(time.time())))
    with (places.live / "metrics.jsonl").open("a") as file:
        file.write("".join(json.dumps({"step": step, bad: step, "a.b[0]'\\": step}) + "\n" for step in range(900, 910)))
    # What no run may be called, but a folder can.
    os.rename(tmp_path / "results" / "run0001", tmp_path / "results" / bad.replace("/", "\u2215"))
    config = {"runs": {"other": {"engine": "toy", "segments": 1, "segment_minutes": 1, "settings": {"goal": 1}}}}
    (tmp_path / CONFIG).write_text(json.dumps(config))

    browser.open(written(tmp_path))
    browser.run(OPEN_ALL)
    browser.wait_for_charts()

    assert browser.driver.title == f"{tmp_path.name}: unbroken"
    assert browser.run("return document.querySelectorAll('main img, main script').length") == 0
    assert bad in browser.text("#runs")
    assert {bad, "a.b[0]'\\"} <= set(browser.texts("details.run h3"))
    assert [name for name, count in browser.marks() if count == 0] == []


def test_what_was_chosen_outlives_a_reload(browser: Browser, page: Path) -> None:
    browser.open(page)
    browser.run(CHOOSE, "000")
    browser.run("document.querySelector('[data-run=run0002]').open = true")
    browser.until("return location.hash.includes('open=run0002')")

    browser.driver.refresh()
    browser.wait_for_charts()

    assert browser.run("return document.querySelector('[name=q]').value") == "000"
    assert browser.run(OPENED) == ["run0002"]


def test_a_page_that_is_promised_again_reloads_itself(browser: Browser, few: Path, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    write_report(few, CONFIG, (), page, Promise(1.0, "This test"))
    browser.open(page)
    browser.run("window.isOld = true")

    browser.until("return !window.isOld")

    # Between two pages there is none, and this one is made anew each second.
    said = "return !window.isOld && document.querySelector('#age')?.textContent.includes(arguments[0])"
    assert browser.until(said, "This test writes it again at least every 1 s; it reloads itself.")


def test_a_page_that_nobody_writes_any_more_turns_red(browser: Browser, few: Path, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    write_report(few, CONFIG, (), page, Promise(60.0, "This test"))
    browser.open(page)
    assert "OVERDUE" not in browser.text("#age")
    calm = browser.run("return getComputedStyle(document.getElementById('age')).backgroundColor")

    older(page, 3 * 86400)
    browser.open(page)

    assert "OVERDUE: This test should have written it again" in browser.text("#age")
    assert browser.run("return getComputedStyle(document.getElementById('age')).backgroundColor") != calm


def test_a_page_of_finished_runs_grows_old_in_peace(browser: Browser, page: Path) -> None:
    older(page, 3 * 86400)

    browser.open(page)

    assert browser.text("#age").startswith("Written 3.0 d ago")
    assert "overdue" not in browser.run("return document.getElementById('age').className")


def test_inside_another_page_it_neither_reloads_nor_links(browser: Browser, few: Path, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    write_report(few, CONFIG, (), page, Promise(1.0, "This test"))
    older(page, 3 * 86400)
    outer = tmp_path / "outer.html"
    outer.write_text("<link rel=icon href=data:,><iframe src=report.html width=1000 height=900></iframe>")
    browser.open(outer)
    browser.driver.switch_to.frame(0)
    try:
        browser.run("window.isOld = true")
        browser.run("document.querySelector('details.run').open = true")
        browser.until("return document.querySelectorAll('details.run table').length > 1")
        browser.wait_for_charts()
        time.sleep(2)

        assert browser.run("return window.isOld")
        assert browser.text("#age").startswith("As it was on ")
        assert browser.run(LINKS) == []
    finally:
        browser.driver.switch_to.default_content()


@pytest.mark.slow
def test_in_the_dark_and_on_a_phone(browser: Browser, page: Path) -> None:
    browser.open(page, "#open=run0001")
    light = browser.run("return getComputedStyle(document.body).backgroundColor")

    browser.is_dark(True)
    browser.width(380)
    browser.open(page, "#open=run0001")

    assert browser.run("return getComputedStyle(document.body).backgroundColor") != light
    assert browser.run("return document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    assert [name for name, count in browser.marks() if count == 0] == []


def test_on_paper_the_runs_that_are_open_stay_and_what_is_typed_goes(browser: Browser, page: Path) -> None:
    browser.open(page, "#open=run0001")
    visible = "return [...document.querySelectorAll(arguments[0])].filter((each) => each.offsetParent !== null).length"
    before = browser.run(visible, "form.bar")

    browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    try:
        on_paper = browser.run(visible, "form.bar"), browser.run(visible, "details.run[open] table")
        printed = browser.driver.execute_cdp_cmd("Page.printToPDF", {})["data"]
    finally:
        browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})

    assert before == 2
    assert on_paper == (0, 2)
    assert len(printed) > 10_000


def test_with_the_keyboard_alone(browser: Browser, page: Path) -> None:
    from selenium.webdriver.common.keys import Keys

    browser.open(page)
    browser.run("document.querySelector('[name=order]').focus()")
    browser.driver.switch_to.active_element.send_keys(Keys.TAB)
    focused = browser.driver.switch_to.active_element
    assert focused.tag_name == "summary"

    focused.send_keys(Keys.ENTER)

    browser.until("return document.querySelector('details.run[open] .body h3')")


def test_a_week_shows_its_days_and_every_time_has_24_hours(browser: Browser, tmp_path: Path) -> None:
    for attempt in chain(*[100.0] * 160):
        History(RunFolder("week", tmp_path).history).append(attempt)
    RunFolder("week", tmp_path).lease.mkdir()
    browser.open(written(tmp_path))
    browser.run(OPEN_ALL)
    browser.wait_for_charts()

    labels = browser.texts("[data-chart] svg text")
    days = [text for text in labels if re.fullmatch(r"(Mon|Tue|Wed|Thu|Fri|Sat|Sun) \d\d Jan", text)]
    assert len(set(days)) >= 5, labels
    everything = " ".join([browser.text("body"), *labels])
    assert re.findall(r"\b\d?\d(?::\d\d)? ?[AP]M\b", everything) == []
