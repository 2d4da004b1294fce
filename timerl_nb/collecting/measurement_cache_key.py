"""Cache key of measurements: text with all cost factors of a task known before a run.

Tasks with equal keys are equally fast on an idle machine. Code is hashed by its instructions,
functions and classes, arrays by their types, libraries by their versions.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from importlib import import_module
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any, Final

from timerl_nb.base.machine_model import cores
from timerl_nb.base.options import thread_settings
from timerl_nb.collecting.collection_task import Task
from timerl_nb.env.gymnasium import GymEnvironment
from timerl_nb.runtime.jax_backend.arrays_and_devices import device_count, device_name
from timerl_nb.runtime.state.disk_cache import hash_texts

_DEEP: Final = 8  # depth of inspected objects
_MANY: Final = 1_000  # inspected elements of a collection
_PLAIN: Final = (type(None), bool, int, float, complex, str, bytes)


def cost_key(task: Task) -> tuple[str, ...]:
    """Return the cost key of a task on this machine, in parts."""
    spaces = str(task.spaces)
    pace = "" if task.ready is None else f", ready {task.ready}"
    pace += f", {task.workers} workers" if task.is_clustered else ""
    return (
        f"{device_name()} × {device_count()}",
        f"{cores()} cores of {os.cpu_count()}: {_affinity()}",
        str(thread_settings()),
        f"{task.name}, {spaces}, {task.envs}, {task.steps}{pace}",
        _digest(_environment(task)),
        f"{type(task.acting).__name__}, {task.acting.text}",
        _digest(task.acting.made_of),
    )


def _affinity() -> list[int]:
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []


def _environment(task: Task) -> Any:
    """Return classes and arguments of a task's environments."""
    if not isinstance(task.env, GymEnvironment):
        return task.env
    spec = task.env.spec
    entries = [spec.entry_point, spec.vector_entry_point]
    entries += [wrapper.entry_point for wrapper in spec.additional_wrappers]
    about = (spec.id, spec.kwargs, spec.max_episode_steps, spec.order_enforce)
    return [about, spec.disable_env_checker, [_entry(one) for one in entries], task.env.kinds]


def _entry(entry: Any) -> Any:
    """Import an entry point, `package.module:name`."""
    if not isinstance(entry, str):
        return entry
    module, _, name = entry.partition(":")
    return getattr(import_module(module), name, entry)


def _digest(x: Any) -> str:
    return hash_texts(_cost_factors(x, {}, 0))


def _cost_factors(x: Any, seen: dict[int, Any], depth: int) -> Iterator[str]:
    """Yield the cost factors of an object, as texts without addresses."""
    if isinstance(x, _PLAIN):
        yield repr(x)
        return
    yield type(x).__qualname__
    if id(x) in seen or depth > _DEEP:
        return
    seen[id(x)] = x  # a reference, so that its id is not reused
    parts: Iterable[Any]
    if isinstance(x, ModuleType):
        yield _version(x.__name__)
        return
    if not isinstance(x, type) and hasattr(x, "shape") and hasattr(x, "dtype"):
        yield f"{x.dtype}{x.shape}"
        return
    if isinstance(x, CodeType):
        yield x.co_code.hex() + repr((x.co_names, x.co_varnames, x.co_freevars))
        parts = x.co_consts
    elif isinstance(x, FunctionType):
        if not _is_own(x.__module__):
            yield f"{x.__module__}.{x.__qualname__}, {_version(x.__module__)}"
            return
        cells = [cell.cell_contents for cell in x.__closure__ or () if _is_filled(cell)]
        parts = (x.__code__, x.__defaults__, x.__kwdefaults__, cells, [*_referenced_globals(x)])
    elif isinstance(x, type):
        yield f"{x.__module__}.{x.__qualname__}"
        if not _is_own(x.__module__):
            yield _version(x.__module__)
            return
        hidden = ("__module__", "__doc__", "__dict__", "__weakref__")
        own = [(n, v) for n, v in vars(x).items() if n not in hidden and n[:5] != "_abc_"]
        parts = (*x.__bases__, *own)
    elif isinstance(x, MethodType):
        parts = (x.__func__, x.__self__)
    elif isinstance(x, partial):
        parts = (x.func, x.args, x.keywords)
    elif isinstance(x, staticmethod | classmethod):
        parts = (x.__func__,)
    elif isinstance(x, property):
        parts = (x.fget, x.fset)
    elif isinstance(x, Mapping):
        parts = [part for item in [*x.items()][:_MANY] for part in item]
    elif isinstance(x, set | frozenset):
        parts = sorted(map(repr, x))[:_MANY]
    elif isinstance(x, list | tuple):
        parts = x[:_MANY]
        yield str(len(x))
    else:
        parts = (type(x), getattr(x, "__dict__", None))
    for part in parts:
        yield from _cost_factors(part, seen, depth + 1)


def _referenced_globals(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """Yield the globals in a function's code: objects of its package, plain values, and modules."""
    known = function.__globals__

    def names(code: CodeType) -> Iterator[str]:
        yield from code.co_names
        for const in code.co_consts:
            if isinstance(const, CodeType):
                yield from names(const)

    for name in sorted({*names(function.__code__)} & known.keys()):
        yield name, known[name]


def _is_filled(cell: Any) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:
        return False


def _is_own(module: str | None) -> bool:
    """Return whether a module belongs to the user: its code may change under the same version."""
    if module is None or module == "__main__":
        return True
    root = module.partition(".")[0]
    file = getattr(sys.modules.get(module), "__file__", None)
    if root in sys.stdlib_module_names or root == __name__.partition(".")[0]:
        return False
    return file is None or f"{os.sep}site-packages{os.sep}" not in file


def _version(module: str) -> str:
    root = module.partition(".")[0]
    return f"{root} {getattr(sys.modules.get(root), '__version__', '')}"
