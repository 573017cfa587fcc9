"""What a cluster cannot do for a run: every line, from a recorded answer of sinfo."""

import re

import pytest
import yaml
from support.toyrun import toy_run

from unbroken.config.package_files import root_folder
from unbroken.config.site import read_site
from unbroken.engines.found import known_schemas
from unbroken.plan.limits import ClusterLimits, limit_mistakes
from unbroken.slurm.client import rows_in
from unbroken.slurm.partitions import COLUMNS, partitions_in

SINFO = """\
short*|1-00:00:00|4|64|256000|(null)
gpu|8:00:00|2|32|128000|gpu:a100:4
mixed|infinite|1|32|128000|gpu:a100:4,gpu:v100:2
plain|30|1|8|16000|gpu:2
"""
SITE = "site: {places: {short: {partition: short}, gpu: {partition: gpu}}}"
FILE = "profiles/slurm/site.yaml"


def cluster(accounts: tuple[str, ...] = (), qos: tuple[str, ...] = ()) -> ClusterLimits:
    found = ClusterLimits(partitions_in(rows_in(SINFO, len(COLUMNS))))
    # What the properties would have asked sacctmgr for.
    vars(found).update(accounts=list(accounts), qos=list(qos))
    return found


def said(*runs, site: str = SITE, **names: tuple[str, ...]) -> list[str]:
    known = read_site(yaml.safe_load(site), known_schemas())
    assert known is not None
    return limit_mistakes([(run, known.request(run)) for run in runs], cluster(**names), FILE)


FITTING = [
    {"segment_minutes": 1440, "threads": 64, "mem_mb": 256000},
    {"segment_minutes": 0.05},
    {"place": "gpu", "gpus": 4, "segment_minutes": 479.5},
    {"place": "gpu", "gpus": 8, "nodes": 2, "tasks": 8, "threads": 8, "gpu_type": "a100"},
    {"tasks": 4, "nodes": 4, "threads": 64},
    {"tasks": 128},
    {"partition": "mixed", "gpus": 2, "gpu_type": "v100", "segment_minutes": 100000},
    {"partition": "short,gpu", "gpus": 1, "threads": 64},
]


@pytest.mark.parametrize("keys", FITTING, ids=str)
def test_what_fits_is_no_mistake(keys):
    assert said(toy_run(**keys)) == []


REFUSED = [
    (
        {"segment_minutes": 1441},
        "segment_minutes: found 1441, but partition short ends jobs after 1440 minutes (sinfo); "
        "type segment_minutes: 1440 or less",
    ),
    (
        {"segment_minutes": 1441, "least_minutes": 60},
        "segment_minutes.at_most: found 1441, but partition short ends jobs after 1440 minutes (sinfo); "
        "type at_most: 1440 or less",
    ),
    (
        {"segment_minutes": 30.5, "partition": "plain"},
        "segment_minutes: found 30.5, but partition plain ends jobs after 30 minutes (sinfo); "
        "type segment_minutes: 30 or less",
    ),
    (
        {"segment_minutes": 1441, "partition": "plain,short"},
        "segment_minutes: found 1441, but partition plain,short ends jobs after 1440 minutes (sinfo); "
        "type segment_minutes: 1440 or less",
    ),
    (
        {"threads": 65},
        "threads: found 65, but no node of partition short has more than 64 cores (sinfo); type threads: 64 or less",
    ),
    (
        {"threads": 20, "tasks": 8, "nodes": 2},
        "threads: found 20 for each of 4 tasks on a node, but no node of partition short has more than 64 cores "
        "(sinfo); type threads: 16 or less",
    ),
    (
        {"tasks": 200, "nodes": 2},
        "threads: found 1 for each of 100 tasks on a node, but no node of partition short has more than 64 cores "
        "(sinfo); type nodes: 4 or more",
    ),
    (
        {"tasks": 129, "threads": 2},
        "tasks: found 129 of 2 threads, but partition short has 256 cores in all (sinfo); type tasks: 128 or less",
    ),
    (
        {"mem_mb": 256001},
        "mem_mb: found 256001, but no node of partition short has more than 256000 MB (sinfo); "
        "type mem_mb: 256000 or less",
    ),
    (
        {"nodes": 5, "tasks": 5},
        "nodes: found 5, but partition short has 4 nodes (sinfo); type nodes: 4 or less",
    ),
    (
        {"nodes": 2, "tasks": 2, "partition": "mixed"},
        "nodes: found 2, but partition mixed has 1 node (sinfo); type nodes: 1 or less",
    ),
    ({"gpus": 1}, "gpus: found 1, but no node of partition short has a GPU (sinfo); type gpus: 0"),
    (
        {"gpus": 5, "place": "gpu"},
        "gpus: found 5, but no node of partition gpu has more than 4 (sinfo); type gpus: 4 or less",
    ),
    (
        {"gpus": 3, "partition": "mixed", "gpu_type": "v100"},
        "gpus: found 3, but no node of partition mixed has more than 2 of type v100 (sinfo); type gpus: 2 or less",
    ),
    (
        {"gpus": 9, "place": "gpu", "nodes": 2, "tasks": 2},
        "gpus: found 9, but 2 nodes of partition gpu have no more than 8 (sinfo); type gpus: 8 or less",
    ),
    (
        {"gpus": 1, "place": "gpu", "gpu_type": "h100"},
        "gpu_type: found 'h100', but the GPUs of partition gpu are a100 (sinfo); type gpu_type: a100",
    ),
    (
        {"gpus": 1, "partition": "plain", "gpu_type": "h100"},
        "gpu_type: found 'h100', but the GPUs of partition plain are without a type (sinfo); type gpu_type: null",
    ),
    (
        {"partition": "shrt"},
        "partition: found 'shrt', but the partitions of this cluster (sinfo) are short, gpu, mixed and plain; "
        "did you mean `short`?",
    ),
    (
        {"partition": "short,xyz"},
        "partition: found 'xyz', but the partitions of this cluster (sinfo) are short, gpu, mixed and plain; "
        "type another partition",
    ),
]


