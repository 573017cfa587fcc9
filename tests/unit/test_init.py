"""`unbroken init`: what it finds in a folder, what it writes, and what a script needs."""

import ast
import re
import subprocess
import textwrap
from pathlib import Path

import pytest
import yaml
from support.toyrun import ROOT

from unbroken.cli.init_command import MODULE, SNAKEFILE, choose, init
from unbroken.engines.found import found_engines, read_checked_runs
from unbroken.engines.script_edit import NotPlainError, Script
from unbroken.engines.tensorflow import engine as keras_changes
from unbroken.engines.torch import script_changes as torch_changes
from unbroken.errors import ConfigError

TRAINING = """
    import torch
    from torch.utils.data import DataLoader

    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.Adam(model.parameters())
    loader = DataLoader(data, batch_size=4, shuffle=True)
    for epoch in range(7):
        for inputs, targets in loader:
            loss = lost(model(inputs), targets)
            loss.backward()
            optimizer.step()
"""
MELT = """
    units           lj
    lattice         fcc 0.8442
    region          box block 0 4 0 4 0 4
    create_box      1 box
    create_atoms    1 box
    mass            1 1.0
    velocity        all create 3.0 87287 &
                    loop geom
    pair_style      lj/cut 2.5
    pair_coeff      1 1 1.0 1.0 2.5
    fix             1 all nve
    dump            1 all atom 50 melt.lammpstrj
    run             2000   # steps
"""


@pytest.fixture(autouse=True)
def without_a_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unbroken.cli.init_command.has_command", lambda name: False)


def write(path: Path, text: str) -> Path:
    path.write_text(textwrap.dedent(text).lstrip("\n"))
    return path


def changed(tmp_path: Path, text: str, make_changes=torch_changes.make_changes) -> str:
    """The added and removed lines of a script's diff, without their indentation."""
    script = Script.read(write(tmp_path / "train.py", text))
    make_changes(script)
    lines = [line for line in script.diff().splitlines() if line[:1] in "+-" and line[:3] not in ("+++", "---")]
    return "\n".join(f"{line[0]}{line[1:].strip()}" for line in lines)


# --- what is found ---


@pytest.mark.parametrize(
    ("name", "text", "engine"),
    [
        ("train.py", TRAINING, "torch"),
        ("fit.py", "import keras\nmodel.fit(x, y, epochs=3)\n", "tensorflow"),
        ("train.py", "from lightning import Trainer\nTrainer(max_epochs=3).fit(model, loader)\n", "torch"),
        ("in.melt", MELT, "command"),
        ("md.tpr", "", "gromacs"),
    ],
)
def test_an_engine_is_found_by_what_lies_in_the_folder(tmp_path, name, text, engine):
    write(tmp_path / name, text)
    write(tmp_path / "helpers.py", "import torch\n\n\ndef lost(a, b):\n    return (a - b).abs().mean()\n")
    write(tmp_path / "notes.in", "units and other notes\n")

    choice = choose(tmp_path, [])

    assert (choice.engine, choice.starter.source) == (engine, name)


def test_of_several_tprs_the_one_with_a_usual_name_is_taken(tmp_path):
    for name in ("em.tpr", "nvt.tpr", "md.tpr"):
        (tmp_path / name).touch()

    assert choose(tmp_path, []).starter.settings[0] == "tpr: md.tpr"
    assert choose(tmp_path, ["nvt.tpr"]).starter.settings[0] == "tpr: nvt.tpr"
    assert choose(tmp_path, ["gromacs", "em.tpr"]).starter.settings[0] == "tpr: em.tpr"


def test_where_there_is_a_choice_all_are_named_with_what_to_type(tmp_path):
    write(tmp_path / "a.py", TRAINING)
    write(tmp_path / "b.py", TRAINING)
    (tmp_path / "run.tpr").touch()

    with pytest.raises(ConfigError) as error:
        choose(tmp_path, [])

    assert str(error.value).splitlines()[1:] == [
        "    unbroken init gromacs run.tpr",
        "    unbroken init torch a.py",
        "    unbroken init torch b.py",
    ]
    assert choose(tmp_path, ["torch", "b.py"]).starter.source == choose(tmp_path, ["b.py"]).starter.source == "b.py"


