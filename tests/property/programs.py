"""Random programs over the access patterns of the language.

A program is drawn as a list of small decisions, so that Hypothesis shrinks it to few equations.
Values are bounded (tanh after products and recurrences), so that executors' results are comparable.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st

import timerl_nb as trl
from tests.property.discrete import booleans, counting, integers
from tests.property.drawn import ANY, FLOATS, INTEGERS, NUMBERS, SHAPES, Drawn, Step
from tests.property.learning import convolution, environment, parameter
from tests.unit.checks import total
from timerl_nb.compiler.ir.shapes import HALF
from timerl_nb.compiler.language.indexing.index_parsing import Condition
from timerl_nb.compiler.symbolic.index_expressions import FALSE

NAMES = ("b", "i", "t")


def source(d: Drawn) -> None:
    domain, shape = d.domain(), d.pick(SHAPES)
    kind = d.pick(("data", "data", "data", "normal", "value", "odd", "half", *INTEGERS, "bool"))
    if kind == "value" and domain:
        var, _ = d.symbols[domain[-1]]
        d.add(trl.value(var * 2 + 1).cast("f32") * 0.1, f"value({domain[-1]})")
        return
    if kind == "normal":
        d.add(trl.random.normal(shape, domain=domain), f"normal {shape} @ {domain}")
        return
    dtype = d.pick(HALF) if kind == "half" else None
    x = trl.data(d.data(domain, shape, kind), domain=domain, dtype=dtype)
    if x.dtype in FLOATS:
        d.leaves.append(x)
    d.add(x, f"{kind} {shape} @ {domain}")


def unary(d: Drawn) -> None:
    x = d.tensor()
    assert x is not None
    f = d.pick(("tanh", "sin", "sigmoid", "neg", "square", "abs"))
    made = {"neg": lambda: -x, "abs": lambda: abs(x), "square": lambda: (x * x).tanh()}
    d.add(made[f]() if f in made else getattr(x, f)(), f)


def binary(d: Drawn) -> None:
    x = d.tensor()
    assert x is not None
    y = d.tensor(shape=x.shape)
    assert y is not None
    f = d.pick(("add", "sub", "mul", "max", "where"))
    made = {
        "add": lambda: x + y,
        "sub": lambda: x - y,
        "mul": lambda: (x * y).tanh(),
        "max": lambda: trl.max(x, y),
        "where": lambda: trl.where(d.above(x, 0.1), x, y),
    }
    d.add(made[f](), f)


def matmul(d: Drawn) -> None:
    x = d.tensor(shape=(2,))
    w = d.tensor(shape=(2, 3))
    w = trl.random.normal((2, 3), domain=d.domain()) if w is None else w
    if x is not None:
        d.add((x @ w).tanh(), "matmul")


def along(d: Drawn) -> None:
    """Move elements along an axis of the tensor or of a slice."""
    x = d.tensor()
    assert x is not None
    name = d.pick(d.symbols)
    if name in x.domain and d.draw(st.booleans()):
        var, bound = d.symbols[name]
        x = x[d.key(x, name, d.pick((slice(var, bound), slice(0, var + 1), slice(0, bound))))]
    if not x.rank:
        return
    axis, back = d.draw(st.integers(0, x.rank - 1)), d.draw(st.booleans())
    at = trl.constant(np.array([1, 0, 2, 1], np.int32))
    here = trl.value(d.symbols[name][0])
    made = {
        "sort": lambda: x.sort(axis, descending=back),
        "cumprod": lambda: x.cumprod(axis, reverse=back),
        "cummax": lambda: x.cummax(axis, reverse=back),
        "scan": lambda: x.linear_scan(x.sin(), axis, reverse=back),
        "take": lambda: x.take(at, axis),
        "take one": lambda: x.take(here, axis).unsqueeze(axis),
        "put": lambda: x.put_add(at, 0.5, axis),
        "set": lambda: x.put(at, x.take(at + 1, axis).sin(), axis),
        "softmax": lambda: x.softmax(axis),
    }
    f = d.pick(made)
    y = made[f]().tanh()
    d.add(y if all(isinstance(s, int) for s in y.shape) else y.mean(axis=0), f"{f} along {axis}")


def reduce_axis(d: Drawn) -> None:
    x = d.tensor(types=NUMBERS)
    assert x is not None
    if x.rank:
        f = d.pick(("sum", "mean", "max"))
        d.add(getattr(x, f)(axis=d.draw(st.integers(0, x.rank - 1))), f"{f} axis")


def reduce_dims(d: Drawn) -> None:
    x = d.tensor(types=NUMBERS)
    assert x is not None
    if x.domain:
        dims = d.draw(st.lists(st.sampled_from(x.domain), unique=True, min_size=1, max_size=2))
        f = d.pick(("sum", "mean", "max", "min"))
        y = getattr(x, f)(over=tuple(dims))
        d.add(y.tanh() if d.draw(st.booleans()) else x - y, f"{f} over {dims}")


def chain(d: Drawn) -> None:
    """Add a reduction of values without other readers, which can be tiled."""
    x = d.tensor()
    assert x is not None
    y = d.tensor(shape=x.shape)
    assert y is not None
    z = trl.random.normal(x.shape, domain=d.domain()) if d.draw(st.booleans()) else x.sin()
    product = (z * y).tanh()
    if product.domain:
        dims = d.draw(st.lists(st.sampled_from(product.domain), unique=True, min_size=1))
        f = d.pick(("sum", "sum", "mean", "max", "min"))
        d.add(getattr(product, f)(over=tuple(dims)).tanh(), f"{f} of a product over {dims}")


def point(d: Drawn) -> None:
    name = d.pick(d.symbols)
    x = d.tensor(over=name, types=ANY)
    if x is None:
        return
    var, bound = d.symbols[name]
    options = {
        "first": 0,
        "last": bound - 1,
        "ahead": trl.min(var + d.draw(st.integers(1, 3)), bound - 1),
        "back": trl.max(var - d.draw(st.integers(1, 3)), 0),
        "reverse": bound - 1 - var,
        "half": var // 2,
        "rest": trl.min(var % 2, bound - 1),
        "from the end": -1,
        "in pieces": trl.where(_condition(d), var, trl.where(var % 2 == 0, bound - 1 - var, 0)),
    }
    how = d.pick(options)
    d.add(x[d.key(x, name, options[how])], f"{how} of {name}")


def window(d: Drawn) -> None:
    name = d.pick(d.symbols)
    x = d.tensor(over=name, types=NUMBERS)
    if x is None:
        return
    var, bound = d.symbols[name]
    n = d.draw(st.integers(1, 4))
    slices = {
        "suffix": slice(var, bound),
        "prefix": slice(0, var + 1),
        "ahead": slice(var, trl.min(var + n, bound)),
        "back": slice(trl.max(var - n, 0), var + 1),
        "whole": slice(0, bound),
        "end": slice(-1, None),
        "in pieces": slice(var, trl.where(var % 3 == 0, bound, trl.min(var + n, bound))),
    }
    how = d.pick(slices)
    s = x[d.key(x, name, slices[how])]
    f = d.pick(("sum", "discounted", "max", "mean", "fold"))
    made = {
        "sum": lambda: s.sum(axis=0),
        "discounted": lambda: s.discounted_sum(0.5),
        "max": lambda: s.max(axis=0),
        "mean": lambda: s.mean(axis=0),
        "fold": lambda: (s.tanh() * 0.5).sum(axis=0),
    }
    d.add(made[f]().tanh(), f"{f} of {how} {n} of {name}")


def picks(d: Drawn) -> None:
    """Read random points of a window of the past, also of conditional tensors."""
    name = d.pick(d.symbols)
    x = d.tensor(over=name, types=ANY)
    if x is None:
        return
    var, bound = d.symbols[name]
    n, gap = d.draw(st.integers(1, 4)), d.draw(st.integers(0, 2))
    windows = {
        "back": slice(trl.max(var - n, 0), var + 1),
        "behind": slice(trl.max(var - n - gap, 0), trl.max(var - gap, 0) + 1),
        "ahead": slice(var, trl.min(var + n, bound)),
    }
    how = d.pick(windows)
    draws = trl.random.uniform((d.draw(st.integers(1, 3)),), domain=d.domain())
    at = (draws * (n + 2)).floor().cast("i32") - 1  # sometimes beyond the window
    if how != "ahead" and x.dtype in FLOATS and d.draw(st.booleans()):
        y = trl.tensor(x.shape, x.dtype, domain=x.domain)
        y[d.key(x, name, 0)] = x[d.key(x, name, 0)]
        here = d.domain() if d.draw(st.booleans()) else x.domain
        at = (trl.random.uniform((2,), domain=[m for m in here if m in x.domain]) * n).floor()
        past = y[d.key(x, name, windows[how])].take(at.cast("i32"))
        y[d.key(x, name, var + 1)] = (past.sum(axis=0) * 0.5 + x).tanh()
        d.add(y, f"recurrence by picks {how} {n} {gap} of {name}")
        return
    y = x[d.key(x, name, windows[how])].take(at)
    y = y.any(axis=0) if x.dtype == "bool" else y.max(axis=0)
    d.add(y.tanh() if x.dtype in FLOATS else y, f"picks {how} {n} {gap} of {name}")


def recurrence(d: Drawn) -> None:
    name = d.pick(d.symbols)
    x = d.tensor(over=name)
    if x is None:
        return
    var, bound = d.symbols[name]
    ways = ("forward", "backward", "two back", "parity", "beyond", "before")
    way = d.pick((*ways, "remainder", "remainder back", "first match"))
    y = trl.tensor(x.shape, x.dtype, domain=x.domain)
    if way == "forward":
        y[d.key(x, name, 0)] = x[d.key(x, name, 0)]
        y[d.key(x, name, var + 1)] = (y * 0.5 + x).tanh()
    elif way == "backward":
        y[d.key(x, name, bound - 1)] = x[d.key(x, name, bound - 1)]
        later = y[d.key(x, name, trl.min(var + 1, bound - 1))]
        y[var < bound - 1] = (later * 0.5 + x).tanh()
    elif way == "two back":
        y[var < 2] = x
        y[d.key(x, name, var + 2)] = (y - x).tanh()
    elif way == "beyond":  # the right-hand side reads outside at unneeded points
        y[var < 2] = x
        y[d.key(x, name, var + 2)] = (y - x[d.key(x, name, var + 1)] * 0.5).tanh()
    elif way == "remainder":
        y[d.key(x, name, var)] = (y[d.key(x, name, var - 1)] * 0.5 + x).tanh()
        y[d.key(x, name, 0)] = x[d.key(x, name, 0)]
    elif way == "remainder back":
        y[d.key(x, name, -1)] = x[d.key(x, name, -1)]
        y[...] = (y[d.key(x, name, var + 1)] * 0.5 - x).tanh()
    elif way == "first match":
        trl.first_match(y)
        y[d.pick((var % 2 == 1, var >= 2, var == bound - 1))] = x
        y[d.key(x, name, var + 1)] = (y * 0.5 + x).tanh()
        y[...] = x * 0.25
    elif way == "before":
        y[d.key(x, name, bound - 1)] = x[d.key(x, name, bound - 1)]
        y[d.key(x, name, var - 1)] = (x[d.key(x, name, var - 1)] + y * 0.5).tanh()
    else:
        y[var % 2 == 0] = x
        y[var % 2 == 1] = x * 0.25 + y[d.key(x, name, trl.max(var - 1, 0))]
    d.add(y, f"{way} recurrence over {name}")


def _condition(d: Drawn) -> Any:
    """Return a condition on the program's symbols; it may be empty under the bounds."""
    name = d.pick(d.symbols)
    var, bound = d.symbols[name]
    other, _ = d.symbols[d.pick(d.symbols)]
    k = d.draw(st.integers(0, 3))
    options = {
        "even": var % 2 == 0,
        "stride": var % 3 == k % 3,
        "from": var >= k,
        "until": var < k + 1,
        "last": var == bound - 1,
        "but": ~(var == k),
        "beside": var >= other,
        "together": (var + other) % 2 == k % 2,
        "either": (var < 1) | (other > k),
        "both": (var > 0) & (other <= k),
    }
    return options[d.pick(options)]


