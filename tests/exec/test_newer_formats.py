"""`unbroken exec` beside a store that a newer unbroken wrote: one line, and nothing is put back, begun or set aside."""

import pytest
from support.newer import NEWER
from support.snapshots import snapshot

from unbroken.store.layout import RunFolder

pytestmark = pytest.mark.process

KEEP = ("--keep", "ckpt/*")


@pytest.mark.parametrize("kind", ["passport", "record"])
@pytest.mark.parametrize("option", [(), ("--anew",)], ids=["goes-on", "anew"])
def test_a_call_leaves_all_as_it_is(called, kind: str, option: tuple[str, ...]) -> None:
    assert called.call(*KEEP).returncode == 0
    newer = NEWER[kind](RunFolder("count", store=called.store()))
    before = snapshot(called.folder)

    done = called.call(*KEEP, *option)

    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"unbroken: {newer}") and "found format " in line
    assert snapshot(called.folder) == before
