"""The simulated cluster of benchmarks/queue_replay.py, on queues that can be worked out by hand."""

import sys
from itertools import pairwise
from math import inf
from pathlib import Path
from random import Random

import pytest

# Behind tests/support, which has the same name and stays what it is.
sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

from support import replay_check
from support.backfill import DAY, HOUR, MINUTE, Cluster, Job, Request, Site
from support.fair_share import Shares
from support.reservations import Profile
from support.ways import Array, Beside, Chain, Holes, Lowered, Task, Whole
from support.workloads import at_load, load_of, lublin, read_events, read_swf

FOUR = Site(4, backfill_seconds=1.0, resolution=1.0)


def cluster(*jobs: Request, site: Site = FOUR) -> Cluster:
    return Cluster(site, jobs)


def request(submit: float, nodes: int, minutes: float, works: float | None = None, user: str = "u") -> Request:
    """Times in minutes."""
    return Request(submit * MINUTE, user, nodes, minutes * MINUTE, (works or minutes) * MINUTE)


def starts(played: Cluster) -> list[float]:
    """In minutes, by the order of submission."""
    played.run()
    return [round(job.start / MINUTE, 1) for job in sorted(played.finished, key=lambda job: job.number)]


def test_a_short_job_is_started_in_the_hole_before_a_reservation() -> None:
    played = cluster(request(0, 3, 10), request(1, 4, 10), request(2, 1, 8))

    assert starts(played) == [0, 10, 2]


def test_a_job_that_would_delay_a_reservation_waits() -> None:
    played = cluster(request(0, 3, 10), request(1, 4, 10), request(2, 1, 9))

    assert starts(played) == [0, 10, 20]


def test_each_job_that_waits_has_a_reservation_not_only_the_first() -> None:
    # The third would fit beside the second, but would delay the fourth, which comes before it.
    played = cluster(request(0, 3, 10), request(1, 2, 10, 10), request(1, 4, 10), request(2, 2, 15))

    assert starts(played) == [0, 10, 20, 30]


def test_places_go_by_limits_and_starts_by_what_really_happens() -> None:
    # The first is gone at 4: the reservation at 10 is kept for nobody.
    played = cluster(request(0, 3, 10, 4), request(1, 4, 10), request(2, 1, 8, 3))

    assert starts(played) == [0, 5, 2]


def test_beyond_the_window_nothing_is_reserved() -> None:
    long = cluster(request(0, 3, 10), request(1, 4, 10), request(2, 1, 60), site=Site(4, window=5 * MINUTE))

    assert starts(long)[2] == 2


def test_who_has_waited_longest_is_first_and_equals_go_by_number() -> None:
    first, second = Job("a", 4, HOUR, HOUR), Job("b", 4, HOUR, HOUR)
    played = cluster(request(0, 4, 60))
    played.run(MINUTE)
    played.submit(first)
    played.submit(second)
    played.run()

    assert (first.start, second.start) == (HOUR, 2 * HOUR)


def test_a_job_that_waits_for_another_does_not_age() -> None:
    played = cluster(request(0, 4, 60), request(30, 4, 60, user="other"))
    played.run(0)
    first = played.submit(Job("a", 4, HOUR, HOUR))
    after = played.submit(Job("a", 4, HOUR, HOUR, waits_for=first))
    played.run()

    # The other one came half an hour later, and is before it.
    assert [job.start for job in (first, after)] == [HOUR, 3 * HOUR]


def test_a_task_of_an_array_ages_while_it_is_held() -> None:
    played = cluster(request(0, 4, 60), request(30, 4, 60, user="other"))
    played.run(0)
    first = played.submit(Job("a", 4, HOUR, HOUR, ages_at_once=True))
    after = played.submit(Job("a", 4, HOUR, HOUR, ages_at_once=True, waits_for=first))
    played.run()

    assert [job.start for job in (first, after)] == [HOUR, 2 * HOUR]


@pytest.mark.parametrize(("works", "eligible"), [(60, 40), (20, 20)], ids=["after", "afterany"])
def test_a_job_is_eligible_at_whichever_comes_first(works: float, eligible: float) -> None:
    played = cluster()
    first = played.submit(Job("a", 2, HOUR, works * MINUTE))
    next_one = played.submit(Job("a", 2, HOUR, HOUR, waits_for=first, or_after=40 * MINUTE))
    played.run()

    assert next_one.start == eligible * MINUTE


@pytest.mark.parametrize(("fills", "granted"), [(True, 9), (False, 2)], ids=["from 25.05.3", "before"])
def test_time_min_in_a_hole(fills: bool, granted: float) -> None:
    site = Site(4, backfill_seconds=1.0, fills_holes=fills)
    played = cluster(request(0, 3, 10), request(0.5, 4, 10), site=site)
    played.run(MINUTE)
    job = played.submit(Job("a", 1, 30 * MINUTE, HOUR, least=2 * MINUTE))
    played.run()

    assert (job.start, job.limit) == (MINUTE, granted * MINUTE)


