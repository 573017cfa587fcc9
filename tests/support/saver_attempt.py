"""One attempt of a saver (saver_runs.py) in a process of its own; it looks often, for many saves in little time."""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))


def main() -> int:
    """Exit code 0: finished; 85: paused; 1: an error, which is printed."""
    from support.command_jobs import command_segment

    from unbroken.engines.files import engine
    from unbroken.errors import UnbrokenError
    from unbroken.store.history import EndKind

    what = json.loads(sys.argv[1])
    engine.LOOK_SECONDS, engine.LOOK_SHARE = 0.05, 0.5
    base, settings = Path(what.pop("base")), what.pop("settings")
    try:
        record = command_segment(base, settings, what.pop("segment"), what.pop("attempt"), **what)
    except UnbrokenError as error:
        print(f"error: {type(error).__name__}: {error}", flush=True)
        return 1
    return 0 if record.kind is EndKind.FINISHED else 85


if __name__ == "__main__":
    sys.exit(main())
