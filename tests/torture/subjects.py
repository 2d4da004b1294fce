"""The stress-tested programs. As a script: one process of a run, started, resumed or uninterrupted.

`python -m tests.torture.subjects NAME TURNS SEED RESULT [FOLDER EVERY]` writes the results to the
file RESULT. With a folder it saves there, and resumes an existing run.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
from safetensors.numpy import save

import timerl_nb as trl
from timerl_nb.base.atomic_files import write_whole
from timerl_nb.runtime.state.run_folder import RunFolder

WAYS = {
    "xla": {"executor": "xla"},
    "fused": {"executor": "xla", "fuse_iterations": 3},
    "interpret": {"executor": "interpret"},
}


def reinforce(turns: int) -> trl.Program:
    """On CartPole in JAX, by XLA."""
    ctx = trl.algorithms.reinforce(hidden=(32, 32))
    return ctx.compile({"B": 16, "I": turns, "T": 50}, trl.Options(executor="xla"))


def clipped(turns: int) -> trl.Program:
    """Clipped PPO, three iterations per call."""
    ctx = trl.algorithms.clipped_ppo(hidden=(16, 16), epochs=2, minibatches=2)
    return ctx.compile({"B": 4, "I": turns, "T": 16}, trl.Options(**WAYS["fused"]))


def hosted(turns: int) -> trl.Program:
    """On Gymnasium's CartPole, which runs on the host."""
    ctx = trl.algorithms.reinforce("gym.CartPole-v1", hidden=(8,))
    return ctx.compile({"B": 2, "I": turns, "T": 12}, trl.Options(executor="xla"))


def interpreted(turns: int) -> trl.Program:
    """Five-step returns, by the interpreter."""
    ctx = trl.algorithms.reinforce(hidden=(8,), steps=5)
    return ctx.compile({"B": 4, "I": turns, "T": 10}, trl.Options(executor="interpret"))


def walking(way: str, turns: int = 400) -> trl.Program:
    """Learns from random steps; unless `fused`, a host resource sums the losses."""
    with trl.Context("i", "t") as ctx:
        (i, _), (t, T) = ctx.dims
        w = trl.parameter(np.ones(1024, np.float32), domain=(i,), name="w")
        x = trl.random.normal((1024,), domain=(i, t)) * 0.1
        s = trl.tensor((1024,), domain=(i, t))
        s[i, 0] = x[i, 0]
        s[i, t + 1] = (s * 0.5 + x[i, t + 1] * w).tanh()
        loss = ((s - 0.3) ** 2).mean(axis=0)[i, 0:T].mean(axis=0)
        loss.backward()
        trl.optim.Adam([w], lr=1e-2).step()
        ctx.output("loss", loss)
        if way != "fused":
            total = trl.Resource(lambda sizes, seed: np.zeros(1), name="total")
            ctx.output("total", trl.udf(added, loss, out=loss, resource=total))
    return ctx.compile({"I": turns, "T": 6}, trl.Options(**WAYS[way], vectorize=False))


def added(total: np.ndarray, at: tuple[int, ...], x: np.ndarray) -> np.ndarray:
    """Return a value that depends on all previous calls."""
    total += x
    return total[0].astype(np.float32)


SUBJECTS: Mapping[str, Callable[[int], trl.Program]] = {
    "reinforce": reinforce,
    "clipped": clipped,
    "hosted": hosted,
    "interpreted": interpreted,
    "walking-xla": lambda turns: walking("xla", turns),
    "walking-fused": lambda turns: walking("fused", turns),
    "walking-interpret": lambda turns: walking("interpret", turns),
}


def given_by(result: trl.Result) -> dict[str, np.ndarray]:
    """Return all results of a run."""
    found = {f"output {name}": np.asarray(x) for name, x in result.items()}
    return found | {f"parameter {name}": np.asarray(x) for name, x in result.parameters.items()}


def differs(want: Mapping[str, np.ndarray], have: Mapping[str, np.ndarray]) -> str:
    """Return the names of arrays that differ bitwise."""
    if want.keys() != have.keys():
        return f"has {sorted(have)}, not {sorted(want)}"
    for name, one in want.items():
        other = have[name]
        if (one.dtype, one.shape) != (other.dtype, other.shape):
            return f"{name} is {other.dtype}{other.shape}, not {one.dtype}{one.shape}"
        if one.tobytes() != other.tobytes():
            return f"{name} has other bits in {int((one != other).sum())} of {one.size} places"
    return ""


def main(name: str, turns: str, seed: str, result: str, folder: str = "", every: str = "1") -> None:
    program = SUBJECTS[name](int(turns))
    if not folder:
        given = program.execute(seed=int(seed))
    elif RunFolder(folder).is_empty:
        given = program.execute(seed=int(seed), checkpoint=folder, every=every)
    else:
        given = program.resume(folder)
    write_whole(Path(result), save(given_by(given)), synced=False)


if __name__ == "__main__":
    main(*sys.argv[1:])
