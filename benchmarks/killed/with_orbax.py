"""Orbax's CheckpointManager, as its documentation uses it."""

import orbax.checkpoint as ocp
import small_jax

out = small_jax.folder()
options = ocp.CheckpointManagerOptions(
    save_interval_steps=small_jax.SAVE_STEPS, max_to_keep=None, step_format_fixed_length=2
)
with ocp.CheckpointManager(out / "steps", options=options) as manager:
    state, start = small_jax.state(), 0
    if (newest := manager.latest_step()) is not None:
        state, start = manager.restore(newest, args=ocp.args.StandardRestore(state)), newest
    small_jax.tell_start(start)
    for step in range(start + 1, small_jax.STEPS + 1):
        state = small_jax.train_step(state)
        manager.save(step, args=ocp.args.StandardSave(state))
(out / "final.txt").write_text(small_jax.text_of(state))