def conditional(d: Drawn) -> None:
    x = d.tensor(types=NUMBERS)
    assert x is not None
    cond = _condition(d)
    if cond.cond is not FALSE:
        d.add(x[cond].tanh(), f"where {cond}")


def with_conditional(d: Drawn) -> None:
    """Use a conditional tensor; the result may be conditional, too."""
    if not d.partial:
        conditional(d)
    if not d.partial:
        return
    x = d.pick(d.partial)
    way = d.pick(("join", "join", "other", "again", "otherwise", "reduce", "reduce", "branches"))
    if way == "join" and (y := d.tensor(shape=x.shape)) is not None:
        d.add((x * y).tanh() + x, "joined")
    elif way == "other":
        y = d.pick([p for p in d.partial if p.shape == x.shape])
        try:
            d.add(x - y, "difference")
        except trl.errors.DomainError:
            return  # their domains may be disjoint
    elif way == "again":
        try:
            d.add(x[_condition(d)] * 0.5, "again")
        except trl.errors.DomainError:
            return
    elif way == "otherwise":
        d.add(x.otherwise(0.5) * 0.7, "otherwise")
    elif way == "reduce" and x.domain:
        dims = d.draw(st.lists(st.sampled_from(x.domain), unique=True, min_size=1, max_size=2))
        f = d.pick(("sum", "max", "min", "prod"))
        # for an empty set, sums and products have their neutral value
        empty = {"initial": 0.25} if f in ("max", "min") else {}
        d.add(
            getattr(x, f)(over=tuple(dims), **empty).tanh(), f"{f} over {dims} of what is defined"
        )
    elif way == "branches":
        y = trl.tensor(x.shape, x.dtype, domain=x.domain)
        symbols = {str(var): var for var, _ in x.ctx.dims}
        y[tuple(symbols[n] for n in x.domain)] = x * 0.5
        y[~Condition(x.ctx, x.subset)] = trl.full(x.shape, 0.25).cast(x.dtype)
        d.add(y, "branches")


