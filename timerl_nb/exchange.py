"""Exchange of arrays and parameters with PyTorch.

PyTorch is imported at the first call. Memory is shared only where neither side can be surprised: by arrays of
NumPy that may be written, and tensors in main memory without gradients. All others are copied, and
`explain_copy` tells why.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from timerl_nb.base.array_conversion import Array
from timerl_nb.base.errors import ShapeError, one_of
from timerl_nb.compiler.ir.shapes import NUMPY
from timerl_nb.compiler.language.foreign_names import module_names as _module_names
from timerl_nb.runtime.jax_backend.graph_function import import_torch

_BFLOAT16 = NUMPY["bf16"]


def to_torch(x: Any, *, device: str | None = None) -> Any:
    """Return a PyTorch tensor with the values of an array, or a dictionary of tensors for a mapping.

    A writable NumPy array in main memory is shared: a change of the tensor changes the array. Read-only arrays,
    such as JAX's, are copied.

    Args:
        x: an array of NumPy or JAX, a tensor, or a mapping such as `result.parameters`.
        device: the device of PyTorch, such as "cuda"; None is the CPU.

    Raises:
        MissingPartError: PyTorch is not installed.

    Example:
        >>> weights = np.ones((2, 3), np.float32)
        >>> trl.to_torch(weights).shape  # doctest: +SKIP
        torch.Size([2, 3])
    """
    torch = import_torch()
    if isinstance(x, Mapping):
        return {name: to_torch(one, device=device) for name, one in x.items()}
    if isinstance(x, torch.Tensor):
        return x if device is None else x.to(device)
    reason = explain_copy(x)
    array = np.array(x, order="C") if reason else np.asarray(x)
    if array.dtype == _BFLOAT16:
        made = torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    else:
        made = torch.from_numpy(array)
    return made if device is None else made.to(device)


def from_torch(x: Any) -> Any:
    """Return a NumPy array with the values of a tensor, or a dictionary of arrays for a mapping.

    A tensor in main memory is shared, unless it has a gradient or gaps between its elements.

    Args:
        x: a tensor, or a mapping such as a `state_dict`.

    Raises:
        MissingPartError: PyTorch is not installed.
        ShapeError: `x` is not a tensor.

    Example:
        >>> trl.from_torch(torch.ones(2))  # doctest: +SKIP
        array([1., 1.], dtype=float32)
    """
    torch = import_torch()
    if isinstance(x, Mapping):
        return {name: from_torch(one) for name, one in x.items()}
    if not isinstance(x, torch.Tensor):
        raise ShapeError(
            f"from_torch takes a tensor or a mapping of tensors, and got {type(x).__name__}.",
            hint="NumPy and JAX arrays need no conversion.",
        )
    plain = x.detach().cpu().resolve_conj().resolve_neg()
    if explain_copy(x) and plain.data_ptr() == x.data_ptr():
        plain = plain.clone(memory_format=torch.contiguous_format)
    if plain.dtype is torch.bfloat16:
        return plain.view(torch.int16).numpy().view(_BFLOAT16)
    return plain.numpy()


def explain_copy(x: Any) -> str:
    """Return why `to_torch` or `from_torch` copies an array; "" if both sides share its memory.

    Args:
        x: an array or a tensor.

    Example:
        >>> trl.exchange.explain_copy(np.ones(3))
        ''
        >>> trl.exchange.explain_copy(np.ones((3, 2)).T)
        'its elements are not contiguous'
    """
    if isinstance(x, np.ndarray):
        if not x.flags.c_contiguous:
            return "its elements are not contiguous"
        if not x.flags.aligned:
            return "its memory is not aligned"
        if not x.flags.writeable:
            return "it is read-only, and PyTorch has no read-only tensors"
        return ""
    if not hasattr(x, "is_contiguous"):
        return f"{type(x).__module__.partition('.')[0]} may share its memory with other arrays"
    if x.device.type != "cpu":
        return f"it is on the device {x.device}"
    if x.requires_grad:
        return "it has a gradient, and an optimiser may change it"
    return "" if x.is_contiguous() else "its elements are not contiguous"


def load_into(
    module: Any, parameters: Mapping[str, Any], names: Mapping[str, str] | None = None
) -> None:
    """Copy trained parameters into a PyTorch module.

    The weights of `torch.nn.Linear` are transposed: ours have the shape (inputs, outputs).

    Args:
        module: a `torch.nn.Module`. Nothing is changed if an error is raised.
        parameters: our parameters by name, such as `result.parameters`.
        names: our name for each name of the module; by default the names are equal.

    Raises:
        MissingPartError: PyTorch is not installed.
        ShapeError: a parameter is missing, unknown, or has another shape.

    Example:
        >>> net = torch.nn.Linear(4, 2)  # doctest: +SKIP
        >>> names = {"weight": "actor.weight", "bias": "actor.bias"}  # doctest: +SKIP
        >>> trl.exchange.load_into(net, result.parameters, names)  # doctest: +SKIP
    """
    torch = import_torch()
    given = dict(_paired(module, parameters, names))
    unused = () if names is not None else sorted(set(parameters) - set(given))
    if unused:
        raise ShapeError(
            f"the module has no parameter for {unused[0]!r}.",
            hint="pass names=, with the name of each parameter of the module that is to be loaded.",
        )
    state = {}
    for name, (own, transposed) in given.items():
        array = np.asarray(parameters[own])
        state[name] = to_torch(np.array(array.T if transposed else array))
        want = tuple(module.state_dict()[name].shape)
        if tuple(state[name].shape) != want:
            shown = want[::-1] if transposed else want
            raise ShapeError(
                f"the parameter {own!r} has the shape {array.shape}, but {name!r} of the module needs {shown}.",
                hint="make both networks with the same sizes, or correct names=.",
            )
    with torch.no_grad():
        module.load_state_dict(state, strict=False)


def read_from(module: Any, names: Mapping[str, str] | None = None) -> dict[str, Array]:
    """Return copies of the parameters of a PyTorch module, by our names and in our shapes.

    Args:
        module: a `torch.nn.Module`.
        names: our name for each name of the module; by default the names are equal.

    Raises:
        MissingPartError: PyTorch is not installed.
        ShapeError: the module has no parameter of a name.

    Example:
        >>> trl.exchange.read_from(torch.nn.Linear(4, 2))["weight"].shape  # doctest: +SKIP
        (4, 2)
    """
    import_torch()
    state = module.state_dict()
    mine = {name: name for name in state} if names is None else names
    found: dict[str, Array] = {}
    for name, (own, transposed) in _paired(module, dict.fromkeys(mine.values()), mine):
        array = np.array(from_torch(state[name]))
        found[own] = np.ascontiguousarray(array.T) if transposed else array
    return found


def _paired(
    module: Any, parameters: Mapping[str, Any], names: Mapping[str, str] | None
) -> Iterator[tuple[str, tuple[str, bool]]]:
    """Yield each name of a module, our name, and whether the weights are transposed."""
    torch = import_torch()
    state = module.state_dict()
    pairs = {name: name for name in state} if names is None else dict(names)
    for name, own in pairs.items():
        if name not in state:
            raise ShapeError(f"the module has no parameter {name!r}.", hint=one_of(name, [*state]))
        if own not in parameters:
            raise ShapeError(
                f"there is no trained parameter {own!r}.", hint=one_of(own, [*parameters])
            )
        path, _, last = name.rpartition(".")
        owner = module.get_submodule(path)
        yield name, (own, last == "weight" and isinstance(owner, torch.nn.Linear))


__all__ = ["explain_copy", "from_torch", "load_into", "read_from", "to_torch"]

__getattr__, __dir__ = _module_names("trl.exchange", lambda: __all__)
