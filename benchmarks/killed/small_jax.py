"""What the JAX training of killed_saves.py trains: a small model, its data, five steps between two saves."""

import argparse
import os
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import jax.numpy as jnp

STEPS, SAVE_STEPS = 30, 5


def folder() -> Path:
    """`--out`: where the checkpoints and final.txt go."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    out: Path = parser.parse_args().out.absolute()
    out.mkdir(parents=True, exist_ok=True)
    return out


def state() -> dict[str, jax.Array]:
    return {"weights": jnp.zeros((8, 1)), "moments": jnp.zeros((8, 1)), "key": jax.random.PRNGKey(0)}


@jax.jit
def train_step(state: dict[str, jax.Array]) -> dict[str, jax.Array]:
    key, drawn = jax.random.split(state["key"])
    inputs = jax.random.normal(drawn, (16, 8))
    gradients = jax.grad(lambda w: ((inputs @ w - inputs.sum(1, keepdims=True)) ** 2).mean())(state["weights"])
    moments = 0.9 * state["moments"] + gradients
    return {"weights": state["weights"] - 0.05 * moments, "moments": moments, "key": key}


def text_of(state: dict[str, jax.Array]) -> str:
    return "".join(f"{name} {leaf.tolist()}\n" for name, leaf in sorted(state.items()))


def tell_start(step: int) -> None:
    print(f"resumed from step {step}", flush=True)
