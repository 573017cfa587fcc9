"""With what a checkpoint was made that shows in its bits; standard library alone.

It stands in the passport.  Nobody is stopped by a change of it, since the result is as good; but it is said.
"""

from __future__ import annotations

from collections.abc import Mapping

# What changes the last digits, and how it is called; ranks are told where their states are brought into another form.
_TELLING = {
    "torch": "torch",
    "tensorflow": "TensorFlow",
    "keras": "Keras",
    "threads": "threads",
    "gpus": "GPUs",
    "compiled": "compiled parts",
}


def differences(before: Mapping[str, str], now: Mapping[str, str]) -> str:
    """What of it is other than when the checkpoint was made, in words; empty if nothing is."""
    changed = [name for name in _TELLING if name in before and name in now and before[name] != now[name]]
    return ", ".join(f"{_TELLING[name]}: {before[name]} then, {now[name]} now" for name in changed)
