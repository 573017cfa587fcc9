"""QOS and constraints that a cluster does not know are refused before anything is queued, by recorded answers."""

import os
from pathlib import Path

import pytest
import yaml
from support.toyrun import toy_run

from unbroken.config.site import read_site
from unbroken.engines.found import known_schemas
from unbroken.plan.limits import ClusterLimits, limit_mistakes
from unbroken.slurm.client import records_in, rows_in
from unbroken.slurm.partitions import COLUMNS, Qos, features_in, is_choice, partitions_in, qos_in

# Slurm 22.05 in the laboratory; `urgent` and `mixed` as larger clusters have them.
PARTITIONS = """\
PartitionName=short AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL AllocNodes=ALL Default=YES QoS=N/A DefaultTime=NONE
PartitionName=urgent AllowGroups=ALL AllowAccounts=ALL AllowQos=high,rush AllocNodes=ALL Default=NO QoS=N/A
PartitionName=mixed AllowGroups=ALL DenyAccounts=guests DenyQos=high AllocNodes=ALL Default=NO QoS=limits
"""
SINFO = """\
short*|up|1-00:00:00|4|64|256000|(null)|idle|plain
short*|up|1-00:00:00|1|64|256000|(null)|idle|(null)
urgent|up|8:00:00|2|32|128000|(null)|idle|fast,ib
mixed|up|infinite|1|32|128000|(null)|idle|fast,plain,cpu-gen.2
bare|up|infinite|1|32|128000|(null)|idle|(null)
"""
FILE = "profiles/slurm/site.yaml"
FOUND = "runs.demo."


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of Slurm's commands, which give recorded answers; one that is removed gives none."""
    commands = tmp_path / "bin"
    commands.mkdir()
    for name, text in {"sacctmgr": "normal\nhigh\nrush\n", "scontrol": PARTITIONS}.items():
        (commands / name).write_text(f"#!/bin/sh\ncat <<'END'\n{text}END\n")
        (commands / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{commands}:/usr/bin:/bin")
    return commands


def said(*runs: object, site: str = "site: {partition: short}") -> list[str]:
    known = read_site(yaml.safe_load(site), known_schemas())
    assert known is not None
    asked = [(run, known.request(run)) for run in runs]
    return limit_mistakes(asked, ClusterLimits(partitions_in(rows_in(SINFO, len(COLUMNS)))), lambda: FILE)


FITTING = [
    {},
    {"qos": "high"},
    {"qos": "HIGH", "partition": "urgent"},  # Slurm compares them in any letters
    {"qos": "rush", "partition": "mixed"},
    {"qos": "normal", "partition": "urgent,short"},
    {"constraint": "plain"},
    {"constraint": "fast&ib", "partition": "urgent"},
    {"constraint": "cpu-gen.2*2", "partition": "mixed"},
    {"constraint": "plain|fast"},  # one of them is enough
    {"constraint": "[fast|ib]", "partition": "short,urgent"},
    {"constraint": "fast", "partition": "short,urgent"},
]


@pytest.mark.process
@pytest.mark.parametrize("keys", FITTING, ids=str)
def test_what_the_cluster_knows_is_no_mistake(slurm: Path, keys: dict[str, str]) -> None:
    assert said(toy_run(**keys)) == []


REFUSED = [
    ({"qos": "hihg"}, "qos: found 'hihg', but the QOS of this cluster (sacctmgr) are normal, high and rush; did you "
     "mean `high`?"),
    ({"qos": "gold"}, "qos: found 'gold', but the QOS of this cluster (sacctmgr) are normal, high and rush; type "
     "another qos"),
    ({"qos": "normal", "partition": "urgent"}, "qos: found 'normal', but partition urgent takes no other QOS than "
     "high and rush (scontrol show partition); type another qos"),
    ({"qos": "high", "partition": "mixed"}, "qos: found 'high', but partition mixed does not take it (scontrol show "
     "partition); type another qos"),
    ({"constraint": "fst"}, "constraint: found 'fst', but no node of partition short has the feature fst (sinfo); "
     "their features are plain; type another constraint"),
    ({"constraint": "plain&fast"}, "constraint: found 'plain&fast', but no node of partition short has the feature "
     "fast (sinfo); their features are plain; type another constraint"),
    ({"constraint": "fast|[ibb*2]", "partition": "urgent"}, "constraint: found 'fast|[ibb*2]', but no node has the "
     "feature ibb (sinfo); their features are cpu-gen.2, fast, ib and plain; did you mean `ib`?"),
    ({"constraint": "fast", "partition": "bare"}, "constraint: found 'fast', but no node of partition bare has the "
     "feature fast (sinfo); no feature is known there; type another constraint"),
]  # fmt: skip


@pytest.mark.process
@pytest.mark.parametrize(("keys", "line"), REFUSED, ids=str)
def test_what_the_cluster_does_not_know_is_refused_in_one_line(slurm: Path, keys: dict[str, str], line: str) -> None:
    assert said(toy_run(**keys)) == [f"runs.demo.{line}"]


@pytest.mark.process
def test_a_mistake_of_the_site_names_its_file_and_is_said_once(slurm: Path) -> None:
    lines = said(toy_run("a"), toy_run("b"), site="site: {partition: short, qos: gold, constraint: plan}")

    assert lines == [
        "site.qos: found 'gold', but the QOS of this cluster (sacctmgr) are normal, high and rush; edit "
        "profiles/slurm/site.yaml",
        "site.constraint: found 'plan', but no node of partition short has the feature plan (sinfo); their features "
        "are plain; did you mean `plain`? edit profiles/slurm/site.yaml",
    ]


@pytest.mark.process
@pytest.mark.parametrize("command", ["sacctmgr", "scontrol"])
def test_what_nobody_answers_refuses_nothing(slurm: Path, command: str) -> None:
    (slurm / command).write_text("#!/bin/sh\nexit 1\n")
    unknown = {"sacctmgr": {"qos": "gold"}, "scontrol": {"qos": "high", "partition": "mixed"}}

    assert said(toy_run(**unknown[command])) == []


def test_where_neither_is_asked_for_slurm_is_not_asked(slurm: Path) -> None:
    for name in os.listdir(slurm):
        (slurm / name).write_text(f"#!/bin/sh\ntouch {slurm}/asked\n")

    assert said(toy_run()) == []
    assert not (slurm / "asked").exists()


def test_qos_and_features_are_read_for_each_partition() -> None:
    assert qos_in(records_in(PARTITIONS)) == {
        "short": Qos(None),
        "urgent": Qos(("high", "rush")),
        "mixed": Qos(None, ("high",)),
    }
    found = partitions_in(rows_in(SINFO, len(COLUMNS)))
    assert {name: partition.features for name, partition in found.items()} == {
        "short": {"plain"},
        "urgent": {"fast", "ib"},
        "mixed": {"fast", "plain", "cpu-gen.2"},
        "bare": set(),
    }


@pytest.mark.parametrize(
    ("constraint", "names", "choice"),
    [
        ("intel", ["intel"], False),
        ("intel&gpu", ["intel", "gpu"], False),
        ("intel|amd", ["intel", "amd"], True),
        ("graphics*4", ["graphics"], True),
        ("[rack1*2&rack2*4]", ["rack1", "rack2"], True),
        ("[(knl&snc4&flat)*4&haswell*1]", ["knl", "snc4", "flat", "haswell"], True),
        ("(a|b)&c", ["a", "b", "c"], True),
    ],
)
def test_the_names_in_a_constraint_are_found_in_slurms_grammar(constraint: str, names: list[str], choice: bool) -> None:
    assert (features_in(constraint), is_choice(constraint)) == (names, choice)
