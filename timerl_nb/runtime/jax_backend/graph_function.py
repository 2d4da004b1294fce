"""Evaluation of a graph without dimensions for many rows, and conversion of arrays between libraries."""

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
from timerl_nb.runtime.jax_backend import arrays_and_devices as backend
from timerl_nb.runtime.jax_backend import operation_rules as rules
from timerl_nb.runtime.jax_backend.trace_context_and_masks import JaxArray, Scope

Weights = Mapping[str, Any]


def without_rule(pdg: Pdg, wanted: Sequence[Read]) -> str | None:
    """Return the kind of a needed operation without a rule in JAX; None if all have one."""
    needed = reached_from([read.source for read in wanted], lambda k: pdg[k].sources)
    return next((pdg[k].kind for k in needed if pdg[k].kind not in rules.RULES), None)


def by_rows(
    pdg: Pdg, wanted: Sequence[Read], rows: Mapping[str, int], weights: Mapping[str, int]
) -> Callable[..., tuple[JaxArray, ...]]:
    """Compile a graph to a function of many rows.

    It takes weights by name, arrays of rows by name, a seed and the number of rows. Rows are padded
    to a power of two, so few sizes are compiled. The random bits of row k do not depend on other rows.
    An optional argument `position`, a pair of the first row and the number of all rows, gives some
    rows the random bits that they have among all.

    Args:
        pdg: The graph.
        wanted: Values to return, for each row.
        rows: Operations for a row's arrays, by name.
        weights: Operations for weights, by name.
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

    @partial(jax.jit, static_argnums=(4, 5))
    @backend.as_jax_promotes
    def evaluate_rows(
        values: Weights,
        xs: Weights,
        high: JaxArray,
        low: JaxArray,
        count: int,
        position: tuple[int, int],
    ) -> tuple[JaxArray, ...]:
        key, (first, total) = key_of(jnp.concatenate([high, low])), position
        words = jax.random.bits(key, (_power_of_two(total), 2), jnp.uint32)
        if first + count > len(words):  # rows of padding
            words = jnp.concatenate([words, words])
        words = words[first : first + count]
        return jax.vmap(evaluate_row, in_axes=(None, 0, 0))(values, xs, words)

    def call(
        values: Weights,
        xs: Weights,
        seed: int,
        count: int,
        position: tuple[int, int] | None = None,
    ) -> tuple[JaxArray, ...]:
        full = _power_of_two(count)
        filled = {name: _pad_rows(xs[name], full) for name in own}
        given = {name: values[name] for name in shared}
        words = backend.seed_words(seed)
        made = evaluate_rows(given, filled, *words, full, position or (0, full))
        return made if full == count else tuple(x[:count] for x in made)

    return call


def _power_of_two(count: int) -> int:
    return 1 << max(count - 1, 0).bit_length()


def _pad_rows(x: Any, count: int) -> Any:
    """Append rows of zeros up to a number of rows."""
    if len(x) == count:
        return x
    library = jnp if isinstance(x, jax.Array) else np
    return library.concatenate([x, library.zeros((count - len(x), *x.shape[1:]), x.dtype)])


def by_keys(
    function: Callable[[Weights, Any, Any], dict[str, Any]],
) -> Callable[..., Callable[[Weights, Any, int], dict[str, JaxArray]]]:
    """Map a function of weights, a row and a key over rows, with a different key for each row.

    A row is an array or a tree of arrays.

    Returns a function of a seed, which returns a function of weights, rows and the number of the call.
    The keys depend only on the seed and this number. One compilation serves all seeds. An optional
    second argument, a pair of the first row and the number of all rows, gives some rows the keys that
    they have among all.
    """

    @partial(jax.jit, static_argnums=4)
    @backend.as_jax_promotes
    def rows(
        values: Weights, x: Any, key: JaxArray, call: JaxArray, position: tuple[int, int] | None
    ) -> dict[str, JaxArray]:
        count = jax.tree_util.tree_leaves(x)[0].shape[0]
        first, total = position or (0, count)
        keys = jax.random.split(jax.random.fold_in(key, call), total)[first : first + count]
        return jax.vmap(function, in_axes=(None, 0, 0))(values, x, keys)

    def seeded(
        seed: int, position: tuple[int, int] | None = None
    ) -> Callable[[Weights, Any, int], dict[str, JaxArray]]:
        key = key_of(jnp.concatenate(backend.seed_words(seed)))
        return lambda values, x, number: rows(values, x, key, np.uint32(number % 2**32), position)

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
    """Register a class as a pytree of JAX.

    Args:
        kind: The class.
        names: Attributes with its children.
        flatten: Returns the children and the auxiliary data of an instance.
        unflatten: Creates an instance from auxiliary data and children.
    """
    keys = tuple(map(jax.tree_util.GetAttrKey, names))

    def with_keys(x: Any) -> Any:
        children, beside = flatten(x)
        return tuple(zip(keys, children, strict=True)), beside

    jax.tree_util.register_pytree_with_keys(kind, with_keys, unflatten, flatten)


def key_of(words: JaxArray) -> JaxArray:
    """Return the PRNG key made of two words."""
    return jax.random.wrap_key_data(words, impl="threefry2x32")


def leaves(tree: Any) -> dict[str, Any]:
    """Return the arrays in a tree, by their path."""
    found = jax.tree_util.tree_flatten_with_path(tree)[0]
    return {_place(path): x for path, x in found if _is_array(x)}


def with_leaves(tree: Any, arrays: Mapping[str, Any]) -> Any:
    """Return a tree with its arrays replaced by path; other leaves stay."""
    return jax.tree_util.tree_map_with_path(
        lambda path, x: arrays[_place(path)] if _is_array(x) else x, tree
    )


def map_leaves(function: Callable[[Any], Any], tree: Any) -> Any:
    """Return a tree with a function of each leaf."""
    return jax.tree_util.tree_map(function, tree)


def sum_trees(trees: Sequence[Any]) -> Any:
    """Add trees of arrays, array by array, on the device of the first."""
    first, *others = trees
    for other in others:
        first = jax.tree_util.tree_map(lambda x, y: x + jax.device_put(y, x.sharding), first, other)
    return first


def move_to_device(tree: Any, device: Any) -> Any:
    """Return a tree with all arrays on a device; arrays on this device are not copied."""
    return jax.device_put(tree, device)


def frozen(tree: Any) -> Any:
    """Return a tree of read-only arrays: NumPy arrays are copied to JAX arrays.

    On a CPU, JAX may share the memory of a NumPy argument, which the caller may change later.
    """
    own = lambda x: jax.device_put(np.array(x)) if isinstance(x, np.ndarray) else x  # noqa: E731
    return jax.tree_util.tree_map(own, tree)


def hlo_of(function: Callable[..., Any], *args: Any) -> str:
    """Return the optimised HLO of a function of trees of arrays, as text."""
    text = jax.jit(function).lower(*args).compile().as_text()
    assert text is not None
    return text


def device_called(name: str) -> Any:
    """Return a device by name, such as "cpu:1" for the second CPU device; None if it does not exist."""
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
    assert isinstance(size, int)  # the graph has no dimensions
    return size


# --- arrays of other libraries -------------------------------------------------------------------


def import_array(x: Any) -> Any:
    """Return an array of any library as a NumPy or JAX array, without a copy if possible."""
    if isinstance(x, jax.Array | np.ndarray | np.generic) or not hasattr(x, "__dlpack__"):
        return x if isinstance(x, jax.Array) else np.asarray(x)
    plain = x.detach() if hasattr(x, "detach") else x
    on_host = plain.__dlpack_device__()[0] == 1
    return np.from_dlpack(plain) if on_host else jnp.from_dlpack(plain)


def itself(x: JaxArray) -> JaxArray:
    return x


def together(arrays: Mapping[str, Any]) -> tuple[dict[str, Any], int]:
    """Move divided arrays to one device; also return the number of these arrays."""
    divided = {n: x for n, x in arrays.items() if _is_divided(x)}
    if not divided:
        return dict(arrays), 0
    return {**arrays, **jax.device_put(divided, backend.device())}, len(divided)


def _is_divided(x: Any) -> bool:
    return isinstance(x, jax.Array) and x.sharding.num_devices > 1


def make_array_converter(library: str, device: Any = None) -> Callable[[Any], Any]:
    """Return a converter for arrays of any library, by DLPack and without a copy if possible.

    Args:
        library: "jax" or "torch".
        device: Device of PyTorch to copy the tensors to; None copies nothing.

    Raises:
        MissingPartError: PyTorch is not installed.
    """
    if library == "jax":
        return _as_jax
    torch = import_torch()

    def tensor(x: Any) -> Any:
        made = x if isinstance(x, torch.Tensor) else torch.from_dlpack(x)
        if device is None:
            return made
        moved = made.to(device)
        if moved.device.type != made.device.type == "cpu":
            _tell(f"a batch in main memory is copied to {moved.device}.")
        return moved

    return tensor


def with_tensors(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function of PyTorch tensors as one of NumPy arrays; it runs on its parameters' device."""
    torch = import_torch()
    first = next(iter(getattr(function, "parameters", lambda: ())()), None)
    if first is not None and first.device.type != "cpu":
        _tell(f"observations are in main memory, and are copied to {first.device} at every step.")

    def array(x: Any) -> Any:
        if isinstance(x, tuple):
            return tuple(map(array, x))
        if isinstance(x, Mapping):
            return {name: array(one) for name, one in x.items()}
        return x.cpu().numpy() if isinstance(x, torch.Tensor) else x

    def tensor(x: Array) -> Any:
        given = torch.from_numpy(x)
        return given if first is None else given.to(first.device)

    def call(x: Array, **named: Array) -> Any:
        with torch.inference_mode():
            return array(function(tensor(x), **{name: tensor(one) for name, one in named.items()}))

    return call


def _as_jax(x: Any) -> JaxArray:
    if isinstance(x, jax.Array):
        return x
    return jnp.from_dlpack(backend.storable(x) if isinstance(x, np.ndarray) else x)


_TOLD: set[str] = set()


def _tell(what: str) -> None:
    """Warn, once per text."""
    if what not in _TOLD:
        _TOLD.add(what)
        warn(
            what,
            hint="use JAX arrays on the same device to avoid these copies.",
        )


def import_torch() -> Any:
    """Import PyTorch.

    Raises:
        MissingPartError: it cannot be imported.
    """
    try:
        return importlib.import_module("torch")
    except ImportError:
        raise MissingPartError(
            "conversion to PyTorch needs PyTorch, which is not installed.",
            hint="pip install torch.",
        ) from None


def to_library_of(made: JaxArray, like: Any) -> Any:
    """Convert a JAX array to the library of `like`: JAX, NumPy, or another library by DLPack."""
    if isinstance(like, jax.Array):
        return made
    if isinstance(like, np.ndarray | np.generic) or not hasattr(like, "__dlpack__"):
        return np.array(made)[()]  # a scalar if it has no axes
    return sys.modules[type(like).__module__.partition(".")[0]].from_dlpack(made)
