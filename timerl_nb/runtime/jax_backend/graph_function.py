"""A graph without dimensions as a function of arrays, for many rows at once; arrays in and out."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from timerl_nb.base.array_conversion import Array
from timerl_nb.base.errors import MissingPartError, warn
from timerl_nb.compiler.ir.dependence_graph import Pdg
from timerl_nb.compiler.ir.operations import Read, reached_from
from timerl_nb.compiler.ir.shapes import Size
from timerl_nb.runtime.jax_backend import jax_engine as backend
from timerl_nb.runtime.jax_backend import operation_rules as rules
from timerl_nb.runtime.jax_backend.trace_context_and_masks import JaxArray, Scope

Weights = Mapping[str, Any]


def without_rule(pdg: Pdg, wanted: Sequence[Read]) -> str | None:
    """Return the kind of a needed operation without a rule in JAX; None if all have one."""
    needed = reached_from([read.source for read in wanted], lambda k: pdg[k].sources)
    return next((pdg[k].kind for k in needed if pdg[k].kind not in rules.RULES), None)


def by_rows(
    pdg: Pdg, wanted: Sequence[Read], rows: Mapping[str, int], weights: Mapping[str, int]
) -> Callable[[Weights, Weights, int, int], tuple[JaxArray, ...]]:
    """Return a function that evaluates a graph for many rows in one call.

    It takes weights by name, arrays of rows by name, a seed and the number of rows. Rows are padded
    to a power of two, so few sizes are compiled. Row k draws the same bits for any
    other rows.

    Args:
        wanted: the values that it returns, of each row, one after the other.
        rows, weights: the operations that represent a row's arrays, and the weights.
    """
    needed = reached_from([read.source for read in wanted], lambda k: pdg[k].sources)
    bound = {*rows.values(), *weights.values()}
    inner = [pdg[k] for k in pdg.order if k in needed and k not in bound]
    shared = {name: k for name, k in weights.items() if k in needed}
    own = {name: k for name, k in rows.items() if k in needed}

    def evaluate_row(values: Weights, xs: Weights, words: JaxArray) -> tuple[JaxArray, ...]:
        scope = Scope({}, {}, (words[0:1], words[1:2]), _whole, lambda size: False)
        done = {k: values[name] for name, k in shared.items()}
        done |= {k: xs[name] for name, k in own.items()}
        for op in inner:
            shapes = [pdg.read_type(read).shape for read in op.inputs]
            args = [done[read.source] for read in op.inputs]
            done[op.id] = rules.compute(scope, op, args, shapes)
        return tuple(done[read.source] for read in wanted)

    @partial(jax.jit, static_argnums=4)
    @backend.as_jax_promotes
    def evaluate_rows(
        values: Weights, xs: Weights, high: JaxArray, low: JaxArray, count: int
    ) -> tuple[JaxArray, ...]:
        key = key_of(jnp.concatenate([high, low]))
        words = jax.random.bits(key, (count, 2), jnp.uint32)
        return jax.vmap(evaluate_row, in_axes=(None, 0, 0))(values, xs, words)

    def call(values: Weights, xs: Weights, seed: int, count: int) -> tuple[JaxArray, ...]:
        full = 1 << max(count - 1, 0).bit_length()
        filled = {name: _pad_rows(xs[name], full) for name in own}
        given = {name: values[name] for name in shared}
        made = evaluate_rows(given, filled, *backend.seed_words(seed), full)
        return made if full == count else tuple(x[:count] for x in made)

    return call


def _pad_rows(x: Any, count: int) -> Any:
    """Rows, and zeros behind them up to a number."""
    if len(x) == count:
        return x
    library = jnp if isinstance(x, jax.Array) else np
    return library.concatenate([x, library.zeros((count - len(x), *x.shape[1:]), x.dtype)])


def by_keys(
    function: Callable[[Weights, Any, Any], dict[str, Any]],
) -> Callable[[int], Callable[[Weights, Any, int], dict[str, JaxArray]]]:
    """Map a function of weights, a row and a key over rows, each with a key of its own.

    Returns a function of a seed, which returns one of weights, rows and the number of the call. A call's
    keys follow from the seed and its number alone. It is compiled once for all seeds.
    """

    @jax.jit
    @backend.as_jax_promotes
    def rows(values: Weights, x: JaxArray, key: JaxArray, call: JaxArray) -> dict[str, JaxArray]:
        keys = jax.random.split(jax.random.fold_in(key, call), x.shape[0])
        return jax.vmap(function, in_axes=(None, 0, 0))(values, x, keys)

    def seeded(seed: int) -> Callable[[Weights, Any, int], dict[str, JaxArray]]:
        key = key_of(jnp.concatenate(backend.seed_words(seed)))
        return lambda values, x, number: rows(values, x, key, np.uint32(number % 2**32))

    return seeded


def type_of(function: Callable[..., Any], *args: Any) -> Any:
    """Return the types of a function's results for argument types, by tracing."""
    return jax.eval_shape(function, *args)


