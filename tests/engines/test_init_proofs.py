"""The diffs of `unbroken init`, proven: each is applied, and the script in pieces is the script in one."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from support.toyrun import ROOT

torch = pytest.importorskip("torch", reason="missing: torch (pip install torch)")

from unbroken.cli.init_command import choose  # noqa: E402

pytestmark = pytest.mark.process

HEAD = """
    import json

    import torch
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset

    torch.manual_seed(0)
"""
NET = """
    class Net(nn.Sequential):
        is_counted = True


    data = TensorDataset(torch.randn(24, 3), torch.randn(24, 1))
"""
RNN = """
    class Net(nn.Module):
        is_counted = True

        def __init__(self):
            super().__init__()
            self.embed, self.rnn, self.out = nn.Embedding(9, 4), nn.LSTM(4, 6), nn.Linear(6, 9)

        def forward(self, tokens, hidden):
            states, hidden = self.rnn(self.embed(tokens), hidden)
            return self.out(states), hidden


    def detached(hidden):
        return tuple(each.detach() for each in hidden)


    stream = torch.randint(0, 9, (41, 2))
"""
# The hidden state goes from batch to batch, and begins in each epoch; `loss` is read after the loop.
HIDDEN = (
    RNN
    + """
    model = Net()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    loader = DataLoader(TensorDataset(stream[:-1], stream[1:]), batch_size=5, shuffle=False)
    shown = []
    for epoch in range(3):
        hidden = torch.zeros(1, 2, 6), torch.zeros(1, 2, 6)
        for tokens, targets in loader:
            logits, hidden = model(tokens, detached(hidden))
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        shown.append(loss.item())
    json.dump(shown, open("shown.json", "w"))
"""
)
# As students write it: a best value, a list of losses, a sum over the epoch.
STUDENT = (
    NET
    + """
    model = Net(nn.Linear(3, 8), nn.Dropout(0.3), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train_loader = DataLoader(
        data, batch_size=4,
        shuffle=True)
    best_loss, best_epoch = 1e9, 0
    history = []
    seen = 0
    for epoch in range(1, 5):
        running = 0.0
        for x, y in train_loader:
            seen += len(x)
            loss = (model(x) - y).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            running += loss.item()
        history.append(running)
        if running < best_loss:
            best_loss, best_epoch = running, epoch
            torch.save(model.state_dict(), "best.pt")
    json.dump([history, best_loss, best_epoch, seen], open("shown.json", "w"))
"""
)
# A function for an epoch, options, a schedule.
ONE_EPOCH = (
    NET
    + """
    import argparse

    def train_one_epoch(epoch, model, loader, optimizer, args, clip):
        total = 0.0
        for batch_idx, (x, y) in enumerate(loader, 1):
            loss = (model(x) - y).square().mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), clip)
            optimizer.step()
            total += batch_idx * loss.item()
        return total

    def main():
        parser = argparse.ArgumentParser()
        parser.add_argument("--epochs", type=int, default=4)
        args = parser.parse_args()
        loader_train = DataLoader(data, 4, shuffle=True, drop_last=True)
        model = Net(nn.Linear(3, 8), nn.Dropout(0.3), nn.Linear(8, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        lr_scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
        best = None
        for epoch in range(args.epochs):
            total = train_one_epoch(epoch, model, loader_train, optimizer, args, clip=0.5)
            lr_scheduler.step()
            if best is None or total < best:
                best = total
        json.dump([best, optimizer.param_groups[0]["lr"]], open("shown.json", "w"))

    main()
"""
)
# All data in each step.
FULL_BATCH = (
    NET
    + """
    model = Net(nn.Linear(3, 8), nn.Dropout(0.3), nn.Linear(8, 1))
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=3)
    losses = []
    for i in range(1, 9):
        def closure():
            optimizer.zero_grad()
            loss = (model(data.tensors[0]) - data.tensors[1]).square().mean()
            loss.backward()
            return loss
        losses.append([i, optimizer.step(closure).item()])
    json.dump(losses, open("shown.json", "w"))
"""
)
FORMS = {
    "hidden": (HIDDEN, ("USR1@3", "KILL@4", "USR1@6", "USR1@5", "USR1@1")),
    "student": (STUDENT, ("USR1@5", "KILL@2", "USR1@1", "USR1@9", "KILL@1")),
    "one_epoch": (ONE_EPOCH, ("USR1@2", "USR1@4", "KILL@3", "USR1@7")),
    "full_batch": (FULL_BATCH, ("USR1@4", "KILL@2", "USR1@9")),
}


def patched(folder: Path, text: str) -> str:
    """Writes the script with the lines that `init` says it lacks; returns what else is said."""
    (folder / "train.py").write_text(textwrap.dedent(HEAD + text).lstrip("\n"))
    starter = choose(folder, []).starter
    subprocess.run(["patch", "--quiet"], cwd=folder, input=starter.diff, text=True, check=True)
    return "\n".join(starter.todo)


@pytest.mark.parametrize("form", FORMS)
def test_a_script_with_the_lines_that_it_lacked_is_the_same_in_pieces(tmp_path: Path, form: str) -> None:
    text, events = FORMS[form]
    patched(tmp_path, text)

    driver = [sys.executable, str(ROOT / "tests/support/forked_pieces.py"), "train.py", *events]
    done = subprocess.run(
        driver, cwd=tmp_path, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )

    (ends,) = [line for line in done.stdout.splitlines() if line.startswith("ends: ")]
    expected = [-9 if event.startswith("KILL") else 85 for event in events]
    assert [int(word) for word in ends.split()[1:]] == [0, *expected, 0], done.stderr
    for name in ("cwd/shown.json", "final/model.pt", "final/metrics.csv"):
        assert (tmp_path / "pieces" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name
