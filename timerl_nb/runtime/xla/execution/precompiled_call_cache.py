"""Calls to XLA that later processes load, neither traced nor lowered nor compiled again."""

from __future__ import annotations

import io
import os
import pickle
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, Final

import jax
from jax.experimental import serialize_executable

from timerl_nb.base.options import xla_flags
from timerl_nb.runtime.jax_backend import jax_engine as backend
from timerl_nb.runtime.state.disk_cache import DiskCache, key_of
from timerl_nb.runtime.state.safe_unpickling import CLASSES, Allowed

_COMPILED: Final = (
    "/jax/compilation_cache/cache_misses"  # what JAX says when its cache gave nothing
)
_DEVICE_COUNT: Final = "--xla_force_host_platform_device_count"

# a function, None where it could not be loaded, and the settings that it met
_Loaded = tuple[Any | None, tuple[Any, ...]]


@dataclass(frozen=True)
class CompiledCalls:
    """Where the compiled calls of a program are kept.

    Attributes:
        cache: the place.
        key: says which program it is, and how it was compiled up to here.
    """

    cache: DiskCache
    key: str

    def call(
        self, name: str, function: Any, arguments: Callable[[], Sequence[Any]]
    ) -> CompiledCall:
        """A call as it was compiled once, or else is compiled when it is made first.

        Args:
            name: says which call of the program it is.
            function: the jitted function.
            arguments: gives the types of what it takes.
        """
        return CompiledCall(self, name, function, arguments)


class CompiledCall:
    """A function that is loaded, or compiled, once."""

    def __init__(
        self, calls: CompiledCalls, name: str, function: Any, arguments: Callable[[], Sequence[Any]]
    ) -> None:
        self._calls, self._name = calls, name
        self._function, self._arguments = function, arguments
        self._begun: Future[_Loaded] | None = None

    @staticmethod
    def begin(calls: Iterable[CompiledCall]) -> None:
        """Load calls on other threads, or compile them there; who makes one first waits for it."""
        new = [call for call in calls if not call._is_begun and not call.is_compiled]
        under = _meaning()
        for call, load in [(call, call._loading()) for call in new]:  # traced first, all on this
            with suppress(RuntimeError):  # the interpreter exits: who makes the call compiles it
                call._begun = _workers().submit(lambda load=load: (load(), under))

    def __call__(self, *args: Any) -> Any:
        asked: Any = jax.config
        if asked.jax_disable_jit or asked.jax_debug_nans or asked.jax_debug_infs:
            return self._function(*args)  # nothing runs as compiled, from this call on
        made, under = self._first_call
        # JAX traces anew what it meets under other settings
        return (made if _meaning() == under else self._function)(*args)

    @property
    def temporaries(self) -> int | None:
        """Bytes of temporaries that XLA states; None where it states none. Waits for XLA."""
        return stated_by(self.executable)

    @property
    def executable(self) -> Any:
        """What XLA has compiled, as JAX has it. Waits for XLA."""
        return self._first_call[0]

    @property
    def is_compiled(self) -> bool:
        """Whether what it runs is there, and nothing waits for it."""
        return "_first" in self.__dict__

    @property
    def _is_begun(self) -> bool:
        return self._begun is not None and not self._begun.cancelled()

    @cached_property
    def _first_call(self) -> tuple[Any, tuple[Any, ...]]:
        """What the first call runs, and the settings that it met."""
        begun = self._begun if self._is_begun else None
        try:
            made, under = (self._loading()(), _meaning()) if begun is None else begun.result()
        except CancelledError:  # by another's interrupt
            return self._first_call
        except BaseException as error:
            self._begun = None  # the next run tries again
            if not isinstance(error, Exception):
                _let_go()
            raise
        if made is None:  # whatever is wrong with what is known, it can be made anew
            made, under = self._compile(self._lower(), self._key()), _meaning()
        return made, under

    def _loading(self) -> Callable[[], Callable[..., Any] | None]:
        """What loads it, on any thread; all that asks for JAX's settings is done here."""
        device, key = backend.device(), self._key()
        known = self._calls.cache.load(key)
        if known is not None:
            return lambda: _deserialize_call(known, device)
        lowered = self._lower()
        return lambda: self._compile(lowered, key)

    def _key(self) -> str:
        return key_of("call", self._calls.key, self._name, _engine())

    def _lower(self) -> Any:
        return self._function.lower(*self._arguments())

    def _compile(self, lowered: Any, key: str) -> Any:
        with _heard() as heard:
            made = lowered.compile()
        # What JAX's cache gave lacks its code when it is written again, and only fails when it runs;
        # the targets of custom calls are there only once they are lowered.
        if _COMPILED in heard and "custom_call" not in lowered.as_text():
            with suppress(Exception):  # not every engine's programs can be kept
                self._calls.cache.write(key, pickle.dumps(serialize_executable.serialize(made)))
        return made


