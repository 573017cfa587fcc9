"""Write and read one checkpoint of this engine: images/, files/ and state.json."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from unbroken.engines.dmtcp.files import Listing
from unbroken.engines.dmtcp.pace import SaveSeconds
from unbroken.errors import CheckpointError

FILE_NAME = "state.json"
IMAGES, FILES, FINAL = "images", "files", "final"


@dataclass(frozen=True)
class DmtcpState:
    """Hold the content of `state.json`: how long the program has worked, and its folder and saves."""

    done_seconds: float
    listing: Listing
    pace: SaveSeconds
    machine: Mapping[str, str]
    live: str  # the absolute path of the program's folder
    slot: str  # the folder that the images must lie in when they are brought back
    images: tuple[str, ...]  # one a process

    def write(self, folder: Path) -> None:
        """Write it into the draft of a checkpoint."""
        data = {
            "done_seconds": self.done_seconds,
            "listing": self.listing.to_json(),
            "saves": self.pace.saves,
            "machine": dict(self.machine),
            "live": self.live,
            "slot": self.slot,
            "images": self.images,
        }
        (folder / FILE_NAME).write_text(json.dumps(data, indent=2) + "\n")


def read_state(folder: Path) -> DmtcpState:
    """Read the state of a checkpoint; raise CheckpointError if it is not one of this engine."""
    path = folder / FILE_NAME
    try:
        data = json.loads(path.read_text())
        listing = data["listing"]
        return DmtcpState(
            float(data["done_seconds"]),
            Listing(tuple(listing["folders"]), listing["links"], listing["modes"]),
            SaveSeconds.of(data["saves"]),
            data["machine"],
            str(data["live"]),
            Path(data["slot"]).name,
            tuple(data["images"]),
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{path}: no state of this engine ({error!r})") from error
