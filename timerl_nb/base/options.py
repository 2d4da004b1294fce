"""Compiler options, and all environment variables that the library reads."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Final, Literal, Self

from timerl_nb.base.errors import OptionError, one_of

ENVIRONMENT: Final = {
    "TIMERL_PROGRESS": "0 switches off all progress bars",
    "TIMERL_EXECUTOR": "the executor, unless an option names one: `xla` or `interpret`",
    "TIMERL_CACHE": "the folder for compiled XLA programs; 0 disables it",
    "CXX": "the C++ compiler for `torch_compile`; without it, the usual ones are tried",
    "CUBLAS_WORKSPACE_CONFIG": "needed by PyTorch on a GPU, for equal sums in equal programs: `:4096:8`",
    "RAY_ADDRESS": "the Ray cluster of collectors and training runs; without it, each starts Ray on this machine",
    "XLA_FLAGS": "settings of XLA; programs compiled under other settings are not loaded",
    "XDG_CACHE_HOME": "the folder of all caches, `~/.cache` by default; ours is `timerl-nb` in it",
}

_BACKENDS: Final = ("jax", "torch")  # all but the first run the interpreter
_THREADS: Final = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


def progress_by_default() -> bool:
    """Whether `execute` shows a progress bar by default."""
    return os.environ.get("TIMERL_PROGRESS", "1") != "0"


def environment() -> MutableMapping[str, str]:
    """Return all variables of the process: those of job schedulers, and those for child processes."""
    return os.environ


def ray_address() -> str:
    """Return the address of the Ray cluster to connect to, or ""."""
    return os.environ.get("RAY_ADDRESS", "")


def cxx_compiler() -> str:
    """Return the C++ compiler that the user has named, or ""."""
    return os.environ.get("CXX", "")


def cublas_workspace() -> str:
    """Return the setting of cuBLAS that deterministic sums need, or ""."""
    return os.environ.get("CUBLAS_WORKSPACE_CONFIG", "")


def xla_flags() -> str:
    """Return the XLA flags of the process."""
    return os.environ.get("XLA_FLAGS", "")


def thread_settings() -> dict[str, str]:
    """Return the environment variables that set the number of threads of libraries."""
    return {name: os.environ[name] for name in _THREADS if name in os.environ} | {
        "XLA_FLAGS": xla_flags()
    }


def cache_folder() -> Path | None:
    """Return the folder of compiled XLA programs; None if the cache is disabled."""
    given = os.environ.get("TIMERL_CACHE", "")
    if given == "0":
        return None
    if given:
        return Path(given).expanduser().absolute()
    caches = Path(os.environ.get("XDG_CACHE_HOME", ""))
    try:
        return (caches if caches.is_absolute() else Path.home() / ".cache") / "timerl-nb"
    except RuntimeError:  # the user has no home folder
        return None


Blocks = tuple[tuple[str, int], ...]  # block sizes by dimension


@dataclass(frozen=True)
class Options:
    """Options of a compilation.

    Raises:
        OptionError: an option does not exist, or does not take the value.

    Example:
        >>> options = trl.Options(vectorize=("b",), device_memory="64MiB")
        >>> options.device_memory
        67108864

    Attributes:
        simplify: remove dead and duplicate code, fold constants, and apply algebraic rules.
        vectorize: dimensions to turn into array axes: True for all, False for none, or `("b",)`.
        trial: let trial schedules decide on vectorisation and lifting; False vectorises as much as possible.
        lift: turn recurrences and sliding windows into batch operations, except in the loop of acting.
        accumulate: build sums over symbolic dimensions point by point.
        contract: turn sums of products into single contractions.
        incrementalize: block size of reductions over long axes: 64, `{"t": 64}`, "auto" or False.
        tile: block size of loops over independent points: `{"b": 256}`, "auto" or False.
        tile_kernel: run each tiled loop as one Pallas kernel on a GPU; "interpret" emulates it for tests.
        rematerialize: recompute values of acting for learning: True, False, or "auto" if it is cheap.
        tune: time some plans for `incrementalize` and `rematerialize`, and use the fastest.
        fuse: run operations over the same domain as one kernel.
        donate: let kernels reuse the memory of operands without later readers.
        stores: "auto" for the smallest storage of each tensor; "point" stores every value separately.
        device_memory: bytes available on each device: 67108864, "64MiB", or None for a GPU's memory.
        swap: "auto" moves values to the host between uses, to meet `device_memory`; False never does.
        executor: "xla" for compiled loops, "interpret" for single kernels; None reads TIMERL_EXECUTOR.
        fuse_iterations: number of iterations of the outermost loop per XLA call.
        devices: number of JAX devices to shard the outermost vectorised dimension over. "all" are those of
            all processes (`trl.distributed`).
        backend: library of the kernels: "jax", or "torch" for the interpreter with PyTorch.
        device: device of PyTorch, such as "cpu" or "cuda"; None is the CPU. JAX has its own setting.
        torch_compile: compile the kernels of PyTorch by TorchInductor; on a CPU, this needs a C++ compiler.
        random: generator of random numbers: "threefry", or the faster "threefry13" and "hash32".
        isl_operations: limit on the work of isl in one scheduling, in elementary operations.
        check_nan: stop at the first NaN, and name its operation, point and line; implies the interpreter.
    """

    simplify: bool = True
    vectorize: bool | tuple[str, ...] = True
    trial: bool = True
    lift: bool = True
    accumulate: bool = True
    contract: bool = True
    incrementalize: Literal["auto", False] | int | Mapping[str, int] | Blocks = "auto"
    tile: Literal["auto", False] | Mapping[str, int] | Blocks = False
    tile_kernel: Literal[False, True, "interpret"] = False
    rematerialize: Literal["auto", True, False] = "auto"
    tune: bool = False
    fuse: bool = True
    donate: bool = True
    stores: Literal["auto", "point"] = "auto"
    device_memory: int | str | None = None
    swap: Literal["auto", False] = "auto"
    executor: Literal["xla", "interpret"] | None = None
    fuse_iterations: int = 1
    devices: int | Literal["all"] = 1
    backend: Literal["jax", "torch"] = "jax"
    device: str | None = None
    torch_compile: bool = False
    random: Literal["threefry", "threefry13", "hash32"] = "threefry"
    isl_operations: int = 100_000_000
    check_nan: bool = False

    def __new__(cls, *unnamed: object, **options: Any) -> Self:
        if unnamed:
            raise OptionError(
                f"the option {unnamed[0]!r} has no name.",
                hint="name every option, as in Options(vectorize=False).",
            )
        _check_names(options)
        return super().__new__(cls)

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.type == "bool" and not isinstance(value, bool):
                raise _wrong(field.name, value, "True or False")
        if isinstance(self.vectorize, list):
            object.__setattr__(self, "vectorize", tuple(self.vectorize))
        dims = self.vectorize
        if not isinstance(dims, bool) and not (
            isinstance(dims, tuple) and all(isinstance(d, str) for d in dims)
        ):
            raise _wrong("vectorize", dims, 'True, False, or names of dimensions such as ("b",)')
        if self.stores not in ("auto", "point"):
            raise _wrong("stores", self.stores, '"auto" or "point"')
        object.__setattr__(self, "incrementalize", _blocks("incrementalize", self.incrementalize))
        object.__setattr__(self, "tile", _blocks("tile", self.tile))
        if self.tile not in ("auto", False) and not (
            isinstance(self.tile, tuple) and len(self.tile) == 1
        ):
            raise _wrong(
                "tile",
                self.tile,
                '"auto", False, or a block size of one dimension such as {"b": 256}',
            )
        if self.tile_kernel != "interpret" and not isinstance(self.tile_kernel, bool):
            raise _wrong("tile_kernel", self.tile_kernel, 'False, True or "interpret"')
        object.__setattr__(self, "device_memory", _bytes("device_memory", self.device_memory))
        if self.swap != "auto" and self.swap is not False:
            raise _wrong(
                "swap",
                self.swap,
                '"auto" or False. "auto" swaps values if the program needs more than device_memory; '
                'to force swapping, set a limit such as device_memory="64MiB"',
            )
        if self.rematerialize not in ("auto", True, False):
            raise _wrong("rematerialize", self.rematerialize, '"auto", True or False')
        if self.backend not in _BACKENDS:
            raise _wrong("backend", self.backend, '"jax" or "torch"')
        if self.backend != _BACKENDS[0]:
            self._check_interpreted()
        elif self.device is not None:
            raise _together(
                "device", self.device, "jax", "call jax.config.update('jax_default_device', ...)"
            )
        elif self.torch_compile:
            raise _together("torch_compile", True, "jax", 'pass backend="torch", too')
        if self.executor is None:
            object.__setattr__(self, "executor", os.environ.get("TIMERL_EXECUTOR", "xla"))
        if self.executor not in ("xla", "interpret"):
            raise _wrong("executor", self.executor, '"xla" or "interpret"')
        if self.random not in ("threefry", "threefry13", "hash32"):
            raise _wrong("random", self.random, '"threefry", "threefry13" or "hash32"')
        for name in ("fuse_iterations", "devices", "isl_operations"):
            count = getattr(self, name)
            if name == "devices" and count == "all":
                continue
            if isinstance(count, bool) or not isinstance(count, int) or count < 1:
                legal = "a positive integer"
                raise _wrong(name, count, f'{legal} or "all"' if name == "devices" else legal)

    def _check_interpreted(self) -> None:
        """Refuse options that need XLA, and choose the interpreter.

        Raises:
            OptionError: an option cannot be combined with the backend.
        """
        needs_xla = {
            "devices": self.devices != 1,
            "fuse_iterations": self.fuse_iterations != 1,
            "tile": self.tile is not False,
            "tile_kernel": self.tile_kernel is not False,
            "tune": self.tune,
            "executor": self.executor == "xla",
        }
        for name in (name for name, asked in needs_xla.items() if asked):
            raise _together(name, getattr(self, name), self.backend, f"leave out {name}")
        if self.device is not None and not isinstance(self.device, str):
            raise _wrong("device", self.device, 'the name of a device of PyTorch, such as "cuda"')
        object.__setattr__(self, "executor", "interpret")

    @property
    def blocks(self) -> int | Blocks | None:
        """The block sizes of `incrementalize`; None if it has none."""
        given = self.incrementalize
        if isinstance(given, Mapping) or given == "auto" or given is False:
            return None
        return given

    @property
    def asks_for_interpreter(self) -> bool:
        """Whether the options themselves choose the interpreter, rather than the environment."""
        named = os.environ.get("TIMERL_EXECUTOR", "xla") != "interpret"
        return self.executor == "interpret" and named

    @property
    def tile_size(self) -> tuple[str, int] | None:
        """The dimension and block size of `tile`; None if it has none."""
        return self.tile[0] if isinstance(self.tile, tuple) else None

    @property
    def budget(self) -> int | None:
        """`device_memory` in bytes; None for the memory of a GPU, and no limit on a CPU."""
        assert not isinstance(self.device_memory, str)  # `__post_init__` has parsed texts
        return self.device_memory

    @property
    def device_count(self) -> int:
        """`devices` as a number; "all" has been replaced before a compilation."""
        assert isinstance(self.devices, int)
        return self.devices

    def with_(self, **changes: Any) -> Options:
        """Return a copy with some options changed.

        Args:
            changes: the changed options, by name.

        Raises:
            OptionError: an option does not exist, or does not take the value.

        Example:
            >>> trl.Options().with_(fuse=False).fuse
            False
        """
        _check_names(changes)
        if changes.get("backend", self.backend) != self.backend:
            changes.setdefault("executor", None)  # each backend has its own default
        return replace(self, **changes)


def _check_names(options: Mapping[str, object]) -> None:
    known = [field.name for field in fields(Options)]
    for name in options:
        if name == "precision":
            raise OptionError(
                "there is no option 'precision'.",
                hint='change the element types of tensors, as in x.cast("bf16"). For f64 and i64, '
                'call jax.config.update("jax_enable_x64", True) first.',
            )
        if name not in known:
            raise OptionError(f"there is no option {name!r}.", hint=one_of(name, known))


def _blocks(name: str, value: object) -> object:
    """Return block sizes by dimension as pairs, and other values unchanged."""
    legal = '"auto", False, a block size such as 64, or block sizes such as {"t": 64}'
    if value == "auto" or value is False:
        return value
    pairs: Any = value.items() if isinstance(value, Mapping) else value
    if not isinstance(value, Mapping | tuple):
        pairs = (("", value),)
    elif not all(isinstance(pair, tuple) and len(pair) == 2 for pair in pairs):
        raise _wrong(name, value, legal)
    for dim, size in pairs:
        if (
            not isinstance(dim, str)
            or isinstance(size, bool)
            or not isinstance(size, int)
            or size < 1
        ):
            raise _wrong(name, value, legal)
    return tuple(pairs) if isinstance(value, Mapping | tuple) else value


_UNITS: Final = {
    "": 1,
    "B": 1,
    **{f"{p}B": 1000**k for k, p in enumerate(("k", "M", "G", "T"), 1)},
    **{f"{p}iB": 1024**k for k, p in enumerate(("K", "M", "G", "T"), 1)},
}


def _bytes(name: str, value: object) -> int | None:
    """Return a number of bytes from an integer or a text with a unit."""
    legal = 'a positive number of bytes such as 67108864 or "64MiB"'
    found = value
    if isinstance(value, str):
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", value, re.ASCII)
        scale = next((_UNITS[u] for u in _UNITS if match and match[2].lower() == u.lower()), None)
        if match is None or scale is None:
            units = ", ".join(unit for unit in _UNITS if unit)
            raise _wrong(name, value, f"{legal}; the units are {units}")
        amount = float(match[1]) * scale
        found = int(amount) if math.isfinite(amount) else None
    if value is None:
        return None
    if isinstance(found, bool) or not isinstance(found, int) or found < 1:
        raise _wrong(name, value, legal)
    return found


def _wrong(name: str, value: object, legal: str) -> OptionError:
    return OptionError(f"{name}={value!r} is not possible.", hint=f"{name} is {legal}.")


def _together(name: str, value: object, backend: str, remedy: str) -> OptionError:
    return OptionError(
        f"{name}={value!r} and backend={backend!r} cannot be combined.",
        hint=f"{remedy}, or use the other backend.",
    )


@contextmanager
def variable(name: str, value: str) -> Iterator[None]:
    """Set an environment variable within the block, for processes that start there."""
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = before


__all__ = ["ENVIRONMENT", "Options", "cache_folder", "progress_by_default", "variable", "xla_flags"]
