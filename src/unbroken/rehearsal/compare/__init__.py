"""Two folders of results: what differs, and where, in the words of whoever made them."""

from unbroken.rehearsal.compare.difference import Difference, Kind
from unbroken.rehearsal.compare.folders import begun_again, compare_folders, is_excepted

__all__ = ["Difference", "Kind", "begun_again", "compare_folders", "is_excepted"]
