"""Record the kernel streams of `datasets/streams`:

`python -m benchmarks.acs.recorded FOLDER NAME …`.

Static networks and rigid bodies need no extra package. Dynamic networks need PyTorch
(`.venv-torch`). Environment steps need Brax (`.venv-peers`), some GiB of memory and up to two
minutes of compilation each. The recordings are stored, so other benchmarks need none of these
packages.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import jax
import jax.numpy as jnp

from benchmarks.acs.kinds import DYNAMIC, IMAGES
from benchmarks.acs.networks import network
from benchmarks.acs.rigid_bodies import heap
from timerl_nb.streams.kernel_stream import Stream
from timerl_nb.streams.recorders import record
from timerl_nb.streams.stream_file import save

ENVIRONMENTS = 1024
# Environment and pipeline by file name. Brax has removed the paper's grasp environment.
STEPS = {
    "ant": ("ant", "spring"),
    "ant_positional": ("ant", "positional"),
    "halfcheetah": ("halfcheetah", "spring"),
    "walker2d": ("walker2d", "spring"),
    "humanoid": ("humanoid", "spring"),
}


def step_of(name: str) -> Stream:
    """Return XLA's kernels of one step of many environments."""
    environment, pipeline = STEPS[name]
    brax = importlib.import_module("brax.envs")
    env = brax.get_environment(environment, backend=pipeline)
    state = jax.eval_shape(env.reset, jax.random.PRNGKey(0))
    many = jax.tree.map(lambda x: jax.ShapeDtypeStruct((ENVIRONMENTS, *x.shape), x.dtype), state)
    action = jax.ShapeDtypeStruct((ENVIRONMENTS, env.action_size), jnp.float32)

    def step(state, action):
        return jax.vmap(env.step)(state, action)

    step.__name__ = name
    return record(jax.jit(step), many, action)


def streams(names: Sequence[str]) -> Iterator[tuple[str, Stream]]:
    for name in names:
        if name in STEPS:
            yield name, step_of(name)
        elif name in DYNAMIC:
            drawn = importlib.import_module("benchmarks.acs.torched").drawn
            for image in range(IMAGES.get(name, 1)):
                of = f"-{image}" if name in IMAGES else ""
                yield f"{name}{of}", replace(record(*drawn(name, image)), name=name)
        else:
            yield name, heap() if name == "rigid_bodies" else network(name)


def main(folder: str, *names: str) -> None:
    Path(folder).mkdir(parents=True, exist_ok=True)
    for name, stream in streams(names):
        path = Path(folder) / f"{name}.stream.gz"
        save(stream, path)
        digest = sha256(path.read_bytes()).hexdigest()
        print(f"| `streams/{path.name}` | {len(stream):,} kernels | `{digest}` |", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
