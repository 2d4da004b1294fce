"""Compilation of a kernel: one trace per operand types, as straight-line calls of ATen.

The trace has the coordinates and the random bits as arguments. Afterwards, values that depend on no argument
are computed once, and conversions without effect are removed. The text of the kernel is the program that runs.

A kernel owns its results: they share no memory with operands, constants or each other, are contiguous, and
fill their memory. So the interpreter's accumulators and blocks of rows are overwritten in place.
"""

from __future__ import annotations

import operator
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

import torch
from torch.fx import Graph, GraphModule, Node
from torch.fx.experimental.proxy_tensor import make_fx

from timerl_nb.runtime.torch_backend.jax_function_calls import CALLS
from timerl_nb.runtime.torch_backend.torch_random import make_draws
from timerl_nb.runtime.torch_backend.torch_scope import Tensor

_ATEN: Final = torch.ops.aten
_CALL: Final = torch.ops.timerl_nb.call.default
_MOST_CACHED: Final = 1 << 12  # coordinates whose tensors are kept
_TRACING: Final = threading.RLock()
_LENT: Final = threading.local()


def own(results: Sequence[Tensor]) -> list[Tensor]:
    """Return results that share no memory with operands or each other; copies where needed."""
    taken: set[int] = set(getattr(_LENT, "storages", ()))
    made: list[Tensor] = []
    for x in results:
        storage = x.untyped_storage()
        whole = storage.nbytes() == x.numel() * x.itemsize
        if storage.data_ptr() in taken or not whole or not x.is_contiguous():
            x = x.clone(memory_format=torch.contiguous_format)
        taken.add(x.untyped_storage().data_ptr())
        made.append(x)
    return made


@contextmanager
def _lent(operands: Sequence[Tensor]) -> Iterator[None]:
    """Declare the memory of operands, for `own`."""
    _LENT.storages = {x.untyped_storage().data_ptr() for x in operands}
    try:
        yield
    finally:
        _LENT.storages = set()


class TracedKernel:
    """Function of a kernel: (seed, coordinates, operands, donated, accumulators, blocks) -> outputs.

    Args:
        kernel: The kernel.
        f: Function to trace.
        device: Device of the tensors.
        compiled: Whether inductor compiles each trace.
    """

    def __init__(
        self, kernel: Any, f: Callable[..., Any], device: str, *, compiled: bool
    ) -> None:
        self._f, self._device, self._compiled = f, device, compiled
        self._draws = make_draws(kernel, device) if kernel.needs_seed else None
        self._traces: dict[Any, Trace] = {}
        self._coordinates: dict[int, Tensor] = {}
        self._name = kernel.op.name

    def __call__(self, seed: Any, coords: Sequence[int], *groups: Any) -> Any:
        bits = {} if self._draws is None else self._draws(seed, coords)
        flat: list[Tensor] = [*bits.values()]
        for k in coords:
            at = self._coordinates.get(k)
            flat.append(self._coordinate(k) if at is None else at)
        shape: list[Any] = []
        for group in groups:
            _flatten(group, flat, shape)
        key = (*shape, *[(x.shape, x.dtype) for x in flat])
        trace = self._traces.get(key)
        if trace is None:
            trace = self._trace(key, list(bits), len(coords), flat, groups)
        with torch.inference_mode():
            return trace.run(*flat)

    def _coordinate(self, k: int) -> Tensor:
        made = torch.full((), k, dtype=torch.int64, device=self._device)
        if len(self._coordinates) < _MOST_CACHED:
            self._coordinates[k] = made
        return made

    def _trace(
        self, key: Any, drawn: Sequence[int], count: int, flat: list[Tensor], groups: Any
    ) -> Trace:
        with _TRACING:
            if key not in self._traces:
                f = partial(_call_unflattened, self._f, drawn, count, groups)
                self._traces[key] = Trace(f, flat, self._name, compiled=self._compiled)
        return self._traces[key]

    def _cache_size(self) -> int:
        """Return the number of compilations, as JAX's functions do."""
        return len(self._traces)

    @property
    def text(self) -> str:
        """Programs of all traces so far."""
        return "\n\n".join(trace.text for trace in self._traces.values())


def _flatten(group: Any, flat: list[Tensor], shape: list[Any]) -> None:
    for x in group:
        if isinstance(x, Tensor):
            flat.append(x)
        elif x is None:
            shape.append(len(flat))
        else:
            shape.append((len(flat), len(x)))
            _flatten(x, flat, shape)


def _unflatten(group: Any, left: Iterator[Tensor]) -> Any:
    return tuple(
        next(left) if isinstance(x, Tensor) else None if x is None else _unflatten(x, left)
        for x in group
    )


def _call_unflattened(
    f: Callable[..., Any], drawn: Sequence[int], count: int, groups: Any, *flat: Tensor
) -> Any:
    left = iter(flat)
    bits = {op_id: next(left) for op_id in drawn}
    coords = tuple(next(left) for _ in range(count))
    return f((bits, None), coords, *(_unflatten(group, left) for group in groups))


