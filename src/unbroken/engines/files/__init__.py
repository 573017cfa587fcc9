"""Watch, save, restore and join the files of a program: the file supervisor.

- `file_events` of the kernel -> `batch` -> `knowledge` (`observer` is its thread) -> `moments`: when a state file was
  complete, and how long each other file was then.  `observed` asks them, also for an attempt that was killed.
- `states` says which restart files belong together, and copies them; `reading` how far they are.
- `kinds` says what a name is: state, output, or neither.
- `supervisor` decides what becomes a checkpoint, with `handed_over` for the contract; `place` and `called_place` say
  which files there are: in a folder of the run (`command`), or where the user called (`unbroken exec`).
- `tracker` and `listing` write the list of `outputs` into a checkpoint; `content` looks into a file.
- `workspace` (`command`) and `put_back` (`unbroken exec`) make files what they were; `results` fills `final/`.
- `tables` joins outputs by the numbers of their records, and takes each record of an imported one once.
"""
