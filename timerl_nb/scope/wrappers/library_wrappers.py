"""List of the functions to wrap in each supported library, imported before or during the recording.

This module imports no such library.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial, wraps
from types import ModuleType
from typing import Any, Final

from timerl_nb.scope.recording import thread_parents
from timerl_nb.scope.recording.recorder import known_thread, this_lane
from timerl_nb.scope.storage.event_format import JOINS, SENDS, STARTS, Library
from timerl_nb.scope.wrappers import c_or_python_recorder, pytorch_wrappers
from timerl_nb.scope.wrappers.function_wrappers import Taps, is_native, unwrap_function
from timerl_nb.scope.wrappers.import_hook import ImportHook, Libraries, wrap_library

SIMULATION: Final = "simulation"  # name of the operation around steps and resets of an environment
_RECEIVES: Final = (
    "accept",
    "connect",
    "recv",
    "recv_into",
    "recvfrom",
    "recvfrom_into",
    "recvmsg",
    "recvmsg_into",
)
_SELECTORS: Final = (
    "SelectSelector",
    "PollSelector",
    "EpollSelector",
    "DevpollSelector",
    "KqueueSelector",
)
_OPERATOR: Final = re.compile(
    "__[ri]?(add|and|divmod|floordiv|lshift|matmul|mod|mul|or|pow|rshift|sub|truediv|xor)__"
    "|__(abs|eq|ge|getitem|gt|invert|le|lt|ne|neg|pos|round)__"
)
# Callable objects of JAX around jitted functions; no module refers to these functions.
_CALLED: Final = (
    ("jax._src.numpy.ufunc_api", "ufunc"),
    ("jax._src.custom_derivatives", "custom_jvp"),
    ("jax._src.custom_derivatives", "custom_vjp"),
)
_STEPS: Final = ("step", "reset", "step_async", "step_wait", "reset_async", "reset_wait")


def _native(library: Library, taps: Taps, module: ModuleType) -> None:
    taps.module(module, library)


def _waits(names: Sequence[str], taps: Taps, module: ModuleType) -> None:
    """Wrap functions (`Class.method` or `function`) as waits for a thread, process or device."""
    for name in names:
        owner, method = _owner(module, name)
        if owner is not None:
            taps.method(owner, method, Library.WAITING)


def _owner(module: ModuleType, name: str) -> tuple[Any, str]:
    """Return the owner of `Class.method` or `function`, and the last part of the name.

    The owner is a class or the module, or None if there is no such function.
    """
    cls, _, method = name.rpartition(".")
    owners = getattr(getattr(module, cls, None), "__mro__", ()) if cls else (module,)
    return next((owner for owner in owners if method in vars(owner)), None), method


def _marks(
    owner: Any,
    name: str,
    says: Callable[[Any, Any], str | None],
    taps: Taps,
    *,
    before: bool = False,
) -> None:
    """Wrap a function: each call writes a mark.

    Args:
        owner: class or module of the function.
        name: name of the function.
        says: returns the text of the mark, or None for no mark, from the first argument and the
            result.
        taps: set of wrappers.
        before: whether the mark is written before the call, without a result.
    """
    function = vars(owner)[name]

    @wraps(function)
    def marking(*args: Any, **named: Any) -> Any:
        # a starting thread has no `Thread` object yet
        lane = this_lane() if known_thread() else None
        if lane is None:
            return function(*args, **named)
        if before:
            lane.mark(says(args[0], None) or "")
            return function(*args, **named)
        found = function(*args, **named)
        if (said := says(args[0] if args else None, found)) is not None:
            lane.mark(said)
        return found

    taps.replace(owner, name, marking)


def _sends(names: Sequence[str], taps: Taps, module: ModuleType) -> None:
    """Wrap methods as wake-ups of another thread or process."""
    for name in names:
        owner, method = _owner(module, name)
        _marks(owner, method, lambda *_: SENDS, taps, before=True)


def _processes(taps: Taps, module: ModuleType) -> None:
    """Wrap the start of `multiprocessing` processes, and waits for their end."""
    cls = module.BaseProcess
    _waits(("BaseProcess.join",), taps, module)
    _marks(cls, "start", lambda made, _: f"{STARTS}{made.pid} {made.name}", taps)
    _marks(cls, "join", lambda one, _: _join_message(one.pid, one.exitcode), taps)


def _subprocesses(taps: Taps, module: ModuleType) -> None:
    _waits(("Popen.wait", "Popen.communicate"), taps, module)
    _marks(module.Popen, "__init__", lambda made, _: f"{STARTS}{made.pid} ", taps)
    _marks(module.Popen, "wait", lambda one, status: _join_message(one.pid, status), taps)


def _sockets(taps: Taps, module: ModuleType) -> None:
    """Wrap socket methods as waits for a peer; most are inherited from an immutable class."""
    cls = module.socket
    for name in _RECEIVES:
        if callable(function := getattr(cls, name, None)):
            called = f"socket.socket.{name}"
            taps.replace(cls, name, taps.get_or_make(function, called, Library.WAITING))


def _os(taps: Taps, module: ModuleType) -> None:
    _waits(("read", "wait", "wait3", "wait4", "waitid", "waitpid"), taps, module)
    _marks(module, "waitpid", lambda _, found: _join_message(found[0], found[0] or None), taps)


def _connections(taps: Taps, module: ModuleType) -> None:
    names = ("Connection.recv", "Connection.recv_bytes", "Connection.poll", "wait")
    _waits(names, taps, module)
    _sends(("Connection.send", "Connection.send_bytes"), taps, module)


def _threads(taps: Taps, module: ModuleType) -> None:
    thread_parents.wrap_threads(taps, module)
    _waits(("Barrier.wait", "Condition.wait", "Event.wait", "Thread.join"), taps, module)
    _sends(("Condition.notify",), taps, module)  # queues, events and futures call this


def _join_message(process: int | None, status: int | None) -> str | None:
    return None if status is None else f"{JOINS}{process}"


def _jax(taps: Taps, module: ModuleType) -> None:
    """Wrap calls of jitted functions, existing and future ones, and waits for arrays."""
    _waits(("block_until_ready", "device_get"), taps, module)
    array = sys.modules["jaxlib._jax"].ArrayImpl
    taps.method(array, "block_until_ready", Library.WAITING)
    _eager(taps, array)
    jit = module.jit

    def name_of(jitted: Any) -> tuple[str, str | None]:
        """Return the name of a jitted function and its operation, None if JAX itself jitted it."""
        name = f"jit {getattr(jitted, '__name__', '?')}"
        package = str(getattr(jitted, "__module__", "")).partition(".")[0]
        return name, None if package in ("jax", "jaxlib") else name

    # not cached: the wrapper must be freed with its user's last reference
    def to_come(jitted: Any) -> Any:
        name, guessed = name_of(jitted)
        if guessed is None:  # JAX caches its functions, so a wrapper would outlive the recording
            return jitted
        return taps.tap(jitted, name, Library.BACKEND, guessed=guessed)

    @wraps(jit)
    def jitting(*args: Any, **options: Any) -> Any:
        made = jit(*args, **options)
        if _is_jitted(made):
            return to_come(made)
        return lambda function: to_come(made(function))  # `made` is a decorator

    taps.stand_in(jit, jitting)

    def bound(thing: Any) -> Any:
        if not _is_jitted(thing):
            return None
        name, guessed = name_of(thing)
        return taps.get_or_make(thing, name, Library.BACKEND, guessed=guessed)

    taps.matchers.append(bound)


def _eager(taps: Taps, array: Any) -> None:
    """Wrap operations outside of jitted functions, and copies of arrays to the host as waits."""
    dispatch = sys.modules.get("jax._src.dispatch")
    find = getattr(dispatch, "xla_primitive_callable", None)
    # returns a jitted function for a primitive and its parameters; JAX caches it
    if find is not None:

        @wraps(find)
        def finding(primitive: Any, **parameters: Any) -> Any:
            found = find(primitive, **parameters)
            return taps.get_or_make(unwrap_function(found), f"jax {primitive}", Library.BACKEND)

        taps.replace(dispatch, "xla_primitive_callable", finding)
    if is_native(function := getattr(sys.modules["jaxlib._jax"], "batched_device_put", None)):
        taps.get_or_make(function, "jax batched_device_put", Library.BACKEND)
    for name, method in list(vars(array).items()):
        if _is_jitted(method) or (_OPERATOR.fullmatch(name) and callable(method)):
            taps.method(array, name, Library.BACKEND)
    for module, name in _CALLED:
        if (cls := getattr(sys.modules.get(module), name, None)) is not None:
            _when_eager(taps, cls)
    values = vars(array).get("_value")
    if isinstance(values, property) and values.fget is not None:
        read = taps.get_or_make(values.fget, "jax.Array._value", Library.WAITING)
        taps.replace(array, "_value", property(read, values.fset, values.fdel, values.__doc__))


def _when_eager(taps: Taps, cls: Any) -> None:
    """Wrap calls of callable JAX objects, except during tracing."""
    call, is_eager = cls.__call__, sys.modules["jax._src.core"].trace_state_clean
    tap = taps.get_or_make(call, f"{cls.__module__}.{cls.__name__}.__call__", Library.BACKEND)

    @wraps(call)
    def calling(self: Any, *args: Any, **named: Any) -> Any:
        return (tap if is_eager() else call)(self, *args, **named)

    taps.replace(cls, "__call__", calling)


def _is_jitted(thing: Any) -> bool:
    return type(thing).__name__ == "PjitFunction"


def _environments(classes: Sequence[str], taps: Taps, module: ModuleType) -> None:
    """Wrap steps and resets of all subclasses of the named environment classes as operations."""

    def tap_class(cls: type) -> None:
        for name in _STEPS:
            taps.method(cls, name, Library.PYTHON, SIMULATION)

    for base in (getattr(module, name) for name in classes):
        found, known = [base], {base}
        while found:
            cls = found.pop()
            tap_class(cls)
            more = [sub for sub in cls.__subclasses__() if sub not in known]
            known.update(more)
            found += more

        def to_come(cls: type, base: type = base, **named: Any) -> None:
            super(base, cls).__init_subclass__(**named)  # pyrefly: ignore[invalid-argument]
            tap_class(cls)

        taps.replace(base, "__init_subclass__", classmethod(to_come))


def _timerl(taps: Taps, module: ModuleType) -> None:
    """Record launches of compiled programs, through observers."""
    importlib.import_module("timerl_nb.scope.recording.program_launches").record_launches()


LIBRARIES: Final[Libraries] = {
    "ale_py._ale_py": partial(_native, Library.SIMULATION),
    "Box2D.Box2D": partial(_native, Library.SIMULATION),
    "mujoco._functions": partial(_native, Library.SIMULATION),
    "gymnasium": partial(_environments, ("Env",)),
    "gymnasium.vector": partial(_environments, ("VectorEnv",)),
    "jax": _jax,
    "multiprocessing.connection": _connections,
    "multiprocessing.pool": thread_parents.wrap_pools,
    "multiprocessing.process": _processes,
    "multiprocessing.queues": partial(_waits, ("Queue.get", "SimpleQueue.get")),
    "concurrent.futures": partial(_waits, ("Future.result", "wait")),
    "concurrent.futures.thread": thread_parents.wrap_executors,
    "queue": partial(_waits, ("Queue.get", "Queue.put", "Queue.join")),
    "os": _os,
    "select": partial(_waits, ("select",)),
    "selectors": partial(_waits, [f"{name}.select" for name in _SELECTORS]),
    "signal": partial(_waits, ("pause", "sigtimedwait", "sigwait", "sigwaitinfo")),
    "socket": _sockets,
    "stable_baselines3.common.vec_env.base_vec_env": partial(_environments, ("VecEnv",)),
    "subprocess": _subprocesses,
    "threading": _threads,
    "time": partial(_waits, ("sleep",)),
    "timerl_nb": _timerl,
    "torch": pytorch_wrappers.wrap_torch_functions,
    "torch._dynamo.trace_rules": pytorch_wrappers.exclude_recorder,
    "torch._inductor.output_code": pytorch_wrappers.wrap_compiled_graphs,
    "torch.accelerator": partial(_waits, ("synchronize",)),
    "zmq.sugar.poll": partial(_waits, ("Poller.poll",)),
    "torch.cuda": partial(_waits, ("synchronize", "Event.synchronize", "Stream.synchronize")),
}


# Wrappers of a recording with `taps=False`.
HANDING: Final[Libraries] = {
    "concurrent.futures.thread": thread_parents.wrap_executors,
    "multiprocessing.pool": thread_parents.wrap_pools,
    "threading": thread_parents.wrap_threads,
}


_TAPS: Final[dict[ModuleType, Taps]] = {}  # by recorder; shared by all recordings of this process


class Tapping:
    """Wrappers of one recording, from `install` to `remove`.

    Args:
        libraries: whether to wrap functions of libraries. Otherwise only starts of threads and
            tasks are wrapped.
    """

    def __init__(self, libraries: bool = True) -> None:
        # without libraries, do not reuse the wrappers of earlier recordings
        self._taps = _TAPS.setdefault(c_or_python_recorder.module, Taps()) if libraries else Taps()
        which = LIBRARIES if libraries else HANDING
        self._hook = ImportHook(self._taps, which)
        self._which = which

    def install(self) -> None:
        for name in self._which:
            if (module := sys.modules.get(name)) is not None:
                wrap_library(self._taps, self._which, name, module)
        self._taps.rebind()
        sys.meta_path.insert(0, self._hook)

    def remove(self) -> None:
        with suppress(ValueError):  # the program may have replaced the list or removed the hook
            sys.meta_path.remove(self._hook)
        self._taps.remove_all()
