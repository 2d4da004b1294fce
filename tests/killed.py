"""A run that saves its state after every turn, to be killed at any moment. Run as a script: folder, way."""

from __future__ import annotations

import sys

import numpy as np

import timerl_nb as trl
from timerl_nb.runtime.run_folder import RunFolder

BOUNDS = {"I": 400, "T": 6}
WAYS = {
    "xla": {"executor": "xla"},
    "fused": {"executor": "xla", "fuse_iterations": 3},
    "interpret": {"executor": "interpret"},
}


def walking(way: str) -> trl.Program:
    """Something that learns from random steps; but for `fused`, a resource on the host adds up losses."""
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
    return ctx.compile(BOUNDS, trl.Options(**WAYS[way], vectorize=False))


def added(total: np.ndarray, at: tuple[int, ...], x: np.ndarray) -> np.ndarray:
    """What depends on all that was done before."""
    total += x
    return total[0].astype(np.float32)


if __name__ == "__main__":
    folder, way = sys.argv[1:]
    if RunFolder(folder).is_empty:
        walking(way).execute(seed=7, checkpoint=folder, every=1)
    else:
        walking(way).resume(folder)
