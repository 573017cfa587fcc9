"""`gmx mdrun`: engine gromacs."""

from __future__ import annotations

import re
from pathlib import PurePath

from unbroken.convert.draft import Draft, Source, enter, export_all, modules
from unbroken.convert.job import Line
from unbroken.convert.seen import Launched
from unbroken.convert.words import Word, shell_line

_GMX = re.compile(r"gmx(_mpi)?(_d)?")
# What unbroken says itself, with and without a value behind it [gmx mdrun -h, 2024].
_OURS = (
    "-cpi",
    "-cpo",
    "-deffnm",
    "-s",
    "-maxh",
    "-cpt",
    "-nsteps",
    "-o",
    "-x",
    "-e",
    "-g",
    "-c",
    "-ntmpi",
    "-ntomp",
    "-nt",
)
_OURS_ALONE = (
    "-append",
    "-noappend",
    "-v",
    "-cpnum",
    "-nocpnum",
    "-quiet",
    "-nobackup",
    "-noconfout",
    "-confout",
    "-nov",
)
_SETTINGS = {"-nb": "nb", "-pme": "pme", "-bonded": "bonded", "-update": "update", "-gpu_id": "gpu_id"}
_OUT = {"-o", "-x", "-e", "-g", "-c"}
# Options of mdrun that stand alone; all others have a value.
_FLAGS = re.compile(r"-(no)?(reprod|tunepme|rerunvsite|ddcheck|dd_check|resethway|ionize|hrex|multi_?dir_no)")


def is_mdrun(source: Source) -> bool:
    """True if the program is GROMACS's mdrun."""
    return bool(_GMX.fullmatch(source.line.program)) and "mdrun" in [word.source for word in source.line.words[:3]]


def gromacs_run(source: Source) -> Draft:
    """The run; options of mdrun that unbroken does not set itself are kept."""
    draft = Draft("gromacs", f"line {source.start.line}: {source.line.program} mdrun")
    options, flags = _options(source, source.start)
    export_all(source)
    modules(source, draft)
    launcher = [source.literal(word, source.start.line) for word in source.line.launcher]
    ranks = _ranks(source, options)
    enter(source, draft, with_launcher=False)
    if launcher and not any(line.key == "enter" for line in draft.lines) and source.job.tasks > 1:
        draft.lines.append(Line("enter", "[]", "mdrun alone is started by the launcher, its small tools are not"))
    if "-cpt" in options:
        draft.lines.append(Line("save_minutes", options["-cpt"], f"line {source.start.line}: -cpt"))
    _tpr(source, draft, options)
    if "-nsteps" in options and not options["-nsteps"].startswith("-"):
        draft.set("goal", int(options["-nsteps"]), f"line {source.start.line}: -nsteps")
    program = shell_line(source.line.words[:1])
    if program != "gmx":
        draft.set("gmx", program, f"line {source.start.line}")
    if source.first.gmxrc:
        word, line = source.first.gmxrc
        # mdrun is started in a folder of its own.
        draft.set("gmxrc", str(source.folder.resolve() / source.literal(word, line)), f"line {line}")
    _launcher(source, draft, launcher, ranks)
    for option, key in _SETTINGS.items():
        if option in options:
            draft.set(key, options[option], f"line {source.start.line}: {option}")
    if "-npme" in options and not options["-npme"].startswith("-"):
        draft.set("pme_ranks", int(options["-npme"]), f"line {source.start.line}: -npme")
    if "-reprod" in flags:
        flags.remove("-reprod")
        draft.set("exact", True, f"line {source.start.line}: -reprod")
    kept = {"-npme", *_OURS, *_SETTINGS}
    rest = [word for option, value in options.items() if option not in kept for word in (option, value)] + flags
    if rest:
        draft.set("options", rest, f"line {source.start.line}")
    return draft