def stated_by(made: Any) -> int | None:
    """Bytes of temporaries that XLA states of an executable; None where it states none."""
    with suppress(NotImplementedError):  # not every engine does
        stated = made.memory_analysis()
        return None if stated is None else stated.temp_size_in_bytes
    return None


def _deserialize_call(known: bytes, device: Any) -> Callable[..., Any] | None:
    """A call that runs on a device; None where these are not the bytes of one."""
    with suppress(Exception):  # JAX's own loader would make whatever the bytes name
        contents, inputs, outputs = _Trees(io.BytesIO(known)).load()
        reader: Any = _Call  # whose base is private to JAX
        unloaded, arguments, no_kwargs = reader(
            io.BytesIO(contents), device.client, [device]
        ).load()
        made: Any = jax.stages.Compiled(
            unloaded.load(), [], inputs.unflatten(arguments), outputs, no_kwargs=no_kwargs
        )
        if made.runtime_executable().local_devices() == [device]:
            return made
    return None


class _Trees(Allowed):
    """The shapes of what a call takes and gives, and the bytes of the call."""

    table = {
        "jax._src.tree_util": ("default_registry", "tracing_registry"),
        "jaxlib._jax.pytree": ("PyTreeDef",),
    }


_Records: Any = getattr(serialize_executable, "_JaxPjrtUnpickler", pickle.Unpickler)


class _Call(Allowed, _Records):
    """A call: JAX's records of it, and its machine code."""

    _MODULES = "core interpreters.pxla layout linear_util mesh partition_spec stages"
    table = {
        **dict.fromkeys((f"jax._src.{name}" for name in _MODULES.split()), (CLASSES,)),
        "jax": ("P",),
        "jax._src.named_sharding": (CLASSES, "_unpickle_named_sharding"),
        "jax._src.sharding_impls": (CLASSES, "_unpickle_single_device_sharding"),
        "jaxlib._jax": ("DeviceList",),
        "numpy": ("dtype",),
    }


@cache
def _workers() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(os.cpu_count(), "xla-compile")


def _let_go() -> None:
    """Begin nothing more of what waits for a thread: who was interrupted may want to end.

    What XLA compiles already is waited for: threads that a process leaves behind make it abort.
    """
    workers = _workers()
    _workers.cache_clear()
    workers.shutdown(wait=False, cancel_futures=True)


@contextmanager
def _heard() -> Iterator[list[str]]:
    """The events that JAX reports on this thread."""
    here, heard = threading.get_ident(), list[str]()

    def listen(event: str, **_: Any) -> None:
        if threading.get_ident() == here:
            heard.append(event)

    jax.monitoring.register_event_listener(listen)
    try:
        yield heard
    finally:
        jax.monitoring.unregister_event_listener(listen)


def _meaning() -> tuple[Any, ...]:
    """The settings that change what a program computes, or where."""
    now: Any = jax.config
    return now.jax_enable_x64, now.jax_default_matmul_precision, backend.device()


def _engine() -> str:
    """What JAX's compilations depend on: its settings as they are here and now, and the device.

    How many others there are beside it makes no difference to a call that runs on one.
    """
    device = backend.device()
    about = device.id, device.platform, device.device_kind, device.client.platform_version
    flags = [one for one in xla_flags().split() if not one.startswith(_DEVICE_COUNT)]
    return repr((_settings(), flags, about))


def _settings() -> dict[str, Any]:
    values = jax.config.values
    names = sorted(values.keys() - {"jax_default_device", "jax_num_cpu_devices"})
    return {name: getattr(jax.config, name, values[name]) for name in names}
