"""A small training with a restart file of its own, and a way to break its resume; standard library alone.

    faults.py GOAL STOP_FILE [FAULT]

An epoch is 20 steps in a shuffled order; the gradients of three steps are added up before the optimizer takes one.  It
goes on where state.json says; exit code 85: told to stop, there is more to do.
"""

import json
import math
import os
import random
import struct
import sys
import time
from pathlib import Path

EPOCH, SAVE_STEPS, ADDED = 20, 5, 3
STEP_SECONDS = 0.02
STATE, TABLE = Path("state.json"), Path(os.environ.get("TABLE", "table.csv"))
OUTSIDE = Path(os.environ["HOME"], ".momentum")
PAUSED = 85


class Training:
    def __init__(self, fault: str) -> None:
        self.fault = fault
        self.random = random.Random(1)
        self.step, self.value, self.momentum, self.lr, self.added, self.best = 0, 1.0, 0.0, 0.05, 0.0, math.inf
        self.started = time.time()
        self.order: list[int] = []

    def work(self) -> None:
        if self.step % EPOCH == 0 or not self.order:
            self.order = self.random.sample(range(EPOCH), EPOCH)
        sample = self.order[self.step % EPOCH]
        noise = self.random.random()
        if self.fault == "differs from itself":
            noise = random.SystemRandom().random()
        self.added += self.value * 0.01 + math.sin(sample + noise)
        self.step += 1
        if self.step % ADDED == 0:
            late = self.fault == "wall clock" and time.time() - self.started > 6
            self.momentum = 0.9 * self.momentum + self.added
            self.value -= self.lr * self.momentum * (0.5 if late else 1.0)
            self.added = 0.0
        if self.step % EPOCH == 0:
            self.lr *= 0.9
            self.best = min(self.best, abs(self.value))
            if self.step > EPOCH:
                self.value += self.best  # what was best in all epochs so far

    # --- the restart file ---

    def state(self) -> dict[str, object]:
        found = {
            "step": self.step,
            "value": self.value,
            "momentum": self.momentum,
            "lr_scheduler": self.lr,
            "added_gradients": self.added,
            "best": self.best if self.best < math.inf else None,
            "order": self.order,
            "random_state": self.random.getstate(),
        }
        if self.fault == "wall clock":
            found["started"] = self.started
        left_out = {
            "random state": "random_state",
            "scheduler": "lr_scheduler",
            "order": "order",
            "gradient accumulation": "added_gradients",
            "epoch's end": "best",
            "outside": "momentum",
        }
        found.pop(left_out.get(self.fault, ""), None)
        if self.fault == "outside":
            OUTSIDE.write_text(repr(self.momentum))
        if self.fault == "absolute path":
            Path("momentum.txt").write_text(repr(self.momentum))
            found["momentum"] = str(Path("momentum.txt").absolute())
        if self.fault == "off by one":
            found["step"] = self.step + 1
        if self.fault == "cast":
            found["momentum"] = struct.unpack("f", struct.pack("f", self.momentum))[0]
        if self.fault == "lying progress":
            found["done"] = 0
        return found

    def load(self, found: dict[str, object]) -> None:
        self.step, self.value = found["step"], found["value"]
        self.momentum, self.lr = found.get("momentum", 0.0), found.get("lr_scheduler", self.lr)
        self.added = found.get("added_gradients", 0.0)
        self.started = found.get("started", self.started)
        self.best = math.inf if found.get("best") is None else found["best"]
        self.order = found.get("order", [])
        if "random_state" in found:
            version, numbers, gauss = found["random_state"]
            self.random.setstate((version, tuple(numbers), gauss))
        if self.fault == "outside" and OUTSIDE.exists():
            self.momentum = float(OUTSIDE.read_text())
        if self.fault == "absolute path":
            self.momentum = float(Path(self.momentum).read_text())

    def save(self) -> None:
        text = json.dumps(self.state())
        if self.fault == "in place":
            with STATE.open("w") as file:
                for part in (text[:100], text[100:]):
                    file.write(part)
                    file.flush()
                    time.sleep(0.05)
            return
        with open("state.tmp", "w") as file:
            file.write(text)
        os.replace("state.tmp", STATE)


def main() -> int:
    goal, stop, fault = int(sys.argv[1]), Path(sys.argv[2]), " ".join(sys.argv[3:])
    training = Training(fault)
    if STATE.exists() and fault != "resume ignored":
        training.load(json.loads(STATE.read_text()))
    with TABLE.open("a") as table:
        if table.tell() == 0:
            table.write("step,value,lr\n")
        while training.step < goal and not stop.exists():
            training.work()
            table.write(f"{training.step},{training.value!r},{training.lr!r}\n")
            table.flush()
            if training.step % SAVE_STEPS == 0 and fault != "never saves":
                training.save()
            time.sleep(STEP_SECONDS)
    if fault != "never saves" or training.step >= goal:
        training.save()
    return 0 if training.step >= goal else PAUSED


if __name__ == "__main__":
    sys.exit(main())