def _options(source: Source, launched: Launched) -> tuple[dict[str, str], list[str]]:
    """mdrun's options with their values, and those that stand alone."""
    words = source.line.words
    at = next(number for number, word in enumerate(words) if word.source == "mdrun") + 1
    options: dict[str, str] = {}
    flags: list[str] = []
    gone: list[str] = []
    while at < len(words):
        option = words[at].source
        following = words[at + 1] if at + 1 < len(words) else None
        if option in _OURS_ALONE or following is None or _is_option(following) or _FLAGS.fullmatch(option):
            (gone if option in (*_OURS_ALONE, *_OURS) else flags).append(option)
            at += 1
            continue
        if option in ("-cpi", "-maxh", *_OUT, "-cpo"):
            gone.append(f"{option} {following.source}")
        else:
            options[option] = source.literal(following, launched.line)
        at += 2
    if gone:
        source.first.drop(launched.line, " ".join(gone), "unbroken says itself what mdrun goes on from, and writes")
    return options, flags


def _is_option(word: Word) -> bool:
    return bool(re.match(r"-[A-Za-z]", word.source))


def _ranks(source: Source, options: dict[str, str]) -> int:
    """How many ranks the script starts: by its launcher, or by -ntmpi; its threads become those of the run."""
    job, line = source.job, source.start.line
    ranks = int(options.get("-ntmpi", "0") or 0) or (job.tasks if source.line.launcher else 1)
    threads = int(options.get("-ntomp", "0") or 0)
    if threads and not source.line.launcher and job.tasks * job.threads != ranks * threads:
        found = f"-ntomp {threads} with {ranks} ranks uses {ranks * threads} of {job.tasks * job.threads} cores"
        source.first.lose(line, found, "mdrun gets all cores of the job, shared by its ranks")
    return ranks


def _launcher(source: Source, draft: Draft, launcher: list[str], ranks: int) -> None:
    line = source.start.line
    if ranks > 1:
        draft.set("ranks", ranks, f"line {line}")
    if not launcher:
        return
    if ranks == 1 and PurePath(launcher[0]).name == "srun":
        source.first.drop(line, " ".join(launcher), "a single task needs no srun")
        return
    counts = ("-n", "-np", "--ntasks")
    words: list[str] = []
    skip = False
    for word in launcher:
        if skip or word.partition("=")[0] == "--ntasks":
            skip = False
        elif word in counts:
            skip = True
        else:
            words.append(word)
    draft.set("launcher", [words[0], *words[1:], "-n", "{ranks}"], f"line {line}")


def _tpr(source: Source, draft: Draft, options: dict[str, str]) -> None:
    """The tpr that mdrun reads, or what grompp made it of."""
    line = source.start.line
    stem = options.get("-deffnm", "")
    tpr = options.get("-s") or (f"{stem}.tpr" if stem else "topol.tpr")
    tpr = tpr if PurePath(tpr).suffix else f"{tpr}.tpr"
    where = "-s" if "-s" in options else "-deffnm" if stem else "mdrun's default"
    grompp = source.first.grompp[0] if source.first.grompp else None
    if grompp is None or source.is_file(tpr):
        if grompp is not None:
            source.first.drop(grompp.line, shell_line(grompp.words), f"{tpr} is there, and is taken as it is")
        draft.set(
            "tpr",
            source.below(tpr),
            f"line {line}: {where}" + ("" if source.is_file(tpr) else f"; {tpr} has to be here"),
        )
        return
    words = [source.literal(word, grompp.line) for word in grompp.words]
    at = words.index("grompp") + 1
    rest: list[str] = []
    keys = {"-f": "mdp", "-c": "structure", "-p": "topology", "-n": "index", "-r": "reference"}
    values = {"mdp": "grompp.mdp", "structure": "conf.gro", "topology": "topol.top"}
    while at < len(words):
        option, value = words[at], words[at + 1] if at + 1 < len(words) else ""
        if option in keys:
            values[keys[option]] = value
        elif option == "-t":
            why = "the velocities of another simulation have no key; make the tpr by hand, and convert again"
            raise source.script.refused(grompp.line, f"grompp -t {value}: {why}")
        elif option not in ("-o", "-po", "-pp"):
            rest += [option, value] if value and not value.startswith("-") else [option]
        at += 2 if value and not value.startswith("-") else 1
    for key, value in values.items():
        draft.set(key, source.below(value), f"line {grompp.line}: grompp")
    if rest:
        draft.set("grompp_options", rest, f"line {grompp.line}")
