"""Two folders of results: what differs, and where, in the words of whoever made them."""

from unbroken.rehearsal.compare.difference import Difference, Kind
from unbroken.rehearsal.compare.folders import compare_folders, is_excepted

__all__ = ["Difference", "Kind", "compare_folders", "is_excepted"]
