"""The end of a segment's process does not look through all that a framework has loaded once more."""

import os
import sys
from pathlib import Path

import pytest
from support.prefork import TORCH, start_script

pytestmark = pytest.mark.process

PROGRAM = """\
import gc
import weakref

import torch

gc.unfreeze()  # what the process was forked from may have frozen
import unbroken.training.torch.training


class Node:
    pass


node = Node()
node.itself, seen = node, weakref.ref(node)
del node
gc.collect()
print(gc.get_freeze_count() > 100_000, seen() is None)
"""


@pytest.mark.parametrize(("environment", "is_kept"), [({"UNBROKEN_SAVE": "save"}, True), ({}, False)])
def test_what_is_loaded_is_kept_in_a_segment_alone_and_later_garbage_is_collected(
    tmp_path: Path, environment: dict[str, str], is_kept: bool
) -> None:
    pytest.importorskip("torch", reason="missing: torch (pip install torch)")
    (tmp_path / "program.py").write_text(PROGRAM)
    told = tmp_path / "told"
    with told.open("w") as output:
        usual = {name: value for name, value in os.environ.items() if name != "UNBROKEN_SAVE"}
        words = [sys.executable, str(tmp_path / "program.py")]
        done = start_script(words, TORCH, tmp_path, {**usual, **environment}, output).wait(300)
    assert (done, told.read_text()) == (0, f"{is_kept} True\n")