def liftable(d: Drawn) -> None:
    """Add a recurrence that is linear in its value, or an extremum, in one of many spellings."""
    name = d.pick(d.symbols)
    x = d.tensor(over=name, types=NUMBERS)
    z = None if x is None else d.tensor(shape=x.shape)
    if x is None or z is None:
        return
    x, z = x.cast("f32"), z.cast("f32")
    if name not in x.domain or set(z.domain) - set(x.domain):
        return
    var, bound = d.symbols[name]
    way = d.pick(("forward", "next", "backward", "anew", "both"))
    kind = d.pick(("sum", "decay", "mask", "gate", "free", "max", "product"))
    # infinity minus itself is not guaranteed to be NaN (docs/reference/special-values.md)
    more = 0.25 if "odd" in d.kinds else -0.25
    rule = {
        "sum": lambda y: y + x,
        "decay": lambda y: 0.5 * (y - z) + y * more,
        "mask": lambda y: trl.where(d.above(z, 0.2), x, x - y * 0.9),
        "gate": lambda y: y * z.sigmoid() + x * (1.0 - z.sigmoid()),
        "free": lambda y: x + y * z.tanh() * 1.5,
        "max": lambda y: trl.max(trl.where(d.above(z, 0.0), trl.max(y, z), y), x),
        "product": lambda y: y * x.tanh(),
    }[kind]
    y = trl.tensor(x.shape, x.dtype, domain=x.domain)
    if way == "forward":
        y[d.key(x, name, 0)] = x[d.key(x, name, 0)]
        y[var > 0] = rule(y[d.key(x, name, trl.max(var - 1, 0))])
    elif way == "next":
        y[d.key(x, name, 0)] = z[d.key(z, name, 0)] + x[d.key(x, name, 0)]
        y[d.key(x, name, var + 1)] = rule(y)
    elif way == "backward":
        y[d.key(x, name, bound - 1)] = x[d.key(x, name, bound - 1)]
        y[var < bound - 1] = rule(y[d.key(x, name, trl.min(var + 1, bound - 1))])
    elif way == "anew":
        y[var % 2 == 0] = x
        y[var % 2 == 1] = rule(y[d.key(x, name, trl.max(var - 1, 0))])
    else:  # a second merge in between
        inner = trl.tensor(x.shape, domain=x.domain)
        inner[d.key(x, name, 0)] = x[d.key(x, name, 0)]
        inner[d.key(x, name, var + 1)] = y
        y[...] = rule(inner)
    d.add(y.tanh(), f"{way} {kind} over {name}")


