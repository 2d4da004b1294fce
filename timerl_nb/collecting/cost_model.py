"""How long batches take, by what they call, launch, compute and move: the cost model (001_f998719943c1fa99.txt §4).

    T = (calls + arrays) · c + [launches · l, work],    work = max(arithmetic / F, bytes / BW)

Arrays are those that go in and out by way of Python: each takes about what a call does, which counts in small batches.

A CPU runs kernel by kernel: launches and work add up. A GPU launches ahead while it computes: the longer of
both. The ways differ in their counts alone. What is said of a device that is not there is predicted, and
called so.
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
from timerl_nb.collecting.strategy import Way
from timerl_nb.compiler.ir.analysis.cost_terms import moving
from timerl_nb.compiler.ir.shapes import NUMPY
from timerl_nb.driver.search.machine_constants import machine_here
from timerl_nb.runtime.jax_backend.jax_engine import device_name
from timerl_nb.runtime.xla.hlo.hlo_cost_counts import Work

FITTED: Final = (
    "collecting"  # under which the machine is kept whose constants were fitted to batches
)
_SHEETS: Final = Path(__file__).with_name("devices.toml")
_DRAW: Final = 100  # integer operations of a draw: threefry's twenty rounds
_KERNELS: Final = 20  # that XLA makes of a step of CartPole under random actions
_CALLS: Final = 2  # by which `step` makes it
_BLOCK: Final = 256  # environments in a block
_MADE: Final = 9  # arrays of a batch, with what its statistics are of


@dataclass(frozen=True)
class Device:
    """What runs batches.

    Attributes:
        name: in tables and figures.
        machine: its constants: `launch` is c, a call from Python or an array handed over; `call` is l, a kernel within a program;
            `flops` and `elements` are F, of contractions and of all else; `bandwidth` is BW, for what outgrows
            the cache (`near`, `far`).
        overlaps: whether it launches ahead while it computes.
        sources: where the constants of a device that is not there are from; nothing of one that is.
    """

    name: str
    machine: Machine
    overlaps: bool = False
    sources: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_predicted(self) -> bool:
        """Whether nothing was measured on it."""
        return bool(self.sources)

    def __str__(self) -> str:
        return f"{self.name} (predicted)" if self.is_predicted else self.name


def device_here() -> Device:
    """The device that is there: as fitted to batches, else as `trl.tune_machine` found it, else nominal."""
    return Device(device_name(), machine_here(FITTED))


def device_of(name: str) -> Device:
    """A GPU, by its data sheet, under this machine's Python.

    Raises:
        OptionError: there is no sheet of that name.
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
        near=of["cache"] // 2,  # the other half is for what streams through
        far=of["cache"] * 2,
    )
    return Device(name, machine, overlaps=True, sources=of["sources"])


@dataclass(frozen=True)
class Load:
    """What a batch is made by.

    Attributes:
        calls: from Python.
        launches: kernels.
        products, elements: multiplications and additions of contractions, and elements of other arithmetic.
        moved: bytes that are read and written, and for each how many bytes live beside them: what fits the cache
            stays there.
        arrays: given to the calls, and made by them.
    """

    calls: int
    launches: int
    products: float
    elements: float
    moved: Sequence[tuple[float, float]]
    arrays: int = 0

    def bytes_to_memory(self, machine: Machine) -> float:
        """The bytes that cross to memory."""
        each = replace(machine, bandwidth=1.0)
        return sum(moving(int(nbytes), int(held), each) for nbytes, held in self.moved)

    def seconds(self, device: Device) -> float:
        """How long the batch takes."""
        of = device.machine
        computing = self.products / of.flops + self.elements / of.elements
        work = max(computing, self.bytes_to_memory(of) / of.bandwidth)
        launching = self.launches * of.call
        calling = (self.calls + self.arrays) * of.launch
        return calling + (max(launching, work) if device.overlaps else launching + work)


@dataclass(frozen=True)
class StepCosts:
    """A step of one environment, and of its policy.

    Attributes:
        kernels: n_f, for however many environments there are.
        products, elements: as of `Load`.
        state, row: bytes that a step takes over from the one before, and that it leaves in the batch.
        arrays: that are given for a batch, and make it up.
    """

    kernels: float
    products: float
    elements: float
    state: float
    row: float
    arrays: int = 0

    @staticmethod
    def from_task(task: Task, work: Work | None = None) -> StepCosts:
        """That of a task: as counted in what a batch of it does; or about, from its sizes, ahead of compiling it."""
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
        """What a batch is made by, by the name of the way."""
        many, launches = envs * steps, round(steps * self.kernels)
        state, rows = 2 * envs * self.state, many * self.row  # there and back
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


def likely(task: Task, ways: Sequence[Way]) -> Sequence[Way]:
    """Ways in the order in which they are worth trying here; those that the model knows nothing of, last."""
    if not task.is_ours:
        return ways
    loads, here = StepCosts.from_task(task).loads(task.envs, task.steps), device_here()
    seconds = {name: load.seconds(here) for name, load in loads.items()}
    return sorted(ways, key=lambda way: seconds.get(way.name, inf))