def array_type(shape: Sequence[int], dtype: Any) -> Any:
    """An array's type, for `type_of`."""
    return jax.ShapeDtypeStruct(tuple(shape), dtype)


def register_tree(
    kind: type[Any],
    names: Sequence[str],
    flatten: Callable[[Any], tuple[Sequence[Any], Any]],
    unflatten: Callable[[Any, Iterable[Any]], Any],
) -> None:
    """Make a class a pytree of JAX.

    Args:
        names: the attributes that are its children.
        flatten: returns an instance's children and its auxiliary data.
        unflatten: makes an instance of auxiliary data and children.
    """
    keys = tuple(map(jax.tree_util.GetAttrKey, names))

    def with_keys(x: Any) -> Any:
        children, beside = flatten(x)
        return tuple(zip(keys, children, strict=True)), beside

    jax.tree_util.register_pytree_with_keys(kind, with_keys, unflatten, flatten)


def key_of(words: JaxArray) -> JaxArray:
    """The key that two words are."""
    return jax.random.wrap_key_data(words, impl="threefry2x32")


def leaves(tree: Any) -> dict[str, Any]:
    """The arrays in a tree, by where they are in it."""
    found = jax.tree_util.tree_flatten_with_path(tree)[0]
    return {_place(path): x for path, x in found if _is_array(x)}


def with_leaves(tree: Any, arrays: Mapping[str, Any]) -> Any:
    """The tree with other arrays in these places; what is no array stays."""
    return jax.tree_util.tree_map_with_path(
        lambda path, x: arrays[_place(path)] if _is_array(x) else x, tree
    )


def sum_trees(trees: Sequence[Any]) -> Any:
    """The sum of trees of arrays, array by array, on the device of the first."""
    first, *others = trees
    for other in others:
        first = jax.tree_util.tree_map(lambda x, y: x + jax.device_put(y, x.sharding), first, other)
    return first


def move_to_device(tree: Any, device: Any) -> Any:
    """A tree whose arrays are on a device; those that are there stay as they are."""
    return jax.device_put(tree, device)


def frozen(tree: Any) -> Any:
    """A tree of read-only arrays: copies of NumPy's as arrays of JAX.

    JAX on a CPU may read the memory of a NumPy argument later as well.
    """
    own = lambda x: jax.device_put(np.array(x)) if isinstance(x, np.ndarray) else x  # noqa: E731
    return jax.tree_util.tree_map(own, tree)


def hlo_of(function: Callable[..., Any], *args: Any) -> str:
    """What XLA makes of a function of trees of arrays, optimised, as text."""
    text = jax.jit(function).lower(*args).compile().as_text()
    assert text is not None
    return text


def device_called(name: str) -> Any:
    """A device of this process: "cpu:1" is its second one of the CPU's; None where there is none of that name."""
    platform, _, number = name.lower().partition(":")
    try:
        there = jax.local_devices(backend=platform)
    except RuntimeError:
        return None
    if not (number or "0").isdigit() or int(number or 0) >= len(there):
        return None
    return there[int(number or 0)]


