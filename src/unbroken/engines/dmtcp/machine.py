"""Describe what a checkpoint image depends on: DMTCP's release, the C library, and the processor's features."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

# Libraries look once, at their start, which of these there are, and keep to that after a restart.
_INSTRUCTIONS = re.compile(
    r"(sse|ssse|avx|fma|bmi|f16c|aes|pclmul|vpclmul|sha|vaes|gfni|popcnt|abm|lzcnt|movbe|adx|amx|rdrand|rdseed|asimd|sve"
    r"|neon|crc32|atomics|i8mm|bf16).*"
)
_SWITCH = "settings.machine_may_differ: true"


@dataclass(frozen=True)
class Machine:
    """Hold the properties of a machine on which a restarted program still depends."""

    dmtcp: str
    glibc: str
    cpu_features: frozenset[str]

    def to_versions(self) -> dict[str, str]:
        """Return the entries for the manifest."""
        return {"dmtcp": self.dmtcp, "glibc": self.glibc, "cpu_features": " ".join(sorted(self.cpu_features))}

    def mismatch(self, origin: Mapping[str, str]) -> str:
        """Return why images from there cannot resume here, and what to do, or "".  More features do no harm."""
        for name, here in (("dmtcp", self.dmtcp), ("glibc", self.glibc)):
            if (was := origin.get(name, here)) != here:
                return (
                    f"the images were made with {name} {was}, here is {here}; ask for a node as before (constraint), "
                    f"load the same release (modules), or try it at your own risk with {_SWITCH}"
                )
        missing = sorted(set(origin.get("cpu_features", "").split()) - self.cpu_features)
        if not missing:
            return ""
        return (
            f"the processor here lacks {', '.join(missing)}, which the program may have chosen to use when it was "
            "started; ask for a node as before (constraint), or start on the oldest kind of node; at your own risk: "
            f"{_SWITCH}"
        )


def this_machine(dmtcp: str) -> Machine:
    """Return the machine on which this process runs."""
    return Machine(dmtcp, (os.confstr("CS_GNU_LIBC_VERSION") or "").removeprefix("glibc "), cpu_features())


def cpu_features(cpuinfo: Path = Path("/proc/cpuinfo")) -> frozenset[str]:
    """Return the instruction sets of this processor; empty if it does not list them."""
    try:
        lines = cpuinfo.read_text().splitlines()
    except OSError:
        return frozenset()
    flags = next((line.partition(":")[2] for line in lines if line.startswith(("flags", "Features"))), "")
    return frozenset(flag for flag in flags.split() if _INSTRUCTIONS.fullmatch(flag))
