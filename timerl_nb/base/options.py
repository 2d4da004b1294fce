"""Options, and the environment variables that are read (here alone)."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Final, Literal, Self

from timerl_nb.base.errors import OptionError, one_of

ENVIRONMENT: Final = {
    "TIMERL_PROGRESS": "0 switches off all progress bars",
    "TIMERL_EXECUTOR": "the executor, unless an option names one: `xla` or `interpret`",
    "TIMERL_CACHE": "the folder for compiled XLA programs; 0 disables it",
    "XLA_FLAGS": "settings of XLA; programs compiled under other settings are not loaded",
    "XDG_CACHE_HOME": "the folder of all caches, `~/.cache` by default; ours is `timerl-nb` in it",
}

_THREADS: Final = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


def progress_by_default() -> bool:
    """Whether `execute` shows a progress bar unless told."""
    return os.environ.get("TIMERL_PROGRESS", "1") != "0"


def xla_flags() -> str:
    """XLA's settings, as they were given to the process."""
    return os.environ.get("XLA_FLAGS", "")


def thread_settings() -> dict[str, str]:
    """The environment variables that set the number of threads of libraries."""
    return {name: os.environ[name] for name in _THREADS if name in os.environ} | {
        "XLA_FLAGS": xla_flags()
    }


def cache_folder() -> Path | None:
    """Where what XLA has compiled is kept; None where it is not."""
    given = os.environ.get("TIMERL_CACHE", "")
    if given == "0":
        return None
    if given:
        return Path(given).expanduser().absolute()
    caches = Path(os.environ.get("XDG_CACHE_HOME", ""))
    try:
        return (caches if caches.is_absolute() else Path.home() / ".cache") / "timerl-nb"
    except RuntimeError:  # a user without a home
        return None


Blocks = tuple[tuple[str, int], ...]  # block sizes by dimension