def test_time_min_on_an_idle_cluster_gets_all_its_time() -> None:
    played = cluster(site=Site(4, fills_holes=False))
    job = played.submit(Job("a", 1, 30 * MINUTE, HOUR, least=2 * MINUTE))
    played.run()

    assert job.limit == 30 * MINUTE


def test_who_has_used_less_is_first() -> None:
    site = Site(4, share_weight=1000.0, calc_seconds=MINUTE)
    played = cluster(
        request(0, 4, 60, user="heavy"), request(1, 4, 60, user="heavy"), request(2, 4, 60, user="light"), site=site
    )

    assert starts(played) == [0, 120, 60]


def test_what_was_used_counts_half_after_a_half_life() -> None:
    shares = Shares(DAY, ["a", "b"])
    shares.occupy("a", 2, 0.0)
    shares.occupy("a", -2, HOUR)

    assert shares.used("a", HOUR) == pytest.approx(2 * HOUR, rel=0.02)
    assert shares.used("a", HOUR + DAY) == pytest.approx(shares.used("a", HOUR) / 2)
    assert shares.factors(HOUR) == {"a": 0.5, "b": 1.0}


def test_the_user_with_the_most_jobs_is_looked_at_so_many_times_a_pass() -> None:
    crowd = [request(1, 1, 20, user="crowd")] * 3
    jobs = [request(0, 3, 10), request(1, 4, 10), *crowd, request(2, 1, 5, user="other")]
    seen, unseen = (cluster(*jobs, site=Site(4, tested=most, backfill_seconds=1.0)) for most in (5, 4))

    assert starts(seen)[5] == 2
    assert starts(unseen)[5] > 2
    assert starts(cluster(*jobs, site=Site(4, tested=4, tested_of_user=2, backfill_seconds=1.0)))[5] == 2


def test_a_profile_finds_the_first_place_that_is_long_enough() -> None:
    profile = Profile(0.0, 1, [(10.0, 1), (20.0, 2)])
    profile.take(2, 12.0, 18.0)

    assert profile.earliest(1, 12.0, inf) == 0.0
    assert profile.earliest(1, 13.0, inf) == 18.0
    assert profile.earliest(2, 5.0, inf) == 18.0
    assert profile.earliest(2, 2.0, inf) == 10.0
    assert profile.earliest(4, 1.0, 19.0) is None
    assert profile.hole(1) == 12.0


def test_two_that_go_on_from_one_moment_do_not_know_of_each_other() -> None:
    jobs = lublin(16, 4, Random(1))
    whole, parted = Cluster(Site(16), jobs), Cluster(Site(16), jobs)
    parted.run(2 * DAY)
    other = parted.fork()
    other.submit(Job("a", 16, DAY, DAY))
    other.run()
    whole.run()
    before = {job.number: job.start for job in parted.finished}
    parted.run()

    assert len(jobs) > 100
    assert {job.number: job.start for job in parted.finished} == {job.number: job.start for job in whole.finished}
    assert before


def test_no_more_nodes_are_taken_than_there_are_and_no_limit_is_passed() -> None:
    jobs = at_load(lublin(16, 28, Random(2)), 16, 0.9, 7, Random(2))
    played = Cluster(Site(16, share_weight=1.0), jobs)
    played.run()
    changes = sorted(change for job in played.finished for change in ((job.end, -job.nodes), (job.start, job.nodes)))
    taken = 0
    for _, nodes in changes:
        taken += nodes
        assert 0 <= taken <= 16

    assert len(played.finished) == len(jobs)
    assert all(job.end - job.start <= job.limit for job in played.finished)


@pytest.mark.slow
def test_it_does_what_real_clusters_did() -> None:
    """The recorded runs of benchmarks/queue_replay.py: the differences between the ways, as a part of the work."""
    runs = replay_check.read_lines(Path(replay_check.__file__).with_name("queue_replay_real.jsonl"))

    _, error = replay_check.report(runs)

    assert len(runs) >= 20
    assert error < 0.1


# --- ways ---

TASK = Task(10 * HOUR, 2, cut=MINUTE)


def test_each_way_does_the_work_on_an_idle_cluster_and_pays_for_its_cuts() -> None:
    hours = {}
    for way in (
        Whole(TASK, 24 * HOUR),
        Chain(TASK, 2 * HOUR),
        Array(TASK, 2 * HOUR, HOUR),
        Beside(TASK, 2 * HOUR, lambda queued: queued[0]),
        Holes(TASK, HOUR, 2 * HOUR),
        Lowered(TASK, 2 * HOUR, HOUR, HOUR),
    ):
        played = cluster()
        assert way.begin(played)
        played.run()
        hours[type(way).__name__] = way.finished_at / MINUTE

    # Five times 119 minutes of work, and five minutes in a sixth job; six cuts.
    assert hours == {"Whole": 601, "Chain": 606, "Array": 606, "Beside": 606, "Holes": 606, "Lowered": 606}


