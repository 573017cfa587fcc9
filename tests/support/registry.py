"""A registry of container images on this machine, as far as fetching one goes (OCI Distribution Specification)."""

import gzip
import hashlib
import io
import json
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

_TYPE = "application/vnd.oci.image"


class Registry:
    """Serves one image, `fruit:ripe`, until another is put there; counts how often its manifest was asked for."""

    def __init__(self, address: str) -> None:
        self.reference = f"docker://{address}/fruit:ripe"
        self.blobs: dict[str, bytes] = {}
        self.manifest = b""
        self.asked = 0

    def put(self, tree: Path) -> None:
        """The folder as an image of one layer."""
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as archive:
            archive.add(tree, arcname=".")
        layer = gzip.compress(packed.getvalue())
        config = json.dumps(
            {
                "architecture": "amd64",
                "os": "linux",
                "config": {},
                "rootfs": {"type": "layers", "diff_ids": [_digest(packed.getvalue())]},
            }
        ).encode()
        self.manifest = json.dumps(
            {
                "schemaVersion": 2,
                "mediaType": f"{_TYPE}.manifest.v1+json",
                "config": self._keep(config, f"{_TYPE}.config.v1+json"),
                "layers": [self._keep(layer, f"{_TYPE}.layer.v1.tar+gzip")],
            }
        ).encode()

    def _keep(self, content: bytes, kind: str) -> dict[str, object]:
        self.blobs[_digest(content)] = content
        return {"mediaType": kind, "digest": _digest(content), "size": len(content)}

    def answer(self, path: str) -> tuple[bytes, str] | None:
        """What lies at a path, and its type."""
        name = path.rpartition("/")[2]
        if path == "/v2/":
            return b"{}", "application/json"
        if path.startswith("/v2/fruit/manifests/"):
            self.asked += 1
            return self.manifest, f"{_TYPE}.manifest.v1+json"
        return (self.blobs[name], "application/octet-stream") if name in self.blobs else None


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


@contextmanager
def registry() -> Iterator[Registry]:
    """One that ends with the block."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            found = held.answer(self.path)
            content, kind = found or (b"", "text/plain")
            self.send_response(200 if found else 404)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            self.send_header("Docker-Content-Digest", _digest(content))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(content)

        do_HEAD = do_GET

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        held = Registry(f"127.0.0.1:{server.server_port}")
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield held
        finally:
            server.shutdown()
