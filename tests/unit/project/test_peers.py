"""All hand-written programs agree: one iteration from the same carry.

`test_algorithms` compares the fully jitted one with ours; this file compares the others with it.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import numpy as np
import pytest

from benchmarks.training.peers import jitted, kept, online
from benchmarks.training.peers.parts import Iteration, start
from benchmarks.works import Work

PPO = Work("ppo", 6, 20, width=8, obs_shape=(2, 2, 2))
MONTE_CARLO = Work("reinforce", 6, 20, layers=3, width=8, obs_shape=(2, 2, 2))
WINDOW = Work("reinforce", 6, 20, width=8, obs_shape=(2, 2, 2), window=4)

PROGRAMS: dict[str, tuple[Work, Callable[[Work], Iteration]]] = {
    "ppo, kept": (PPO, kept.iteration),
    "ppo, kept, blocks": (PPO, lambda work: kept.iteration(work, 5)),
    "ppo, recomputed, blocks": (PPO, lambda work: kept.iteration(work, 5, recompute=True)),
    "mc, kept": (MONTE_CARLO, kept.iteration),
    "mc, recomputed, blocks": (MONTE_CARLO, lambda work: kept.iteration(work, 4, recompute=True)),
    "n-step, kept": (WINDOW, kept.iteration),
    "n-step, online": (WINDOW, online.iteration),
    "n-step, rings": (WINDOW, online.rings),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_do_the_same_work(name: str) -> None:
    work, write = PROGRAMS[name]
    carry = start(work)
    want, (loss, total) = jax.jit(jitted.iteration(work))(carry)
    have, (their_loss, their_total) = jax.jit(write(work))(carry)
    np.testing.assert_allclose(their_loss, loss, rtol=1e-4)
    np.testing.assert_allclose(their_total, total, rtol=1e-5)
    for k, moment in want[1][0].items():  # a tenth of the gradient
        scale = float(np.abs(moment).max())
        np.testing.assert_allclose(have[1][0][k], moment, rtol=1e-3, atol=1e-4 * scale, err_msg=k)
        np.testing.assert_allclose(have[0][k], want[0][k], rtol=1e-4, atol=1e-5, err_msg=k)
    np.testing.assert_array_equal(have[2], want[2])


def test_iterations_differ() -> None:
    run = jax.jit(jitted.iteration(PPO))
    carry, first = run(start(PPO))
    assert run(carry)[1][1] != first[1]
