"""Wrappers of PyTorch.

They cover functions, tensor methods, operators, properties and constructors, random generators,
gradient modes, the autograd engine, modules and optimizers.

RL-Scope (section 3.2) wraps only the public functions of a module, but most of the time
of PyTorch is spent in methods and operators.
"""

from __future__ import annotations

import os
import sys
import types
from threading import local
from types import FrameType, ModuleType
from typing import Any, Final

from timerl_nb.scope.recording.annotations import guess, operation
from timerl_nb.scope.recording.recorder import this_lane
from timerl_nb.scope.storage.event_format import Library
from timerl_nb.scope.wrappers.function_wrappers import Taps, is_native, unwrap_function

BACKWARD: Final = "backward"
UPDATE: Final = "update"
INFERENCE: Final = "inference"
LEARN: Final = "learn"

_PARTS: Final = ("_fft", "_linalg", "_nested", "_nn", "_sparse", "_special")
_DESCRIPTORS: Final = (types.MethodDescriptorType, types.WrapperDescriptorType)
# Functions for reading an attribute of a tensor: a wrapper would cost more than the call.
_ASKED: Final = """
    __delattr__ __getattribute__ __init__ __new__ __setattr__ __torch_dispatch__ __torch_function__
    _has_compatible_shallow_copy_type _is_view as_subclass data_ptr dim element_size get_device has_names
    is_complex is_conj is_contiguous is_floating_point is_grad_enabled is_inference is_inference_mode_enabled
    is_neg is_signed ndimension numel set_grad_enabled size storage_offset stride typename
"""
_LEFT: Final = frozenset(_ASKED.split())
# Operators with a Python implementation; no module refers to their native functions.
_OPERATORS: Final = """
    __rsub__ __rdiv__ __rtruediv__ __pow__ __ipow__ __rmod__ __rpow__ __floordiv__ __rfloordiv__ __rlshift__
    __rrshift__ __rmatmul__ __len__
"""
# Properties for creating or changing a tensor; the others only read an attribute.
_PROPERTIES: Final = ("H", "T", "data", "grad", "imag", "mH", "mT", "real", "requires_grad")
_RANDOM: Final = ("fork_rng", "get_rng_state", "initial_seed", "seed", "set_rng_state")
_MODES: Final = """
    _set_default_dtype _set_default_tensor_type _set_deterministic_algorithms _set_grad_enabled
    autocast_decrement_nesting autocast_increment_nesting clear_autocast_cache set_anomaly_enabled
    set_autocast_cache_enabled set_autocast_dtype set_autocast_enabled set_flush_denormal set_num_interop_threads
    set_num_threads
"""


def wrap_torch_functions(taps: Taps, torch: ModuleType) -> None:
    """Wrap the functions of `torch`, after its import."""
    functions = torch._C._VariableFunctions
    for name in dir(functions):
        function = getattr(functions, name)
        if is_native(function) and not name.startswith("__") and name not in _LEFT:
            tap = taps.get_or_make(function, f"torch.{name}", Library.BACKEND)
            # this module finds functions by `__getattr__` and holds no references
            taps.replace(torch._VF, name, tap)
    for part in _PARTS:
        taps.module(getattr(torch._C, part), Library.BACKEND)
    own = dict(vars(torch.Tensor))
    for name, method in {**vars(torch._C.TensorBase), **own}.items():  # the base class is immutable
        if type(method) in _DESCRIPTORS and name not in _LEFT:
            called = f"torch.Tensor.{name}"
            tap = taps.get_or_make(method, called, Library.BACKEND)
            taps.replace(torch.Tensor, name, tap)
    _forms(taps, torch)
    engine, called = torch.autograd.graph._engine_run_backward, "torch.autograd.run_backward"
    taps.get_or_make(engine, called, Library.BACKEND, guessed=BACKWARD)
    for scripted in (torch._C.ScriptFunction, torch._C.ScriptMethod):
        taps.method(scripted, "__call__", Library.BACKEND)
    _script(taps, sys.modules["torch.jit._builtins"])
    _modules(taps, torch)
    _optimizers(taps, sys.modules["torch.optim.optimizer"])


