"""A buffer inside a program: in line order, with the run's seed, and saved with the run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import timerl_nb as trl
from timerl_nb.replay import InProgram, Proportional, Replay

FIELDS = {"x": ((), "f32"), "of": ((2,), "i32")}
I, B, DRAWN = 12, 3, 4


def program(executor: str = "xla", capacity: int = 10, min_size: int = 5) -> trl.Program:
    with trl.Context("i") as ctx:
        ((i, _),) = ctx.dims
        memory = InProgram(
            capacity, FIELDS, priority=Proportional(1.0, 0.0), min_size_to_sample=min_size
        )
        x = trl.value(i).astype("f32") + np.arange(B, dtype=np.float32) / 10
        at = trl.value(i)
        of = trl.stack([at, at + 1])
        memory.insert({"x": x, "of": trl.stack([of] * B)})
        drawn = memory.sample(DRAWN, beta=1.0, domain=(i,))
        memory.update(drawn.ticket, drawn["x"] + 1)
        ctx.output("x", drawn["x"])
        ctx.output("of", drawn["of"])
        ctx.output("weight", drawn.weight)
        ctx.output("index", drawn.index)
        ctx.output("probability", drawn.probability)
    return ctx.compile({"I": I}, trl.Options(executor=executor))


def by_hand(seed: int) -> dict[str, Any]:
    buffer = Replay(10, FIELDS, priority=Proportional(1.0, 0.0), seed=seed)
    found: dict[str, list[Any]] = {n: [] for n in ("x", "of", "weight", "index", "probability")}
    for i in range(I):
        x = np.float32(i) + np.arange(B, dtype=np.float32) / 10
        buffer.insert({"x": x, "of": np.full((B, 2), [i, i + 1], np.int32)})
        if len(buffer) < 5:
            for name, some in found.items():
                some.append(np.zeros((DRAWN, 2) if name == "of" else DRAWN))
            continue
        drawn = buffer.sample(DRAWN, 1.0)
        buffer.update(drawn.ticket, drawn["x"] + 1)
        found["x"].append(drawn["x"])
        found["of"].append(drawn["of"])
        found["weight"].append(drawn.weight)
        found["index"].append(drawn.index)
        found["probability"].append(drawn.probability.astype(np.float32))
    return found


@pytest.mark.parametrize("executor", ["xla", "interpret"])
def test_it_does_what_the_buffer_does(executor: str) -> None:
    result, want = program(executor).execute(seed=7), by_hand(7)
    for name in want:
        np.testing.assert_array_equal(result[name], np.stack(want[name]))
    assert not np.array_equal(program(executor).execute(seed=8)["x"], result["x"])


def test_a_run_that_is_saved_saves_it(tmp_path: Path) -> None:
    made = program()
    with made.start(seed=7, checkpoint=tmp_path, every=2, paused=True) as run:
        run.step(6)
        run.wait()
    result = made.resume(tmp_path)
    for name, want in by_hand(7).items():
        np.testing.assert_array_equal(result[name], np.stack(want))


def test_what_is_not_a_row_is_refused() -> None:
    with trl.Context("i") as ctx:
        ((i, _),) = ctx.dims
        memory = InProgram(10, FIELDS)
        x = trl.random.normal((3,), domain=(i,))
        with pytest.raises(
            trl.errors.ShapeError, match="rows have the fields x, the buffer has x, of"
        ):
            memory.insert({"x": x})
        with pytest.raises(trl.errors.OptionError, match="no field 'y'"):
            memory.sample(3, domain=(i,))["y"]
        sample = memory.sample(3, domain=(i,))
        assert len(sample) == 3 and "3 entries" in repr(sample)
        with pytest.raises(trl.errors.OptionError, match="consists of recurrent tensors"):
            sample.jax()
        with pytest.raises(trl.errors.OptionError, match="it uses the seed of the run"):
            InProgram(10, FIELDS, seed=1)
        with pytest.raises(trl.errors.OptionError, match="is not a priority function"):
            InProgram(10, FIELDS, priority=1)