def test_where_nothing_is_found_every_engine_is_offered(tmp_path):
    with pytest.raises(ConfigError) as error:
        choose(tmp_path, [])

    lines = str(error.value).splitlines()
    assert lines[0] == f"init: nothing that an engine knows is in {tmp_path}; type one of:"
    assert [line.split()[2] for line in lines[1:]] == list(found_engines())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["torch", "trian.py"], "init torch: found 'trian.py', but there is no such file; looked in "),
        (["gromacs"], "init gromacs: no tpr, and not one mdp, gro and top each, in "),
        (["command"], "init command: which program? type for example: unbroken init command -- "),
        (["dmtcp"], "init dmtcp: which program? type for example: unbroken init dmtcp -- "),
        (["tourch"], "init: 'tourch' is no engine, and nothing that an engine knows is in "),
    ],
)
def test_what_is_missing_is_one_line(tmp_path, words, said):
    with pytest.raises(ConfigError, match=f"^{re.escape(said)}"):
        choose(tmp_path, words)


# --- what is written ---


@pytest.mark.parametrize(
    ("words", "files"),
    [
        (["toy"], {}),
        (["torch", "train.py", "--seed", "1e5"], {"train.py": TRAINING}),
        (["tensorflow", "fit.py"], {"fit.py": "import keras\nmodel.fit(x, y, epochs=3)\n"}),
        (["gromacs"], {"md.mdp": "", "conf.gro": "", "topol.top": ""}),
        (["command", "./walk", "300", "a: b"], {"walk": ""}),
        (["command", "in.melt"], {"in.melt": MELT, "resume_in.melt": ""}),
        (["dmtcp", "python3", "orbit.py", "2000", "0.01"], {"orbit.py": ""}),
    ],
)
def test_the_config_of_each_engine_has_no_mistake_and_is_short(tmp_path, words, files, capsys):
    for name, text in files.items():
        write(tmp_path / name, text)

    init(words, tmp_path)

    text = (tmp_path / "config/config.yaml").read_text()
    (run,) = read_checked_runs(yaml.safe_load(text), tmp_path)
    assert (run.engine, run.segments) == (words[0], 20)
    assert 8 <= len(text.splitlines()) <= 20
    assert all(len(line) <= 120 for line in text.splitlines())
    assert (tmp_path / "Snakefile").read_text() == SNAKEFILE
    assert (tmp_path / "profiles/default/profile.yaml").is_file()
    assert capsys.readouterr().out.splitlines()[-1] == f"type: unbroken run -d {tmp_path}"


def test_a_command_line_is_kept_word_by_word(tmp_path):
    write(tmp_path / "walk", "")

    settings = yaml.safe_load("\n".join(choose(tmp_path, ["command", "./walk", "1e5", "12:30", "no"]).starter.settings))

    assert settings["start"] == ["./walk", "1e5", "12:30", "no"]
    assert settings["inputs"] == ["walk"]


def test_nothing_that_is_there_is_overwritten(tmp_path, capsys):
    init(["toy"], tmp_path)
    (tmp_path / "config/config.yaml").write_text("# mine\n")
    (tmp_path / "profiles/default/profile.yaml").write_text("# mine too\n")
    before = {path: path.read_text() for path in tmp_path.rglob("*") if path.is_file()}
    capsys.readouterr()

    init(["toy"], tmp_path)

    assert {path: path.read_text() for path in tmp_path.rglob("*") if path.is_file()} == before
    said = capsys.readouterr().out
    assert f"{tmp_path}/config/config.yaml: yours, left as it is; to add this run, put these lines into it:" in said
    assert "\n  demo:\n    engine: toy\n" in said


