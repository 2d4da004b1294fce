"""Random loops over independent points of a dimension, which can be tiled."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

import timerl_nb as trl
from tests.property.drawn import SHAPES, Drawn


@st.composite
def rollouts(draw: Any) -> Drawn:
    """Add one or two states along t for each point of b, driven by draws and arrays."""
    bounds = {"B": draw(st.sampled_from((6, 10, 8, 5, 4, 7, 2))), "T": draw(st.integers(3, 5))}
    with trl.Context("b", "t") as ctx:
        (b, B), (t, T) = ctx.dims
        d = Drawn(draw, ctx, bounds)
        shape = d.pick(SHAPES)
        for k in range(draw(st.integers(1, 2))):
            x, back = trl.tensor(shape, domain=(b, t)), d.pick((1, 1, 2))
            for first in range(back):
                x[b, first] = trl.full(shape, 0.1 * first) + trl.value(b).cast("f32") * 0.1
            before, other = x[b, t + (back - 1)], d.made[-1] if d.made else x
            drives = {
                "draws": lambda: trl.random.normal(shape, domain=(b, t)),
                "given": lambda: trl.data(d.data(("b",), shape, "f32"), domain=(b,)),
                "given by step": lambda: trl.data(d.data(("b", "t"), shape, "f32"), domain=(b, t)),
                "shared": lambda: trl.data(d.data((), shape, "f32"), domain=()),
                "before": lambda before=before: before,
                "other": lambda other=other: other,
            }
            by = d.pick(drives)
            x[b, t + back] = (x * 0.5 + drives[by]()).tanh()
            d.add(x, f"state {k} {shape}, {back} back, by {by}")
        seen = {
            "all": lambda: x,
            "sum": lambda: x.sum(over=t),
            "last": lambda: x[b, T - 1],
            "mean of the last": lambda: x[b, T - 1].mean(over=b),
        }
        for name in {d.pick(seen), d.pick(seen)}:
            ctx.output(name, seen[name]())
    return d
