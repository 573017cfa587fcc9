"""Whether two globs can mean the same file: no two runs of a store keep one."""

from __future__ import annotations

import functools
import re
from pathlib import Path

from unbroken.errors import ConfigError
from unbroken.exec.call import Call, read_call
from unbroken.exec.place import stores_below

_TOKENS = re.compile(r"\{progress\}|\*\*/?|\*|\?|.", re.DOTALL)
# What repeats, and which characters it stands for.
_MANY = {"*": "[^/]", "**": ".", "**/": ".", "{progress}": r"[\d.eE+-]"}


def refuse_shared(name: str, call: Call, store: Path, root: Path) -> None:
    """ConfigError if another run in `root` that is not done may keep a file that this one keeps, naming both."""
    for other in stores_below(root):
        theirs = None if other == store else read_call(other)
        if theirs is None or theirs.is_finished:
            continue
        for mine in call.keep:
            for its in theirs.keep:
                if may_share(absolute(mine, call), absolute(its, theirs)):
                    who = other.relative_to(root).as_posix()
                    raise ConfigError(
                        [
                            f"exec: {name} keeps {mine!r}, and {who} keeps {its!r}, which may be the same file; "
                            f"let each --keep name files of its own (if {who} is over: rm -r {other})"
                        ]
                    )


def absolute(glob: str, call: Call) -> str:
    """The glob from the root of the file system."""
    return str(Path(call.folder) / glob)


def may_share(one: str, other: str) -> bool:
    """True if some file may match both: a folder that matches stands for all in it."""
    return may_meet(one, other) or may_meet(f"{one}/**", other) or may_meet(one, f"{other}/**")


def may_meet(one: str, other: str) -> bool:
    """True if some path matches both globs."""
    left, right = _TOKENS.findall(one), _TOKENS.findall(other)

    @functools.cache
    def meet(at: int, by: int) -> bool:
        is_one, is_other = at < len(left), by < len(right)
        shares = is_one and is_other and _share(left[at], right[by])
        if is_one and left[at] in _MANY and (meet(at + 1, by) or (shares and meet(at, by + 1))):
            return True
        if is_other and right[by] in _MANY and (meet(at, by + 1) or (shares and meet(at + 1, by))):
            return True
        if is_one and is_other:
            return shares and left[at] not in _MANY and right[by] not in _MANY and meet(at + 1, by + 1)
        return not is_one and not is_other

    return meet(0, 0)


def _share(one: str, other: str) -> bool:
    """True if there is a character that both stand for."""
    for token, its in ((one, other), (other, one)):
        if token not in _MANY and token != "?":
            return bool(re.fullmatch(_MANY.get(its, "[^/]" if its == "?" else re.escape(its)), token, re.DOTALL))
    return True
