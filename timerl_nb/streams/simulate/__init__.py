"""A stream on a simulated GPU, by six ways of running it; the GPU and its host are a `Gpu`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from timerl_nb.errors import OptionError, one_of
from timerl_nb.frontend.arguments import integer
from timerl_nb.streams.simulate.course import Course, Simulated
from timerl_nb.streams.simulate.gpu import (
    ACCEL_SIM,
    GPUS,
    RTX3060,
    RTX3070,
    RTX4090,
    Gpu,
    by_name,
    sources,
)
from timerl_nb.streams.simulate.hardware import Hardware
from timerl_nb.streams.simulate.in_order import InOrder
from timerl_nb.streams.simulate.software import Events, Software
from timerl_nb.streams.simulate.whole_graph import Graph, Persistent
from timerl_nb.streams.stream import Stream, simulates

__all__ = [
    "ACCEL_SIM",
    "GPUS",
    "RTX3060",
    "RTX3070",
    "RTX4090",
    "WAYS",
    "Gpu",
    "Simulated",
    "simulate",
    "sources",
]

_WAYS: Final[dict[str, Callable[..., Course]]] = {
    "serial": InOrder,
    "acs-sw": Software,
    "events": Events,
    "acs-hw": Hardware,
    "graph": Graph,
    "persistent": Persistent,
}
WAYS: Final = tuple(_WAYS)


def simulate(
    stream: Stream,
    how: str,
    *,
    gpu: Gpu | str = RTX3070,
    window: int = 32,
    streams: int = 8,
    scheduled: int = 48,
) -> Simulated:
    """What a stream would take on a GPU.

    Args:
        how: "serial": one queue; "acs-sw": a window on the host, with a thread for each queue; "events": a
            window on the host that waits for no kernel; "acs-hw": a window on the device; "graph": all of it
            constructed ahead; "persistent": one kernel whose threads take the blocks of all.
        gpu: of `GPUS`, by name, or a `Gpu`.
        window: kernels that are looked at at once.
        streams: queues, of "acs-sw" and "events".
        scheduled: kernels in the host's list, M, of "acs-hw". The paper does not say how many; 4 KB (section IV-D)
            hold 34 kernels of 10 segments, or 57 of 6.

    Raises:
        OptionError: there is no such way or GPU, a kernel's block does not fit a processor, or 8 bits do not tell
            so many kernels apart.
    """
    if how not in _WAYS:
        raise OptionError(f"a stream is not simulated by {how!r}", hint=one_of(how, WAYS))
    way = _WAYS[how]
    if how == "acs-hw":
        way = partial(Hardware, scheduled=integer("scheduled", scheduled, least=1))
    elif how in ("graph", "persistent"):
        way = partial(way, upstream=stream.edges)
    window = integer("window", window, least=1)
    streams = integer("streams", streams, least=1)
    return way(stream.kernels, by_name(gpu), window, streams).simulated(how)


for _how in WAYS:
    simulates(_how)(simulate)
