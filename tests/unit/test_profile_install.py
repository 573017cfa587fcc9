"""The profile as it is installed on clusters of other shapes, from recorded answers of sinfo."""

import pytest
import yaml

from unbroken.cli import install_profile
from unbroken.cli.install_profile import install
from unbroken.slurm.client import rows_in
from unbroken.slurm.partitions import COLUMNS, partitions_in

BIG = """\
batch*|2-00:00:00|100|64|256000|(null)
batch*|2-00:00:00|4|64|512000|gpu:v100:2
gpu_a100|1-00:00:00|8|128|1000000|gpu:a100:4(S:0-3)
2024|infinite|1|8|16000|(null)
empty|infinite|0|0|0|(null)
"""
PLAIN = "debug|30:00|2|16|64000|(null)\n"


def installed(tmp_path, monkeypatch, sinfo: str) -> tuple[dict, dict, str]:
    """The places and partitions of an installed profile, and the text of its site."""
    monkeypatch.setattr(install_profile, "ask_partitions", lambda: partitions_in(rows_in(sinfo, len(COLUMNS))))
    install("slurm", tmp_path)
    text = (tmp_path / "site.yaml").read_text()
    site, partitions = yaml.safe_load(text)["site"], yaml.safe_load((tmp_path / "partitions.yaml").read_text())
    return site["places"], partitions["partitions"], text


def test_short_is_the_default_partition_and_gpu_the_one_whose_nodes_all_have_gpus(tmp_path, monkeypatch):
    places, _, _ = installed(tmp_path, monkeypatch, BIG)

    assert places == {"short": {"partition": "batch"}, "gpu": {"partition": "gpu_a100"}}


def test_every_partition_stands_there_with_its_limits(tmp_path, monkeypatch):
    _, partitions, text = installed(tmp_path, monkeypatch, BIG)

    assert partitions["gpu_a100"] == {
        "max_runtime": 1440,
        "max_mem_mb": 1000000,
        "max_threads": 128,
        "max_nodes": 8,
        "max_gpu": 32,
        "available_gpu_models": ["a100"],
    }
    assert partitions["2024"] == {"max_mem_mb": 16000, "max_threads": 8, "max_nodes": 1}
    assert list(partitions) == ["batch", "gpu_a100", "2024"]
    assert "batch (the default): at most 2880 minutes; nodes: 104, of up to 64 cores, 512000 MB, 2 GPUs (v100)" in text
    assert "2024: no time limit; nodes: 1, of up to 8 cores, 16000 MB\n" in text


def test_what_a_cluster_does_not_have_is_left_to_be_filled_in_and_said(tmp_path, monkeypatch):
    places, _, text = installed(tmp_path, monkeypatch, PLAIN)

    assert places == {"short": {"partition": None}, "gpu": {"partition": None}}
    assert "partition: null  # of the cluster's partitions none is the default one\n" in text
    assert "partition: null  # none of the cluster's partitions has a GPU\n" in text


@pytest.mark.parametrize("sinfo", [BIG, PLAIN], ids=["big", "plain"])
def test_installing_again_finds_everything_there(tmp_path, monkeypatch, sinfo):
    installed(tmp_path, monkeypatch, sinfo)

    lines, todo = install("slurm", tmp_path)

    assert ([line.partition(": ")[2] for line in lines], todo) == (["is there already"] * 3, "")


def test_a_file_that_was_edited_is_never_written_again(tmp_path, monkeypatch):
    installed(tmp_path, monkeypatch, PLAIN)
    (tmp_path / "site.yaml").write_text("site: {account: mine}\n")

    lines, _ = install("slurm", tmp_path)

    site = tmp_path / "site.yaml"
    assert f"{site}: yours, left as it is; compare: diff {site} {site}.new" in lines
    assert (tmp_path / "site.yaml").read_text() == "site: {account: mine}\n"
