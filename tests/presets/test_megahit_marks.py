"""MEGAHIT killed when a step has removed what it was made from, and is not yet noted as done.

Plain `--continue` then ends with exit code 0 and another result, or fails each time.
"""

import os
import random
import stat
import subprocess
from pathlib import Path

import pytest
from support.needs import require
from support.preset_cases import Pieces, differences, environment, read_case, whole

pytestmark = [pytest.mark.process, pytest.mark.presets]

# Of k = 21: the graph, the contigs; of k = 29 the same.
MARKS = (4, 5, 8, 9) if os.environ.get("UNBROKEN_PRESET_KILLS") == "all" else (8,)
# The first call is killed when it opens the list of marks for the N-th time.
KILLED = """#!/bin/sh
[ -e {folder}/killed ] && exec /usr/bin/megahit "$@"
touch {folder}/killed
strace -f -qq -o /dev/null -P "$PWD/asm/checkpoints.txt" -e trace=openat \\
  -e inject=openat:signal=KILL:when={mark} /usr/bin/megahit "$@"
kill -9 $$
"""


@pytest.mark.parametrize("mark", MARKS)
def test_a_step_that_is_killed_before_its_mark_spoils_nothing(
    mark: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = read_case("megahit")
    require(*case.needs, "strace")
    whole(case, case.copied(tmp_path / "whole"))
    megahit = tmp_path / "bin/megahit"
    megahit.parent.mkdir()
    megahit.write_text(KILLED.format(folder=tmp_path, mark=mark))
    megahit.chmod(megahit.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{megahit.parent}{os.pathsep}{os.environ['PATH']}")
    pieces = Pieces(case, case.copied(tmp_path / "pieces"), random.Random(mark))

    assert pieces.call().wait(300) not in (0, 85)
    assert pieces.ended() == 0, pieces.said()

    assert "resuming from" in pieces.log.read_text()
    assert differences(case, tmp_path / "whole", pieces.folder) == [], pieces.said()


@pytest.mark.parametrize("mark", MARKS)
def test_plain_continue_comes_to_another_result_or_to_none(mark: int, tmp_path: Path) -> None:
    """If this fails, MEGAHIT has been mended: say so on the page of the preset."""
    case = read_case("megahit")
    require(*case.needs, "strace")
    whole(case, case.copied(tmp_path / "whole"))
    plain = case.copied(tmp_path / "plain")
    (tmp_path / "killed.sh").write_text(KILLED.format(folder=tmp_path, mark=mark))
    for words in (["sh", tmp_path / "killed.sh", *case.words[1:]], ["megahit", "--continue", "-o", "asm"]):
        done = subprocess.run(words, cwd=plain, env=environment(case), capture_output=True, check=False)

    contigs = Path("asm/final.contigs.fa")
    is_same = (plain / contigs).exists() and (plain / contigs).read_bytes() == (
        tmp_path / "whole" / contigs
    ).read_bytes()
    assert not is_same and (done.returncode == 0) == (mark == 8)
