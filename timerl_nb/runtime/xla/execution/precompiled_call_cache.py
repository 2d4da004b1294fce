"""Disk cache of compiled calls to XLA. A cached call is neither traced nor lowered nor compiled again."""

from __future__ import annotations

import io
import os
import pickle
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache, cached_property, partial
from typing import Any, Final

import jax
from jax.experimental import serialize_executable

from timerl_nb.base.options import xla_flags
from timerl_nb.runtime.jax_backend import arrays_and_devices as backend
from timerl_nb.runtime.state.disk_cache import DiskCache, key_of
from timerl_nb.runtime.state.safe_unpickling import CLASSES, Allowed

_COMPILED: Final = "/jax/compilation_cache/cache_misses"  # JAX's event for a compilation that its cache did not have
_DEVICE_COUNT: Final = "--xla_force_host_platform_device_count"

_listing: Final = threading.Lock()

# a function (None if it could not be loaded), and the JAX settings of its compilation
_Loaded = tuple[Any | None, tuple[Any, ...]]


@dataclass(frozen=True)
class CompiledCalls:
    """Disk cache for the calls of one program.

    Attributes:
        cache: Files of the cache.
        key: Identifies the program and the previous stages of its compilation.
        stored: Keys of the calls in the cache, as far as known.
        preloaded: Calls that other threads load, by their keys.
    """

    cache: DiskCache
    key: str
    stored: dict[str, None] = field(default_factory=dict, compare=False)
    preloaded: dict[str, Future[Any]] = field(default_factory=dict, compare=False)

    def preload(self) -> None:
        """Load the calls of earlier processes on other threads, while this thread compiles the program."""
        device, listed = backend.device(), self.cache.load(self._index())

        def load(key: str) -> Callable[..., Any] | None:
            known = self.cache.load(key)
            return None if known is None else _deserialize_call(known, device)

        for key in () if listed is None else listed.decode(errors="replace").split():
            if self.cache.has(key):
                with suppress(RuntimeError):  # during the exit of Python
                    self.preloaded[key] = _workers().submit(load, key)

    def add_stored(self, key: str) -> None:
        """Add a call to the list for `preload`."""
        with _listing:  # several threads compile
            self.stored[key] = None
            self.cache.write(self._index(), " ".join(self.stored).encode())

    def _index(self) -> str:
        return key_of("calls", self.key, _engine())

    def call(
        self, name: str, function: Any, arguments: Callable[[], Sequence[Any]]
    ) -> CompiledCall:
        """Return a call, to be loaded from the cache or compiled.

        Args:
            name: Identifies the call in its program.
            function: Jitted function.
            arguments: Returns the argument types.
        """
        return CompiledCall(self, name, function, arguments)