def _forms(taps: Taps, torch: ModuleType) -> None:
    """Wrap operators written in Python, properties, constructors, random generators and modes."""
    cls, base = torch.Tensor, vars(torch._C.TensorBase)
    for name in _OPERATORS.split():
        taps.method(cls, name, Library.BACKEND)
    for name in _PROPERTIES:
        descriptor = vars(cls).get(name, base.get(name))
        if type(descriptor) is types.GetSetDescriptorType:
            taps.replace(cls, name, _property(taps, f"torch.Tensor.{name}", descriptor))
    for name in ("__new__", "_make_subclass"):  # for `torch.Tensor(...)` and parameters
        tap = taps.get_or_make(getattr(cls, name), f"torch.Tensor.{name}", Library.BACKEND)
        taps.replace(cls, name, staticmethod(tap))
    # `torch._dynamo` replaces `manual_seed` at its import and would keep a reference to the wrapper
    seed = "_manual_seed_impl" if hasattr(torch.random, "_manual_seed_impl") else "manual_seed"
    for name in (*_RANDOM, seed):
        taps.method(torch.random, name, Library.BACKEND)
    for name in _MODES.split():
        if is_native(function := getattr(torch._C, name, None)):
            tap = taps.get_or_make(function, f"torch._C.{name}", Library.BACKEND)
            taps.replace(torch._C, name, tap)
    for name in ("__enter__", "__exit__"):
        taps.method(torch.inference_mode, name, Library.BACKEND)


def _property(taps: Taps, name: str, descriptor: Any) -> property:
    """Return a property with wrapped accessors."""
    parts = (descriptor.__get__, descriptor.__set__, descriptor.__delete__)
    read, write, delete = (taps.tap(part, name, Library.BACKEND) for part in parts)
    return property(read, write, delete, descriptor.__doc__)


def _script(taps: Taps, builtins: ModuleType) -> None:
    """Let TorchScript find wrapped functions; it identifies functions by id."""
    builtins._get_builtin_table()  # fill the table before the functions are replaced by wrappers
    find = builtins._find_builtin
    taps.stand_in(find, lambda function: find(unwrap_function(function)))


def _modules(taps: Taps, torch: ModuleType) -> None:
    """Record the outermost call of a module as an operation.

    Global hooks of PyTorch would do the same, but cost 2 us per nested module and cause a warning
    in `torch.compile`.
    """
    enabled = torch.is_grad_enabled

    learn, inference = guess(LEARN), guess(INFERENCE)

    def guessed() -> operation:
        return learn if enabled() else inference

    taps.method(torch.nn.Module, "__call__", Library.PYTHON, guessed)


def _optimizers(taps: Taps, optimizer: ModuleType) -> None:
    """Record optimizer steps as operations, through the global optimizer hooks."""
    own = local()  # per thread: the open steps, each with the frame that calls its hooks

    def before(*_: object) -> None:
        lane, caller = this_lane(), sys._getframe(1)
        if lane is None:
            return
        steps = own.__dict__.setdefault("steps", [])
        _leave_failed_steps(steps, caller)
        if not lane.operations:
            entered = guess(UPDATE)
            entered.__enter__()
            steps.append((caller, entered))

    def after(*_: object) -> None:
        steps = own.__dict__.get("steps")
        if steps and steps[-1][0] is sys._getframe(1):
            steps.pop()[1].__exit__()

    hooks = (
        optimizer.register_optimizer_step_pre_hook(before),
        optimizer.register_optimizer_step_post_hook(after),
    )
    taps.undo += [hook.remove for hook in hooks]


def _leave_failed_steps(steps: list[tuple[FrameType, operation]], caller: FrameType) -> None:
    """Exit failed steps: after an error, PyTorch calls no post-hook."""
    if steps:
        running = set[FrameType]()
        frame: FrameType | None = caller
        while frame is not None:
            running.add(frame)
            frame = frame.f_back
        while steps and steps[-1][0] not in running:
            steps.pop()[1].__exit__()


def wrap_compiled_graphs(taps: Taps, output_code: ModuleType) -> None:
    """Wrap the graphs of `torch.compile`, each as one function."""
    taps.method(output_code.CompiledFxGraph, "__call__", Library.BACKEND)


def exclude_recorder(taps: Taps, rules: ModuleType) -> None:
    """Keep `torch.compile` from compiling the recorder."""
    folder = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
    rules.SKIP_DIRS.append(folder)
    rules._recompile_re()

    def again() -> None:
        rules.SKIP_DIRS.remove(folder)
        rules._recompile_re()

    taps.undo.append(again)
