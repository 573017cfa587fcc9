"""Which DMTCP the tests use: the stand-in, or the real one whose folder of programs LONGHAUL_DMTCP names."""

import os
import subprocess
import sys
from pathlib import Path

STAND_IN = Path(__file__).parents[1] / "dmtcp_stand_in"
RELEASES = ("4.1.1", "5.0", "3.2.0")
REAL = Path(os.environ["LONGHAUL_DMTCP"]) if "LONGHAUL_DMTCP" in os.environ else None
PROGRAMS = REAL or STAND_IN / RELEASES[0]
# What the stand-in holds for its images ends with this process.
os.environ["STAND_IN_OWNER"] = str(os.getpid())
# It can start programs that outlive the attempts that did so: see there.
NURSERY = subprocess.Popen(
    [sys.executable, "-I", "-S", str(STAND_IN / "nursery.py"), str(os.getpid())],
    stdin=subprocess.DEVNULL,
    start_new_session=True,
)
