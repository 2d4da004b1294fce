"""Exchange of arrays and parameters with PyTorch.

PyTorch is imported at the first call. `to_torch` shares the memory of writable, C-contiguous, aligned NumPy arrays in
native byte order. `from_torch` shares the memory of contiguous CPU tensors without `requires_grad`. All others are
copied, and `explain_copy` returns the reason.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from timerl_nb.base.array_conversion import Array, host_array, numbers_of
from timerl_nb.base.errors import OptionError, ShapeError, one_of
from timerl_nb.compiler.ir.shapes import NUMPY
from timerl_nb.compiler.language.foreign_names import explain_call_errors
from timerl_nb.compiler.language.foreign_names import module_names as _module_names
from timerl_nb.runtime.jax_backend.graph_function import import_torch
from timerl_nb.runtime.jax_backend.user_function_calls import first_line

_BFLOAT16 = NUMPY["bf16"]


@explain_call_errors
def to_torch(x: Any, *, device: str | None = None) -> Any:
    """Return a PyTorch tensor with the values of an array, or a dictionary of tensors for a mapping.

    The memory of a writable, C-contiguous NumPy array is shared: a change of the tensor changes the array. Read-only
    arrays, such as JAX's, are copied.

    Args:
        x: an array of NumPy or JAX, a tensor, or a mapping such as `result.parameters`.
        device: the device of PyTorch, such as "cuda"; None is the CPU.

    Raises:
        MissingPartError: PyTorch is not installed.
        ShapeError: `x` is not an array of numbers.
        OptionError: there is no such device.

    Example:
        >>> weights = np.ones((2, 3), np.float32)
        >>> trl.to_torch(weights).shape  # doctest: +SKIP
        torch.Size([2, 3])
    """
    torch = import_torch()
    if isinstance(x, Mapping):
        return {name: to_torch(one, device=device) for name, one in x.items()}
    made = x if isinstance(x, torch.Tensor) else _as_tensor(torch, x)
    try:
        return made if device is None else made.to(device)
    except (AssertionError, RuntimeError) as error:
        raise OptionError(
            f"device={device!r} is not available: {first_line(error).rstrip('.')}.",
            hint='use a device that PyTorch finds, such as "cpu".',
        ) from None


def _as_tensor(torch: Any, x: Any) -> Any:
    numbers = np.asarray(x)
    if numbers.dtype.kind != "c":
        numbers_of("the argument of to_torch", x)
    array = np.array(x, order="C") if explain_copy(x) else numbers
    array = array.astype(array.dtype.newbyteorder("="), copy=False)
    if array.dtype == _BFLOAT16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


@explain_call_errors
def from_torch(x: Any) -> Any:
    """Return a NumPy array with the values of a tensor, or a dictionary of arrays for a mapping.

    The memory of a CPU tensor is shared, unless it requires gradients or is not contiguous.

    Args:
        x: a tensor, or a mapping such as a `state_dict`.

    Raises:
        MissingPartError: PyTorch is not installed.
        ShapeError: `x` is not a tensor, or NumPy has no such tensors.

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
    try:
        array = host_array(x)
    except (TypeError, RuntimeError, NotImplementedError) as error:
        raise ShapeError(
            f"NumPy has no array for a tensor of the type {x.dtype} and the layout {x.layout} "
            f"on the device {x.device}: {first_line(error).rstrip('.')}.",
            hint="convert the tensor first, for example by x.to_dense() or x.float().",
        ) from None
    is_shared = array.size > 0 and array.ctypes.data == x.data_ptr()
    if explain_copy(x) and is_shared:
        return np.array(array, order="C")
    return np.asarray(array, order="C")


@explain_call_errors
def explain_copy(x: Any) -> str:
    """Return why `to_torch` copies an array, or `from_torch` a tensor; "" if the memory is shared.

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
        if not x.dtype.isnative:
            return "its bytes are in another order"
        if not x.flags.writeable:
            return "it is read-only, and PyTorch has no read-only tensors"
        return ""
    if not hasattr(x, "is_contiguous"):
        return "it is neither a NumPy array nor a tensor; arrays of JAX must not be changed"
    if x.device.type != "cpu":
        return f"it is on the device {x.device}"
    if x.requires_grad:
        return "it requires gradients, so an optimiser may change it"
    if x.is_conj() or x.is_neg():
        return "it is a view that conjugates or negates its elements"
    return "" if x.is_contiguous() else "its elements are not contiguous"


@explain_call_errors
def load_into(
    module: Any, parameters: Mapping[str, Any], names: Mapping[str, str] | None = None
) -> None:
    """Copy trained parameters into a PyTorch module.

    The weights of `torch.nn.Linear` are transposed: TimeRL-nb's have the shape (inputs, outputs).

    Args:
        module: a `torch.nn.Module`. Nothing is changed if an error is raised.
        parameters: TimeRL-nb's parameters by name, such as `result.parameters`.
        names: TimeRL-nb's name for each name of the module; by default the names are equal.

    Raises:
        MissingPartError: PyTorch is not installed.
        ShapeError: `module` is not a module, or has parameters without memory. A parameter is missing, unknown, not
            real, or has another shape. Two parameters that share memory are given different values.

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
    state, known = {}, _state_of(module)
    for name, (own, transposed) in given.items():
        array = numbers_of(f"the parameter {own!r}", parameters[own])
        state[name] = to_torch(np.array(array.T if transposed else array))
        want = tuple(known[name].shape)
        if tuple(state[name].shape) != want:
            shown = want[::-1] if transposed else want
            raise ShapeError(
                f"the parameter {own!r} has the shape {array.shape}, but {name!r} of the module needs {shown}.",
                hint="make both networks with the same sizes, or correct names=.",
            )
    _check_tied(known, state)
    with torch.no_grad():
        module.load_state_dict(state, strict=False)


