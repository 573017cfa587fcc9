"""How the loader of a script becomes one that an object of ours makes."""

from __future__ import annotations

import ast
import textwrap

from unbroken.engines.script_edit import Script, keyword, last_name, target_name

LOADER_OPTIONS = {"batch_size", "shuffle", "drop_last", "collate_fn", "num_workers", "pin_memory", "timeout"}
LOADER_OPTIONS |= {"dataset", "worker_init_fn", "multiprocessing_context", "prefetch_factor", "persistent_workers"}


def is_plain_loader(value: ast.expr) -> bool:
    """True of a DataLoader with such options alone as ours has too."""
    return (
        isinstance(value, ast.Call)
        and last_name(value.func) == "DataLoader"
        and len(value.args) <= 2
        and bool(value.args or keyword(value, "dataset"))
        and all(each.arg is None or each.arg in LOADER_OPTIONS for each in value.keywords)
    )


def loader_by(script: Script, call: ast.expr, owner: str) -> None:
    """Lets an object of ours make the loader that a plain DataLoader was."""
    if not isinstance(call, ast.Call):
        return
    script.replace(call.func, f"{owner}.loader")
    # A DataLoader keeps the order unless it is told otherwise, ours shuffles.
    if keyword(call, "shuffle") is not None:
        return
    hidden = [each.value for each in call.keywords if not each.arg]
    if hidden:
        script.replace(hidden[0], _unshuffled(script.source(hidden[0])))
    else:
        script.append(call.keywords[-1].value if call.keywords else call.args[-1], ", shuffle=False")


def _unshuffled(options: str) -> str:
    """Options of which nobody knows whether they shuffle: without a word of it they do not."""
    return f'{{"shuffle": False, **{options}}}'


def loader_again(name: str, own: ast.Assign | None, script: Script) -> str:
    """The loader in a line of its own, behind the training."""
    if own is None or not isinstance(own.value, ast.Call):
        options = ("batch_size", "num_workers", "drop_last", "collate_fn", "pin_memory")
        words = [f"{each}={name}.{each}" for each in options] + _order_of(name, script)
        return f"{name} = training.loader({name}.dataset, {', '.join(words)})"
    words = [*map(script.source, own.value.args)]
    words += [f"{each.arg}={script.source(each.value)}" for each in own.value.keywords if each.arg]
    hidden = [script.source(each.value) for each in own.value.keywords if not each.arg]
    has_order = keyword(own.value, "shuffle") is not None
    if hidden and not has_order:
        hidden[0], has_order = _unshuffled(hidden[0]), True
    words += [f"**{each}" for each in hidden] + ["shuffle=False"] * (not has_order)
    return textwrap.dedent(" " * own.col_offset + f"{name} = training.loader({', '.join(words)})")


def _order_of(name: str, script: Script) -> list[str]:
    """Return whether a loader that is made elsewhere shuffles, as far as the script says it."""
    made = [node.value for node in script.nodes(ast.Assign) if target_name(node) == name]
    if len(made) != 1 or not isinstance(made[0], ast.Call) or not is_plain_loader(made[0]):
        return []
    shuffle = keyword(made[0], "shuffle")
    if shuffle is None:
        return ["shuffle=False"] if all(each.arg for each in made[0].keywords) else []
    return ["shuffle=False"] if isinstance(shuffle, ast.Constant) and not shuffle.value else []