def test_a_workflow_of_the_users_own_gets_the_lines_to_paste_and_nothing_else(tmp_path, capsys):
    write(tmp_path / "Snakefile", "rule all:\n    input: []\n")

    init(["toy"], tmp_path)

    assert sorted(path.name for path in tmp_path.iterdir()) == ["Snakefile", "config"]
    assert (tmp_path / "Snakefile").read_text() == "rule all:\n    input: []\n"
    config = yaml.safe_load((tmp_path / "config/config.yaml").read_text())
    assert list(config) == ["unbroken"]
    assert [run.name for run in read_checked_runs(config["unbroken"], tmp_path)] == ["demo"]
    assert MODULE.format(run="demo") in capsys.readouterr().out


@pytest.mark.process
def test_the_diff_alone_goes_to_patch_and_nothing_is_written(tmp_path, capsys):
    write(tmp_path / "train.py", TRAINING)

    init([], tmp_path, diff=True)

    out = capsys.readouterr().out
    assert [path.name for path in tmp_path.iterdir()] == ["train.py"]
    subprocess.run(["patch", "--quiet"], cwd=tmp_path, input=out, text=True, check=True)
    assert "training.finish(" in (tmp_path / "train.py").read_text()
    assert choose(tmp_path, []).starter.diff == ""
    assert choose(tmp_path, []).starter.settings == (
        "script: train.py",
        "goal: 7  # epochs; raise it later and start again",
    )


# --- what a training needs ---


def test_a_plain_loop_gets_its_own_names(tmp_path):
    assert changed(tmp_path, TRAINING).splitlines() == [
        "+from unbroken.training.torch import Training",
        "-loader = DataLoader(data, batch_size=4, shuffle=True)",
        "-for epoch in range(7):",
        "-for inputs, targets in loader:",
        '+training = Training(state={"model": model, "optimizer": optimizer})',
        "+loader = training.loader(data, batch_size=4, shuffle=True)",
        "+for epoch in training.epochs(7):",
        "+for inputs, targets in training.batches(loader):",
        "+training.log(loss=loss.item())",
        '+training.finish({"model.pt": model.state_dict()})',
    ]


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        (
            "shuffle=True",
            "num_workers=2",
            "+loader = training.loader(data, batch_size=4, num_workers=2, shuffle=False)",
        ),
        ("batch_size=4, shuffle=True", "4", "+loader = training.loader(data, 4, shuffle=False)"),
        ("range(7)", "range(1, 8)", "+for epoch in training.epochs(8 - 1):"),
        ("range(7)", "range(1, n + 1)", "+for epoch in training.epochs(n):"),
        ("range(7)", "range(1, n + 1)", "+epoch += 1  # training counts from 0"),
        (
            "in loader",
            "in tqdm(loader, desc='epoch')",
            "+for inputs, targets in tqdm(training.batches(loader), desc='epoch'):",
        ),
        (
            "inputs, targets in loader",
            "i, (inputs, targets) in enumerate(loader)",
            "+for i, (inputs, targets) in enumerate(training.batches(loader), training.batch):",
        ),
        (
            "DataLoader(data, batch_size=4, shuffle=True)",
            "make_loader()",
            "+loader = training.loader(loader.dataset, batch_size=loader.batch_size, num_workers=loader.num_workers, "
            "drop_last=loader.drop_last, collate_fn=loader.collate_fn, pin_memory=loader.pin_memory)"
            "  # shuffled; if it was not: shuffle=False",
        ),
        (
            "inputs, targets in loader",
            "i, (inputs, targets) in enumerate(loader, 1)",
            "+for i, (inputs, targets) in enumerate(training.batches(loader), 1 + training.batch):",
        ),
        (
            "DataLoader(data, batch_size=4, shuffle=True)",
            "DataLoader(dataset=data)",
            "+loader = training.loader(dataset=data, shuffle=False)",
        ),
    ],
)
def test_each_usual_form_is_known(tmp_path, old, new, line):
    assert line in changed(tmp_path, TRAINING.replace(old, new)).splitlines()


def test_a_sampler_of_the_users_own_stays_what_it_was_made_by(tmp_path):
    text = changed(tmp_path, TRAINING.replace("shuffle=True", "sampler=mine"))

    assert "+loader = training.loader(loader.dataset, batch_size=loader.batch_size" in text
    assert "-loader = " not in text