def jaxed(d: Drawn) -> None:
    """Add a JAX function with all kinds of operands, also in a recurrence."""
    name = d.pick(d.symbols)
    x = d.tensor(types=NUMBERS)
    assert x is not None
    var, bound = d.symbols[name]
    way = d.pick(("map", "two", "slice", "again", "noise"))
    if way == "map":
        d.add(trl.jaxed(_wave, x.cast("f32")), "JAX map")
    elif way == "two" and (y := d.tensor(shape=x.shape)) is not None:
        both = trl.jaxed(_both, {"x": x, "y": y.cast("f32")}, name="both")
        d.add(both["product"], "JAX product")
        d.add(both["most"], "JAX most")
    elif (
        way == "slice" and name in x.domain and name != [*d.symbols][-1]
    ):  # it may end at any point
        ahead = x.cast("f32")[d.key(x, name, slice(0, bound))]
        d.add(trl.jaxed(lambda s: jnp.tanh(s.mean(0)), ahead, out=(x.shape, "f32")), "JAX slice")
    elif way == "again" and name in x.domain and x.dtype in FLOATS:
        y = trl.tensor(x.shape, x.dtype, domain=x.domain)
        y[d.key(x, name, 0)] = x[d.key(x, name, 0)]
        y[d.key(x, name, var + 1)] = trl.jaxed(_wave, y * 0.5 + x)
        d.add(y, f"JAX recurrence over {name}")
    elif way == "noise":
        bits = trl.random.bits((2,), domain=d.domain())
        d.add(trl.jaxed(_noise, bits, x.cast("f32")), "JAX noise")


