"""Compilation of a kernel: one trace per operand types, as straight-line calls of ATen.

The trace has the coordinates and the random bits as arguments. Values that depend on no argument are computed
once, equal calls are merged, and conversions without effect are removed. The text of the kernel is the program
that runs.

A kernel owns its results: they share no memory with operands, constants or each other, are contiguous, and
fill their memory. So the interpreter's accumulators and blocks of rows are overwritten in place.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.weak import WeakTensorKeyDictionary

from timerl_nb.base.errors import ExecutionError
from timerl_nb.runtime.jax_backend.user_function_calls import first_line
from timerl_nb.runtime.torch_backend.kernel_settings import ON_CPU, ON_GPU, ONE_THREAD
from timerl_nb.runtime.torch_backend.random_rules import make_draws
from timerl_nb.runtime.torch_backend.trace_context_and_masks import Tensor
from timerl_nb.runtime.torch_backend.untraced_operators import CALLS

_ATEN: Final = torch.ops.aten
_CALL: Final = torch.ops.timerl_nb.call.default
_LAYOUT: Final = frozenset(
    [
        "view",
        "_unsafe_view",
        "reshape",
        "expand",
        "permute",
        "detach",
        "alias",
        "squeeze",
        "t",
        "to",
        "contiguous",
    ]
)
_SMALL: Final = 1 << 14  # elements of a tensor that a second thread does not make faster
_MOST_CACHED: Final = 1 << 12  # coordinates whose tensors are cached
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

    def __init__(self, kernel: Any, f: Callable[..., Any], device: str, *, compiled: bool) -> None:
        self._f, self._device, self._compiled = f, device, compiled
        self._id = kernel.op.id
        self._draws = make_draws(kernel, device) if kernel.needs_seed else None
        self._traces: dict[Any, Trace] = {}
        self._coordinates: dict[int, Tensor] = {}
        self._name = kernel.op.name
        self._kind = device.partition(":")[0]
        self._settings = ON_CPU if self._kind == "cpu" else ON_GPU

    def __call__(self, seed: Any, coords: Sequence[int], *groups: Any) -> Any:
        if torch.is_autocast_enabled(self._kind):
            with torch.autocast(self._kind, enabled=False):
                return self(seed, coords, *groups)
        with self._settings:
            return self._run(seed, coords, *groups)

    def _run(self, seed: Any, coords: Sequence[int], *groups: Any) -> Any:
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
            trace, made = self._trace(key, list(bits), len(coords), flat, groups)
            if made is not None:
                return made
        with torch.inference_mode(), ONE_THREAD if trace.is_small else nullcontext():
            return trace.run(*flat)

    def _coordinate(self, k: int) -> Tensor:
        made = torch.full((), k, dtype=torch.int64, device=self._device)
        if len(self._coordinates) < _MOST_CACHED:
            self._coordinates[k] = made
        return made

    def _trace(
        self, key: Any, drawn: Sequence[int], count: int, flat: list[Tensor], groups: Any
    ) -> tuple[Trace, Any]:
        """Return a new trace with the results of its run, or the one that another thread has made."""
        with _TRACING:
            if key in self._traces:
                return self._traces[key], None
            f = partial(_call_unflattened, self._f, drawn, count, groups)
            trace = Trace(f"kernel_{self._id} {self._name}")
            made = trace.record(f, flat, compiled=self._compiled)
            self._traces[key] = trace
            return trace, made

    @property
    def compilations(self) -> int:
        """Number of traces so far."""
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


@dataclass(frozen=True)
class _Variable:
    """Name of a value in the text of a kernel."""

    name: str

    def __repr__(self) -> str:
        return self.name


@dataclass(frozen=True)
class _Line:
    """Call of an operator in the text of a kernel; `several` if it returns a list."""

    made: Sequence[_Variable]
    func: Any
    args: tuple[Any, ...]
    named: dict[str, Any]
    several: bool

    @property
    def is_mutable(self) -> bool:
        return self.func._schema.is_mutable

    def read(self) -> Iterator[_Variable]:
        for x in (*self.args, *self.named.values()):
            yield from (one for one in (x if isinstance(x, list) else [x]) if _is_variable(one))


def _is_variable(x: Any) -> bool:
    return isinstance(x, _Variable)


class _Recorder(TorchDispatchMode):
    """Records the calls that depend on the arguments of a function.

    Attributes:
        lines: The calls, in order.
        constants: Tensors that depend on no argument, by variable.
        opaque_calls: Functions that are called without being traced.
        largest: Greatest number of elements of a tensor.
    """

    def __init__(self, arguments: Sequence[Tensor]) -> None:
        super().__init__()
        self.lines: list[_Line] = []
        self.largest = max([0, *(x.numel() for x in arguments)])
        self.constants: dict[_Variable, Tensor] = {}
        self.opaque_calls: list[Any] = []
        self._alive: list[Tensor] = []
        self.arguments = [_Variable(f"x{k}") for k in range(len(arguments))]
        self._names: Any = WeakTensorKeyDictionary()  # intermediate values are freed as in a run
        for x, name in zip(arguments, self.arguments, strict=True):
            self._names[x] = name
        self._constants: Any = WeakTensorKeyDictionary()
        self._variables_of_call: dict[Any, Any] = {}

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # the default imports the compiler of PyTorch, for seconds

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        named = kwargs or {}
        made = func(*args, **named)
        tensors = [x for x in _flat((args, named)) if isinstance(x, Tensor)]
        if not any(x in self._names for x in tensors) and func is not _CALL:
            return made
        if func is _ATEN._local_scalar_dense.default:
            raise ExecutionError(
                "a rule of PyTorch reads the value of a traced tensor.",
                hint="report this as a bug, with your program.",
            )
        self._record(func, args, named, made)
        return made

    def _record(self, func: Any, args: Any, named: dict[str, Any], made: Any) -> None:
        """Append a call to the trace, unless an equal earlier call or its own operand provides the result."""
        results = list(made) if isinstance(made, tuple | list) else [made]
        self.largest = max(self.largest, *(x.numel() for x in results))
        if not isinstance(made, tuple | list) and self._is_same(func, args[0], results[0]):
            self._names[results[0]] = self._names[args[0]]
            return
        line = _Line(
            [_Variable(f"v{len(self.lines)}{'_' * k}") for k in range(len(results))],
            func,
            tuple(map(self._renamed, args)),
            {key: self._renamed(x) for key, x in named.items()},
            isinstance(made, tuple | list),
        )
        key = (func, repr(line.args), repr(line.named))
        variables = line.made
        if line.is_mutable or func is _CALL:
            self._variables_of_call.clear()  # the same call would read other values
            assert not (line.is_mutable and line.args[0] in self.constants)
        elif key in self._variables_of_call:
            variables = self._variables_of_call[key]
        else:
            self._variables_of_call[key] = line.made
        if variables is line.made:
            self.lines.append(line)
        if func is _CALL:
            self.opaque_calls.append(CALLS[args[1]])
        for x, variable in zip(results, variables, strict=True):
            self._names[x] = variable

    def _is_same(self, func: Any, source: Any, made: Any) -> bool:
        """Whether a layout operation has no effect."""
        return (
            func._schema.name.removeprefix("aten::") in _LAYOUT
            and isinstance(source, Tensor)
            and source in self._names
            and (source.shape, source.dtype, source.stride())
            == (made.shape, made.dtype, made.stride())
        )

    def _renamed(self, x: Any) -> Any:
        """Return an argument with variables for tensors."""
        if isinstance(x, Tensor):
            return self.variable(x)
        if isinstance(x, tuple | list):
            return [self._renamed(one) for one in x]
        return x

    def variable(self, x: Tensor) -> _Variable:
        """Return the variable of a tensor; a new constant if it depends on no argument."""
        if x in self._names:
            return self._names[x]
        if x not in self._constants:
            self._constants[x] = name = _Variable(f"c{len(self.constants)}")
            self.constants[name] = x.contiguous()
            self._alive.append(x)
        return self._constants[x]


def _flat(x: Any) -> Iterator[Any]:
    if isinstance(x, tuple | list):
        for one in x:
            yield from _flat(one)
    elif isinstance(x, dict):
        yield from _flat([*x.values()])
    else:
        yield x


class Trace:
    """Program of a kernel for one combination of operand types.

    Args:
        name: Name in the text.

    Attributes:
        text: Its Python code. A variable is set to None after its last use.
        run: Function of the flat operands.
        is_small: Whether more threads than one would not make it faster.
        reason: Reason why inductor could not compile it; "" otherwise.
    """

    run: Callable[..., Any]

    def __init__(self, name: str) -> None:
        self._name = name
        self.text = self.reason = ""
        self.is_small = False
        self._alive: list[Any] = []

    def record(self, f: Callable[..., Any], flat: Sequence[Tensor], *, compiled: bool) -> Any:
        """Run the function on operands, record the calls, and return the results."""
        # one tensor may be given twice, but is another argument in each place
        given = [x.view(x.shape) for x in flat]
        examples = [x.clone() for x in flat] if compiled else []
        with torch.inference_mode(), _lent(given), _Recorder(given) as recorder:
            made = f(*given)
        self._alive, self.is_small = recorder.opaque_calls, recorder.largest <= _SMALL
        self.text, space = _write_source(recorder, made, self._name)
        exec(self.text, space)
        self.run = space["kernel"]
        if compiled:
            self._compile(space, examples)
        return _with_constants_copied(recorder, made)

    def _compile(self, space: dict[str, Any], examples: Sequence[Tensor]) -> None:
        """Compile the program by inductor; keep the traced program if this fails."""
        try:
            compiled = torch.compile(space["kernel"], fullgraph=True, dynamic=False)
            threads = ONE_THREAD if self.is_small else nullcontext()
            with torch.inference_mode(), threads:  # other settings would compile again
                compiled(*[x.clone() for x in examples])
        except Exception as error:
            self.reason = f"{type(error).__name__}: {first_line(error)}"
            self.text = f"# not compiled by TorchInductor: {self.reason}\n{self.text}"
        else:
            self.run = compiled


def _write_source(recorder: _Recorder, made: Any, name: str) -> tuple[str, dict[str, Any]]:
    """Return a kernel's program as Python code, and the names that it uses."""
    space: dict[str, Any] = {"device": torch.device, "torch": torch}
    space |= {"inf": float("inf"), "nan": float("nan")}
    returned = _result_text(recorder, made, space)
    last: dict[_Variable, int] = {}
    needed = {_Variable(text) for text in re.findall(r"\b\w+\b", returned)}
    lines: list[tuple[int, _Line]] = []
    for k, line in reversed(list(enumerate(recorder.lines))):
        if line.is_mutable or line.func is _CALL or needed.intersection(line.made):
            read = set(line.read())
            for variable in read - needed:
                last[variable] = k
            needed |= read
            lines.insert(0, (k, line))
    text = [f"def kernel({', '.join(map(str, recorder.arguments))}):  # {name}"]
    for k, line in lines:
        called = re.sub(r"\W", "_", str(line.func).removesuffix(".default"))
        space[called] = line.func
        named = [f"{key}={x!r}" for key, x in line.named.items()]
        given = ", ".join([*map(repr, line.args), *named])
        freed = [f"{v} = " for v in last if last[v] == k and v not in recorder.constants]
        end = f"; {''.join(freed)}None" if freed else ""
        made_here = ", ".join(map(str, line.made)) + "," * line.several
        text.append(f"    {made_here} = {called}({given}){end}")
    space |= {str(variable): x for variable, x in recorder.constants.items()}
    return "\n".join([*text, f"    return {returned}"]) + "\n", space


def _with_constants_copied(recorder: _Recorder, made: Any) -> Any:
    """Return the results of a traced run; a constant is copied, as in the text."""
    if isinstance(made, Tensor):
        is_constant = recorder.variable(made) in recorder.constants
        return made.clone(memory_format=torch.contiguous_format) if is_constant else made
    return tuple(_with_constants_copied(recorder, x) for x in made)


def _result_text(recorder: _Recorder, made: Any, space: dict[str, Any]) -> str:
    """Return the expression of a kernel's results; a constant is copied."""
    if isinstance(made, Tensor):
        variable = recorder.variable(made)
        if variable not in recorder.constants:
            return str(variable)
        space["aten_clone"] = _ATEN.clone.default
        return f"aten_clone({variable})"
    return f"({''.join(_result_text(recorder, x, space) + ', ' for x in made)})"
