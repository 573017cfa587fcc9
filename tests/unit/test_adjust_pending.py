"""What the waiting jobs of a detached run are told after one failed.  On a real cluster: test_endings_detached.py."""

from dataclasses import replace

import pytest
from support.making import ATTEMPT

from unbroken.detached import adjust_pending
from unbroken.runs.outcome import Outcome
from unbroken.slurm import excluded_nodes


@pytest.mark.parametrize(
    ("excluded", "fresh"),
    [
        ("(null)", ["node4", "node3", "node2"]),
        ("node[1-2]", ["node4"]),
        ("node[1-3]", []),  # one more, and a partition of four has no node left: the job would wait for ever
        ("node4", ["node3", "node2"]),
        ("node[2-4]", []),
        ("node[7-9]", []),  # which ones these are Slurm does not say now
    ],
)
def test_waiting_jobs_avoid_no_more_nodes_than_their_partition_can_spare(
    excluded: str, fresh: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts = {
        "node[1-2]": "node1\nnode2\n",
        "node[1-3]": "node1\nnode2\nnode3\n",
        "node[2-4]": "node2\nnode3\nnode4\n",
    }
    changed: list[str] = []

    def ask(*words: str) -> str | None:
        if words[:3] == ("scontrol", "show", "hostnames"):
            return hosts.get(words[3])
        changed.append(words[-1])
        return ""

    monkeypatch.setattr(adjust_pending, "ask", ask)
    monkeypatch.setattr(excluded_nodes, "ask", ask)
    monkeypatch.setattr(adjust_pending, "table", lambda *words, columns: [(excluded,)] * 2)
    monkeypatch.setattr(adjust_pending, "nodes_to_avoid", lambda run: ["node4", "node3", "node2", "node1"])
    monkeypatch.setattr(adjust_pending, "own_spare_nodes", lambda: 3)

    told = list(adjust_pending.learn("a", ["210", "211"], replace(ATTEMPT, outcome=Outcome.FAILED), 1.5))

    mine = [] if excluded == "(null)" else [excluded]
    assert changed == ([f"ExcNodeList={','.join([*mine, *fresh])}"] * 2 if fresh else [])
    assert told == ([f"the pending jobs avoid {', '.join(fresh)}, where it failed repeatedly"] if fresh else [])
