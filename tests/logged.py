"""Program with outputs of all kinds, and a run of it that kills itself.

As a script: folder, strategy.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import numpy as np

import timerl_nb as trl
from timerl_nb.execution.logging.run_logger import Row

TURNS = 12
WAYS = {
    "xla": {"executor": "xla"},
    "fused": {"executor": "xla", "fuse_iterations": 5},
    "interpret": {"executor": "interpret"},
}
# Outputs that vary only over iterations, and others.
COLUMNS = ["loss", "count", "small", "odd", "some", "half", "late"]


def telling(way: str, *, live: bool = True) -> trl.Program:
    """Return a learning program with outputs of all kinds.

    Args:
        live: Compute the outputs of iterations immediately; otherwise some of them are a batch
        over all iterations.
    """
    with trl.Context("i", "t") as ctx:
        (i, _), (t, T) = ctx.dims
        w = trl.parameter(np.ones(16, np.float32), domain=(i,), name="w")
        x = trl.random.normal((16,), domain=(i, t)) * 0.1
        s = trl.tensor((16,), domain=(i, t))
        s[i, 0] = x[i, 0]
        s[i, t + 1] = (s * 0.5 + x[i, t + 1] * w).tanh()
        loss = ((s - 0.3) ** 2).mean(axis=0)[i, 0:T].mean(axis=0)
        loss.square().backward()  # it needs the loss of the same iteration
        trl.optim.Adam([w], lr=1e-2).step()
        ctx.output("loss", loss)
        ctx.output("count", (loss > 0).cast("i32") * trl.value(i))
        ctx.output("small", loss < 0.3)
        edge = trl.where(trl.value(i) == 3, np.inf, trl.where(trl.value(i) == 4, -np.inf, loss))
        ctx.output("odd", trl.where(trl.value(i) == 2, np.nan, edge))
        ctx.output("some", loss[(i + 1) % 3 == 0])
        ctx.output("half", loss.cast("bf16"))
        ctx.output("late", trl.value(i).floating() * 0.1)
        ctx.output("total", loss.sum(over=i))
        ctx.output("rows", w)
        ctx.output("steps", s.mean(axis=0))
    order = {"vectorize": ("t",), "lift": False} if live else {}
    return ctx.compile({"I": TURNS, "T": 4}, trl.Options(**WAYS[way], **order))


def killing(row: Row) -> None:
    """Kill this process."""
    if row["i"] == 7:
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    folder, way = sys.argv[1:]
    at = Path(folder)
    telling(way).execute(
        seed=7, checkpoint=at / "kept", every=2, log=[at / "log", killing], progress=False
    )
