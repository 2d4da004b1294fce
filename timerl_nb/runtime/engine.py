"""Engine of an interpreted program: the library that stores its arrays and runs its kernels.

`load_engine` imports an engine's library when a program asks for it, and not before. XLA programs need JAX, and do not
use this protocol.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any, Final

from timerl_nb.base.machine_model import Machine

Array = Any  # an array of the engine
Scope = Any  # the context of a kernel at one point: bounds, coordinates, sizes

_MODULES: Final[Mapping[str, str]] = {
    "jax": "timerl_nb.runtime.jax_backend.jax_engine",
    "torch": "timerl_nb.runtime.torch_backend.torch_engine",
}


@dataclass(frozen=True, eq=False)
class Engine:
    """Functions that the interpreter needs from an array library.

    Attributes:
        name: Value of the option `backend`.
        description: Description of the library and the device; "" for the default engine.
        compile_kernel: Compiles the function `trace` of a kernel. Takes the kernel, the function, the numbers of
            the donated arguments, and the device of the results or None. The result may have an attribute
            `text`, its program. An engine that compiles nothing returns the function itself.
        compilations: Returns how often a result of `compile_kernel` was compiled; None for an engine that
            compiles nothing.
        scope: Constructor of the context of a point. Its arguments are those of `Kernel.scope`; the interpreter
            needs its `point`, `capacity(size)` and `length(size)`.
        compute: Computes an operation from a context, the operation, its operands, and their symbolic shapes.
        kinds_without_padding: Kinds that need axes of fixed lengths, with the reason.
        own: Returns results that share no memory with operands, constants or each other.
        accumulate: Adds a value to an accumulator by the name of the reduction. The last argument is True if the
            accumulator may be overwritten.
        write_row: Writes a row of a block.
        read_rows: Reads a range of rows of a block.
        concatenate: Concatenates arrays along their first axis.
        has_nans: Returns a boolean per array: whether it has a NaN within its true lengths.
        pad_or_cut: Cuts an array to a shape, or pads it with zeros.
        stack_points: Returns a gathered slice in its shape.
        stack: Stacks arrays of one shape along a new first axis.
        zeros: Returns an array of zeros, given shape and element type.
        fill_factory: Returns a constructor of arrays with one value, given shape, element type and value.
        copy: Returns a new array with the values of an array of the engine or the host.
        copy_stores: Copies all arrays in dictionaries.
        snapshot: Returns an array that later kernels do not change: itself, or a copy.
        seed_words: Returns the seed of a run as two unsigned words.
        to_device: Copies an array of the host to the device.
        move_to_device: Moves an array to the device of the results of kernels with swapped values.
        to_numpy: Returns an array's values on the host. They may share its memory.
        to_user: Returns an array's values on the host, unaffected by later kernels.
        wait: Waits until all arrays of a tree are computed, and returns them.
        is_deleted: Whether a kernel has reused the memory of an array.
        placement: Returns the location of an array, for `from_host`.
        to_host: Copies an array to memory of the host for fast transfers, and waits.
        from_host: Copies an array of `to_host` back to its location, and waits.
        device: Returns the device of programs.
        memory: Returns the bytes of memory on the device; None on a CPU.
        costs: Returns the cost model of the engine's kernels, given that of JAX on this machine.
    """

    name: str
    description: str
    compile_kernel: Callable[[Any, Callable[..., Any], tuple[int, ...], Any], Callable[..., Any]]
    compilations: Callable[[Any], int] | None
    scope: Callable[..., Scope]
    compute: Callable[..., Array]
    kinds_without_padding: Mapping[str, str]
    own: Callable[[Sequence[Array]], list[Array]]
    accumulate: Callable[[str, Array, Array, bool], Array]
    write_row: Callable[..., Array]
    read_rows: Callable[..., Array]
    concatenate: Callable[[Sequence[Array]], Array]
    has_nans: Callable[..., Array]
    pad_or_cut: Callable[[Array, tuple[int, ...]], Array]
    stack_points: Callable[..., Array]
    stack: Callable[[Sequence[Array]], Array]
    zeros: Callable[[tuple[int, ...], str], Array]
    fill_factory: Callable[..., Callable[[], Array]]
    copy: Callable[[Any], Array]
    copy_stores: Callable[[Any], Any]
    snapshot: Callable[[Array], Array]
    seed_words: Callable[[int], tuple[Any, Any]]
    to_device: Callable[[Any], Array]
    move_to_device: Callable[[Any], Array]
    to_numpy: Callable[[Array], Any]
    to_user: Callable[[Array], Any]
    wait: Callable[[Any], Any]
    is_deleted: Callable[[Any], bool]
    placement: Callable[[Array], Any]
    to_host: Callable[[Array], Any]
    from_host: Callable[[Any, Any], Array]
    device: Callable[[], Any]
    memory: Callable[[], int | None]
    costs: Callable[[Machine], Machine]


def load_engine(name: str, device: str | None = None, *, compiled: bool = False) -> Engine:
    """Return an engine, and import its library.

    Args:
        name: Value of the option `backend`.
        device: Value of the option `device`; None is the engine's default.
        compiled: Value of the option `torch_compile`.

    Raises:
        OptionError: The library is missing, too old or unusable, or it has no such device.
    """
    return _engine(name, device, compiled)


@cache
def _engine(name: str, device: str | None, compiled: bool) -> Engine:
    return import_module(_MODULES[name]).make_engine(device, compiled=compiled)