def _wave(x: Any) -> Any:
    return jnp.tanh(jnp.sin(x) * 0.5)


def _both(tree: Any) -> Any:
    x, y = tree["x"], tree["y"]
    return {"product": jnp.tanh(x * y), "most": (jnp.maximum(x, 0).sum() > -1).astype(jnp.int32)}


def _noise(bits: Any, x: Any) -> Any:
    return x * 0.5 + jax.random.uniform(jax.random.wrap_key_data(bits), x.shape)


# these gradients are refused, all others exist
_NO_GRADIENT = ("does not depend on", "without a derivative", "floating-point", "indexed tensor")


def gradient(d: Drawn) -> None:
    """Add gradients of the latest value that depends on a leaf, and of earlier ones."""
    leaf = d.pick(d.leaves) if d.leaves else None
    if leaf is None:
        return
    smooth = [x for x in (*d.tensors, *d.partial) if x.dtype in FLOATS]
    for loss in (d.pick(smooth), *reversed(d.made)):
        if loss.dtype not in FLOATS:
            continue
        try:
            g = trl.grad(loss * 1.0, leaf)
        except trl.errors.GradientError as error:
            assert any(text in error.what for text in _NO_GRADIENT), error
            continue
        d.add(g.tanh(), "gradient")
        return


STEPS = (
    unary,
    binary,
    matmul,
    along,
    reduce_axis,
    reduce_dims,
    chain,
    point,
    window,
    picks,
    recurrence,
    liftable,
    gradient,
    source,
    conditional,
    with_conditional,
    with_conditional,
    integers,
    booleans,
    counting,
    convolution,
    environment,
    parameter,
    jaxed,
)


