"""Behaviour of a run when memory is exhausted, as JSON; runs in a separate process."""

from __future__ import annotations

import json
import resource
import time
import warnings
from pathlib import Path

import timerl_nb as trl
from tests.failing import are_same, stopped
from timerl_nb.base.errors import TimeRLError

WIDTH, SPARE = 5_000, 32 << 20  # an iteration takes 100 MB, and none of it outlives the iteration


def hungry() -> trl.Context:
    with trl.Context("i", "t") as ctx:
        (i, _), (t, T) = ctx.dims
        w, x = (trl.tensor((WIDTH,), "f32", domain=domain) for domain in ((i,), (i, t)))
        w[0] = trl.random.normal((WIDTH,))
        x[i, 0] = w
        x[i, t + 1] = ((x.reshape((WIDTH, 1)) * x.reshape((1, WIDTH))).tanh() @ x).tanh()
        w[i + 1] = x[i, T - 1]
        ctx.output("mean", x[i, T - 1].mean())
    return ctx


def held(_: int) -> int:
    time.sleep(0.02)
    return int(Path("/proc/self/statm").read_text().split()[0])


def allow(nbytes: int | None) -> None:
    """Limit the process to some more bytes; None removes the limit."""
    pages = min(map(held, range(20)))  # another thread may still be releasing memory
    limit = resource.RLIM_INFINITY if nbytes is None else pages * resource.getpagesize() + nbytes
    resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))


def tried(executor: str) -> dict[str, object]:
    options = trl.Options(executor=executor, vectorize=False)
    program = hungry().compile({"I": 4, "T": 2}, options)
    whole = program.execute(seed=1, progress=False)
    run = program.start(seed=1, paused=True)
    run.wait()
    run.step(2)
    run.wait()
    allow(SPARE)
    run.resume()
    run.wait()
    error = str(run.error)
    allow(None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            left = repr(are_same(run.so_far(), stopped(program, run.turn, 1)))
        except TimeRLError as lost:
            left = str(lost)
    again = are_same(program.execute(seed=1, progress=False), whole)
    return {"error": error, "turn": run.turn, "left": left, "again": again}


if __name__ == "__main__":
    print(json.dumps({executor: tried(executor) for executor in ("xla", "interpret")}))
