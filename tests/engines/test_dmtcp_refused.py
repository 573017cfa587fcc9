"""What the DMTCP engine refuses to bring back: damaged images, other machines, another folder."""

import json
import shutil

import pytest
from support.dmtcp_play import numbers
from support.dmtcp_runs import keep

from unbroken.errors import SegmentError

pytestmark = [pytest.mark.process, pytest.mark.xdist_group("dmtcp_refused")]  # one process, one `dmtcp_paused`


class Damage:
    """What may have become of a checkpoint, or of the machine."""

    @staticmethod
    def missing(folder):
        sorted(folder.glob("images/*.dmtcp"))[-1].unlink()

    @staticmethod
    def cut_short(folder):
        image = max(folder.glob("images/*.dmtcp"), key=lambda path: path.stat().st_size)
        image.write_bytes(image.read_bytes()[: image.stat().st_size // 2])

    @staticmethod
    def other_release(folder):
        Damage._change(folder, "machine", dmtcp="1.2.3")

    @staticmethod
    def other_library(folder):
        Damage._change(folder, "machine", glibc="2.17")

    @staticmethod
    def other_processor(folder):
        Damage._change(folder, "machine", cpu_features="sse2 avx1024")

    @staticmethod
    def moved(folder):
        Damage._change(folder, live="/elsewhere/results/demo/live")

    @staticmethod
    def foreign(folder):
        (folder / "state.json").unlink()

    @staticmethod
    def _change(folder, part="", **changes):
        path = folder / "state.json"
        state = json.loads(path.read_text())
        (state[part] if part else state).update(changes)
        path.write_text(json.dumps(state))


REFUSED = {
    "missing": ".dmtcp is missing; every process has one",
    "cut_short": "dmtcp_restart did not bring the program back within 3 s (settings.restart_seconds); it was killed",
    "other_release": "the images were made with dmtcp 1.2.3, here is",
    "other_library": "the images were made with glibc 2.17, here is",
    "other_processor": "the processor here lacks avx1024, which the program may have chosen to use when it was "
    "started; ask for a node as before (constraint)",
    "moved": "the images were made for the folder /elsewhere/results/demo/live, which is now ",
    "foreign": "state.json: no state of this engine",
}


@pytest.mark.parametrize("damage", REFUSED)
def test_what_cannot_be_brought_back_is_refused_with_one_line(dmtcp_paused, tmp_path, damage):
    run, folder = dmtcp_paused
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    getattr(Damage, damage)(copy)

    code, why = keep(run.live, copy, tmp_path / "desk", "--restart-seconds", "3")

    assert code == 1
    assert REFUSED[damage] in why or (damage == "cut_short" and "a process died while dmtcp_restart" in why)
    assert len(why.splitlines()) == 1


def test_another_machine_is_taken_at_the_users_own_risk(dmtcp_paused, tmp_path):
    run, folder = dmtcp_paused
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    Damage.other_processor(copy)
    Damage.other_library(copy)

    code, why = keep(run.live, copy, tmp_path / "desk", "--machine-may-differ", "--restart-seconds", "90")

    (ready,) = (tmp_path / "desk" / "save").iterdir()
    assert (code, why) == (0, "")
    assert (ready / "final" / "numbers.txt").read_bytes() == numbers(60)


def test_without_dmtcp_the_line_says_what_to_type(dmtcp_run, monkeypatch):
    dmtcp_run.settings["dmtcp"] = ""
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    if shutil.which("dmtcp_launch"):
        return

    with pytest.raises(SegmentError) as error:
        dmtcp_run.segment()

    assert str(error.value) == (
        "runs.demo: dmtcp_launch: not found on the PATH; load DMTCP's module (modules: [dmtcp]) or name the folder "
        "of its programs (settings.dmtcp)"
    )
