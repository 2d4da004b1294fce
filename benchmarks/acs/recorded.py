"""Make the streams of `datasets/streams`: `.venv-peers/bin/python -m benchmarks.acs.recorded [FOLDER [NAME …]]`.

Networks are drawn in no time and need nothing. A step of one of Brax's environments takes up to two minutes to compile, and some GiB; it is kept
so that nothing else needs Brax.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path

import jax
import jax.numpy as jnp

from benchmarks.acs.networks import NETWORKS, network
from timerl_nb.streams.recorders.xla import record_xla
from timerl_nb.streams.stored import save
from timerl_nb.streams.stream import Stream
from timerl_nb.streams.workloads import IMAGES

ENVIRONMENTS = 1024
# By the file's name: environment and pipeline. The paper's grasp is gone from Brax.
STEPS = {
    "ant": ("ant", "spring"),
    "ant_positional": ("ant", "positional"),
    "halfcheetah": ("halfcheetah", "spring"),
    "walker2d": ("walker2d", "spring"),
    "humanoid": ("humanoid", "spring"),
}


def step_of(name: str) -> Stream:
    """What XLA launches for a step of many environments."""
    environment, pipeline = STEPS[name]
    brax = importlib.import_module("brax.envs")
    env = brax.get_environment(environment, backend=pipeline)
    state = jax.eval_shape(env.reset, jax.random.PRNGKey(0))
    many = jax.tree.map(lambda x: jax.ShapeDtypeStruct((ENVIRONMENTS, *x.shape), x.dtype), state)
    action = jax.ShapeDtypeStruct((ENVIRONMENTS, env.action_size), jnp.float32)

    def step(state, action):
        return jax.vmap(env.step)(state, action)

    step.__name__ = name
    return record_xla(jax.jit(step), many, action)


def streams(names: Sequence[str]) -> Iterator[tuple[str, Stream]]:
    for name in names:
        if name in STEPS:
            yield name, step_of(name)
        elif name in IMAGES:
            for image in range(IMAGES[name]):
                yield f"{name}-{image}", network(name, image)
        else:
            yield name, network(name)


def main(folder: str = "datasets/streams", *names: str) -> None:
    Path(folder).mkdir(parents=True, exist_ok=True)
    for name, stream in streams(names or (*STEPS, *NETWORKS)):
        path = Path(folder) / f"{name}.stream.gz"
        save(stream, path)
        digest = sha256(path.read_bytes()).hexdigest()
        print(f"| `streams/{path.name}` | {len(stream):,} kernels | `{digest}` |", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
