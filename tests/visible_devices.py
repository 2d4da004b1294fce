"""Results of a program on every visible device, as JSON; runs in processes with one or more devices."""

from __future__ import annotations

import json
import threading
from collections import Counter
from contextlib import nullcontext
from typing import Any

import jax

import timerl_nb as trl

BOUNDS = {"I": 3, "T": 6}
WAYS: dict[str, dict[str, Any]] = {
    "xla": {"executor": "xla"},
    "interpret": {"executor": "interpret"},
    "swapped": {"executor": "interpret", "device_memory": 284, "rematerialize": False},
}


def learning() -> trl.Context:
    """A state updated by a weight and by random draws, and the final weight."""
    with trl.Context("i", "t") as ctx:
        (i, _), (t, _) = ctx.dims
        weight, state = trl.tensor((), domain=(i,)), trl.tensor((4,), domain=(i, t))
        state[i, 0] = trl.random.normal((4,), domain=(i,))
        state[i, t + 1] = (state * weight + trl.random.normal((4,), domain=(i, t))).tanh()
        total = (state[i, 5 - t] * state).sum(axis=0).sum(over=t)
        weight[0] = 0.5
        weight[i + 1] = (weight + 0.1 * total).sin()
        ctx.output("total", total)
        ctx.output("weight", weight)
    return ctx


def values(result: trl.Result) -> list[str]:
    """Return all results, bitwise."""
    return [f"{name} {result[name].tobytes().hex()}" for name in sorted(result)]


def on(device: Any, seen: Counter[str]) -> dict[str, Any]:
    """Return results on a device that is the default of this thread, or of the process."""
    found: dict[str, list[str]] = {}
    before = seen["jaxpr_trace_duration"]
    with jax.default_device(device) if device.id else nullcontext():
        program = learning().compile(BOUNDS, trl.Options(executor="xla"))
        found["xla"] = values(program.execute(seed=3))
        traced = seen["jaxpr_trace_duration"] - before
        for way, options in WAYS.items():
            again = learning().compile(BOUNDS, trl.Options(**options))
            assert bool(again.memory.swaps.all) == (way == "swapped")
            found[f"{way} again"] = values(again.execute(seed=3))
        running = program.start(seed=3)

    def run() -> None:
        found["on another thread, on the process's device"] = values(program.execute(seed=3))

    thread = threading.Thread(target=run)
    thread.start()
    found["started"] = values(running.result())
    thread.join()
    return {"values": found, "traced": traced}


def main() -> None:
    seen: Counter[str] = Counter()
    jax.monitoring.register_event_duration_secs_listener(
        lambda name, *_, **__: seen.update([name.rsplit("/", 1)[-1]])
    )
    print(json.dumps([on(device, seen) for device in jax.devices()]))


if __name__ == "__main__":
    main()
