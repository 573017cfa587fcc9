"""Run the script of a training case, and do to this process what CASE_PLAN says: SCRIPT.

CASE_PLAN is JSON: `save_steps` is how often it saves; `began` a file that appears at the first step of an optimizer;
`at` a moment ({"step": 7} or {"event": 30}, counted in this process, the latter of files below `folder`) and what is
done there (`do`: USR1, TERM, KILL, or `file`, the stop file); `broken` what a resumed process does not restore
(`optimizer`, `random`, `weights`, or the name of a part); `rest` the seconds of a rest at each step; of several
ranks `rank` is the one that counts and is hit; `count` a file for what was counted; `counted` a method whose
calls are the steps; `modules` those of unbroken that the script imports.
"""

import importlib
import json
import os
import random
import runpy
import signal
import sys
import time
from pathlib import Path
from typing import Any

_CHANGING = {"os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.link", "os.symlink", "os.truncate"}


class Plan:
    """Count the steps and file events of this process, and act at the moment that is asked for."""

    def __init__(self, plan: dict[str, Any]) -> None:
        self.plan, self.pid = plan, os.getpid()
        self.folder = Path(plan["folder"])
        self.is_chosen = int(os.environ.get("RANK", "0")) == plan.get("rank", 0)
        self.at, self.broken = plan.get("at", {}) if self.is_chosen else {}, plan.get("broken", [])
        latest = "checkpoints/latest"
        self.is_resumed = any((*self.folder.glob(latest), *self.folder.glob(f"*/{latest}")))
        self.steps = self.events = 0
        self.first_step: float | None = None
        self._optimizers: set[int] = set()

    def install(self) -> None:
        self._save_often()
        if "event" in self.at or "count" in self.plan:
            sys.addaudithook(self._note_event)
        if method := self.plan.get("counted"):
            self._count_calls(method)
        else:
            from torch.optim.optimizer import register_optimizer_step_pre_hook

            register_optimizer_step_pre_hook(self._note_step)
        if self.is_resumed and self.broken:
            self._lose_parts()

    def _save_often(self) -> None:
        from unbroken.training.core.save_policy import Saves

        check = Saves.__post_init__

        def often(saves: Saves) -> None:
            if saves.steps is None and saves.mtbf_hours is None:
                object.__setattr__(saves, "steps", self.plan["save_steps"])
            check(saves)

        Saves.__post_init__ = often  # type: ignore[method-assign]
        for name in self.plan.get("modules", []):  # those that have made one for a default already
            for value in vars(importlib.import_module(name)).values():
                if isinstance(value, Saves):
                    often(value)

    def _note_event(self, name: str, details: tuple[Any, ...]) -> None:
        is_write = name == "open" and isinstance(details[2], int) and details[2] & (os.O_WRONLY | os.O_RDWR)
        if not (is_write or name in _CHANGING) or not self.steps or os.getpid() != self.pid:
            return
        place = details[0]
        if isinstance(place, int) or not os.path.abspath(os.fsdecode(place)).startswith(str(self.folder)):
            return
        self.events += 1
        if self.events == self.at.get("event"):
            self._act()

    def _note_step(self, optimizer: Any, args: Any, keywords: Any) -> None:
        if self.is_resumed and id(optimizer) not in self._optimizers:
            self._optimizers.add(id(optimizer))
            self._lose(optimizer)
        self._count_step()

    def _count_step(self) -> None:
        if signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL:
            return  # a step before the training
        self.steps += 1
        time.sleep(self.plan.get("rest", 0.0))
        if self.first_step is None:
            self.first_step = time.monotonic()
            Path(self.plan["began"]).touch()
            if self.is_resumed and "random" in self.broken:
                self._reseed()
        if self.steps == self.at.get("step"):
            self._act()

    def _count_calls(self, name: str) -> None:
        """Let each call of a method ("module:Class.method") count as a step, for frameworks other than torch."""
        module, _, path = name.partition(":")
        *owners, method = path.split(".")
        owner = importlib.import_module(module)
        for each in owners:
            owner = getattr(owner, each)
        called = getattr(owner, method)

        def counted(*args: Any, **keywords: Any) -> Any:
            self._count_step()
            return called(*args, **keywords)

        setattr(owner, method, counted)

    def _act(self) -> None:
        if self.at["do"] == "file":
            (self.folder / "stop").touch()
        else:
            os.kill(self.pid, getattr(signal, f"SIG{self.at['do']}"))

    def _lose(self, optimizer: Any) -> None:
        if "optimizer" in self.broken:
            optimizer.state.clear()
        if "weights" in self.broken:
            optimizer.param_groups[0]["params"][0].data += 1e-6

    def _reseed(self) -> None:
        import numpy
        import torch

        random.seed(7)
        numpy.random.seed(7)
        torch.manual_seed(7)

    def _lose_parts(self) -> None:
        """Let the parts that are named forget what they are given."""
        from unbroken.training.torch import Training

        made = Training.__init__

        def forgetful(training: Any, state: Any = (), **options: Any) -> None:
            for name, part in {**dict(state), **options.get("per_rank", {})}.items():
                if name in self.broken and name not in ("optimizer", "random", "weights"):
                    part.load_state_dict = lambda state: None
            made(training, state, **options)

        Training.__init__ = forgetful  # type: ignore[method-assign]

    def write_counts(self) -> None:
        if "count" in self.plan and self.is_chosen and os.getpid() == self.pid:
            seconds = time.monotonic() - (self.first_step or time.monotonic())
            counts = {"steps": self.steps, "events": self.events, "seconds": seconds}
            Path(self.plan["count"]).write_text(json.dumps(counts))


def main() -> None:
    plan = Plan(json.loads(os.environ["CASE_PLAN"]))
    plan.install()
    script = sys.argv[1]
    sys.argv, sys.path[0] = [script], str(Path(script).parent.absolute())
    try:
        runpy.run_path(script, run_name="__main__")
    finally:
        plan.write_counts()


if __name__ == "__main__":
    main()
