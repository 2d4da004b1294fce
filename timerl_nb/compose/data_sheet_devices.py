"""Devices modelled from data sheets: GPUs by the roofline model, FPGAs by the paper's equations."""

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
_SUM = 8  # bytes of a sum in the tree


@dataclass(frozen=True)
class IterationWork:
    """Work of an iteration, independent of the device.

    Attributes:
        capacity, fanout: size of the priority tree.
        layers: inputs and outputs of each layer of the network.
        batch, inserted: rows per iteration.
        learning: launches, computation and memory traffic of a learner's step in XLA.
        live_bytes: live bytes during the step.
    """

    capacity: int
    fanout: int
    layers: Sequence[tuple[int, int]]
    batch: int
    inserted: int
    learning: Work
    live_bytes: int


def device_from_sheet(name: str, asked: IterationWork) -> tuple[Device, Link]:
    """Return modelled latencies of the primitives on a device, and its link to the host.

    Args:
        name: name of the device.
        asked: work of an iteration.

    Raises:
        OptionError: there is no data sheet with that name.
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
            f"the device {name!r} is neither present nor described by a data sheet.",
            hint=f"use {', '.join(known)}, or a GPU: {error.hint}",
        ) from None
    return gpu_device(gpu, asked), link


def streams_of(batch: int, seconds: Callable[[int], float]) -> tuple[int, float]:
    """Return the best number of streams for a learner's step, and its seconds (section 5.1).

    Each stream has a part of the batch. All numbers from 1 to `batch` are compared; ties go to the
    smallest.

    Args:
        batch: rows.
        seconds: returns the measured or modelled time for a number of streams.
    """
    found = {count: seconds(count) for count in range(1, batch + 1)}
    best = min(found, key=lambda count: (found[count], count))
    return best, found[best]


def gpu_device(gpu: cost_model.Device, asked: IterationWork) -> Device:
    """Return a GPU modelled by its roofline.

    The time is the sum of calls, launches, and the maximum of arithmetic and memory time.

    A pass through the tree is one call with a kernel per level; a kernel reads a group of sums per
    row. The learner uses the best number of streams.
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
        """Return seconds with parallel parts of the batch.

        Launches are multiplied by the number of parts, and each part reads the live bytes again.
        """
        moved = float(of.nbytes + (streams - 1) * asked.live_bytes)
        work = float(of.products), float(of.elements), [(moved, asked.live_bytes)]
        return cost_model.Load(1, streams * of.launches, *work).seconds(gpu)

    _, seconds = streams_of(asked.batch, learning)
    learner = Latency(seconds, is_modelled=True)
    manager = Manager(
        pass_latency(asked.batch, asked.fanout),
        pass_latency(asked.inserted, asked.fanout),
        pass_latency(asked.batch, asked.fanout),
    )
    return Device(manager, learner, (manager, learner))
