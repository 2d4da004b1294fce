"""Devices that are not there, by their data sheets: GPUs by their roofline, FPGAs by the paper's equations."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from timerl_nb.base.errors import OptionError
from timerl_nb.collecting import cost_model
from timerl_nb.compose.fpga_model import Fpga
from timerl_nb.compose.primitive_latency_table import Device, Latency, Manager
from timerl_nb.compose.units import Link
from timerl_nb.replay.prioritization.tree_levels import Levels
from timerl_nb.runtime.xla.hlo.hlo_cost_counts import Work

_SHEETS = Path(__file__).with_name("devices.toml")
_SUM = 8  # bytes of a sum of the tree


@dataclass(frozen=True)
class IterationWork:
    """What an iteration does, whatever does it.

    Attributes:
        capacity, fanout: of the tree.
        layers: inputs and outputs of each layer of what is learnt.
        batch, inserted: rows.
        learning: what XLA launches, computes and moves in a step of learning.
        held: bytes that live meanwhile.
    """

    capacity: int
    fanout: int
    layers: Sequence[tuple[int, int]]
    batch: int
    inserted: int
    learning: Work
    held: int


def device_from_sheet(name: str, asked: IterationWork) -> tuple[Device, Link]:
    """What the primitives take on a device of that name, all modelled; and its link to the host.

    Raises:
        OptionError: there is no such sheet.
    """
    sheets: Mapping[str, Any] = tomllib.loads(_SHEETS.read_text())
    sheet = sheets.get(name, sheets["GPU"])
    link = Link(*sheet["link"])
    if "dsps" in sheet:
        fpga = Fpga(
            sheet["frequency"], sheet["sram"], sheet["dsps"], "; ".join(sheet["sources"].values())
        )
        given = (asked.capacity, asked.fanout, asked.layers, asked.batch, asked.inserted)
        return fpga.device(*given), link
    try:
        gpu = cost_model.device_of(name)
    except OptionError as error:
        known = [n for n, one in sheets.items() if "dsps" in one]
        raise OptionError(
            f"there is no device {name!r} here, nor a data sheet of one.",
            hint=f"{', '.join(known)}, or of GPUs: {error.hint}",
        ) from None
    return gpu_device(gpu, asked), link


def streams_of(batch: int, seconds: Callable[[int], float]) -> tuple[int, float]:
    """By how many streams, each with a part of the batch, a step of learning is shortest, and how long it is (§5.1).

    All of 1 to `batch` are looked at; of equal ones the fewest.

    Args:
        seconds: of a step by so many, as it was measured or modelled.
    """
    found = {count: seconds(count) for count in range(1, batch + 1)}
    best = min(found, key=lambda count: (found[count], count))
    return best, found[best]


def gpu_device(gpu: cost_model.Device, asked: IterationWork) -> Device:
    """A GPU by its roofline: calls, launches, and the longer of arithmetic and memory; by the best number of streams.

    One call each; a kernel for each level of the tree, which looks at a group for each row.
    """
    levels = Levels(asked.capacity, asked.fanout)
    depth, size = len(levels.widths) - 1, _SUM * sum(levels.widths)

    def pass_latency(rows: int, each: int) -> Latency:
        read = depth * rows * asked.fanout * _SUM
        elements = float(depth * rows * each)
        load = cost_model.Load(1, depth, 0.0, elements, [(float(read), float(size))])
        return Latency(load.seconds(gpu), is_modelled=True)

    of = asked.learning

    def learning(streams: int) -> float:
        """Parts of the batch beside each other: all launches for each, and what is held is read once more."""
        moved = float(of.nbytes + (streams - 1) * asked.held)
        work = float(of.products), float(of.elements), [(moved, asked.held)]
        return cost_model.Load(1, streams * of.launches, *work).seconds(gpu)

    _, seconds = streams_of(asked.batch, learning)
    learner = Latency(seconds, is_modelled=True)
    manager = Manager(
        pass_latency(asked.batch, asked.fanout),
        pass_latency(asked.inserted, asked.fanout),
        pass_latency(asked.batch, asked.fanout),
    )
    return Device(manager, learner, (manager, learner))