def test_a_job_that_the_site_does_not_take_is_not_possible() -> None:
    assert not Whole(TASK, 8 * DAY).begin(cluster())
    assert not Whole(TASK, 10 * HOUR).begin(cluster())


def test_a_successor_that_starts_early_ends_the_job_at_work_and_no_work_is_counted_twice() -> None:
    way = Beside(TASK, 2 * HOUR, lambda _: HOUR)
    played = cluster()
    way.begin(played)
    played.run()
    spans = [(job.start, job.end) for job in way.jobs if job.start is not None]
    overlaps = [after[0] - before[1] for before, after in pairwise(spans)]

    # From each start an hour to the next one's start, a minute of it the cut: 59 minutes and the minute of leaving.
    assert set(overlaps) == {-MINUTE}
    assert way.finished_at == 10 * HOUR + len(spans) * MINUTE
    assert way.done == TASK.seconds


def test_the_wait_beside_the_work_saves_a_wait_that_goes_by_age() -> None:
    # An hour of all nodes is submitted each hour, and half an hour's work of all nodes waits before it.
    others = [request(0, 4, 90), *(request(60 * at + 1, 4, 60) for at in range(40))]
    done = {}
    task = Task(5 * HOUR, 4, cut=MINUTE)
    for way in (Chain(task, 2 * HOUR), Beside(task, 2 * HOUR, lambda _: HOUR), Array(task, 2 * HOUR)):
        played = cluster(*others)
        played.run(0)
        way.begin(played)
        played.run()
        done[type(way)] = way.finished_at / HOUR

    assert done[Array] < done[Beside] < done[Chain]


# --- workloads ---


def test_the_model_has_the_sizes_and_the_day_of_its_authors() -> None:
    jobs = lublin(128, 100, Random(3))
    parallel = [job for job in jobs if job.nodes > 1]
    by_hour = [sum(1 for job in jobs if job.submit % DAY // HOUR == hour) for hour in range(24)]

    assert 1 - len(parallel) / len(jobs) == pytest.approx(0.244, abs=0.03)
    assert max(job.nodes for job in jobs) <= 128
    assert all(job.runtime <= job.limit <= 7 * DAY for job in jobs)
    assert 8 < max(range(24), key=by_hour.__getitem__) < 18
    assert sum(by_hour[2:6]) < sum(by_hour[11:15]) / 3


def test_a_log_is_brought_to_a_load() -> None:
    jobs = lublin(32, 60, Random(4))
    for load in (0.7, 1.0, 1.6):
        found = at_load(jobs, 32, load, 28, Random(4))

        assert load_of(found, 32, 28 * DAY) == pytest.approx(load, rel=0.02)
        assert all(0 <= job.submit < 28 * DAY for job in found)


def test_a_log_of_the_archive_is_read(tmp_path: Path) -> None:
    log = tmp_path / "log.swf"
    log.write_text(
        "; MaxProcs: 64\n"
        "1 10 5 100 8 -1 -1 8 3600 -1 1 7 1 1 1 1 -1 -1\n"
        "2 20 5 -1 8 -1 -1 8 3600 -1 0 7 1 1 1 1 -1 -1\n"
        "3 5 5 4000 -1 -1 -1 4 -1 -1 1 8 1 1 1 1 -1 -1\n"
    )

    assert read_swf(log) == (
        [Request(5, "user8", 4, 2 * HOUR, 4000), Request(10, "user7", 8, 3600, 100)],
        64,
    )


def test_events_of_the_simulator_are_read(tmp_path: Path) -> None:
    events = tmp_path / "week.events"
    words = (
        "-e submit_batch_job | -sim-walltime {} --uid=user{} -J job -N 2 -n {} -t {} -q {} -p {} --mem=5G pseudo.job"
    )
    events.write_text(
        "-dt 11.50 " + words.format("200.00", "001", 80, "1-06:30:00", "general-compute", "general-compute") + "\n"
        "-dt 3.00 " + words.format("0.00", "002", 6, "00:10:00", "priority", "general-compute") + "\n"
        "-dt 4.00 " + words.format("50.00", "002", 6, "00:10:00", "debug", "debug") + "\n"
    )

    assert read_events(events) == [
        Request(3.0, "user002", 6, 600.0, 1.0),
        Request(11.5, "user001", 80, 30.5 * HOUR, 200.0),
    ]
