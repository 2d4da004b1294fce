"""Work of a batch beside its steps: arrays returned without copies, few calls, and few compilations."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import pytest

import timerl_nb as trl
from timerl_nb.collecting.policies.collecting_policy import own
from timerl_nb.runtime.jax_backend import graph_function as graph

ENVS, STEPS = 4, 64


def _network() -> Any:
    return trl.DNNBuilder().from_env(trl.env.make("CartPole-v1"), hidden=[8])


@pytest.fixture
def compiled() -> Iterator[list[float]]:
    """Seconds of each compilation by XLA."""
    found: list[float] = []

    def listen(event: str, seconds: float, **_: Any) -> None:
        if event == "/jax/core/compile/backend_compile_duration":
            found.append(seconds)

    jax.monitoring.register_event_duration_secs_listener(listen)
    yield found
    jax.monitoring.unregister_event_duration_listener(listen)


def test_xla_returns_buffers_without_a_copy() -> None:
    with trl.collect("CartPole-v1", _network(), envs=ENVS, steps=STEPS, how="scan") as c:
        c.next()
        lowered = c._source.program.executable.xla_program
        entry = lowered.hlo(len(lowered.calls)).partition("\nENTRY")[2]
    copies = re.findall(rf" = (\w+)\[{STEPS},{ENVS}[^\]]*\]\S* copy\(", entry)
    assert [kind for kind in copies if kind != "pred"] == ["f32"]  # the private copy of the reward


def test_batches_and_their_private_copies_share_no_memory() -> None:
    with trl.collect("CartPole-v1", _network(), envs=ENVS, steps=STEPS, how="scan") as c:
        batches = [c.next() for _ in range(3)]
    arrays = [
        x
        for batch in batches
        for x in (*jax.tree.leaves(batch), batch._ended.reward, *batch._ended.ends[:2])
    ]
    assert len({x.unsafe_buffer_pointer() for x in arrays}) == len(arrays)
    for batch in batches:
        assert np.asarray(batch.valid).all() and batch.valid.shape == (STEPS, ENVS)
        np.testing.assert_array_equal(batch._ended.reward, batch.reward)


def test_a_later_batch_compiles_nothing(compiled: list[float]) -> None:
    with trl.collect("CartPole-v1", _network(), envs=ENVS, steps=STEPS, how="scan") as c:
        c.next()
        compiled.clear()
        for _ in range(4):
            c.next()
    assert compiled == []


def test_weights_are_copied_without_a_compilation(compiled: list[float]) -> None:
    whole = np.zeros(7 * 11 * 13 * 4 + 64, np.uint8)
    at = -whole.ctypes.data % 64  # JAX shares memory of this alignment
    array = whole[at : at + 7 * 11 * 13 * 4].view(np.float32).reshape(7, 11, 13)
    array[:] = 3
    moved = own(array)
    assert compiled == []
    array[:] = 0
    assert np.asarray(moved).min() == 3


def test_only_divided_arrays_are_moved() -> None:
    arrays = {"x": jax.numpy.zeros(3), "y": np.ones(2)}
    made, count = graph.together(arrays)
    assert count == 0 and all(made[name] is x for name, x in arrays.items())
