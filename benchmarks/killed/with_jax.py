"""unbroken's `Training` for JAX, by hand in a folder."""

import os

import small_jax

from unbroken.training.jax import Saves, Training

out = small_jax.folder()
saves = Saves(steps=small_jax.SAVE_STEPS, keep=small_jax.STEPS, in_background=False)
training = Training(small_jax.state(), folder=out / "run", saves=saves)


def link_checkpoints() -> None:
    """By the names that the referee reads the step from; those of the store have a date, which differs each time."""
    for state in (out / "run" / "checkpoints").glob("[0-9]*/state.json"):
        link = out / f"checkpoint-{state.parent.name.split('_')[1]}"
        if not link.is_symlink():
            os.symlink(state, link)


small_jax.tell_start(training.step)
for _ in training.steps(small_jax.STEPS):
    link_checkpoints()
    training.update(small_jax.train_step(training.state))
training.finish({"final.txt": small_jax.text_of(training.state)})
link_checkpoints()
