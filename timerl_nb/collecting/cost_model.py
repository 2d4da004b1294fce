"""Cost model of batches: predicted time from calls, launches, computation and memory traffic.

With c and l for the costs of a call and a launch, F for operations per second and BW for
bandwidth::

    T = (calls + arrays) · c + [launches · l, work],    work = max(arithmetic / F, bytes / BW)

An input or output array costs as much as a call in small batches. On a CPU, launches and work add
up; a GPU overlaps them, so their maximum counts. Strategies differ only in these counts. Times for
absent devices are marked as predicted. Source: Optimizing Data Collection, section 4.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil, inf, prod
from pathlib import Path
from typing import Any, Final

from timerl_nb.base.errors import OptionError, one_of
from timerl_nb.base.machine_model import Machine
from timerl_nb.collecting.collection_task import Task
from timerl_nb.collecting.strategy import Strategy
from timerl_nb.compiler.ir.analysis.cost_terms import moving
from timerl_nb.compiler.ir.shapes import NUMPY
from timerl_nb.driver.search.machine_constants import machine_here
from timerl_nb.runtime.jax_backend.arrays_and_devices import device_name
from timerl_nb.runtime.xla.hlo.hlo_cost_counts import Work

FITTED: Final = "collecting"  # key of the stored machine constants fitted to batches
_SHEETS: Final = Path(__file__).with_name("devices.toml")
_DRAW: Final = 100  # integer operations per random draw: twenty rounds of threefry
_KERNELS: Final = 20  # kernels of an XLA step of CartPole with random actions
_CALLS: Final = 2  # XLA calls per step of strategy "step"
_BLOCK: Final = 256  # environments per block
_MADE: Final = 13  # arrays of a batch, including the inputs of its statistics and private copies


@dataclass(frozen=True)
class Device:
    """A device with its machine constants.

    Attributes:
        name: label in tables and figures.
        machine: constants. `launch` is c, a call from Python; `call` is l, a kernel within a
            program; `flops` and `elements` are F for contractions and other operations; `bandwidth`
            is BW for data beyond the cache (`near`, `far`).
        overlaps: whether launches and computation overlap.
        sources: sources of the constants of an absent device; empty for a present one.
    """

    name: str
    machine: Machine
    overlaps: bool = False
    sources: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_predicted(self) -> bool:
        """Whether the constants come from a data sheet, not from a measurement."""
        return bool(self.sources)

    def __str__(self) -> str:
        return f"{self.name} (predicted)" if self.is_predicted else self.name


def device_here() -> Device:
    """Return the device of this machine.

    Its constants are fitted to batches, else measured by `trl.tune_machine`, else nominal.
    """
    return Device(device_name(), machine_here(FITTED))


def device_of(name: str) -> Device:
    """Return a GPU from its data sheet, with this machine's costs of Python.

    Raises:
        OptionError: there is no such data sheet.
    """
    sheets: Mapping[str, Any] = tomllib.loads(_SHEETS.read_text())
    if name not in sheets:
        raise OptionError(f"there is no data sheet of {name!r}.", hint=one_of(name, [*sheets]))
    of = sheets[name]
    machine = replace(
        device_here().machine,
        call=of["launch"],
        flops=of["flops"],
        elements=of["flops"] / 2,
        bandwidth=of["bandwidth"],
        near=of["cache"] // 2,  # the other half is for streamed data
        far=of["cache"] * 2,
    )
    return Device(name, machine, overlaps=True, sources=of["sources"])


@dataclass(frozen=True)
class Load:
    """Work of a batch.

    Attributes:
        calls: calls from Python.
        launches: kernel launches.
        products, elements: multiply-adds of contractions, and elements of other arithmetic.
        moved: pairs of read and written bytes, and live bytes; small live data stays in the cache.
        arrays: arguments and results of the calls.
    """

    calls: int
    launches: int
    products: float
    elements: float
    moved: Sequence[tuple[float, float]]
    arrays: int = 0

    def bytes_to_memory(self, machine: Machine) -> float:
        """Return the bytes of main memory traffic."""
        each = replace(machine, bandwidth=1.0)
        return sum(moving(int(nbytes), int(held), each) for nbytes, held in self.moved)

    def seconds(self, device: Device) -> float:
        """Return the predicted time of the batch."""
        of = device.machine
        computing = self.products / of.flops + self.elements / of.elements
        work = max(computing, self.bytes_to_memory(of) / of.bandwidth)
        launching = self.launches * of.call
        calling = (self.calls + self.arrays) * of.launch
        return calling + (max(launching, work) if device.overlaps else launching + work)


@dataclass(frozen=True)
class StepCosts:
    """Costs of a step of one environment and its policy.

    Attributes:
        kernels: kernels per step, independent of the number of environments.
        products, elements: see `Load`.
        state, row: bytes passed to the next step, and bytes stored in the batch.
        arrays: arguments and results per batch.
    """

    kernels: float
    products: float
    elements: float
    state: float
    row: float
    arrays: int = 0

    @staticmethod
    def from_task(task: Task, work: Work | None = None) -> StepCosts:
        """Return the costs of a task, counted in `work` of a batch, or estimated from sizes."""
        assert task.env is not None
        obs, action = task.env.obs_space, task.env.act_space
        state = prod(obs.shape) * NUMPY[obs.dtype].itemsize
        row = state + prod(action.shape) * NUMPY[action.dtype].itemsize + 4 + 2  # reward, flags
        arrays = _MADE + len(task.acting.weights)
        if work is not None:
            many = task.envs * task.steps
            kernels = work.launches / task.steps
            return StepCosts(
                kernels, work.products / many, work.elements / many, state, row, arrays
            )
        products = 2.0 * sum(prod(w.shape) for w in task.acting.weights.values())
        elements = 4 * prod(obs.shape) + _DRAW * (1 + prod(action.shape))
        return StepCosts(_KERNELS, products, elements, state, row, arrays)

    def loads(self, envs: int, steps: int) -> Mapping[str, Load]:
        """Return the work of a batch by the name of the strategy."""
        many, launches = envs * steps, round(steps * self.kernels)
        state, rows = 2 * envs * self.state, many * self.row  # read and written
        products, elements = many * self.products, many * self.elements
        each = [(steps * state, state), (rows, rows)]
        once = [(state, state), (rows, rows)]
        scan = Load(1, launches, products, elements, each, self.arrays)
        return {
            "step": replace(scan, calls=_CALLS * steps),
            "scan": scan,
            "blocks": replace(scan, launches=launches * ceil(envs / _BLOCK), moved=once),
            "kernel": replace(scan, launches=1, moved=once),
        }


def likely(task: Task, strategies: Sequence[Strategy]) -> Sequence[Strategy]:
    """Return strategies in order of predicted speed on this machine; unknown ones come last."""
    if not task.is_ours:
        return strategies
    loads, here = StepCosts.from_task(task).loads(task.envs, task.steps), device_here()
    seconds = {name: load.seconds(here) for name, load in loads.items()}
    return sorted(strategies, key=lambda strategy: seconds.get(strategy.name, inf))
