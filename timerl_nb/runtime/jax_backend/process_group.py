"""Processes of one JAX program (`jax.distributed`): their number, and a check that they agree."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from timerl_nb.base.array_conversion import Array
from timerl_nb.base.errors import ExecutionError
from timerl_nb.base.options import xla_flags

_WIDTH = 16  # bytes of a digest
# flags that may differ between processes: the number of virtual devices, and files
_OWN_FLAGS = "--xla_force_host_platform_device_count", "--xla_dump", "--xla_gpu_cuda_data_dir"


def process_count() -> int:
    """Return the number of processes; 1 without `jax.distributed`. Starts no backend in that case."""
    return jax.process_count() if jax.distributed.is_initialized() else 1


def process_index() -> int:
    """Return the number of this process, from 0 on."""
    return jax.process_index() if jax.distributed.is_initialized() else 0


def is_leader() -> bool:
    """Whether this process writes the files and messages of a program of all processes."""
    return process_index() == 0


def versions() -> dict[str, str]:
    """Return the versions that must be equal in all processes."""
    try:
        ours = version("timerl-nb")
    except PackageNotFoundError:
        ours = "that of a copy of its sources"
    return {
        "the version of TimeRL-nb": ours,
        "the version of JAX": jax.__version__,
        "the version of Python": platform.python_version(),
    }


def settings() -> dict[str, str]:
    """Return the settings, besides the options, that change the meaning or the communication of a program."""
    used: Any = jax.config
    names = "enable_x64", "default_matmul_precision", "numpy_dtype_promotion"
    flags = (flag for flag in xla_flags().split() if not flag.startswith(_OWN_FLAGS))
    return {
        **{f"the setting jax_{name}": str(getattr(used, f"jax_{name}")) for name in names},
        "the platform": jax.default_backend(),
        "the environment variable XLA_FLAGS": " ".join(sorted(flags)),
    }


def check_agreement(facts: Mapping[str, str], failure: Exception | None = None) -> None:
    """Check that all processes have the same facts, and wait for all. All processes must call it together.

    Args:
        facts: Texts by name, under the same names in all processes. The first ones explain later differences.
        failure: The error of this process, which it raises instead; None without an error.

    Raises:
        ExecutionError: A process has another text than process 0, or it has a failure. All processes raise it.
    """
    own = [hashlib.sha256(text.encode()).digest()[:_WIDTH] for text in facts.values()]
    rows = _gather(np.frombuffer(b"".join([bytes([failure is not None]), *own]), np.uint8))
    if failure is not None:
        raise failure
    failed = np.flatnonzero(rows[:, 0]).tolist()
    if failed:
        raise ExecutionError(
            f"process {', '.join(map(str, failed))} of the program has failed, and its error states the reason. "
            f"This is process {process_index()}.",
            hint="remove the cause, and start all processes again.",
        )
    all_digests = rows[:, 1:].reshape(len(rows), len(facts), _WIDTH)
    differs = (all_digests != all_digests[0]).any(2)
    for k, (name, text) in enumerate(facts.items()):
        others = np.flatnonzero(differs[:, k]).tolist()
        if others:
            shown = repr(text) if len(text) < 80 and "\n" not in text else "another one"
            raise ExecutionError(
                f"the processes do not run the same program: {name} of process "
                f"{', '.join(map(str, others))} differs from that of process 0. "
                f"This is process {process_index()}, with {shown}.",
                hint="start all processes with the same script, arguments, seed and packages; a choice by "
                "process, by time or by random numbers without a seed must not change the program.",
            )


@contextmanager
def all_together(facts: Mapping[str, str], *, several: bool = True) -> Iterator[None]:
    """Let all processes finish a step before any continues; if one fails, all raise an error.

    Args:
        facts: As for `check_agreement`.
        several: False for a program of one process, which has nothing to wait for.
    """
    if not several:
        yield
        return
    try:
        yield
    except Exception as error:
        check_agreement(facts, error)
    else:
        check_agreement(facts)


def _gather(row: Array) -> Array:
    """Return the rows of all processes. Processes may have different numbers of devices."""
    first = {one.process_index: one for one in reversed(jax.devices())}
    mesh = Mesh(np.array([first[k] for k in sorted(first)]), ("process",))
    rows, whole = (
        NamedSharding(mesh, PartitionSpec("process")),
        NamedSharding(mesh, PartitionSpec()),
    )
    shape = (len(first), *row.shape)
    placed = jax.make_array_from_callback(shape, rows, lambda _: row[None])
    return np.asarray(jax.jit(_same, out_shardings=whole)(placed))


def _same(rows: Any) -> Any:
    """Return the argument: one function for all calls, so that JAX compiles each shape once."""
    return rows
