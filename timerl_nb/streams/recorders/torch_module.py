"""Recorder of PyTorch modules and functions: the operations of the dispatcher."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

from timerl_nb.base.errors import CallError
from timerl_nb.streams.kernel_declaration import Kernel, blocks_of
from timerl_nb.streams.kernel_stream import Stream
from timerl_nb.streams.memory_segments import segments_of


def record_torch(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Stream:
    """Record the operations of a call, without gradients.

    The operations run during the recording. Their results are tensors that the stream keeps; a run of the
    stream overwrites these tensors, and `result` is the value that the call returned. The operations' schemas
    determine reads and writes; operations that create views are not kernels. `blocks` follows from the number
    of elements, `operations` is PyTorch's FLOP count if available.

    Raises:
        CallError: a tensor has no memory (`device="meta"`).
    """
    torch: Any = import_module("torch")
    mode: Any = import_module("torch.utils._python_dispatch").TorchDispatchMode
    tree_leaves: Any = import_module("torch.utils._pytree").tree_leaves
    flop_registry: Any = import_module("torch.utils.flop_counter").flop_registry
    kernels: list[Kernel] = []

    def tensors(of: Any) -> list[Any]:
        found = [x for x in tree_leaves(of) if isinstance(x, torch.Tensor)]
        if any(x.device.type == "meta" for x in found):
            raise CallError(
                "tensors on the device 'meta' have no memory, so they launch no kernels.",
                hint="use another device.",
            )
        return found

    def note(op: Any, args: Any, kwargs: Any, out: Any) -> None:
        """Append a kernel for a dispatched operation; operations that only return views are omitted."""
        given = tensors((args, kwargs))
        changed = [x for value in _written_arguments(op, args, kwargs) for x in tensors(value)]
        there = {_storage(x) for x in given}
        made = [x for x in tensors(out) if _storage(x) not in there]
        reads, writes = segments_of(given), segments_of([*made, *changed])
        if not writes:  # a view
            return

        def run() -> None:
            with torch.no_grad():
                again = op(*args, **kwargs)
                new = [x for x in tensors(again) if _storage(x) not in there]
                for old, value in zip(made, new, strict=True):
                    old.copy_(value)

        elements = sum(x.numel() for x in (*made, *changed))
        counted = flop_registry.get(op.overloadpacket)
        kernels.append(
            Kernel(
                op.overloadpacket.__name__,
                reads,
                writes,
                run,
                blocks_of(elements),
                float(counted(*args, **kwargs, out_val=out)) if counted else float(elements),
                float(sum(s.stop - s.start for s in (*reads, *writes))),
                keep=(given, made, changed),
            )
        )

    class Recorder(mode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            out = func(*args, **(kwargs or {}))
            note(func, args, kwargs or {}, out)
            return out

    with torch.no_grad(), Recorder():
        result = function(*args, **kwargs)
    name = getattr(function, "__name__", type(function).__name__)
    return Stream(name, tuple(kernels), result=lambda: result)


def is_of_torch(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Return whether the function is a PyTorch module or has tensors as arguments."""
    torch = sys.modules.get("torch")
    if torch is None:
        return False
    given = (*args, *kwargs.values())
    return isinstance(function, torch.nn.Module) or any(isinstance(x, torch.Tensor) for x in given)


def _storage(tensor: Any) -> tuple[Any, int]:
    return tensor.device, tensor.untyped_storage().data_ptr()


def _written_arguments(op: Any, args: Any, kwargs: Any) -> Iterator[Any]:
    """Yield the arguments that the operation writes according to its schema."""
    for k, argument in enumerate(op._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            yield args[k] if k < len(args) else kwargs.get(argument.name)