class Trace:
    """Program of a kernel for one combination of operand types.

    Attributes:
        text: Its Python code; `None` frees a value.
        run: Function of the flat operands.
        reason: Reason why inductor could not compile it; "" otherwise.
    """

    def __init__(
        self, f: Callable[..., Any], flat: Sequence[Tensor], name: str, *, compiled: bool
    ) -> None:
        self._kept: list[Any] = []
        examples = [x.clone() for x in flat]  # tracing runs the kernel, which writes into blocks

        def traced(*args: Tensor) -> Any:
            with _lent(args):
                return f(*args)

        with torch.inference_mode(), torch.device(examples[0].device if examples else "cpu"):
            module = make_fx(traced)(*examples)
            _fold_constants(module)
            _drop_copies(module.graph)
        module.graph.eliminate_dead_code()
        self._kept = [CALLS.get(n.args[1]) for n in module.graph.nodes if n.target is _CALL]
        self.text, space = write_source(module, name)
        exec(self.text, space)
        self.run: Callable[..., Any] = space["kernel"]
        self.reason = ""
        if compiled:
            self._compile(module, examples)

    def _compile(self, module: GraphModule, examples: Sequence[Tensor]) -> None:
        """Compile the program by inductor; keep the traced program if this fails."""
        module.recompile()
        try:
            compiled = torch.compile(module, fullgraph=True, dynamic=False)
            with torch.inference_mode():
                compiled(*[x.clone() for x in examples])
        except Exception as error:
            self.reason = f"{type(error).__name__}: {str(error).strip().splitlines()[0]}"
        else:
            self.run = compiled


# --- the graph of a trace ------------------------------------------------------------------------


def _fold_constants(module: GraphModule) -> None:
    """Compute the values that depend on no argument once. Rules write into no such value."""
    graph, known = module.graph, dict[Node, Any]()
    for node in list(graph.nodes):
        if node.op == "get_attr":
            known[node] = getattr(module, str(node.target))
        elif node.op == "call_function" and not _is_opaque(node):
            behind = node.all_input_nodes
            if all(one in known for one in behind):
                value = lambda one: known[one]  # noqa: E731
                args = torch.fx.map_arg(node.args, value)
                named = torch.fx.map_arg(node.kwargs, value)
                known[node] = node.target(*args, **named)  # pyrefly: ignore[not-callable]
    for k, node in enumerate(list(graph.nodes)):
        if node.op == "call_function" and node in known and isinstance(known[node], Tensor):
            used = [user for user in node.users if user not in known]
            if used:
                name = f"constant_{k}"
                module.register_buffer(name, known[node].contiguous())
                with graph.inserting_before(node):
                    made = graph.get_attr(name)
                node.replace_all_uses_with(made, delete_user_cb=lambda user: user not in known)
    out = next(n for n in graph.nodes if n.op == "output")
    with graph.inserting_before(out):  # a constant is no result of its own
        out.args = torch.fx.map_arg(
            out.args,
            lambda n: graph.call_function(_ATEN.clone.default, (n,)) if n.op == "get_attr" else n,
        )


def _is_opaque(node: Node) -> bool:
    """Whether a call has an effect, or is a function of the user."""
    return isinstance(node.target, torch._ops.OpOverload) and (
        node.target._schema.is_mutable or node.target is _CALL
    )


def _drop_copies(graph: Graph) -> None:
    """Remove layout operations without effect."""
    same = {
        _ATEN.view.default,
        _ATEN._unsafe_view.default,
        _ATEN.reshape.default,
        _ATEN.expand.default,
        _ATEN.permute.default,
        _ATEN.detach.default,
        _ATEN.alias.default,
        _ATEN.squeeze.dim,
    }
    for node in list(graph.nodes):
        if node.op == "call_function" and node.target in same:
            (source, *_) = node.args
            mine, theirs = node.meta.get("tensor_meta"), source.meta.get("tensor_meta")
            if mine is not None and theirs is not None:
                if mine.shape == theirs.shape and mine.stride == theirs.stride:
                    node.replace_all_uses_with(source)


def write_source(module: GraphModule, name: str) -> tuple[str, dict[str, Any]]:
    """Return a kernel's program as Python code, and the names that it uses."""
    space: dict[str, Any] = {"device": torch.device, "torch": torch, "inf": float("inf")}
    space["nan"] = float("nan")
    nodes = list(module.graph.nodes)
    last = {behind: node for node in nodes for behind in node.all_input_nodes}
    dead: dict[Node, list[str]] = {}
    for behind, node in last.items():
        if behind.op != "get_attr":
            dead.setdefault(node, []).append(behind.name)
    args: list[str] = []
    lines: list[str] = []
    for node in nodes:
        if node.op == "placeholder":
            args.append(node.name)
        elif node.op == "get_attr":
            space[node.name] = getattr(module, str(node.target))
        elif node.op == "output":
            lines.append(f"    return {_text(node.args[0])}")
        else:
            called = _called(node, space)
            named = "".join(f", {key}={_text(value)}" for key, value in node.kwargs.items())
            given = ", ".join(map(_text, node.args))
            text = f"{called}({given}{named if given else named[2:]})"
            if node.target is operator.getitem:
                text = f"{_text(node.args[0])}[{_text(node.args[1])}]"
            freed = "".join(f"{n} = " for n in dead.get(node, ()) if n != node.name)
            lines.append(f"    {node.name} = {text}")
            if freed:
                lines[-1] += f"; {freed}None"
    head = f"def kernel({', '.join(args)}):  # {name}"
    return "\n".join([head, *lines]) + "\n", space


def _called(node: Node, space: dict[str, Any]) -> str:
    target: Any = node.target
    plain = re.sub(r"\W", "_", str(target).removesuffix(".default"))
    space[plain] = target._op if isinstance(target, torch._ops.OpOverload) else target
    return plain


def _text(x: Any) -> str:
    if isinstance(x, Node):
        return x.name
    if isinstance(x, list | tuple):
        inside = ", ".join(map(_text, x))
        if isinstance(x, list):
            return f"[{inside}]"
        return f"({inside}{',' * (len(x) == 1)})"
    if isinstance(x, torch.device):
        return f"device({str(x)!r})"
    return repr(x)
