"""What sinfo tells: recorded answers, and what is read from them."""

import math

import pytest

from unbroken.slurm import partitions
from unbroken.slurm.client import rows_in
from unbroken.slurm.partitions import (
    COLUMNS,
    ask_partition,
    minutes_in,
    own_spare_nodes,
    partitions_in,
    spare_nodes,
    together,
)

# sinfo -h -a -e -o '%P|%a|%l|%D|%c|%m|%G|%T|%f': Slurm 22.05 in the laboratory, and lines as larger clusters have them.
RECORDED = """\
short*|10:00|2|4|4000|(null)
short*|10:00|2|4|4000|gpu:fake:2
gpu|5:00|2|4|4000|gpu:fake:2
big|2-00:00:00|3|128+|515000+|gpu:a100:4(S:0-1),gpu:v100:2(S:0,2),fs:lustre:1
big|2-00:00:00|1|64|257000|gpu:8
old|infinite|4|16|64000|(null)
gone|infinite|2|16|64000|(null)
empty|infinite|0|0|0|(null)
"""
ROWS = rows_in(RECORDED, len(COLUMNS))


@pytest.mark.parametrize(
    ("text", "minutes"),
    [
        ("10:00", 10),
        ("5:30", 5.5),
        ("8:00:00", 480),
        ("2-00:00:00", 2880),
        ("1-12", 2160),
        ("1-12:30", 2190),
        ("30", 30),
        ("infinite", math.inf),
        ("UNLIMITED", math.inf),
        ("n/a", math.inf),
    ],
)
def test_a_time_limit_is_read_as_minutes(text, minutes):
    assert minutes_in(text) == minutes


def test_every_partition_is_known_with_its_largest_nodes():
    found = partitions_in(ROWS)

    assert list(found) == ["short", "gpu", "big", "old", "gone", "empty"]
    assert [name for name, partition in found.items() if partition.is_default] == ["short"]
    assert [found["big"].cpus, found["big"].memory_mb, found["big"].node_count] == [128, 515000, 4]
    assert [found["empty"].cpus, found["empty"].memory_mb, found["empty"].node_count] == [0, 0, 0]


def test_gpus_are_counted_by_type_with_and_without_a_name():
    found = partitions_in(ROWS)

    assert found["big"].kinds[0].gpus == {"a100": 4, "v100": 2}
    assert found["big"].kinds[1].gpus == {"": 8}
    assert (found["big"].gpus(), found["big"].gpus("a100"), found["big"].gpus("h100")) == (8, 4, 0)
    assert (found["short"].gpu_types, found["gpu"].gpus(), found["old"].gpus()) == (["fake"], 2, 0)


def test_partitions_taken_together_have_the_longest_limit_and_all_nodes():
    found = partitions_in(ROWS)

    both = together([found["short"], found["gpu"]], "short,gpu")

    assert (both.limit_minutes, both.node_count, both.gpus(), both.is_default) == (10, 6, 2, True)


def test_lines_that_are_no_partition_are_passed_over():
    assert list(partitions_in(rows_in("sinfo: warning\n\n" + RECORDED, len(COLUMNS)))) == list(partitions_in(ROWS))


def test_without_a_name_the_default_partition_is_meant_and_outside_of_slurm_none(monkeypatch):
    monkeypatch.setattr(partitions, "table", lambda *words, **more: ROWS)
    monkeypatch.delenv("SLURM_JOB_PARTITION", raising=False)

    assert (ask_partition("").node_count, spare_nodes("", 1), own_spare_nodes()) == (4, 3, 0)
