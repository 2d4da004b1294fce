"""Functions inside a kernel, with elements of a value on lanes: same results as on arrays, or a refusal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import pallas as pl

from timerl_nb.runtime.xla.lowering.struct_of_arrays_retracing import Cells, InCells, LaneReference

SIZE = 4  # equals the number of elements, so that no axis is recognised by its length
X = np.linspace(-2, 2, SIZE * SIZE, dtype=np.float32).reshape(SIZE, SIZE)
Y = np.arange(SIZE, dtype=np.float32) - 1
SHARED = np.array([0.5, -1.0, 2.0], np.float32)


def in_kernel(
    function: Callable[..., Any], *arrays: Any, lanes: tuple[int | None, ...], guess: bool
) -> Any:
    """Run a function inside a kernel with points as lanes; points come first."""
    like = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in arrays]
    out = jax.eval_shape(function, *like)

    def kernel(*refs: Any) -> None:
        places = [LaneReference(ref, lane) for ref, lane in zip(refs, (*lanes, 0), strict=True)]
        inside = InCells(SIZE, places, guess=guess)
        taken = [place.all(x.shape) for place, x in zip(places[:-1], like, strict=True)]
        made: Cells = inside.call(function, *taken, like=like)
        places[-1].put_all(inside.move_to_lane(made, 0))

    return pl.pallas_call(kernel, out_shape=out, interpret=True)(*arrays)


def turned(x: Any, y: Any, w: Any) -> Any:
    """A loop with a carried value that is equal for all points at first."""

    def turn(k: Any, carry: Any) -> Any:
        total, count = carry
        return total + x[:, :2] * k, count + jnp.where(y > 0, 1, 0)

    total, count = lax.fori_loop(0, 3, turn, (jnp.zeros((SIZE, 2)), jnp.zeros(SIZE, jnp.int32)))
    return total + count[:, None]


MADE: dict[str, Callable[..., Any]] = {
    "elementwise": lambda x, y, w: jnp.sin(x) * 2 + jnp.where(x > 0, x, y[:, None]),
    "taken apart": lambda x, y, w: x[:, 0] + x[:, 2] ** 2 - x[:, 1:3].max(axis=1),
    "joined": lambda x, y, w: jnp.concatenate([x[:, 1:3], y[:, None], x[:, :1]], axis=1),
    "stacked": lambda x, y, w: jnp.stack([y, x[:, 3], -y], axis=1),
    "reshaped": lambda x, y, w: x.reshape(SIZE, 2, 2).transpose(0, 2, 1).reshape(SIZE, 4),
    "transposed": lambda x, y, w: (x.T[::1] + y).T,
    "reduced": lambda x, y, w: (x * w[0]).sum(axis=1) + jnp.any(x > 1, axis=1),
    "counted": lambda x, y, w: y + jnp.arange(SIZE) * 3 + 1,
    "elements counted": lambda x, y, w: x[:, :3] + jnp.arange(3)[None, :] + y[:, None],
    "shared": lambda x, y, w: x[:, :3] * w + w[::1].sum(),
    "at an index": lambda x, y, w: lax.dynamic_index_in_dim(x, 2, 1, keepdims=False),
    "at an unknown index": lambda x, y, w: lax.dynamic_slice_in_dim(
        x, w[2].astype(int), 2, 1
    ),
    "beyond the end": lambda x, y, w: lax.dynamic_slice_in_dim(x, w[2].astype(int) + 7, 2, 1),
    "the same for all": lambda x, y, w: jnp.broadcast_to(w[:1], (SIZE,)),
    "numbers that are equal": lambda x, y, w: y * np.full(SIZE, 3, np.float32),
    "bits": lambda x, y, w: (y.astype(jnp.uint32) << 3) ^ jnp.uint32(5) % 3,
    "turned": turned,
}  # fmt: skip


# Lengths equal the number of points, so they do not identify the axis.
AS_MANY: dict[str, Callable[..., Any]] = {
    "as many elements counted": lambda x, y, w: x + jnp.arange(SIZE),
    "as many elements of each kind": lambda x, y, w: x * np.array([3, 1, 4, 1]) + y[:, None],
    "as many elements in turns": lambda x, y, w: (
        lax.fori_loop(0, 3, lambda k, c: c * 2 + k, jnp.zeros((1, SIZE))) + x
    ),
    "points counted among them": lambda x, y, w: (x + jnp.arange(SIZE)) * jnp.arange(SIZE)[:, None],
    "a table of points": lambda x, y, w: y * np.array([3, 1, 4, 1], np.float32),
    "points after two turns": lambda x, y, w: lax.fori_loop(
        0, 3, lambda k, c: (c[1], c[0] + y), (jnp.zeros(SIZE), jnp.zeros(SIZE))
    )[0],
}


@pytest.mark.parametrize(
    ("what", "guess"),
    [(what, guess) for guess in (True, False) for what in MADE]
    + [(what, False) for what in AS_MANY],
)
def test_elements_apart_are_those_of_the_whole(what: str, guess: bool) -> None:
    function = (MADE | AS_MANY)[what]
    want = jax.jit(function)(X, Y, SHARED)
    have = in_kernel(function, X, Y, SHARED, lanes=(0, 0, None), guess=guess)
    assert have.dtype == want.dtype
    np.testing.assert_allclose(have, want, rtol=2e-7, atol=0)


REFUSED: dict[str, tuple[Callable[..., Any], str]] = {
    "a sum of points": (lambda x, y, w: x + y.sum(), "it reduces over points"),
    "sums up to each": (lambda x, y, w: jnp.cumsum(x, axis=1), "has no rule for single elements"),
    "some points": (lambda x, y, w: jnp.concatenate([y[1:], y[:1]]), "it slices points"),
    "every other point": (lambda x, y, w: y[::2], "it slices points"),
    "points mixed": (lambda x, y, w: x + x.T, "two axes of 4 elements"),
    "points flat": (lambda x, y, w: x.reshape(-1)[:4], "it merges points with another axis"),
    "a product": (lambda x, y, w: x[:, :3] @ w, "has no rule for single elements"),
}


@pytest.mark.parametrize("what", REFUSED)
@pytest.mark.parametrize("guess", [True, False])
def test_what_mixes_points_is_refused(what: str, guess: bool) -> None:
    function, why = REFUSED[what]
    with pytest.raises(NotImplementedError, match=why):
        in_kernel(function, X, Y, SHARED, lanes=(0, 0, None), guess=guess)


def test_a_guess_refuses_what_is_none() -> None:
    function = AS_MANY["as many elements counted"]
    with pytest.raises(NotImplementedError, match="two axes of 4 elements"):
        in_kernel(function, X, Y, SHARED, lanes=(0, 0, None), guess=True)