@explain_call_errors
def read_from(module: Any, names: Mapping[str, str] | None = None) -> dict[str, Array]:
    """Return copies of the parameters of a PyTorch module, by TimeRL-nb's names and in its shapes.

    Args:
        module: a `torch.nn.Module`.
        names: TimeRL-nb's name for each name of the module; by default the names are equal.

    Raises:
        MissingPartError: PyTorch is not installed.
        ShapeError: `module` is not a module, or has parameters without memory. It has no parameter of a name, or two
            parameters have the same name.

    Example:
        >>> trl.exchange.read_from(torch.nn.Linear(4, 2))["weight"].shape  # doctest: +SKIP
        (4, 2)
    """
    state = _state_of(module)
    mine = {name: name for name in state} if names is None else names
    found: dict[str, Array] = {}
    for name, (own, transposed) in _paired(module, dict.fromkeys(mine.values()), mine):
        array = np.array(from_torch(state[name]))
        if own in found:
            raise ShapeError(
                f"two parameters of the module have the name {own!r}.",
                hint="give each parameter a name of its own in names=.",
            )
        found[own] = np.ascontiguousarray(array.T) if transposed else array
    return found


def _state_of(module: Any) -> dict[str, Any]:
    """Return the tensors of a module by name.

    Raises:
        ShapeError: it is not a module, or a tensor has no memory.
    """
    torch = import_torch()
    if not isinstance(module, torch.nn.Module):
        raise ShapeError(
            f"a torch.nn.Module is needed, not {type(module).__name__}.",
            hint="pass the module itself, not its state_dict.",
        )
    state = {name: x for name, x in module.state_dict().items() if isinstance(x, torch.Tensor)}
    for name, x in state.items():
        if x.is_meta or isinstance(x, torch.nn.parameter.UninitializedTensorMixin):
            raise ShapeError(
                f"the parameter {name!r} of the module has no memory yet.",
                hint='run a lazy module once, or move the module from "meta" by module.to_empty(device="cpu").',
            )
    return state


def _check_tied(known: Mapping[str, Any], state: Mapping[str, Any]) -> None:
    """Refuse different values for parameters of a module that share their memory."""
    first: dict[Any, str] = {}
    for name, value in state.items():
        other = first.setdefault((known[name].data_ptr(), known[name].shape), name)
        if (
            other != name
            and known[name].numel()
            and not np.array_equal(
                from_torch(state[other]), from_torch(value), equal_nan=value.is_floating_point()
            )
        ):
            raise ShapeError(
                f"{other!r} and {name!r} of the module share their memory, but have different values.",
                hint="give both the same values, or name one of them in names=.",
            )


def _paired(
    module: Any, parameters: Mapping[str, Any], names: Mapping[str, str] | None
) -> Iterator[tuple[str, tuple[str, bool]]]:
    """Yield each name of a module, TimeRL-nb's name, and whether the weights are transposed."""
    torch, state = import_torch(), _state_of(module)
    owners = dict(module.named_modules())
    pairs = {name: name for name in state} if names is None else dict(names)
    for name, own in pairs.items():
        if name not in state:
            raise ShapeError(f"the module has no parameter {name!r}.", hint=one_of(name, [*state]))
        if own not in parameters:
            raise ShapeError(
                f"there is no trained parameter {own!r}.", hint=one_of(own, [*parameters])
            )
        path, _, last = name.rpartition(".")
        owner = owners.get(path)
        is_linear = isinstance(owner, torch.nn.Linear)
        is_linear |= getattr(owner, "original_name", "") == "Linear"  # of a scripted module
        yield name, (own, last == "weight" and is_linear)


__all__ = ["explain_copy", "from_torch", "load_into", "read_from", "to_torch"]

__getattr__, __dir__ = _module_names("trl.exchange", lambda: __all__)
