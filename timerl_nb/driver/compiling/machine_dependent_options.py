"""Resolution of options on this machine: memory limit, cost model, memory planner."""

from __future__ import annotations

from timerl_nb.base.machine_model import Machine
from timerl_nb.base.options import Options
from timerl_nb.compiler.memory.budget.budget_check import Planner
from timerl_nb.driver.search.machine_constants import machine_here, use_machine_of_process_0
from timerl_nb.runtime.engine import Engine, load_engine
from timerl_nb.runtime.jax_backend.arrays_and_devices import device_count, is_accelerated
from timerl_nb.runtime.jax_backend.process_connection import combine
from timerl_nb.runtime.jax_backend.process_group import process_count
from timerl_nb.runtime.xla.lowering.device_sharding import devices


def engine_of(options: Options) -> Engine:
    """Return the engine that the options name."""
    return load_engine(options.backend, options.device, compiled=options.torch_compile)


def machine_of(options: Options) -> Machine:
    """Return the cost model of the engine's kernels on this machine."""
    return engine_of(options).costs(machine_here())


def cached_machine(options: Options) -> Machine | None:
    """Return the machine model if tiling can use a CPU cache, else None."""
    return machine_here() if options.executor == "xla" and not is_accelerated() else None


def is_remade(options: Options) -> bool:
    """Whether values may be recomputed."""
    if options.rematerialize != "auto":
        return options.rematerialize is True
    known = device_limit(options) is not None or cached_machine(options) is not None
    return known and options.incrementalize is not False


def holds_for_all_bounds(options: Options) -> bool:
    """Whether the passes make the same choices for all bounds."""
    by_size = options.incrementalize == "auto" and cached_machine(options) is not None
    return device_limit(options) is None and not by_size and not is_remade(options)


def without_memory_budget(options: Options) -> Options:
    """Return the options without a memory budget, and without decisions that depend on one."""
    return options.with_(
        incrementalize=options.blocks or False, rematerialize=False, device_memory=None
    )


def device_limit(options: Options) -> int | None:
    """Return the limit of live bytes on the device."""
    return options.budget or engine_of(options).memory()


def planner(options: Options, *, swap: bool = True, beyond: int = 0) -> Planner:
    """Return the memory planner for the options.

    Args:
        options: the options.
        swap: whether values may be moved to the host.
        beyond: bytes to reserve, since XLA's figure exceeds the estimate.
    """
    limit = device_limit(options)
    return Planner(
        smallest=options.stores == "auto",
        donation=options.donate,
        budget=None if limit is None else max(1, limit - beyond),
        swap=swap and options.swap == "auto",
        lowered=options.executor == "xla",
        devices=options.device_count,
    )


def for_all_devices(options: Options) -> Options:
    """Return the options with the number of devices of all processes.

    All processes then use the machine model of process 0, and the smallest memory of a device.
    """
    options = options.with_(devices=device_count())
    if process_count() == 1 or options.backend != "jax":
        return options
    use_machine_of_process_0()
    _, least = combine("memory", str(device_limit(options.with_(device_memory=None)) or ""))
    return options.with_(device_memory=options.budget or (int(least) if least else None))


def check_devices(options: Options) -> None:
    """Refuse more devices than available, and engines that cannot be imported.

    Raises:
        OptionError: there are fewer devices than requested, or the engine is missing or unusable.
    """
    engine_of(options)
    devices(options.device_count)
