"""What a program prints is in the log before anybody looks there for its last line."""

import os
import threading
from pathlib import Path

from unbroken.exec.outputs import Passage


def test_a_pipe_is_drained_into_the_log_before_it_is_closed(tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb") as log, (tmp_path / "screen").open("wb") as screen:
        out, into = os.pipe()
        passage = Passage(out, log.fileno(), screen.fileno())
        thread = threading.Thread(target=passage.run, daemon=True)
        thread.start()
        for number in range(200):
            os.write(into, b"x" * 4096)
            passage.drain()
            assert (tmp_path / "log").stat().st_size == 4096 * (number + 1)
        os.close(into)
        thread.join()
        os.close(out)

    assert (tmp_path / "screen").stat().st_size == 200 * 4096
