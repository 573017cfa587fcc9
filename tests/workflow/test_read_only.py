"""`status` and `verify` in a folder that one may only read: a colleague's run, a snapshot, a file server in trouble."""

import re

import pytest
from support.disks import as_root
from support.needs import skip_or_fail
from support.toyrun import flip_byte
from support.workdir import BIN, Done, WorkDir, one_step_segments

from unbroken.store.checkpoints import Store

# In a mount namespace of its own; nobody else sees the mount.
READ_ONLY = """\
set -e
mount --bind "$1" "$1"
mount -o remount,bind,ro "$1"
cd "$1"
if touch results/demo/there 2>/dev/null; then exit 99; fi
shift
exec "$@"
"""


@pytest.fixture
def work(work: WorkDir) -> WorkDir:
    """A finished run, and one whose segments are used up."""
    work.configure({"demo": one_step_segments(segments=3, goal=2), "other": one_step_segments(segments=1, goal=3)})
    assert work.snakemake("-c1").code == 0
    return work


def read_only(work: WorkDir, *words: str) -> Done:
    """What `unbroken` says where nothing can be written."""
    done = as_root(
        "unshare", "--mount", "sh", "-c", READ_ONLY, "sh", str(work.root), "env", "COLUMNS=120", "TERM=dumb",
        str(BIN / "unbroken"), *words,
    )  # fmt: skip
    if "unshare failed" in done.stderr or "permission denied" in done.stderr:
        skip_or_fail(f"missing: the right to a mount namespace (root, or sudo without a password): {done.stderr}")
    return Done(done.returncode, done.stdout + done.stderr)


def without_ages(text: str) -> str:
    return re.sub(" +", " ", re.sub(r"\d+ (s|min) ago", "some time ago", text))  # ten seconds take a wider column


def test_status_says_the_same(work: WorkDir) -> None:
    usual = work.unbroken("status", columns=120)

    done = read_only(work, "status")

    assert done.code == usual.code == 0, done.text
    assert without_ages(done.text) == without_ages(usual.text)
    assert "1/3 steps" in done.text


def test_verify_finds_the_same(work: WorkDir) -> None:
    whole = read_only(work, "verify")
    flip_byte(Store(work.places("demo").checkpoints).readable()[-1].folder / "state.json")

    bad = read_only(work, "verify")

    assert (whole.code, bad.code) == (0, 1), bad.text
    assert re.search(r"^3 of 3 checkpoints are whole", whole.text, re.MULTILINE), whole.text
    assert re.search(r"^2 of 3 checkpoints are whole", bad.text, re.MULTILINE), bad.text
