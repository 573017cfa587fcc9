"""The engine for any program with restart files of its own, told in the config how to start, resume and read it."""
