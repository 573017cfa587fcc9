"""A driver's end is told by the command of `notify:`, once, without anybody who looks."""

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import yaml
from support.workdir import ROOT, WorkDir, one_step_segments, until

TORCH = {"engine": "torch", "segment_minutes": 2, "settings": {"script": "program.py", "goal": 5}}


def configure(work: WorkDir, command: str, **runs: object) -> None:
    work.configure(runs)
    path = work.root / "config" / "config.yaml"
    path.write_text(yaml.safe_dump({"notify": {"command": command}, **yaml.safe_load(path.read_text())}))


def told(work: WorkDir) -> list[tuple[str, str]]:
    path = work.root / "told.txt"
    lines = path.read_text().splitlines() if path.exists() else []
    return sorted((said["event"], said["run"]) for said in map(json.loads, lines))


def test_runs_that_finish_and_stop_are_told_once(work: WorkDir) -> None:
    work.write("program.py", "raise SystemExit(7)\n")
    configure(work, "cat >> told.txt", good=one_step_segments(segments=3, goal=2), bad=one_step_segments(1, 5) | TORCH)
    work.snakemake("--keep-going")
    expected = [("finished", "good"), ("stopped", "bad")]
    until(lambda: told(work) == expected)
    assert work.unbroken("notify", "--check").code == 0
    assert told(work) == expected


def test_a_command_that_fails_harms_no_run_and_the_next_look_tells(work: WorkDir) -> None:
    configure(work, "test -e online && cat >> told.txt", good=one_step_segments(segments=3, goal=2))
    done = work.snakemake()
    assert done.code == 0, done.text
    log = work.root / ".snakemake/unbroken/notify/log.txt"
    until(lambda: log.exists() and "exit code 1" in log.read_text())
    work.write("online", "")
    said = work.unbroken("notify", "--check")
    assert said.code == 0 and "finished: told" in said.text, said.text
    assert told(work) == [("finished", "good")]


def test_notes_of_a_private_configuration_are_as_private(work: WorkDir) -> None:
    command = "curl https://example.org/T0KEN-of-mine; exit 3"
    configure(work, command, good=one_step_segments(segments=3, goal=2))
    config = work.root / "config" / "config.yaml"
    config.chmod(0o600)
    work.added_environment["UNBROKEN_REPORT"] = "on"
    done = work.snakemake()
    log = work.root / ".snakemake/unbroken/notify/log.txt"
    until(lambda: log.exists() and "not told" in log.read_text())

    copies = [path for path in work.root.rglob("*") if path.is_file() and b"T0KEN" in path.read_bytes()]
    assert done.code == 0, done.text
    assert "T0KEN" not in done.text + log.read_text() + work.unbroken("notify", "--check").text
    assert work.root / ".snakemake/unbroken/report.config.json" in copies
    assert [path for path in copies if path != config and not is_private(path, work.root)] == []


def is_private(path: Path, root: Path) -> bool:
    """Neither the file nor a folder above it lets others in."""
    return any(each.stat().st_mode & 0o077 == 0 for each in (path, *path.parents) if each.is_relative_to(root))


def test_the_command_can_be_tried_and_its_failure_is_a_line(work: WorkDir) -> None:
    configure(work, "cat >> told.txt", good=one_step_segments(segments=3, goal=2))
    assert work.unbroken("notify", "--test").code == 0
    assert told(work) == [("test", "test")]
    configure(work, "echo no; exit 2", good=one_step_segments(segments=3, goal=2))
    said = work.unbroken("notify", "--test")
    assert said.code == 1
    assert said.text == "no\nunbroken: notify.command: exit code 2\n"
    work.configure({"good": one_step_segments(segments=3, goal=2)})
    said = work.unbroken("notify", "--check")
    assert said.code == 1 and "has no `notify:`" in said.text


def test_the_webhook_of_the_page_arrives(work: WorkDir) -> None:
    got: list[bytes] = []

    class Hook(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(204)
            self.end_headers()

    server = HTTPServer(("127.0.0.1", 0), Hook)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        page = (ROOT / "docs" / "notify.md").read_text()
        line = next(line for line in page.splitlines() if "curl --fail" in line).partition("command: ")[2]
        url = f"http://127.0.0.1:{server.server_port}/"
        configure(work, line.replace("https://example.org/hook", url), good=one_step_segments(segments=3, goal=2))
        assert work.unbroken("notify", "--test").code == 0
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    assert [json.loads(body)["event"] for body in got] == ["test"]


def test_the_mail_of_the_page_has_its_headers(work: WorkDir) -> None:
    page = (ROOT / "docs" / "notify.md").read_text()
    work.write("tell.sh", page.partition("```sh\n")[2].partition("```")[0]).chmod(0o755)
    work.write("bin/sendmail", "#!/bin/sh\ncat > mail.txt\n").chmod(0o755)
    configure(work, "PATH=$PWD/bin:$PATH ./tell.sh", good=one_step_segments(segments=3, goal=2))
    assert work.unbroken("notify", "--test").code == 0
    assert (work.root / "mail.txt").read_text().startswith("To: me@example.org\nSubject: unbroken: test test\n\n")
