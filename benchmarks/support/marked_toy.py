"""The toy program, with the moments of its segment noted.  `enter` puts it before the toy's own command line."""

import os
import sys

from marks import Marks, phase_seconds

from unbroken.engines.toy import program as toy

if __name__ == "__main__":
    marks = Marks()
    marks.now("imported")
    count, save = toy._next, toy._save

    def counted(value, step):
        marks.first("first_step")
        marks.now("last_step")
        return count(value, step)

    def saved(*arguments):
        marks.now("save_start")
        save(*arguments)

    deadline, early_seconds = toy._deadline, phase_seconds(int(os.environ["UNBROKEN_SEGMENT"]))
    toy._next, toy._save, toy._deadline = counted, saved, lambda: deadline() - early_seconds
    sys.argv = [toy.__file__, *sys.argv[sys.argv.index("unbroken.engines.toy.program") + 1 :]]
    try:
        code = toy.main()
    finally:
        marks.write()
    sys.exit(code)
