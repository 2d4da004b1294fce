"""What is tapped of PyTorch: functions, methods and operators of tensors, the autograd engine, modules, optimizers.

RL-Scope (paper 002, section 3.2) wraps a module's public functions; most of PyTorch's time is in methods and operators.
"""

from __future__ import annotations

import os
import sys
import types
from threading import local
from types import FrameType, ModuleType
from typing import Final

from timerl_nb.scope.annotations import guess, operation
from timerl_nb.scope.edges import Library
from timerl_nb.scope.recorder import this_lane
from timerl_nb.scope.taps import Taps, is_native, untapped

BACKWARD: Final = "backward"
UPDATE: Final = "update"
INFERENCE: Final = "inference"
LEARN: Final = "learn"

_PARTS: Final = ("_fft", "_linalg", "_nested", "_nn", "_sparse", "_special")
_DESCRIPTORS: Final = (types.MethodDescriptorType, types.WrapperDescriptorType)
# What makes instances, and what only says what a tensor is: a tap would cost more than the call.
_ASKED: Final = """
    __delattr__ __getattribute__ __init__ __len__ __new__ __setattr__ __torch_dispatch__ __torch_function__
    _has_compatible_shallow_copy_type _is_view as_subclass data_ptr dim element_size get_device has_names
    is_complex is_conj is_contiguous is_floating_point is_grad_enabled is_inference is_inference_mode_enabled
    is_neg is_signed ndimension numel set_grad_enabled size storage_offset stride typename
"""
_LEFT: Final = frozenset(_ASKED.split())


def tapped(taps: Taps, torch: ModuleType) -> None:
    """All of it: `torch` was imported."""
    functions = torch._C._VariableFunctions
    for name in dir(functions):
        function = getattr(functions, name)
        if is_native(function) and not name.startswith("__") and name not in _LEFT:
            tap = taps.made(function, f"torch.{name}", Library.BACKEND)
            taps.replace(torch._VF, name, tap)  # which looks all of them up, and binds none
    for part in _PARTS:
        taps.module(getattr(torch._C, part), Library.BACKEND)
    own = dict(vars(torch.Tensor))
    for name, method in {**vars(torch._C.TensorBase), **own}.items():  # the base cannot be changed
        if type(method) in _DESCRIPTORS and name not in _LEFT:
            called = f"torch.Tensor.{name}"
            tap = taps.made(method, called, Library.BACKEND)
            taps.replace(torch.Tensor, name, tap)
    engine, called = torch.autograd.graph._engine_run_backward, "torch.autograd.run_backward"
    taps.made(engine, called, Library.BACKEND, guessed=BACKWARD)
    for scripted in (torch._C.ScriptFunction, torch._C.ScriptMethod):
        taps.method(scripted, "__call__", Library.BACKEND)
    _script(taps, sys.modules["torch.jit._builtins"])
    _modules(taps, torch)
    _optimizers(taps, sys.modules["torch.optim.optimizer"])


def _script(taps: Taps, builtins: ModuleType) -> None:
    """TorchScript knows functions by their ids."""
    builtins._get_builtin_table()  # of the functions, not of taps
    find = builtins._find_builtin
    taps.stand_in(find, lambda function: find(untapped(function)))


def _modules(taps: Taps, torch: ModuleType) -> None:
    """The outermost call of a module is an operation.

    Not by PyTorch's global hooks: every module that is called inside would take 2 us longer, and `torch.compile` warns.
    """
    enabled = torch.is_grad_enabled

    learn, inference = guess(LEARN), guess(INFERENCE)

    def guessed() -> operation:
        return learn if enabled() else inference

    taps.method(torch.nn.Module, "__call__", Library.PYTHON, guessed)


def _optimizers(taps: Taps, optimizer: ModuleType) -> None:
    """Steps are operations, by the hooks of all optimizers."""
    own = local()  # the steps of a thread, each with the frame that calls its hooks

    def before(*_: object) -> None:
        lane, caller = this_lane(), sys._getframe(1)
        if lane is None:
            return
        steps = own.__dict__.setdefault("steps", [])
        _left(steps, caller)
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


def _left(steps: list[tuple[FrameType, operation]], caller: FrameType) -> None:
    """Leave steps that have raised an error, behind which no hook is called."""
    if steps:
        running = set[FrameType]()
        frame: FrameType | None = caller
        while frame is not None:
            running.add(frame)
            frame = frame.f_back
        while steps and steps[-1][0] not in running:
            steps.pop()[1].__exit__()


def compiled(taps: Taps, output_code: ModuleType) -> None:
    """What `torch.compile` makes of a graph is called as one function."""
    taps.method(output_code.CompiledFxGraph, "__call__", Library.BACKEND)


def skipped(taps: Taps, rules: ModuleType) -> None:
    """`torch.compile` compiles what calls the recorder, and not the recorder."""
    folder = os.path.dirname(os.path.abspath(__file__)) + os.sep
    rules.SKIP_DIRS.append(folder)
    rules._recompile_re()

    def again() -> None:
        rules.SKIP_DIRS.remove(folder)
        rules._recompile_re()

    taps.undo.append(again)