def hosted(d: Drawn) -> None:
    """Add a Python function on the host."""
    name = d.pick(d.symbols)
    x = d.tensor(over=name, types=NUMBERS)
    if x is None:
        return
    x, (var, bound) = x.cast("f32"), d.symbols[name]
    way = d.pick(("map", "slice", "again", "again", "in order", "in order", "effect", "effect"))
    if way == "map":
        d.add(trl.udf(lambda x: np.tanh(x) * np.float32(0.5), x, out=x), "on the host")
    elif way == "slice":
        part = d.pick((slice(var, bound), slice(0, var + 1), slice(0, bound)))
        d.add(trl.udf(_mean, x[d.key(x, name, part)], out=(x.shape, "f32")), "slice on the host")
    elif way == "again":
        y = trl.tensor(x.shape, x.dtype, domain=x.domain)
        y[d.key(x, name, 0)] = x[d.key(x, name, 0)]
        y[d.key(x, name, var + 1)] = trl.udf(np.tanh, y * 0.5 + x, out=x)
        d.add(y.sin(), f"recurrence on the host over {name}")
    elif way == "in order":
        dims = [d.symbols[n][0] for n in x.domain if d.draw(st.booleans())]
        make = lambda sizes, seed: np.full((*sizes.values(),), 0.5, np.float32)  # noqa: E731
        state = trl.Resource(make, instances=tuple(dims), name="state")
        d.add(trl.udf(_advance, x, out=x, resource=state), f"in order for each of {dims}")
    else:
        number = len(d.log)

        def see(point: dict[str, int], x: np.ndarray) -> None:
            d.calls.append((f"see {number}", point, float(total(x))))

        trl.udf(see, x, out=[], where=_condition(d), name=f"see {number}")
        d.log.append(f"see {number}: {x}")


def _mean(s: np.ndarray) -> np.ndarray:
    with np.errstate(invalid="ignore"):
        return np.tanh(s.mean(axis=0))


def _advance(state: np.ndarray, at: tuple[Any, ...], x: np.ndarray) -> np.ndarray:
    """Return a value that depends on all previous effects."""
    state[at] = np.tanh(state[at] * 0.5 + total(x))
    return np.tanh(x + state[at])


def _iterated(d: Drawn, name: str) -> None:
    """Iterate a value along a dimension."""
    var, _ = d.symbols[name]
    count = trl.tensor((), domain=(name,))
    count[var == 0] = trl.constant(0.25)
    count[var + 1] = (count * 0.5 - 0.1).tanh()
    d.add(count, f"count over {name}")


def ending(d: Drawn) -> trl.RecurrentTensor:
    """End the last dimension by random bits, and sometimes by a value of the program."""
    *outer, last = d.symbols
    over = [n for n in outer if d.draw(st.booleans())]
    for name in over:
        if d.draw(st.booleans()):
            _iterated(d, name)
    done = trl.random.uniform((), domain=(*over, last)) < d.pick((0.15, 0.4, 0.7))
    found = [x for x in d.tensors if x.shape == () and set(x.domain) <= {*over, last}]
    if found and d.draw(st.booleans()):
        done = done & d.above(d.pick(found), -0.3)
    elif d.draw(st.integers(0, 5)) == 0:
        done = done & (trl.value(d.symbols[last][0]) < 0)  # never
    d.log.append(f"done over {over}")
    if d.draw(st.integers(0, 3)):
        _across(d, over)
    return done