def _place(path: Any) -> str:
    return jax.tree_util.keystr(path, simple=True, separator=".")


def _is_array(x: Any) -> bool:
    return hasattr(x, "dtype") or isinstance(x, int | float)


def _whole(size: Size) -> int:
    assert isinstance(size, int)  # there are no dimensions
    return size


# --- arrays of others ----------------------------------------------------------------------------


def import_array(x: Any) -> Any:
    """An array of anyone's as NumPy's or JAX's, without a copy where that is possible."""
    if isinstance(x, jax.Array | np.ndarray | np.generic) or not hasattr(x, "__dlpack__"):
        return x if isinstance(x, jax.Array) else np.asarray(x)
    plain = x.detach() if hasattr(x, "detach") else x
    on_host = plain.__dlpack_device__()[0] == 1
    return np.from_dlpack(plain) if on_host else jnp.from_dlpack(plain)


def itself(x: JaxArray) -> JaxArray:
    return x


def together(arrays: Mapping[str, Any]) -> tuple[dict[str, Any], int]:
    """Arrays as they are, or on one device where they lie in parts on several; and of how many there are."""
    apart = {n: x for n, x in arrays.items() if isinstance(x, jax.Array) and len(x.devices()) > 1}
    return {**arrays, **jax.device_put(apart, backend.device())}, len(apart)


def make_array_converter(library: str, device: Any = None) -> Callable[[Any], Any]:
    """What makes arrays of JAX or PyTorch of anyone's, by DLPack: of the same memory, where it can be.

    Args:
        device: of PyTorch's, to which they are copied if they are elsewhere.

    Raises:
        MissingPartError: PyTorch is not installed.
    """
    if library == "jax":
        return _as_jax
    torch = _torch()

    def tensor(x: Any) -> Any:
        made = x if isinstance(x, torch.Tensor) else torch.from_dlpack(x)
        if device is None:
            return made
        moved = made.to(device)
        if moved.device.type != made.device.type == "cpu":
            _tell(f"a batch lies in main memory, and is copied to {moved.device}.")
        return moved

    return tensor


def with_tensors(function: Callable[[Any], Any]) -> Callable[[Array], Any]:
    """A function of PyTorch's tensors as one of arrays of NumPy's, on the device of its parameters."""
    torch = _torch()
    first = next(iter(getattr(function, "parameters", lambda: ())()), None)
    if first is not None and first.device.type != "cpu":
        _tell(
            f"what environments show lies in main memory, and is copied to {first.device} at every step."
        )

    def array(x: Any) -> Any:
        if isinstance(x, tuple):
            return tuple(map(array, x))
        if isinstance(x, Mapping):
            return {name: array(one) for name, one in x.items()}
        return x.cpu().numpy() if isinstance(x, torch.Tensor) else x

    def call(x: Array) -> Any:
        with torch.inference_mode():
            given = torch.from_numpy(x)
            return array(function(given if first is None else given.to(first.device)))

    return call


def _as_jax(x: Any) -> JaxArray:
    if isinstance(x, jax.Array):
        return x
    return jnp.from_dlpack(backend.storable(x) if isinstance(x, np.ndarray) else x)


_TOLD: set[str] = set()


def _tell(what: str) -> None:
    """Say something once."""
    if what not in _TOLD:
        _TOLD.add(what)
        warn(
            what,
            hint="arrays of JAX on the same device would stay there; here the copies are what it costs.",
        )


def _torch() -> Any:
    try:
        return importlib.import_module("torch")
    except ImportError:
        raise MissingPartError(
            "tensors of PyTorch need PyTorch, which is not installed.", hint="pip install torch."
        ) from None


def given_back(made: JaxArray, like: Any) -> Any:
    """An array of JAX's as one of the kind of `like`: JAX's, NumPy's, or by DLPack another's."""
    if isinstance(like, jax.Array):
        return made
    if isinstance(like, np.ndarray | np.generic) or not hasattr(like, "__dlpack__"):
        return np.array(made)[()]  # a number where it has no axes
    return sys.modules[type(like).__module__.partition(".")[0]].from_dlpack(made)