def test_all_models_optimizers_and_schedules_are_parts(tmp_path):
    text = """
        import torch
        from torch.optim import lr_scheduler

        def main():
            painter, critic = Net(), Net()
            of_painter = torch.optim.Adam(painter.parameters())
            of_critic = torch.optim.SGD(critic.parameters(), lr=0.1)
            schedule = lr_scheduler.OneCycleLR(of_critic, max_lr=1, steps_per_epoch=len(loader), epochs=3)
            scaler = torch.amp.GradScaler()
            count = sum(each.numel() for each in critic.parameters())
            for epoch in range(3):
                for batch in loader:
                    scaler.scale(lost(critic(painter(batch)))).backward()
                    scaler.step(of_critic)
    """

    said = changed(tmp_path, text)

    names = ("painter", "critic", "of_painter", "of_critic", "schedule", "scaler")
    parts = ", ".join(f'"{name}": {name}' for name in names)
    assert f"+training = Training(state={{{parts}}})" in said
    assert '+training.finish({"painter.pt": painter.state_dict(), "critic.pt": critic.state_dict()})' in said


def test_a_function_that_trains_an_epoch_is_given_the_training(tmp_path):
    text = """
        import torch

        def train(model, batches, optimizer):
            for batch in batches:
                loss = model(batch)
                loss.backward()
                optimizer.step()

        def main():
            loader = torch.utils.data.DataLoader(data, shuffle=True)
            model = Net()
            optimizer = torch.optim.Adam(model.parameters())
            for epoch in range(3):
                train(model, batches=loader, optimizer=optimizer)
    """

    said = changed(tmp_path, text).splitlines()

    assert "+def train(model, batches, optimizer, training):" in said
    assert "+for batch in training.batches(batches):" in said
    assert "+train(model, batches=loader, optimizer=optimizer, training=training)" in said
    assert "+loader = training.loader(data, shuffle=True)" in said


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("loss.backward()", "pass", "no loops over batches with .backward()"),
        ("range(7)", "count()", "no `for epoch in range(...)` around them"),
        ("in loader", "in loader.batches()", "line 8: the batches come from `loader.batches()`"),
        ("model.parameters()", "weights", "no `optimizer = ...(model.parameters(), ...)`"),
        ("range(7)", "range(first, 7)", "line 7: the first epoch is `first`"),
        ("model", "best", "a variable named best, which `Training` takes for something else"),
        ("optimizer.step()", "schedule.step()", "line 11: `schedule.step()`, and it is not told what schedule is"),
        ("optimizer = ", "if wanted:\n        optimizer = ", "line 6: optimizer is made under an `if`"),
        ("for epoch in range(7)", "while True", "line 7: `while True`"),
        ("in loader", "in range(9)", "line 8: the batches come from `range(9)`"),
    ],
)
def test_what_is_not_plain_is_named_and_no_diff_is_made(tmp_path, old, new, why):
    write(tmp_path / "train.py", TRAINING.replace(old, new))

    with pytest.raises(NotPlainError, match=f"^{re.escape(why)}"):
        torch_changes.make_changes(Script.read(tmp_path / "train.py"))
    starter = choose(tmp_path, ["torch", "train.py"]).starter

    assert starter.diff == ""
    assert f"(no diff could be made: {why}" in starter.todo[0]
    assert [line.removeprefix("    ") for line in starter.todo[1:8]] == list(torch_changes.LINES)


def test_variables_that_one_batch_hands_to_the_next_are_named_and_kept_by_the_diff(tmp_path):
    write(tmp_path / "train.py", (ROOT / "examples/torch_tutorial/before.py").read_text())

    starter = choose(tmp_path, []).starter

    assert starter.todo == (
        "train.py carries best_vloss, running_loss from turn to turn: the diff keeps them in `variables`",
    )
    assert '+best_vloss = variables.get("best_vloss", best_vloss)' in starter.diff.splitlines()
    assert "variables.update(running_loss=running_loss)" in starter.diff


def said_of(tmp_path: Path, old: str, new: str, above: str = "") -> list[str]:
    """What `init` says of the training with a change, beside its diff."""
    text = TRAINING.replace(old, new, 1)
    write(tmp_path / "train.py", text.replace("    for epoch", f"{above}    for epoch", 1))
    return list(choose(tmp_path, []).starter.todo)


