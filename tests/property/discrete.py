"""Integer and boolean parts of random programs."""

from __future__ import annotations

from typing import Any

import timerl_nb as trl
from tests.property.drawn import INTEGERS, SHAPES, Drawn


def _given(d: Drawn, types: tuple[str, ...], shape: Any = None) -> trl.RecurrentTensor:
    """Return an existing integer or boolean tensor, or a new one."""
    found = d.tensor(types=types, shape=shape)
    if found is not None:
        return found
    kind, domain = d.pick(types), d.domain()
    shape = d.pick(SHAPES) if shape is None else shape
    x = trl.data(d.data(domain, shape, kind), domain=domain)
    d.add(x, f"{kind}{shape} @ {domain}")
    return x


def integers(d: Drawn) -> None:
    x = _given(d, INTEGERS)
    y = _given(d, INTEGERS, x.shape)
    made = {
        "added": lambda: x + y,
        "taken": lambda: x - y * 3,
        "times": lambda: x * y,
        "divided": lambda: x // y,
        "remainder": lambda: x % y,
        "negative": lambda: -abs(x),
        "greater": lambda: trl.max(x, y),
        "bits": lambda: (x & y) | (x ^ 5),
        "moved": lambda: (x << 1) - (y >> 1),
        "narrow": lambda: x.cast(d.pick(INTEGERS)),
        "compared": lambda: x > y,
        "equal": lambda: x == y,
        "floating": lambda: x.cast("f32") * 0.37,
        "drawn": lambda: trl.random.randint(x.cast("i32"), y.cast("i32") + 3, domain=d.domain()),
    }
    f = d.pick(made)
    d.add(made[f](), f)


def booleans(d: Drawn) -> None:
    x = _given(d, ("bool",))
    y = _given(d, ("bool",), x.shape)
    made = {
        "and": lambda: x & ~y,
        "or": lambda: x | y,
        "xor": lambda: x ^ y,
        "counted": lambda: x.cast("i32") + y,
        "chosen": lambda: trl.where(x, _given(d, INTEGERS, x.shape), 3),
    }
    f = d.pick(made)
    d.add(made[f](), f)


def counting(d: Drawn) -> None:
    """Add reductions, positions and recurrences with exact results."""
    x = _given(d, (*INTEGERS, "bool"))
    ways = ["sorted", "found", "greatest"] * bool(x.rank) + ["over", "again"] * bool(x.domain)
    way = d.pick([*ways, "window"] if x.domain else [*ways, "none"])
    axis = d.pick(range(x.rank)) if x.rank else 0
    name = d.pick(x.domain) if x.domain else ""
    is_bool = x.dtype == "bool"
    if way == "sorted":
        d.add(x.cast("i32").sort(axis), "sorted")
    elif way == "found":
        d.add(x.cast("i32").argmax(axis), "found")
    elif way == "greatest":
        d.add(x.any(axis=axis) if is_bool else x.max(axis=axis), "greatest")
    elif way == "over":
        f = d.pick(("any", "all") if is_bool else ("sum", "max", "min", "prod"))
        d.add(getattr(x, f)(over=name), f"over {name}: {f}")
    elif way == "window":
        var, bound = d.symbols[name]
        s = x[d.key(x, name, d.pick((slice(0, var + 1), slice(var, bound), slice(0, bound))))]
        d.add(s.all(axis=0) if is_bool else s.sum(axis=0), f"exact window of {name}")
    elif way == "again":
        var, _ = d.symbols[name]
        y = trl.tensor(x.shape, x.dtype, domain=x.domain)
        y[d.key(x, name, 0)] = x[d.key(x, name, 0)]
        rules = (
            (lambda: y ^ x,)
            if is_bool
            else (lambda: y + x, lambda: trl.max(y, x), lambda: y * 3 - x)
        )
        y[d.key(x, name, var + 1)] = d.pick(rules)()
        d.add(y, f"exactly again over {name}")
