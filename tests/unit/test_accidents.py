"""Whom the accidents of a soak meet: no process of anybody else's."""

import os
import random
from types import SimpleNamespace
from typing import Any

import pytest
from cluster.accidents import Accidents

from unbroken.system import host

OURS = {"pid": os.getpid(), "pid_start": host.process_start(os.getpid())}


@pytest.mark.parametrize(
    ("claim", "is_victim"),
    [
        (OURS, True),
        ({**OURS, "pid_start": "1"}, False),  # its number was given to another process, as on a busy machine in minutes
        ({**OURS, "pid": 2**22 + 1, "pid_start": "1"}, False),
        ({}, False),
    ],
)
def test_a_process_is_a_victim_only_while_it_is_the_one_that_made_the_claim(
    claim: dict[str, Any], is_victim: bool
) -> None:
    work = SimpleNamespace(claim=lambda run: claim, saved=lambda run: 2, reported=lambda run: 2)
    accidents = Accidents(work, None, random.Random(1))  # type: ignore[arg-type]
    accidents.begin(["a"])

    assert accidents._victim() == (os.getpid() if is_victim else None)
