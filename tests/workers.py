"""XLA's settings and the order of tests in the processes of a test session."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any, TypeVar

COUNT = "--xla_force_host_platform_device_count"
# Thousands of small programs run once or twice. XLA's optimisations would take more than half of a
# session. A user's own setting of a flag wins.
QUICK = {
    "--xla_backend_optimization_level": "0",
    "--xla_llvm_disable_expensive_passes": "true",
    # XLA ends the process on an unknown flag; JAX 0.11 removes this one.
    **({"--xla_cpu_use_fusion_emitters": "false"} if version("jaxlib") < "0.11" else {}),
    "--xla_cpu_parallel_codegen_split_count": "1",
}
# The user's flags, before a parent test process extended them for its children.
HANDED_ON = "TIMERL_TESTS_XLA"
SEED = "TIMERL_TEST_SEED"  # swaps the devices of workers, and selects the cases
GIVEN = os.environ.setdefault(HANDED_ON, os.environ.get("XLA_FLAGS", ""))


def devices_of(worker: str) -> int:
    """Return the number of devices of a worker of pytest-xdist such as `gw3`; one without workers.

    One in three workers has two devices, the one that starts with random programs: two devices make
    tests half as slow again. `TIMERL_TEST_SEED` = 1 exchanges the workers.
    """
    number = int(worker.removeprefix("gw")) if worker else 0
    seed = int(os.environ.get(SEED, "0"))
    return 1 + ((number % 3 == 1) ^ (seed % 2))


def settings(devices: int) -> str:
    """Return XLA's flags for tests: number of devices, and fast compilation."""
    wanted = {COUNT: str(devices), **QUICK}
    more = [f"{flag}={value}" for flag, value in wanted.items() if flag not in GIVEN]
    return " ".join([GIVEN, *more]).strip()


_Item = TypeVar("_Item")


def dealt(groups: Sequence[Sequence[_Item]], others: Sequence[_Item], count: int) -> list[_Item]:
    """Return an order in which each worker starts with different groups.

    pytest-xdist gives each worker a contiguous part, and idle workers steal from the end of
    another's part. Long tests must not come last.
    """
    left, rest, found = sum(map(len, groups)) + len(others), list(others), list[_Item]()
    for worker in range(count):
        share = left // (count - worker)
        own = [item for group in groups[worker::count] for item in group]
        own += [rest.pop(0) for _ in range(min(len(rest), share - len(own)))]
        found += own
        left -= len(own)
    return found + rest


def tried(cases: Sequence[_Item], count: int, turn: int) -> list[_Item]:
    """Return `count` well-separated variants of a test; the next call returns the next ones.

    `TIMERL_TEST_SEED` selects other ones.
    """
    first = turn + int(os.environ.get(SEED, "0"))
    at = {(first + k * len(cases) // count) % len(cases) for k in range(count)}
    return [case for k, case in enumerate(cases) if k in at]


LOWERINGS = 100  # contexts cache earlier programs


def keep_contexts() -> None:
    """Let each thread lower many programs in one MLIR context.

    JAX would create a context per program. Creation and destruction take longer than the rest of
    lowering one operation, and dropped contexts stay in memory until garbage collection.
    """
    lowering = sys.modules.get("jax._src.interpreters.mlir")
    make = getattr(lowering, "make_ir_context", None)
    if make is None or make.__module__ == __name__:
        return
    kept = threading.local()

    def make_ir_context() -> Any:
        uses = getattr(kept, "uses", 0)
        if uses % LOWERINGS == 0:
            kept.context = make()
        kept.uses = uses + 1
        return kept.context

    lowering.make_ir_context = make_ir_context  # type: ignore[union-attr]


CALLS = 1 << 20  # of compiled functions; JAX has room for 8,192


def keep_calls() -> None:
    """Enlarge JAX's cache of fast call paths.

    A full cache drops the newest functions. Their calls then pass through Python, and count as not
    compiled.
    """
    calling: Any = sys.modules.get("jax._src.pjit")
    if calling is not None:
        kept = calling.make_jit_cpp_cache(CALLS)
        calling._get_cpp_global_cache = lambda contains_explicit_attributes: kept
