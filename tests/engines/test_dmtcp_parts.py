"""Parts of the DMTCP engine: the program's folder, what a save takes, and the rehearsal."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from support.dmtcp_here import PROGRAMS
from support.workdir import until

from unbroken.engines.dmtcp.files import put_back, save_files, size_bytes
from unbroken.engines.dmtcp.machine import cpu_features
from unbroken.engines.dmtcp.pace import SaveSeconds

UNBROKEN = Path(sys.executable).with_name("unbroken")


def test_a_folder_comes_back_with_links_empty_folders_modes_and_times(tmp_path):
    live = tmp_path / "live"
    (live / "sub" / "empty").mkdir(parents=True)
    (live / "sub" / "tool").write_text("x")
    (live / "sub" / "tool").chmod(0o750)
    os.utime(live / "sub" / "tool", (1000, 2000))
    (live / "link").symlink_to("sub/tool")
    (live / ".longhaul-exit-code").write_text("0\n")

    listing = save_files(live, tmp_path / "files")
    put_back(tmp_path / "files", listing, tmp_path / "again")

    tool = tmp_path / "again" / "sub" / "tool"
    assert sorted(str(path.relative_to(tmp_path / "again")) for path in (tmp_path / "again").rglob("*")) == [
        *("link", "sub", "sub/empty", "sub/tool")
    ]
    assert (tool.read_text(), tool.stat().st_mode & 0o777, tool.stat().st_mtime) == ("x", 0o750, 2000)
    assert os.readlink(tmp_path / "again" / "link") == "sub/tool"


def test_a_folder_is_weighed_while_its_program_makes_and_removes_files(tmp_path):
    (tmp_path / "stays").write_bytes(bytes(1000))
    (tmp_path / "link").symlink_to("stays")
    once = "os.mkdir('s'); open('s/draft', 'w').close(); os.rename('s/draft', 's/done'); os.remove('s/done')"
    loop = f"import os\nwhile True: {once}; os.rmdir('s')"
    program = subprocess.Popen([sys.executable, "-c", loop], cwd=tmp_path)
    until(lambda: (tmp_path / "s").exists())

    sizes = [size_bytes(tmp_path) for _ in range(10_000)]

    program.kill()
    program.wait()
    assert set(sizes) == {1000}


def test_the_margin_grows_with_the_program_and_does_not_shrink_with_it():
    pace = SaveSeconds()
    first = pace.seconds_for(100_000_000)
    pace.add(100_000_000, 4.0)

    assert first == 1.5 * 2 + 0.5
    assert [pace.seconds_for(size) for size in (50_000_000, 100_000_000, 200_000_000)] == [6.5, 6.5, 12.5]


def test_only_instruction_sets_count_of_what_a_processor_says(tmp_path):
    (tmp_path / "cpuinfo").write_text("processor : 0\nflags\t\t: fpu sse2 avx512f hypervisor md_clear fma\n")

    assert cpu_features(tmp_path / "cpuinfo") == {"sse2", "avx512f", "fma"}


@pytest.fixture
def rehearse(tmp_path):
    def rehearse(engine, settings):
        run = {"engine": engine, "segments": 2, "segment_minutes": 5, "settings": settings}
        (tmp_path / "config").mkdir()
        (tmp_path / "config" / "config.yaml").write_text(yaml.safe_dump({"runs": {"demo": run}}))
        command = [UNBROKEN, "rehearse", "demo", "--seconds", "0.5"]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=250)

    return rehearse


def test_a_rehearsal_says_that_a_program_survives_and_what_it_costs(rehearse, tmp_path):
    words = [sys.executable, "-c", "import time\nwhile True: time.sleep(0.01)"]

    done = rehearse("dmtcp", {"command": words, "dmtcp": str(PROGRAMS)})

    assert done.stdout.startswith("demo: survives on this machine: 2 processes, images of "), done.stderr
    assert list((tmp_path / "results" / ".rehearsal").iterdir()) == []


def test_a_rehearsal_of_a_failing_program_says_so(rehearse):
    done = rehearse("dmtcp", {"command": ["sh", "-c", "exit 3"], "dmtcp": str(PROGRAMS)})

    assert done.returncode == 1
    assert done.stderr.startswith("unbroken: demo: does not survive: the program ended with its own exit code 3")


def test_an_engine_that_saves_by_itself_needs_no_rehearsal(rehearse):
    done = rehearse("toy", {"goal": 3})

    assert (done.returncode, done.stderr) == (1, "unbroken: demo: engine toy needs no rehearsal; type: unbroken run\n")