@pytest.mark.parametrize(("keys", "line"), REFUSED, ids=str)
def test_what_the_partition_does_not_have_is_refused_in_one_line(keys, line):
    assert said(toy_run(**{"segment_minutes": 5, **keys})) == [f"runs.demo.{line}"]


def test_a_mistake_of_the_site_names_its_file_and_is_said_once_for_all_runs():
    site = "site: {gpu_type: h100, places: {short: {partition: long}, gpu: {partition: gpu}}}"

    lines = said(toy_run("a"), toy_run("b"), toy_run("c", place="gpu", gpus=1), site=site)

    assert lines == [
        "site.places.short.partition: found 'long', but the partitions of this cluster (sinfo) are short, gpu, mixed "
        "and plain; edit profiles/slurm/site.yaml",
        "site.gpu_type: found 'h100', but the GPUs of partition gpu are a100 (sinfo); edit profiles/slurm/site.yaml",
    ]


def test_a_slip_in_the_site_is_guessed_and_its_file_named():
    assert said(toy_run(), site="site: {partition: shrt}") == [
        "site.partition: found 'shrt', but the partitions of this cluster (sinfo) are short, gpu, mixed and plain; "
        "did you mean `short`?; edit profiles/slurm/site.yaml"
    ]


def test_a_mistake_that_many_runs_share_is_one_line_and_the_one_in_the_docs():
    lines = said(*(toy_run(name, segment_minutes=1500) for name in ("big", "b", "c", "d")), toy_run("fits"))

    assert lines == re.findall(r"^unbroken: (runs\.big\..*)$", (root_folder() / "docs/config.md").read_text(), re.M)
    assert len(lines) == 1


def test_a_place_without_a_partition_is_held_against_all_partitions():
    assert said(toy_run(segment_minutes=100000, threads=64, gpus=4), site="site: {}") == []
    assert said(toy_run(threads=65, segment_minutes=1), site="site: {}") == [
        "runs.demo.threads: found 65, but no node of the cluster has more than 64 cores (sinfo); "
        "type threads: 64 or less"
    ]


def test_an_account_that_the_user_does_not_have_is_refused():
    own, site = toy_run("a", account="scince"), "site: {account: chemistry}"

    lines = said(own, toy_run("b"), site=site, accounts=("science", "other"))

    assert lines == [
        "runs.a.account: found 'scince', but your accounts (sacctmgr) are science and other; did you mean `science`?",
        "site.account: found 'chemistry', but your accounts (sacctmgr) are science and other; "
        "edit profiles/slurm/site.yaml",
    ]
    assert said(toy_run("c", account="Science"), accounts=("science",)) == []


@pytest.mark.process
def test_a_qos_that_the_cluster_does_not_know_is_refused():
    lines = said(toy_run(qos="hihg"), toy_run("b"), site="site: {qos: gold}", qos=("normal", "high"))

    assert lines == [
        "runs.demo.qos: found 'hihg', but the QOS of this cluster (sacctmgr) are normal and high; did you mean `high`?",
        "site.qos: found 'gold', but the QOS of this cluster (sacctmgr) are normal and high; "
        "edit profiles/slurm/site.yaml",
    ]
    assert said(toy_run(qos="HIGH"), qos=("normal", "high")) == []


@pytest.mark.process
def test_where_accounts_and_qos_cannot_be_asked_for_every_one_passes():
    assert said(toy_run(account="anything", qos="anything")) == []


@pytest.mark.process
def test_sacctmgr_is_asked_only_where_one_of_them_is_set(tmp_path, monkeypatch):
    asked, command = tmp_path / "asked", tmp_path / "sacctmgr"
    command.write_text(f"#!/bin/sh\necho x >> {asked}\necho high\n")
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    known, limits = read_site(yaml.safe_load(SITE), known_schemas()), ClusterLimits({})

    assert limit_mistakes([(toy_run(), known.request(toy_run()))], limits, FILE) == []
    assert not asked.exists()
    assert limits.qos == limits.accounts == ["high"]
