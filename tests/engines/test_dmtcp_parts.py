"""Parts of the DMTCP engine: the program's folder, and what a save takes."""

import os
import subprocess
import sys

import pytest
from support.workdir import until

from unbroken.engines.dmtcp.checkpoint import cpu_features, put_back, save_files, seconds_to_allow
from unbroken.engines.dmtcp.workspace import size_bytes


def test_a_folder_comes_back_with_links_empty_folders_modes_and_times(tmp_path):
    live = tmp_path / "live"
    (live / "sub" / "empty").mkdir(parents=True)
    (live / "sub" / "tool").write_text("x")
    (live / "sub" / "tool").chmod(0o750)
    os.utime(live / "sub" / "tool", (1000, 2000))
    (live / "link").symlink_to("sub/tool")
    (live / ".unbroken-exit-code").write_text("0\n")

    listing = save_files(live, tmp_path / "files")
    put_back(tmp_path / "files", listing, tmp_path / "again")

    tool = tmp_path / "again" / "sub" / "tool"
    assert sorted(str(path.relative_to(tmp_path / "again")) for path in (tmp_path / "again").rglob("*")) == [
        *("link", "sub", "sub/empty", "sub/tool")
    ]
    assert (tool.read_text(), tool.stat().st_mode & 0o777, tool.stat().st_mtime) == ("x", 0o750, 2000)
    assert os.readlink(tmp_path / "again" / "link") == "sub/tool"


@pytest.mark.process
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
    saves = [(50_000_000, 1.0), (100_000_000, 4.0)]

    assert seconds_to_allow([], 100_000_000) == 1.5 * 2 + 0.5
    assert [seconds_to_allow(saves, size * 1_000_000) for size in (50, 100, 200)] == [6.5, 6.5, 12.5]


def test_only_instruction_sets_count_of_what_a_processor_says(tmp_path):
    (tmp_path / "cpuinfo").write_text("processor : 0\nflags\t\t: fpu sse2 avx512f hypervisor md_clear fma\n")

    assert cpu_features(tmp_path / "cpuinfo") == {"sse2", "avx512f", "fma"}
