"""Run any program with restart files of its own; the config says how to start, resume and read it."""
