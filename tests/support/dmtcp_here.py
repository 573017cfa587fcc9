"""Which DMTCP the tests use: the stand-in, or the real one whose folder of programs UNBROKEN_DMTCP names."""

import os
import socket
import subprocess
import sys
import uuid
from pathlib import Path

STAND_IN = Path(__file__).parents[1] / "dmtcp_stand_in"
RELEASES = ("4.1.1", "5.0", "3.2.0")
REAL = Path(os.environ["UNBROKEN_DMTCP"]) if "UNBROKEN_DMTCP" in os.environ else None
PROGRAMS = REAL or STAND_IN / RELEASES[0]
# What the stand-in holds for its images ends with this process.
os.environ["STAND_IN_OWNER"] = str(os.getpid())
# It can start programs that outlive the attempts that did so: see there.  It is heard from here on, however long its
# start takes.
_ADDRESS = f"dmtcp-stand-in-nursery-{uuid.uuid4().hex}"
os.environ["STAND_IN_NURSERY"] = _ADDRESS
with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as _server:
    _server.bind(f"\0{_ADDRESS}")
    _server.listen(64)
    NURSERY = subprocess.Popen(
        [sys.executable, "-I", "-S", str(STAND_IN / "nursery.py"), str(os.getpid()), str(_server.fileno())],
        stdin=subprocess.DEVNULL,
        pass_fds=[_server.fileno()],
        start_new_session=True,
    )