def test_two_variables_of_one_assignment_are_named_each(tmp_path):
    (line,) = said_of(
        tmp_path, "in loader:", "in loader:\n            a, (b, *c) = step(a, b, c)", "    a, b, c = 1, 2, [3]\n"
    )

    assert line.startswith("train.py carries a, b, c from turn to turn: ")


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("t0 = time.time() - t0", "a clock"),
        ("x = inputs + 1", "written before it is read"),
        ("parts = [x for x in inputs]", "of a comprehension"),
    ],
)
def test_what_no_batch_hands_to_the_next_is_not_named(tmp_path, line, why):
    above = "    t0 = time.time()\n    x = 1\n    parts = []\n"

    assert said_of(tmp_path, "in loader:", f"in loader:\n            {line}\n            use(t0)", above) == [], why


@pytest.mark.parametrize(
    ("name", "value", "change"),
    [
        ("best", "deepcopy(model)", "best = deepcopy(best)"),
        ("losses", "AverageMeter()", "losses.update(loss)"),
        ("seen", "0", "seen += 1; continue"),
    ],
)
def test_what_cannot_be_kept_is_named_with_the_two_lines_that_help(tmp_path, name, value, change):
    lines = said_of(tmp_path, "loss.backward()", f"loss.backward()\n            {change}", f"    {name} = {value}\n")

    assert lines == [
        f"train.py also has {name}, which begins again at each restart; to keep the value of one, add:",
        f'    {name} = variables.get("{name}", {name})  # above; "variables": variables in state, Variables()',
        f'    variables["{name}"] = {name}  # where it was changed; means: training.log, training.mean',
    ]


def test_what_a_function_changes_outside_and_what_a_branch_begins_is_named_and_left(tmp_path):
    write(
        tmp_path / "train.py",
        """
        import torch
        model = Net()
        optimizer = torch.optim.Adam(model.parameters())
        loader, losses, count = make_loader(), [], 0
        if known:
            best = 1
        else:
            best = 0
        def train():
            global count
            for batch in loader:
                loss = model(batch)
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
                count += 1
        for epoch in range(3):
            train()
            best = max(best, count)
        """,
    )

    starter = choose(tmp_path, []).starter

    assert starter.todo[0].startswith("train.py also has losses, count, best, which begin again at each restart;")
    assert "variables" not in starter.diff


@pytest.mark.parametrize(
    ("above", "call", "line"),
    [
        ('log = open("log.csv", "w")', "open('log.csv', 'w')", 'open(\'log.csv\', "a" if training.step else "w")'),
        (
            'log = Path("log.csv").open(mode="wt")',
            "Path('log.csv').open(mode='wt')",
            'Path(\'log.csv\').open(mode="at" if training.step else "wt")',
        ),
        (
            'logging.basicConfig(filename="log.txt", filemode="w")',
            "logging.basicConfig(filename='log.txt', filemode='w')",
            'logging.basicConfig(filename=\'log.txt\', filemode="a" if training.step else "w")',
        ),
    ],
)
def test_a_file_that_each_restart_empties_is_named_with_two_lines_that_keep_its_rows(tmp_path, above, call, line):
    lines = said_of(tmp_path, "in loader:", "in loader:", f"    {above}\n")

    assert lines == [
        f"train.py, line 7: `{call}` empties the file at each restart; type one of:",
        f"    {line}  # below Training(...); a kill repeats rows",
        "    training.log(accuracy=accuracy)  # each row once, in final/metrics.csv",
    ]


@pytest.mark.parametrize(
    "above", ['with open("config.json", "w") as f: f.write("{}")', 'rows = open("data.csv")', 'log = open("log", "a")']
)
def test_a_file_that_no_restart_shortens_is_not_named(tmp_path, above):
    assert said_of(tmp_path, "in loader:", "in loader:", f"    {above}\n") == []


