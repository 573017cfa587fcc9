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
# As students write it: a best value, a list of losses, a sum over the epoch, `continue`.
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
            if epoch == 2:
                continue
            running += loss.item()
        history.append(running)
        if running < best_loss:
            best_loss, best_epoch = running, epoch
            torch.save(model.state_dict(), "best.pt")
    json.dump([history, best_loss, best_epoch, seen], open("shown.json", "w"))
"""
)
# nanoGPT's form: no loader, no epochs, a batch that was fetched before, accumulation, evaluation.
GET_BATCH = (
    NET
    + """
    max_iters = 9
    accumulation = 2
    iter_num = 0
    best_val_loss = 1e9
    start_from = "scratch"
    if start_from == "scratch":
        model = Net(nn.Linear(3, 8), nn.Dropout(0.3), nn.Linear(8, 1))
    elif start_from == "resume":
        model = torch.load("ckpt.pt")
    model.to("cpu")
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)

    def get_batch(split):
        at = torch.randint(24, (4,))
        return data.tensors[0][at], data.tensors[1][at]

    X, Y = get_batch("train")
    running = -1.0
    seen = []
    while True:
        if iter_num % 4 == 0:
            with torch.no_grad():
                val_loss = (model(data.tensors[0]) - data.tensors[1]).square().mean()
            if val_loss < best_val_loss:
                best_val_loss = val_loss
                torch.save(model.state_dict(), "ckpt.pt")
        for micro_step in range(accumulation):
            loss = (model(X) - Y).square().mean() / accumulation
            X, Y = get_batch("train")
            loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        running = loss.item() if running == -1.0 else 0.9 * running + 0.1 * loss.item()
        seen.append(running)
        iter_num += 1
        if iter_num > max_iters:
            break
    json.dump([seen, iter_num, best_val_loss.item()], open("shown.json", "w"))
"""
)
# timm's form: a function for an epoch with defaults, an own restart, a schedule out of a function.
ONE_EPOCH = (
    NET
    + """
    import argparse

    def create_scheduler(args, optimizer):
        return torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5), args.epochs

    def train_one_epoch(epoch, model, loader, optimizer, args, saver=None, clip=1.0):
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
        parser.add_argument("--start-epoch", type=int, default=None)
        args = parser.parse_args()
        loader_train = DataLoader(data, 4, shuffle=True, drop_last=True)
        model = Net(nn.Linear(3, 8), nn.Dropout(0.3), nn.Linear(8, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        lr_scheduler, num_epochs = create_scheduler(args, optimizer)
        start_epoch = 0
        if args.start_epoch is not None:
            start_epoch = args.start_epoch
        best = None
        for epoch in range(start_epoch, num_epochs):
            total = train_one_epoch(epoch, model, loader_train, optimizer, args, clip=0.5)
            lr_scheduler.step()
            if best is None or total < best:
                best = total
        json.dump([best, optimizer.param_groups[0]["lr"]], open("shown.json", "w"))

    main()
"""
)
# The word language model of PyTorch's examples: batches from a `range`, no optimizer, a rate that is lowered.
RANGE = (
    RNN
    + """
    model = Net()
    kind = "LSTM"

    def train():
        total_loss = 0.0
        if kind != "none":
            hidden = torch.zeros(1, 2, 6), torch.zeros(1, 2, 6)
        for batch, i in enumerate(range(0, 40, 5)):
            model.zero_grad()
            logits, hidden = model(stream[i : i + 5], detached(hidden))
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), stream[i + 1 : i + 6].flatten())
            loss.backward()
            for p in model.parameters():
                p.data.add_(p.grad, alpha=-lr)
            total_loss += loss.item()
            if batch % 3 == 2:
                shown.append([batch, i, total_loss])
                total_loss = 0
        return loss.item()

    lr, best, shown = 1.0, None, []
    try:
        for epoch in range(1, 4):
            last = train()
            if best is None or last < 0.9 * best:
                best = last
            else:
                lr /= 4.0
    except KeyboardInterrupt:
        print("left early")
    json.dump([shown, lr, best], open("shown.json", "w"))
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
    "get_batch": (GET_BATCH, ("USR1@2", "USR1@7", "KILL@3", "USR1@1")),
    "one_epoch": (ONE_EPOCH, ("USR1@2", "USR1@4", "KILL@3", "USR1@7")),
    "range": (RANGE, ("USR1@4", "KILL@3", "USR1@4", "USR1@5")),
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
