"""The page for those who come from other scripts: it has all names of theirs, and all that it shows is tested."""

import re

from support.toyrun import ROOT

PAGE = (ROOT / "docs" / "from-other-scripts.md").read_text()
CASES = ROOT / "tests" / "training_cases" / "cases"
# What cycling_utils 0.0.3 exports.
CYCLING_UTILS = {
    "AtomicDirectory",
    "DistributedShardedDataset",
    "InterruptableDistributedGroupedBatchSampler",
    "InterruptableDistributedSampler",
    "InterruptableSampler",
    "MetricsTracker",
    "TimestampedTimer",
    "atomic_torch_save",
}


def test_each_name_of_cycling_utils_has_a_line() -> None:
    rows = [line.split("|")[1] for line in PAGE.splitlines() if line.startswith("|")]
    left = {name for row in rows for name in re.findall(r"\w+", row)}

    assert CYCLING_UTILS - left == set()


def test_each_script_that_is_shown_ported_is_a_case_and_each_such_case_is_shown() -> None:
    cases = {path.name for path in CASES.glob("port_*")}

    assert set(re.findall(r"`(port_\w+)`", PAGE)) == cases