@dataclass(frozen=True)
class Options:
    """The decisions of a compilation; one field each.

    Attributes:
        simplify: dead and duplicate code, constants, algebra, factors of sums.
        vectorize: dimensions that become axes: True for all that can, False for none, or their
            names. Over a dimension along which something runs one by one, operations stay that a
            trial schedule runs in that very loop.
        trial: decide by trial schedules what to vectorise and lift; False vectorises whatever can
            be, as the paper does.
        lift: recurrences and windows become batch operations where their loop is not acting's.
        accumulate: sums over symbolic dimensions are added up point by point.
        contract: sums of products become single contractions.
        incrementalize: reductions over long axes run block by block: a block size, along the
            dimension where that frees most, or block sizes by dimension (a warning says why one of them
            has no effect); False never does. "auto"
            does where the program would need more device memory than there is, and, run by XLA on a
            CPU, where blocks stay in its cache.
        tile: loops in which no point of a dimension reads another's run block by block, all turns for
            some points before the next: the block size by dimension, such as {"b": 256}; False never
            does. "auto" does where a block stays in the cache and all points together do not.
        tile_kernel: on a GPU such a loop is one kernel of Pallas' with all turns inside, where Pallas
            can; on an H100 2.3 to 6 times as fast. "interpret" runs the kernel as XLA's operations, for tests.
        rematerialize: what acting made is computed again where learning runs in blocks, instead of
            kept: "auto" where that saves memory in about the same time, True wherever it can be,
            False never.
        tune: measure a few ways of these two for a few turns, where the program has no effects on
            the host, and take the fastest; it is remembered in the cache folder.
        fuse: operations of one domain run as one kernel.
        donate: kernels take over the memory of operands that die with them; False keeps them apart,
            and slices are gathered.
        stores: "auto" keeps each tensor in the smallest store that holds its live values; "point"
            keeps every value by its point.
        device_memory: how many bytes the device may hold at once (`program.memory.needed`), a number
            or a text such as "64MiB", each of several devices as well; None for what it has. It is known before the first
            step whether a program keeps to it.
        swap: "auto" keeps values on the host between their uses where the program would need more
            device memory than there is; False never does.
        executor: "xla" runs the loop nest as XLA programs, loops and all, between what the host
            must run; "interpret" runs it instruction by instruction. None is "xla", or what the
            environment variable TIMERL_EXECUTOR says.
        fuse_iterations: how many turns of an outermost loop are one call to XLA.
        devices: among how many of JAX's devices the work is divided, along the outermost dimension
            that vectorisation makes an axis of all that varies over it (environments, as a rule).
        backend: the engine that compiles kernels.
        isl_operations: the ceiling on isl's work in one scheduling, in its elementary operations.
        check_nan: stop at the first NaN, and name the operation, its point and your line; the
            interpreter runs the program then, and looks at what every kernel makes.
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
    devices: int = 1
    backend: Literal["jax"] = "jax"
    isl_operations: int = 100_000_000
    check_nan: bool = False

    def __new__(cls, *unnamed: object, **options: Any) -> Self:
        if unnamed:
            raise OptionError(
                f"{unnamed[0]!r} is an option without a name.",
                hint="write Options(vectorize=False), say.",
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
                '"auto" or False: "auto" swaps where the program needs more than device_memory, so '
                'give that to make it swap, such as device_memory="64MiB"',
            )
        if self.rematerialize not in ("auto", True, False):
            raise _wrong("rematerialize", self.rematerialize, '"auto", True or False')
        if self.executor is None:
            object.__setattr__(self, "executor", os.environ.get("TIMERL_EXECUTOR", "xla"))
        if self.executor not in ("xla", "interpret"):
            raise _wrong("executor", self.executor, '"xla" or "interpret"')
        if self.backend == "torch":
            raise OptionError(
                "PyTorch does not run programs yet.", hint='leave backend="jax", or leave it out.'
            )
        if self.backend != "jax":
            raise _wrong("backend", self.backend, '"jax"')
        for name in ("fuse_iterations", "devices", "isl_operations"):
            count = getattr(self, name)
            if isinstance(count, bool) or not isinstance(count, int) or count < 1:
                raise _wrong(name, count, "a positive integer")

    @property
    def blocks(self) -> int | Blocks | None:
        """The block sizes that `incrementalize` gives; None where it gives none."""
        given = self.incrementalize
        if isinstance(given, Mapping) or given == "auto" or given is False:
            return None
        return given

    @property
    def asks_for_interpreter(self) -> bool:
        """Whether the options name the interpreter, and not the environment alone."""
        named = os.environ.get("TIMERL_EXECUTOR", "xla") != "interpret"
        return self.executor == "interpret" and named

    @property
    def tile_size(self) -> tuple[str, int] | None:
        """The dimension, and the size of blocks, that `tile` gives; None where it gives none."""
        return self.tile[0] if isinstance(self.tile, tuple) else None

    @property
    def budget(self) -> int | None:
        """`device_memory` in bytes; None where the device sets the limit."""
        assert not isinstance(self.device_memory, str)  # read when the options were made
        return self.device_memory

    def with_(self, **changes: Any) -> Options:
        """These options with some changed.

        Raises:
            OptionError: there is no option of that name, or it does not take that value.
        """
        _check_names(changes)
        return replace(self, **changes)


def _check_names(options: Mapping[str, object]) -> None:
    known = [field.name for field in fields(Options)]
    for name in options:
        if name == "precision":
            raise OptionError(
                "there is no option 'precision' yet.",
                hint='tensors have element types: x.cast("bf16"), say; f64 and i64 after '
                'jax.config.update("jax_enable_x64", True).',
            )
        if name not in known:
            raise OptionError(f"there is no option {name!r}.", hint=one_of(name, known))


def _blocks(name: str, value: object) -> object:
    """Block sizes by dimension as pairs; the other values as they are."""
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
    """A number of bytes, given as an integer or as a text with a unit."""
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


@contextmanager
def variable(name: str, value: str) -> Iterator[None]:
    """Set a variable of the environment for processes that start within the block."""
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
