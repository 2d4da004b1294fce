"""How XLA is set in the processes of a session of tests."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any, TypeVar

COUNT = "--xla_force_host_platform_device_count"
# Thousands of small programs that run once or twice: what XLA does to make machine code fast is more
# than half of a session. Whoever gives one of these keeps it.
QUICK = {
    "--xla_backend_optimization_level": "0",
    "--xla_llvm_disable_expensive_passes": "true",
    # XLA ends a process that gives it one it does not know, as it does this from JAX 0.11 on
    **({"--xla_cpu_use_fusion_emitters": "false"} if version("jaxlib") < "0.11" else {}),
    "--xla_cpu_parallel_codegen_split_count": "1",
}
# What the user gave: those that a process of tests begins inherit what it has made of it.
HANDED_ON = "TIMERL_TESTS_XLA"
SEED = "TIMERL_TEST_SEED"  # of which devices workers see, and which cases are tried
GIVEN = os.environ.setdefault(HANDED_ON, os.environ.get("XLA_FLAGS", ""))


def devices_of(worker: str) -> int:
    """The devices of a worker of pytest-xdist such as `gw3`; without workers there is one.

    One in three has two, the one that begins with random programs: with two, tests take half as long again.
    `TIMERL_TEST_SEED` = 1 gives one device to those that had two, and the other way round.
    """
    number = int(worker.removeprefix("gw")) if worker else 0
    seed = int(os.environ.get(SEED, "0"))
    return 1 + ((number % 3 == 1) ^ (seed % 2))


def settings(devices: int) -> str:
    """XLA's settings in a process of tests: so many devices, and quick to compile for."""
    wanted = {COUNT: str(devices), **QUICK}
    more = [f"{flag}={value}" for flag, value in wanted.items() if flag not in GIVEN]
    return " ".join([GIVEN, *more]).strip()


_Item = TypeVar("_Item")


def dealt(groups: Sequence[Sequence[_Item]], others: Sequence[_Item], count: int) -> list[_Item]:
    """An order in which each of so many workers begins with groups of its own.

    pytest-xdist gives every worker an equal share, one behind the other, and whoever is done takes from
    the end of another's: what takes minutes must not come last, when nobody is left to share it.
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
    """Of the ways in which something is tested, so many, apart: the next ones at the next turn.

    With another `TIMERL_TEST_SEED` it is others for each.
    """
    first = turn + int(os.environ.get(SEED, "0"))
    at = {(first + k * len(cases) // count) % len(cases) for k in range(count)}
    return [case for k, case in enumerate(cases) if k in at]


LOWERINGS = 100  # since a context keeps what it has seen


def keep_contexts() -> None:
    """Let each thread lower many programs in one MLIR context, where JAX would make one for each.

    To make and to drop one takes longer than all else that lowering an operation does, and dropped
    ones stay in memory until they are collected as garbage.
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


CALLS = 1 << 20  # of functions that are compiled; JAX has room for 8,192


def keep_calls() -> None:
    """Let JAX remember how each function that is compiled is called.

    Where there is no more room it forgets the newest ones, which then pass through Python at each call, and count as
    never compiled.
    """
    calling: Any = sys.modules.get("jax._src.pjit")
    if calling is not None:
        kept = calling.make_jit_cpp_cache(CALLS)
        calling._get_cpp_global_cache = lambda contains_explicit_attributes: kept
