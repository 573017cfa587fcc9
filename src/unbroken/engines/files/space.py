"""How much space output files take, in words for people."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class OutputSpace:
    """How many output files belong to a checkpoint, their size in bytes, and the globs of what the run drops."""

    files: int = 0
    size_bytes: int = 0
    dropped: tuple[str, ...] = ()

    def words(self) -> str:
        """Return it as `unbroken status` shows it; empty if the run has no list of outputs and drops nothing."""
        files = "1 file" if self.files == 1 else f"{self.files:,} files"
        told = [f"output: {files}, {bytes_words(self.size_bytes)}"] if self.files else []
        told += [f"dropped, as `discard` says: {', '.join(self.dropped)}"] if self.dropped else []
        return "; ".join(told)


def bytes_words(size_bytes: float) -> str:
    """Return a size such as `3.41 GB`."""
    units = ["bytes", "kB", "MB", "GB", "TB"]
    while size_bytes >= 1000 and units[1:]:
        size_bytes /= 1000
        units.pop(0)
    digits = 0 if size_bytes >= 99.95 or units[0] == "bytes" else 1 if size_bytes >= 9.995 else 2
    return f"{size_bytes:,.{digits}f} {units[0]}"