def test_a_file_that_each_restart_of_a_fit_empties_is_named_too(tmp_path):
    write(
        tmp_path / "fit.py", 'import keras\nlog = open("log.csv", "w")\nmodel.fit(x, y, epochs=3)\nopen("done", "w")\n'
    )

    said = choose(tmp_path, []).starter.todo

    (line,) = [each for each in said if "empties the file" in each]
    assert line.startswith("fit.py, line 2: `open('log.csv', 'w')` empties the file at each restart;")


def test_a_file_that_is_written_when_all_is_done_is_not_named(tmp_path):
    write(tmp_path / "train.py", f'{TRAINING}\n    results = open("results.json", "w")\n')

    assert choose(tmp_path, []).starter.todo == ()


def test_a_loader_of_several_lines_keeps_its_data_set(tmp_path):
    text = TRAINING.replace("    loader = DataLoader(data, batch_size=4, shuffle=True)\n", "")
    text = text.replace("    model", "    loader = DataLoader(\n        data,\n        batch_size=4)\n    model", 1)

    said = changed(tmp_path, text)

    assert "+loader = training.loader(data, batch_size=4, shuffle=False)" in said


def test_the_goal_of_steps_is_in_steps(tmp_path):
    loop = "    for step in range(500):\n        loss = lost(model(draw()))\n        loss.backward()\n"
    text = "    import torch\n    model = torch.nn.Linear(2, 1)\n    opt = torch.optim.Adam(model.parameters())\n"
    write(tmp_path / "train.py", f"{text}{loop}        opt.step()\n")

    starter = choose(tmp_path, []).starter

    assert "+for step in training.steps(500):" in starter.diff.splitlines()
    assert starter.settings[1:] == ("goal: 500  # steps; raise it later and start again", "goal_unit: steps")


def test_a_script_in_another_alphabet_and_without_a_last_newline_is_edited_at_the_right_places(tmp_path):
    text = TRAINING.replace("lost(", "потеря(").replace("shuffle=True", "shuffle=True)  # ä (").rstrip()

    said = changed(tmp_path, text)

    assert "+for inputs, targets in training.batches(loader):" in said
    ast.parse((tmp_path / "train.py").read_text())


@pytest.mark.parametrize(
    ("call", "lines"),
    [
        (
            "history = model.fit(x, y, epochs=3, batch_size=8, validation_data=(a, b), callbacks=[stop])",
            [
                "+unbroken = UnbrokenCallback()",
                "+data = unbroken.data(x, y, batch_size=8)",
                "+history = model.fit("
                "data, epochs=unbroken.goal or 3, validation_data=(a, b), callbacks=[stop, unbroken])",
            ],
        ),
        (
            "model.fit(x=x, y=y)",
            ["+data = unbroken.data(x, y)", "+model.fit(data, epochs=unbroken.goal or 1, callbacks=[unbroken])"],
        ),
        (
            "model.fit(x, y, epochs=2 if n else 3, callbacks=[a] + [b])",
            ["+model.fit(data, epochs=unbroken.goal or (2 if n else 3), callbacks=[*[a] + [b], unbroken])"],
        ),
        (
            "model.fit(stream, epochs=n, callbacks=own)",
            [
                "+data = unbroken.dataset(lambda epoch: stream, batches=len(stream))",
                "+model.fit(data, epochs=unbroken.goal or n, callbacks=[*own, unbroken])",
            ],
        ),
    ],
)
def test_a_fit_of_keras_gets_its_own_names(tmp_path, call, lines):
    said = changed(tmp_path, f"import keras\nn = 5\nmodel = make()\n{call}\n", keras_changes.make_changes).splitlines()

    assert [line for line in lines if line not in said] == []
    assert "+from unbroken.training.keras import UnbrokenCallback" in said


def test_a_fit_that_splits_its_data_itself_is_not_plain(tmp_path):
    write(tmp_path / "fit.py", "import keras\nmodel.fit(x, y, validation_split=0.2)\n")

    assert "(no diff could be made: line 2: `validation_split`)" in choose(tmp_path, []).starter.todo[0]


