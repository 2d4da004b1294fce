"""Write a folder of the current version: `python -m tests.kept`. Older folders are not touched."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

import timerl_nb as trl
from timerl_nb.runtime.state.run_folder import VERSION, RunFolder

FOLDER = Path(__file__).parent


def added(total: np.ndarray, at: tuple[int, ...], x: np.ndarray) -> np.ndarray:
    """Return a value that depends on all previous calls."""
    total += x
    return total[0].astype(np.float32)


if __name__ == "__main__":
    with trl.Context("i", "t") as ctx:
        (i, I), (t, T) = ctx.dims
        w = trl.parameter(np.float32([0.5, -0.5]), domain=(i,), name="w")
        x = trl.random.normal((2,), domain=(i, t)).named("x")
        done = (x * w).sum(axis=0) > 0.6
        loss = ((x * w - 1.0) ** 2).mean(axis=0)[i, 0:T].sum(axis=0)
        loss.backward()
        trl.optim.Adam([w], lr=1e-1).step()
        total = trl.Resource(lambda sizes, seed: np.zeros(1), name="total")
        ctx.output("total", trl.udf(added, loss, out=loss, resource=total))
        ctx.output("loss", loss.cast("bf16"))
    program = ctx.compile({I: 4, T: trl.until(done, at_most=6)}, trl.Options(executor="interpret"))
    folder = FOLDER / f"run-v{VERSION}"
    with program.start(7, checkpoint=folder, every=2, paused=True) as run:
        run.wait()
        run.step(3)
        run.wait()
    (folder / "lock").unlink()
    _, arrays = RunFolder(folder).read()
    as_lists = {n: [str(x.dtype), x.astype(np.float64).tolist()] for n, x in arrays.items()}
    (FOLDER / f"run-v{VERSION}.json").write_text(json.dumps(as_lists, indent=1) + "\n")