class CompiledCall:
    """Function, loaded or compiled once."""

    def __init__(
        self, calls: CompiledCalls, name: str, function: Any, arguments: Callable[[], Sequence[Any]]
    ) -> None:
        self._calls, self._name = calls, name
        self._function, self._arguments = function, arguments
        self._begun: Future[_Loaded] | None = None

    @staticmethod
    def begin(calls: Iterable[CompiledCall]) -> None:
        """Load or compile calls on other threads. The first execution of a call waits for its thread."""
        under = _meaning()
        for call in calls:
            if call._is_begun or call.is_compiled:
                continue
            load = call._loading()  # traced here, while XLA compiles the earlier calls
            with suppress(RuntimeError):  # during the exit of Python, calls compile on execution
                call._begun = _workers().submit(lambda load=load: (load(), under))

    def __call__(self, *args: Any) -> Any:
        asked: Any = jax.config
        if asked.jax_disable_jit or asked.jax_debug_nans or asked.jax_debug_infs:
            return self._function(*args)  # these settings forbid compiled code
        made, under = self._first_call
        # under other settings, JAX traces again
        return (made if _meaning() == under else self._function)(*args)

    @property
    def temporaries(self) -> int | None:
        """Temporary bytes reported by XLA; None without a report. Waits for XLA."""
        return read_reported_temporaries(self.executable)

    @property
    def executable(self) -> Any:
        """Compiled function. Waits for XLA."""
        return self._first_call[0]

    @property
    def is_compiled(self) -> bool:
        """Whether the function is ready, so nothing has to be waited for."""
        return "_first_call" in self.__dict__

    @property
    def _is_begun(self) -> bool:
        return self._begun is not None and not self._begun.cancelled()

    @cached_property
    def _first_call(self) -> tuple[Any, tuple[Any, ...]]:
        """Function of the first execution, and the JAX settings of its compilation."""
        begun = self._begun if self._is_begun else None
        try:
            made, under = (self._loading()(), _meaning()) if begun is None else begun.result()
        except CancelledError:  # cancelled by an interrupt on another thread
            return self._first_call
        except BaseException as error:
            self._begun = None  # the next run tries again
            if not isinstance(error, Exception):
                _let_go()
            raise
        if made is None:  # the cache entry cannot be loaded, for any reason
            made, under = self._compile(self._lower(), self._key()), _meaning()
        return made, under

    def _loading(self) -> Callable[[], Callable[..., Any] | None]:
        """Return a function that loads or compiles the call on any thread. JAX's settings are read here."""
        device, key = backend.device(), self._key()
        loaded = self._calls.preloaded.pop(key, None)
        if loaded is not None:
            self._calls.stored[key] = None
            return partial(_finish_preload, loaded)
        known = self._calls.cache.load(key)
        if known is not None:
            self._calls.stored[key] = None
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
        # An executable from JAX's own cache cannot be serialised again: it would fail when it runs. The same
        # holds for custom calls, whose targets exist only after lowering.
        if _COMPILED in heard and "custom_call" not in lowered.as_text():
            with suppress(Exception):  # some platforms cannot serialise executables
                self._calls.cache.write(key, pickle.dumps(serialize_executable.serialize(made)))
                self._calls.add_stored(key)
        return made


def _finish_preload(loaded: Future[Any]) -> Callable[..., Any] | None:
    """Wait for a call that another thread loads; None if it could not be loaded."""
    with suppress(CancelledError):  # by an interrupt
        return loaded.result()
    return None


def read_reported_temporaries(made: Any) -> int | None:
    """Return the temporary bytes of an executable, reported by XLA; None without a report."""
    with suppress(NotImplementedError):  # some platforms have no report
        stated = made.memory_analysis()
        return None if stated is None else stated.temp_size_in_bytes
    return None


def _deserialize_call(known: bytes, device: Any) -> Callable[..., Any] | None:
    """Load a serialised call for a device; return None if the bytes are invalid."""
    with suppress(Exception):  # JAX's own loader would unpickle arbitrary objects
        contents, inputs, outputs = _Trees(io.BytesIO(known)).load()
        reader: Any = _Call  # its base class is private in JAX
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
    """Unpickler of a cache entry: pytree structures of arguments and results, and the bytes of the call."""

    table = {
        "jax._src.tree_util": ("default_registry", "tracing_registry"),
        "jaxlib._jax.pytree": ("PyTreeDef",),
    }


_Records: Any = getattr(serialize_executable, "_JaxPjrtUnpickler", pickle.Unpickler)


class _Call(Allowed, _Records):
    """Unpickler of a call: JAX's records of it, and its machine code."""

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
    """Cancel all waiting compilations after an interrupt, as the user may want to exit.

    Running compilations are completed, because XLA aborts a process that leaves such threads behind.
    """
    workers = _workers()
    _workers.cache_clear()
    workers.shutdown(wait=False, cancel_futures=True)


@contextmanager
def _heard() -> Iterator[list[str]]:
    """Collect JAX's monitoring events on this thread."""
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
    """Return the settings with an effect on results: 64-bit types, precision, device."""
    now: Any = jax.config
    return now.jax_enable_x64, now.jax_default_matmul_precision, backend.device()


def _engine() -> str:
    """Return all conditions of a compilation: JAX's current settings, XLA's flags, and the device.

    The number of other devices is excluded, as it does not affect a call on one device.
    """
    device = backend.device()
    about = device.id, device.platform, device.device_kind, device.client.platform_version
    flags = [one for one in xla_flags().split() if not one.startswith(_DEVICE_COUNT)]
    return repr((_settings(), flags, about))


def _settings() -> dict[str, Any]:
    values = jax.config.values
    names = sorted(values.keys() - {"jax_default_device", "jax_num_cpu_devices"})
    return {name: getattr(jax.config, name, values[name]) for name in names}
