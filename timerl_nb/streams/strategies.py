"""Strategies for running and simulating a stream, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from timerl_nb.streams.baselines import run_graph, run_serial
from timerl_nb.streams.cuda_execution import run_cuda_graph, run_events, run_stream_sync
from timerl_nb.streams.simulator.acs_hardware import Hardware
from timerl_nb.streams.simulator.acs_software import Events, Software
from timerl_nb.streams.simulator.in_order_queue import InOrder
from timerl_nb.streams.simulator.task_graph import Graph, Persistent
from timerl_nb.streams.thread_execution import run_window

STRATEGIES: Final[Mapping[str, Mapping[str, Callable[..., Any]]]] = {
    "run": {
        "serial": run_serial,
        "window": run_window,
        "graph": run_graph,
        "stream-sync": run_stream_sync,
        "events": run_events,
        "cuda-graph": run_cuda_graph,
    },
    "simulate": {
        "serial": InOrder,
        "acs-sw": Software,
        "events": Events,
        "acs-hw": Hardware,
        "graph": Graph,
        "persistent": Persistent,
    },
}
SIMULATED: Final = tuple(STRATEGIES["simulate"])
