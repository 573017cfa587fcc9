"""Recognize a script of TensorFlow or Keras, and make a plain `model.fit` resume."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from unbroken.engines.script_edit import (
    NotPlainError,
    Script,
    block_with,
    diff_or_lines,
    keyword,
    last_name,
    notes_on_files,
)
from unbroken.engines.training import Advice, TrainingEngine

LINES = (
    "from unbroken.training.keras import UnbrokenCallback",
    "unbroken = UnbrokenCallback()",
    "data = unbroken.data(images, labels, batch_size=64)",
    "model.fit(data, epochs=unbroken.goal or 10, callbacks=[unbroken])",
)
# What only makes sense where fit itself cuts the data into batches.
_OF_DATA = {"x", "y", "batch_size", "shuffle", "epochs", "callbacks"}
_REFUSED = ("validation_split", "steps_per_epoch", "initial_epoch", "sample_weight", "class_weight")


class TensorFlowEngine(TrainingEngine):
    """Run trainings of TensorFlow and Keras, in one worker or several."""

    name = "tensorflow"
    processes = "workers"
    options = ("--tf-config",)

    def trains(self, script: Script) -> bool:
        is_imported = bool(script.imports() & {"tensorflow", "keras"})
        return is_imported and bool(script.calls() & {"fit", "GradientTape", "train_on_batch"})

    def advice(self, script: Script) -> Advice:
        changes = diff_or_lines(script, make_changes, LINES)
        fits = [call for call in script.nodes(ast.Call) if last_name(call.func) == "fit"]
        epochs = keyword(fits[0], "epochs") if len(fits) == 1 else None
        return Advice(*changes, None if epochs is None else script.number(epochs))


def make_changes(script: Script) -> Iterator[str]:
    """Edit the script so that it resumes; return what the user has to know, a line each.

    Raise NotPlainError naming what is not as usual.
    """
    call = _fit(script)
    statement = next((each for each in script.nodes(ast.Expr | ast.Assign) if each.value is call), None)
    if statement is None:
        raise NotPlainError(f"line {call.lineno}: fit is no statement of its own")
    block_with(script.tree, statement)
    model = script.source(call.func.value)  # type: ignore[attr-defined]
    given = {each.arg: f"{each.arg}={script.source(each.value)}" for each in call.keywords if each.arg}
    script.insert_before(statement, "unbroken = UnbrokenCallback()", f"data = {_data(script, call, given)}")
    others = [text for name, text in given.items() if name not in _OF_DATA]
    words = ["data", f"epochs={_epochs(script, call)}", *others, f"callbacks={_callbacks(script, call)}"]
    script.replace(call, f"{model}.fit({', '.join(words)})")
    script.insert_import(LINES[0])
    return notes_on_files(script, statement.lineno)


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


def _epochs(script: Script, call: ast.Call) -> str:
    """Return the goal of the configuration, or where there is none the epochs of the script."""
    value = keyword(call, "epochs")
    own = "1" if value is None else script.source(value)
    return f"unbroken.goal or {own if value is None or isinstance(value, ast.Constant | ast.Name) else f'({own})'}"


def _callbacks(script: Script, call: ast.Call) -> str:
    """Return the script's callbacks with ours."""
    value = keyword(call, "callbacks")
    if isinstance(value, ast.List):
        return f"[{', '.join([*map(script.source, value.elts), 'unbroken'])}]"
    is_given = value is not None and not (isinstance(value, ast.Constant) and value.value is None)
    return f"[*{script.source(value)}, unbroken]" if is_given else "[unbroken]"  # type: ignore[arg-type]


def _data(script: Script, call: ast.Call, given: dict[str, str]) -> str:
    """Return the data as the training hands them out: arrays in its own order, a `tf.data.Dataset` as it is."""
    named = [value for name in ("x", "y") if (value := keyword(call, name)) is not None]
    arrays = [script.source(each) for each in (*call.args, *named)]
    if not arrays:
        raise NotPlainError(f"line {call.lineno}: fit without data")
    if len(arrays) == 1:
        return f"unbroken.dataset(lambda epoch: {arrays[0]}, batches=len({arrays[0]}))"
    words = [text for name, text in given.items() if name in ("batch_size", "shuffle")]
    return f"unbroken.data({', '.join([*arrays, *words])})"
