"""Describe what a checkpoint image depends on: DMTCP's release, the C library, and the processor's features."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

# Libraries look once, at their start, which of these there are, and keep to that after a restart.
_INSTRUCTIONS = re.compile(
    r"(sse|ssse|avx|fma|bmi|f16c|aes|pclmul|vpclmul|sha|vaes|gfni|popcnt|abm|lzcnt|movbe|adx|amx|rdrand|rdseed|asimd|sve"
    r"|neon|crc32|atomics|i8mm|bf16).*"
)
_SWITCH = "settings.machine_may_differ: true"


def this_machine(dmtcp: str) -> dict[str, str]:
    """Return what a restarted program depends on: DMTCP's release, the C library's, the processor's features."""
    glibc = (os.confstr("CS_GNU_LIBC_VERSION") or "").removeprefix("glibc ")
    return {"dmtcp": dmtcp, "glibc": glibc, "cpu_features": " ".join(sorted(cpu_features()))}


def mismatch(here: Mapping[str, str], origin: Mapping[str, str]) -> str:
    """Return why images from `origin` cannot resume here, and what to do, or "".  More features do no harm."""
    for name in ("dmtcp", "glibc"):
        if origin.get(name, here[name]) != here[name]:
            return (
                f"the images were made with {name} {origin[name]}, here is {here[name]}; ask for a node as before "
                f"(constraint), load the same release (modules), or try it at your own risk with {_SWITCH}"
            )
    missing = sorted(set(origin.get("cpu_features", "").split()) - set(here["cpu_features"].split()))
    if not missing:
        return ""
    return (
        f"the processor here lacks {', '.join(missing)}, which the program may have chosen to use when it was "
        "started; ask for a node as before (constraint), or start on the oldest kind of node; at your own risk: "
        f"{_SWITCH}"
    )


def cpu_features(cpuinfo: Path = Path("/proc/cpuinfo")) -> frozenset[str]:
    """Return the instruction sets of this processor; empty if it does not list them."""
    try:
        lines = cpuinfo.read_text().splitlines()
    except OSError:
        return frozenset()
    flags = next((line.partition(":")[2] for line in lines if line.startswith(("flags", "Features"))), "")
    return frozenset(flag for flag in flags.split() if _INSTRUCTIONS.fullmatch(flag))
