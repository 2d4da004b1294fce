"""Draws by JAX's keys with unrolled rounds: equal values, and no loops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import timerl_nb as trl
from timerl_nb.runtime.jax_backend.unrolled_key_draws import with_unrolled_draws

ROWS = 8


def _draws(words: Any) -> tuple[Any, ...]:
    """Draw by functions with and without a replacement."""
    key = jax.random.wrap_key_data(words, impl="threefry2x32")
    one, *others = jax.random.split(key, 3)
    return (
        jax.random.bits(key),
        jax.random.bits(key, (3, 2)),
        jax.random.bits(key, (5,), jnp.uint8),
        jax.random.normal(one, (4,)),
        jax.random.categorical(others[0], jnp.zeros(6)),
        jax.random.key_data(jax.random.fold_in(others[1], 7)),
        jax.random.key_data(jax.random.split(one, (2, 2))),
        jax.jit(lambda k: jax.random.uniform(k, (2,)))(one),
        jax.lax.scan(lambda k, _: (jax.random.split(k)[0], jax.random.bits(k)), one, None, 3)[1],
        jax.random.bits(jax.random.split(one, 2)[0], (2,)),
    )


def _compiled(function: Callable[..., Any], *, unrolled: bool) -> Any:
    """Compile a function of rows, as a kernel calls it."""

    rows = jax.vmap(with_unrolled_draws(function) if unrolled else function)
    words = jax.random.bits(jax.random.key(0), (ROWS, 2))
    made = jax.jit(rows).lower(words).compile()
    return made.as_text(), made(words)


@pytest.mark.parametrize("partitionable", [True, False])
def test_unrolled_draws_equal_those_of_jax(partitionable: bool) -> None:
    with jax.threefry_partitionable(partitionable):
        want, found = (_compiled(_draws, unrolled=one)[1] for one in (False, True))
    for x, y in zip(want, found, strict=True):
        np.testing.assert_array_equal(x, y)


def test_a_draw_is_one_call_instead_of_a_loop() -> None:
    def draw(words: Any) -> tuple[Any, ...]:
        key = jax.random.wrap_key_data(words, impl="threefry2x32")
        x = jax.random.normal(key, (2,))
        return x.sum(), x.max(), jnp.sin(x)  # several readers

    texts = [_compiled(draw, unrolled=one)[0] for one in (False, True)]
    assert [text.count(" while(") for text in texts] == [1, 0]
    assert [text.count(" call(") for text in texts] == [0, 1]


def test_functions_without_draws_and_other_generators_are_left_alone() -> None:
    def with_rbg(words: Any) -> tuple[Any, ...]:
        key = jax.random.wrap_key_data(jnp.concatenate([words, words]), impl="rbg")
        return (jax.random.bits(key, (2,)),)

    for function in (with_rbg, lambda words: (words + 1,)):
        want, found = (_compiled(function, unrolled=one) for one in (False, True))
        np.testing.assert_array_equal(want[1], found[1])
        assert want[0].count(" call(") == found[0].count(" call(")


def test_a_policy_with_draws_returns_equal_batches_without_loops_around_its_rounds() -> None:
    def act(params: Any, obs: Any, key: Any) -> Any:
        one, other = jax.random.split(key)
        return jax.random.categorical(one, obs[:2]), {"noise": jax.random.normal(other)}

    batches = []
    for how in ("scan", "step"):
        with trl.collect("CartPole-v1", act, envs=4, steps=8, how=how) as c:
            batches.append([c.next(), c.next()])
    for one, other in zip(*batches, strict=True):
        for name in ("obs", "action", "noise", "reward"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


def test_an_error_names_the_users_line() -> None:
    def fail(words: Any) -> Any:
        x = jax.random.normal(jax.random.wrap_key_data(words, impl="threefry2x32"))
        return (jax.pure_callback(np.sin, jax.ShapeDtypeStruct((), jnp.float32), x),)

    for unrolled in (False, True):
        with pytest.raises(NotImplementedError) as caught:
            _compiled(fail, unrolled=unrolled)
        assert any("pure_callback(np.sin" in str(frame.statement) for frame in caught.traceback)
        assert caught.value.__context__ is None


def test_jaxs_check_of_reused_keys_still_works() -> None:
    def reuse(words: Any) -> tuple[Any, ...]:
        key = jax.random.wrap_key_data(words, impl="threefry2x32")
        return jax.random.bits(key), jax.random.normal(key)

    with jax.debug_key_reuse(True), pytest.raises(jax.errors.KeyReuseError):
        _compiled(reuse, unrolled=True)
