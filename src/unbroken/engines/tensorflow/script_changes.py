"""Makes a plain `model.fit` resume: the changes of the script, in its own names."""

from __future__ import annotations

import ast

from unbroken.engines.script_edit import NotPlainError, Script, block_with, keyword, last_name

IMPORT = "from unbroken.training.tensorflow import Training"
# What only makes sense where fit itself cuts the data into batches.
_OF_DATA = {"x", "y", "batch_size", "shuffle", "epochs", "callbacks"}
_REFUSED = ("validation_split", "steps_per_epoch", "initial_epoch", "sample_weight", "class_weight")


def make_changes(script: Script) -> None:
    """Edit the script so that it resumes; NotPlainError naming what is not as usual."""
    call = _fit(script)
    statement = _statement(script, call)
    model = script.source(call.func.value)  # type: ignore[attr-defined]
    script.insert_before(statement, f"training = Training({model})", f"data = {_data(script, call)}")
    words = ["data"]
    if (epochs := keyword(call, "epochs")) is not None:
        words.append(f"epochs={script.source(epochs)}")
    words += [f"{each.arg}={script.source(each.value)}" for each in call.keywords if each.arg == "callbacks"]
    words += [f"{each.arg}={script.source(each.value)}" for each in call.keywords if each.arg not in _OF_DATA]
    script.replace(call, f"training.fit({', '.join(words)})")
    script.insert_after(statement, f'training.finish({{"model.keras": {model}}})')
    script.insert_import(IMPORT)


def goal_of(script: Script) -> float | None:
    """Return how many epochs the script says itself; None if that is not found."""
    calls = [call for call in script.nodes(ast.Call) if last_name(call.func) == "fit"]
    epochs = [keyword(call, "epochs") for call in calls]
    return script.number(epochs[0]) if len(epochs) == 1 and epochs[0] is not None else None


def _fit(script: Script) -> ast.Call:
    calls: list[ast.Call] = [call for call in script.nodes(ast.Call) if last_name(call.func) == "fit"]
    calls = [call for call in calls if isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Name)]
    if len(calls) != 1:
        raise NotPlainError(f"{len(calls) or 'no'} calls of `model.fit`")
    call = calls[0]
    if refused := [each.arg for each in call.keywords if each.arg is None or each.arg in _REFUSED]:
        raise NotPlainError(f"line {call.lineno}: `{refused[0] or '**'}`")
    if len(call.args) > 2:
        raise NotPlainError(f"line {call.lineno}: more than two arguments without a name")
    return call


def _statement(script: Script, call: ast.Call) -> ast.stmt:
    for node in script.nodes(ast.stmt):
        if isinstance(node, ast.Expr | ast.Assign) and node.value is call:
            block_with(script.tree, node)
            return node
    raise NotPlainError(f"line {call.lineno}: fit is no statement of its own")


def _data(script: Script, call: ast.Call) -> str:
    """Return the data as the training hands them out: arrays in its own order, a `tf.data.Dataset` as it is."""
    given = [*call.args, *(value for name in ("x", "y") if (value := keyword(call, name)) is not None)]
    arrays = [script.source(each) for each in given]
    if not arrays:
        raise NotPlainError(f"line {call.lineno}: fit without data")
    if len(arrays) == 1:
        return f"training.dataset(lambda epoch: {arrays[0]}, batches=len({arrays[0]}))"
    words = [
        f"{each.arg}={script.source(each.value)}" for each in call.keywords if each.arg in ("batch_size", "shuffle")
    ]
    return f"training.data({', '.join([*arrays, *words])})"
