"""A small stand-in for W&B's server: what it is sent of a run's history, and what a run resumes from.

It answers what wandb 0.31 asks.  Lines are kept by their number, as the real server does.
"""

import gzip
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class WandbServer(ThreadingHTTPServer):
    """The server of one run; `lines` is the history that has arrived."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.lines: dict[int, dict[str, Any]] = {}
        self.summary = "{}"
        self.is_known = False
        self.url = f"http://127.0.0.1:{self.server_port}"

    def receive(self, files: dict[str, Any]) -> None:
        history = files.get("wandb-history.jsonl", {"offset": 0, "content": []})
        for number, line in enumerate(history["content"], history["offset"]):
            self.lines[number] = json.loads(line)
        if found := files.get("wandb-summary.json"):
            self.summary = found["content"][-1]

    def answer(self, question: str, variables: dict[str, Any]) -> dict[str, Any]:
        project = {"id": "p", "name": "p", "entity": {"id": "e", "name": "e"}}
        bucket = {"id": "b", "name": variables.get("name"), "displayName": "", "description": None, "config": "{}"}
        bucket |= {"sweepName": None, "project": project, "historyLineCount": len(self.lines)}
        if question == "Viewer":
            viewer = {"id": "v", "entity": "e", "username": "u", "email": "", "flags": "{}", "teams": {"edges": []}}
            return {"viewer": viewer}
        if question == "RunResumeStatus":
            tail = json.dumps([json.dumps(line) for line in list(self.lines.values())[-1:]])
            old = {"summaryMetrics": self.summary, "historyTail": tail, "eventsTail": "[]", "tags": [], "notes": None}
            old |= {"logLineCount": 0, "eventsLineCount": 0, "wandbConfig": '{"t": 1}'}
            return {"model": {**project, "bucket": bucket | old if self.is_known else None}}
        if question == "UpsertBucket":
            was_known, self.is_known = self.is_known, True
            return {"upsertBucket": {"bucket": bucket, "inserted": not was_known}}
        if question == "CreateRunFiles":
            files = [{"name": name, "uploadUrl": f"{self.url}/{name}"} for name in variables["files"]]
            return {"createRunFiles": {"runID": "b", "uploadHeaders": [], "files": files}}
        return {"serverInfo": {"features": []}} if question == "ServerFeaturesQuery" else {}


class _Handler(BaseHTTPRequestHandler):
    server: WandbServer

    def log_message(self, *words: object) -> None:
        pass

    def do_GET(self) -> None:
        self._reply({})

    def do_PUT(self) -> None:
        self._body()
        self._reply({})

    def do_POST(self) -> None:
        body = self._body()
        if self.path.endswith("/file_stream"):
            self.server.receive(json.loads(body).get("files") or {})
            self._reply({"exitcode": None, "limits": {}})
        elif self.path == "/graphql":
            asked = json.loads(body)
            self._reply({"data": self.server.answer(asked["operationName"], asked.get("variables") or {})})
        else:
            self._reply({})

    def _body(self) -> bytes:
        data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        return gzip.decompress(data) if self.headers.get("Content-Encoding") == "gzip" else data

    def _reply(self, answer: object) -> None:
        data = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


@contextmanager
def wandb_server() -> Iterator[WandbServer]:
    """A server that runs in this process."""
    server = WandbServer()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
