"""The file supervisor: how the files of a program are watched, saved, put back and joined."""