def _across(d: Drawn, over: Sequence[str]) -> None:
    """Read a recurrence from its end at other lengths; its branches depend on the length."""
    last = list(d.symbols)[-1]
    var, bound = d.symbols[last]
    found = [
        x
        for x in d.tensors
        if x.shape == () and x.dtype == "f32" and {*over, last} <= set(x.domain)
    ]
    found.append(trl.random.uniform((), domain=(*over, last)))
    x = d.pick(found)
    back = trl.tensor((), domain=x.domain)
    back[var == bound - 1] = x
    back[var < bound - 1] = x + back[d.key(back, last, trl.min(var + 1, bound - 1))] * 0.5
    key: list[Any] = []
    for name in x.domain:
        here, size = d.symbols[name]
        ways = {"before": trl.max(here - 1, 0), "all": slice(0, size), "first": 0, "own": here}
        among = ways if name in over else ("first", "own")
        key.append(ways[d.pick(("first", "own") if name == last else among)])
    read = back[tuple(key)]
    if read.shape:
        read = read.sum(axis=tuple(range(len(read.shape))))
    d.ctx.output("across", (read * 0.5).tanh())
    d.log.append(f"across: {x} at {key}")


@st.composite
def ending_programs(
    draw: Any, steps: Sequence[Step] = STEPS, last: Step | None = None
) -> tuple[Drawn, trl.RecurrentTensor]:
    """A program, and the condition that ends its last dimension."""
    d = draw(programs(steps=steps, last=last))
    d.draw = draw
    with d.ctx:
        return d, ending(d)


@st.composite
def twice_ending_programs(
    draw: Any, steps: Sequence[Step] = STEPS
) -> tuple[Drawn, dict[str, trl.RecurrentTensor]]:
    """A program, and the conditions that end its last dimension and another one, by dimension."""
    d = draw(
        programs(steps=steps).filter(lambda d: len(d.symbols) > 1 and min(d.bounds.values()) > 1)
    )
    d.draw = draw
    with d.ctx:
        *others, last = d.symbols
        outer = d.pick(others)
        inner_end = ending(d)
        over = tuple(n for n in others if n == outer or d.rarely(3))
        done = trl.random.uniform((), domain=over) < d.pick((0.1, 0.3, 0.5))
        found = [x for x in d.tensors if x.shape == () and set(x.domain) <= {*over, last}]
        if found and d.draw(st.booleans()):
            x = d.pick(found)
            done = done & d.above(x.max(over=last) if last in x.domain else x, -0.3)
        elif d.rarely(3):  # the length of the other dimension
            done = done & (trl.value(d.symbols[last][1]) > 1)
        d.log.append(f"{outer} ends over {over}")
        if found and d.draw(st.booleans()):
            x = d.pick(found)
            x = x.mean(over=last) if last in x.domain else x
            if outer in x.domain:
                d.ctx.output("total", x.sum(over=outer))
                d.ctx.output("final", x[..., d.symbols[outer][1] - 1] if over[-1] == outer else x)
        return d, {last: inner_end, outer: done}


def _take(d: Drawn, step: Step) -> None:
    before = len(d.log)
    step(d)
    if len(d.log) > before:  # the draw may have added nothing
        d.kinds.add(step.__name__)


@st.composite
def programs(
    draw: Any, max_steps: int = 7, last: Step | None = None, steps: Sequence[Step] = STEPS
) -> Drawn:
    """A program of a few equations, with its bounds; `last` is the final one."""
    names = NAMES[-draw(st.integers(1, 3)) :]
    bounds = {n.upper(): draw(st.integers(1, 4)) for n in names}
    if draw(st.integers(0, 2)) == 0:  # unrolling, wrapping and tiling need more points
        long = draw(st.sampled_from(names))
        bounds = {name: min(bound, 2) for name, bound in bounds.items()}
        bounds[long.upper()] = draw(st.integers(5, 7))
    with trl.Context(*names) as ctx:
        d = Drawn(draw, ctx, bounds)
        source(d)
        source(d)
        if d.tensor() is None:
            d.add(trl.random.normal((), domain=d.domain()), "normal")
        for _ in range(draw(st.integers(1, max_steps))):
            _take(d, draw(st.sampled_from(steps)))
        if last is not None:
            _take(d, last)
        if max(bounds.values()) > 4:
            d.kinds.add("above 4")
        count = draw(st.integers(1, min(2, len(d.made))))
        for k, x in enumerate(d.made[-count:]):
            ctx.output(f"y{k}", x)
    return d
