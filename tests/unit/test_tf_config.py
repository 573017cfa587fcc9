"""TF_CONFIG as unbroken makes it, for one task or several, and what is said of a wrong one."""

import json
import threading

import pytest

from unbroken.errors import SegmentError
from unbroken.training.launch.rendezvous import Meeting, worker_place

TWO = {"worker": ["a:1", "b:1"]}


def told(cluster: object, kind: str = "worker", index: object = 0) -> dict[str, str]:
    return {"TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": kind, "index": index}})}


def test_without_tf_config_or_a_cluster_in_it_there_are_no_workers() -> None:
    assert [worker_place({}), worker_place({"TF_CONFIG": "{}"}), worker_place(told({}))] == [(0, 1)] * 3


def test_a_chief_comes_before_the_workers() -> None:
    with_chief = {"chief": ["c:1"], **TWO}

    assert worker_place(told(TWO, index=1)) == (1, 2)
    assert worker_place(told(with_chief, "chief")) == (0, 3)
    assert worker_place(told(with_chief, index=1)) == (2, 3)


@pytest.mark.parametrize(
    "environment",
    [
        {"TF_CONFIG": "{'cluster'}"},
        told(["a:1"]),
        told({**TWO, "ps": ["p:1"]}),
        told({"worker": "a:1"}),
        told({"worker": ["a", "b"]}),
        told({"worker": [1, 2]}),
        told({"worker": ["a:1", "a:1"]}),
        told(TWO, index=2),
        told(TWO, index=-1),
        told(TWO, index="0"),
        told(TWO, "evaluator"),
    ],
)
def test_a_wrong_tf_config_is_refused_in_one_line(environment: dict[str, str]) -> None:
    with pytest.raises(SegmentError) as error:
        worker_place(environment)

    assert str(error.value) == (
        f'TF_CONFIG is {environment["TF_CONFIG"]}, allowed: {{"cluster": {{"worker": ["host:port", ...]}}, "task": '
        '{"type": "worker", "index": 0}}; leave it unset, and unbroken makes it (`workers`)'
    )


def test_the_workers_of_several_tasks_learn_of_each_other(tmp_path) -> None:
    seats: dict[int, list[dict[str, str]] | None] = {}

    def come(task: int) -> None:
        number = {"SLURM_PROCID": str(task), "SLURM_NTASKS": "2", "SLURMD_NODENAME": "localhost"}
        environment = {"UNBROKEN_STOP": str(tmp_path / "stop"), **number}
        with Meeting(2, 2, environment, has_ports=True) as meeting:
            seats[task] = meeting.environments(lambda: False)

    tasks = [threading.Thread(target=come, args=(task,)) for task in range(2)]
    for task in tasks:
        task.start()
    for task in tasks:
        task.join()

    seen = [rank for task in range(2) for rank in seats[task]]
    assert [worker_place(rank) for rank in seen] == [(0, 4), (1, 4), (2, 4), (3, 4)]
    (workers,) = {tuple(json.loads(rank["TF_CONFIG"])["cluster"]["worker"]) for rank in seen}
    assert len(set(workers)) == 4
    assert {address.rpartition(":")[0] for address in workers} == {"localhost"}


def test_ranks_of_torch_are_told_no_tf_config() -> None:
    with Meeting(1, 2, {}) as meeting:
        ranks = meeting.environments(lambda: False)

    assert ranks is not None
    assert ["TF_CONFIG" in each for each in ranks] == [False, False]