@pytest.mark.process
def test_a_script_whose_lines_end_as_on_windows_is_patched_and_stays_so(tmp_path):
    text = textwrap.dedent(TRAINING).lstrip("\n").replace("\n", "\r\n")
    (tmp_path / "train.py").write_bytes(text.encode())
    diff = choose(tmp_path, []).starter.diff

    subprocess.run(["patch", "--quiet"], cwd=tmp_path, input=diff.encode(), check=True)

    after = (tmp_path / "train.py").read_bytes()
    assert b"training.finish(" in after
    assert after.count(b"\r\n") == after.count(b"\n")


# --- libraries with a loop of their own ---


@pytest.mark.parametrize(
    ("text", "line", "settings"),
    [
        (
            "from transformers import Trainer, TrainingArguments\nTrainer(m, TrainingArguments(max_steps=1_000))",
            "trainer.train(resume_from_checkpoint=unbroken.resume)",
            ["goal: 1000  # steps; raise it later and start again", "goal_unit: steps"],
        ),
        (
            "from transformers import Trainer\nTrainer(m, Arguments(max_steps=-1, num_train_epochs=5)).train()",
            "trainer.train(resume_from_checkpoint=unbroken.resume)",
            ["goal: 5  # epochs; raise it later and start again"],
        ),
        (
            "from lightning import Trainer\nTrainer(max_epochs=None).fit(model)",
            "trainer.fit(model, loader, ckpt_path=unbroken.resume, weights_only=True)",
            ["goal: 1000  # epochs; raise it later and start again"],
        ),
        (
            "from accelerate import Accelerator\naccelerator = Accelerator()",
            "unbroken = UnbrokenLoop(accelerator, seed=0)",
            ["goal: 10  # epochs; raise it later and start again"],
        ),
    ],
)
def test_a_script_of_a_library_gets_the_lines_of_its_adapter(tmp_path, text, line, settings):
    write(tmp_path / "train.py", text)

    starter = choose(tmp_path, []).starter

    assert starter.diff == ""
    assert "(no diff could be made: a library has the loop; see docs/adapters.md)" in starter.todo[0]
    assert f"    {line}" in starter.todo
    assert list(starter.settings[1:]) == settings


@pytest.mark.parametrize("example", ["torch_transformers", "torch_lightning", "torch_accelerate"])
def test_the_example_of_a_library_needs_nothing_more_and_has_the_goal_of_before(tmp_path, example):
    found = []
    for name in ("before.py", "train.py"):
        (tmp_path / "script.py").write_text((ROOT / "examples" / example / name).read_text())
        found.append(choose(tmp_path, ["torch", "script.py"]).starter)

    assert found[1].todo == ()
    assert found[0].settings == found[1].settings


# --- LAMMPS ---


def test_an_input_script_is_run_by_the_preset(tmp_path, capsys):
    write(tmp_path / "in.melt", MELT)

    init([], tmp_path)
    run, *_ = read_checked_runs(yaml.safe_load((tmp_path / "config/config.yaml").read_text()), tmp_path)

    assert (run.name, run.settings["preset"], run.settings["goal"]) == ("melt", "lammps", 2000)
    assert run.settings["files"] == ("melt.{progress}.rst",)
    assert run.settings["outputs"] == {"melt.lammpstrj": r"ITEM: TIMESTEP\n(\d+)\n"}
    start, resume = (edit["put"].split("\n") for edit in run.settings["edits"])
    end = [
        "thermo_modify   flush yes",
        "restart         40 melt.*.rst",
        "timer           timeout {hms} every 20",
        "run             {goal} upto start 0 stop {goal}",
        "write_restart   melt.*.rst",
    ]
    assert start[-5:] == resume[-5:] == end
    assert [line.split()[0] for line in resume[1:7]] == ["log", "units", "lattice", "region", "read_restart", "mass"]
    assert "velocity" not in "\n".join(resume)


def test_a_script_that_cannot_be_resumed_is_told_by_init_with_its_line(tmp_path, capsys):
    write(tmp_path / "in.melt", MELT.replace("mass            1 1.0", "jump SELF again"))

    init([], tmp_path)

    assert capsys.readouterr().out.count("in.melt: line 6: `jump SELF again`: ") == 1
