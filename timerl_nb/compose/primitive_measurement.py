"""Measurement of an algorithm's primitives on this machine, and models for other devices.

Source: PEARL, section 5.1.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import partial
from statistics import median, quantiles
from time import perf_counter
from typing import Any

import numpy as np

from timerl_nb.base.array_conversion import Array
from timerl_nb.base.errors import EnvError, OptionError
from timerl_nb.base.interleaved_timing import time_shortest_call
from timerl_nb.compiler.language.argument_checks import integer
from timerl_nb.compiler.language.foreign_names import explain_call_errors
from timerl_nb.compose.data_sheet_devices import IterationWork, device_from_sheet
from timerl_nb.compose.primitive_latency_table import Device, Latency, Links, Manager, Table
from timerl_nb.compose.units import Link
from timerl_nb.replay.prioritization.priorities import Proportional
from timerl_nb.replay.storage.replay_buffer import Replay
from timerl_nb.replay.storage.ring_rows import Field
from timerl_nb.replay.training.actor_threads import Actors
from timerl_nb.replay.training.algorithm import Algorithm, check_algorithm
from timerl_nb.replay.training.environment_group import ActedSteps, Death, Group
from timerl_nb.replay.training.environment_openers import opener
from timerl_nb.replay.training.learner_thread import Learner
from timerl_nb.replay.training.thread_allocation import Allocation, threads_called
from timerl_nb.runtime.jax_backend import arrays_and_devices as backend
from timerl_nb.runtime.jax_backend import graph_function as graph
from timerl_nb.runtime.jax_backend.arrays_and_devices import capture_jax_settings
from timerl_nb.runtime.xla.hlo.hlo_cost_counts import work

HOST = "CPU"
_WARM = 3  # discarded rounds, because they compile
_SIZES = (1 << 10, 1 << 22)  # transfer sizes in bytes for the measurement of a link


@explain_call_errors
def measure(
    algorithm: Algorithm,
    devices: Sequence[str] = (HOST,),
    *,
    batch: int = 64,
    inserted: int = 64,
    actors: int = 1,
    envs: int = 8,
    capacity: int = 100_000,
    rounds: int = 30,
    seed: int = 0,
) -> tuple[Table, Links]:
    """Measure the latencies of an iteration on each device, and the links between devices.

    Args:
        algorithm: an algorithm of `trl.replay`, as for `trl.replay.train`.
        devices: names of devices. "CPU" is the host, "CPU x2" the host with two learner threads,
            and "CPU:1" JAX's second CPU device. Other names, such as "A100" or "Agilex", are
            modelled from data sheets.
        batch: rows per step of the learner.
        inserted: new rows per iteration.
        actors: actor threads during the measurement, as in a run; they share the cores. 0 for none.
        envs: environments per actor; they collect `inserted` steps per block.
        capacity: capacity of the buffer, filled before the measurement.
        rounds: measured rounds; the median counts.
        seed: seed of the rows.

    Returns:
        The table and the links for `trl.compose.choose`.

    Raises:
        OptionError: a device is neither present nor described by a data sheet, or "CPU" is missing.

    Example:
        >>> algorithm = trl.replay.Dqn("CartPole-v1", hidden=(8,))
        >>> small = dict(batch=4, inserted=4, actors=0, capacity=100, rounds=2)
        >>> table, links = trl.compose.measure(algorithm, ["CPU", "A100"], **small)
        >>> [table.devices[name].learner.is_modelled for name in ("CPU", "A100")]
        [False, True]
    """
    algorithm = check_algorithm(algorithm)
    devices = (devices,) if isinstance(devices, str) else devices
    if HOST not in devices:
        raise OptionError(
            f"{HOST!r} is missing in devices={list(devices)}.",
            hint=f"add {HOST!r}: actors run on it.",
        )
    size, new = integer("batch", batch, least=1), integer("inserted", inserted, least=1)
    buffer = Replay(
        capacity, algorithm.fields, priority=Proportional(), gamma=algorithm.gamma, seed=seed
    )
    random = np.random.default_rng(seed)
    for first in range(0, capacity, 10_000):
        buffer.insert(_rows(buffer.fields, min(10_000, capacity - first), random))
    rows = _rows(buffer.fields, new, random)
    act = integer("actors", actors, least=0)
    each = min(integer("envs", envs, least=1), new)
    here = _Measurement(algorithm, buffer, rows, size, integer("rounds", rounds, least=2), seed)
    threads = {name: 1 if name == HOST else threads_called(name) for name in devices}
    places = {name: graph.device_called(name) for name in devices if not threads[name]}
    modelled: dict[str, tuple[Device, Link]] = {}
    if None in places.values():
        wanted = _workload_of(algorithm, buffer, size, new, seed)
        modelled = {
            name: device_from_sheet(name, wanted) for name, at in places.items() if at is None
        }
    found: dict[str, Device] = {}
    known: dict[tuple[str, str], Link] = {}
    with here.acting(act, each, new // each):
        for name in devices:
            if name in modelled:
                found[name], known[HOST, name] = modelled[name]
                continue
            place = places.get(name)
            found[name] = here.measure_device(threads[name] or 1, place)
            if name != HOST:
                known[HOST, name] = Link(0.0, float("inf")) if threads[name] else _link(place)
    experience = sum(f.nbytes for f in buffer.fields.values()) // 4
    return Table(found, size, experience, new, HOST), Links(known, HOST)


class _Measurement:
    """Measurement of the devices of this machine, in rounds of the paper's protocol."""

    def __init__(
        self,
        algorithm: Algorithm,
        buffer: Replay,
        rows: Mapping[str, Array],
        batch: int,
        rounds: int,
        seed: int,
    ) -> None:
        self._algorithm, self._buffer, self._rows = algorithm, buffer, rows
        self._batch, self._rounds, self._seed = batch, rounds, seed
        self._actors: Actors | None = None

    @contextmanager
    def acting(self, threads: int, envs: int, steps: int) -> Iterator[None]:
        """Run actor threads inside of this context; they produce one block per round."""
        if not threads:
            yield
            return
        opened = opener(self._algorithm, envs, steps)
        groups = [Group(k, opened, self._buffer.actor, self._seed) for k in range(threads)]
        weights = 0, self._algorithm.acting(self._algorithm.begin(self._seed))
        with closing(
            Actors(groups, lambda: weights, threads, True, capture_jax_settings())
        ) as self._actors:
            self._actors.resize(threads)
            self._entries_of_block(self._actors.take())  # all later blocks run without compilation
            yield
        self._actors = None

    def _entries_of_block(self, made: ActedSteps | Death) -> Mapping[str, Array]:
        """Return the entries of a block.

        Raises:
            EnvError: the environments failed.
        """
        if isinstance(made, Death):
            raise EnvError(f"an actor failed: {made.error}") from made.error
        return made.entries

    def measure_device(self, threads: int, place: Any) -> Device:
        """Measure a device of this machine: learner threads on the host, or a device of JAX.

        The buffer is always on the host.
        """
        division = Allocation.of_threads(threads, 1, self._batch)
        alone, beside = self._measure_latencies(division, place)
        learner = alone["learn"]
        if place is not None:
            return Device(None, learner, None, "the buffer is on the host")
        manager = Manager(alone["sample"], alone["insert"], alone["update"])
        both = Manager(beside["sample"], beside["insert"], beside["update"])
        return Device(manager, learner, (both, beside["learn"]))

    def _measure_latencies(
        self, division: Allocation, place: Any
    ) -> tuple[Mapping[str, Latency], Mapping[str, Latency]]:
        """Return latencies of sequential primitives, and of insertion in parallel with learning."""
        alone, beside = (dict[str, list[float]]() for _ in "ab")
        state = graph.move_to_device(self._algorithm.begin(self._seed), place)
        with closing(
            Learner(self._algorithm, place, division.trainers, capture_jax_settings())
        ) as learner:
            # two separate loops: with alternation, actors would produce a block in every other
            # round only
            for found in (alone, beside):
                for _ in range(_WARM + self._rounds):
                    state = self._time_iteration(learner, state, division, found, found is beside)
        return _latencies(alone), _latencies(beside)

    def _time_iteration(
        self,
        learner: Learner,
        state: Any,
        division: Allocation,
        found: dict[str, list[float]],
        is_beside: bool,
    ) -> Any:
        """Run an iteration, append its times to `found`, and return the state after it."""
        buffer, times = self._buffer, [perf_counter()]
        sample = buffer.sample(self._batch)
        times.append(perf_counter())
        step = learner.start(state, division)
        step.add_rows(sample.rows, sample.weight)
        made = step.result() if not is_beside else None
        learnt, begun = perf_counter(), perf_counter()
        if self._actors is None:
            buffer.insert(self._rows)
        else:
            for one in self._actors.available(1):
                buffer.insert_entries(self._entries_of_block(one))
        inserted = perf_counter()
        if made is None:
            made, learnt = step.result(), perf_counter()
        updating = perf_counter()
        buffer.update(sample.ticket, made.errors)
        took = {
            "sample": times[1] - times[0],
            "learn": learnt - times[1],
            "insert": inserted - begun,
            "update": perf_counter() - updating,
        }
        for name, seconds in took.items():
            found.setdefault(name, []).append(seconds)
        return made.state


def _latencies(found: Mapping[str, list[float]]) -> dict[str, Latency]:
    """Return medians and spreads, without the discarded rounds."""
    return {name: _latency(seconds[_WARM:]) for name, seconds in found.items()}


def _latency(seconds: Sequence[float]) -> Latency:
    low, _, high = quantiles(seconds, n=4)
    return Latency(median(seconds), high - low)


def _rows(fields: Mapping[str, Field], count: int, random: np.random.Generator) -> dict[str, Array]:
    """Return random rows of small numbers."""
    return {
        name: random.integers(0, 2, (count, *f.shape)).astype(f.dtype) for name, f in fields.items()
    }


def _workload_of(
    algorithm: Algorithm, buffer: Replay, batch: int, inserted: int, seed: int
) -> IterationWork:
    """Return the work of an iteration, from the learner's HLO and the shapes of the weights."""
    state = algorithm.begin(seed)
    rows = _rows(buffer.fields, batch, np.random.default_rng(seed))
    weight = np.ones(batch, np.float32)

    def step(state: Any, rows: Any, weight: Any) -> Any:
        gradient, errors, loss = algorithm.gradient(state, rows, weight)
        return algorithm.step(state, gradient, batch), errors, loss

    learning = work(graph.hlo_of(step, state, rows, weight))
    leaves = graph.leaves(algorithm.acting(state)).values()
    layers = [(x.shape[0], x.shape[1]) for x in leaves if len(np.shape(x)) == 2]
    live_bytes = sum(x.nbytes for x in graph.leaves(state).values()) + sum(
        x.nbytes for x in rows.values()
    )
    fanout = buffer.tree.fanout
    return IterationWork(buffer.capacity, fanout, layers, batch, inserted, learning, live_bytes)


def _copy(array: Array, place: Any) -> None:
    backend.wait(graph.move_to_device(array, place))


def _link(place: Any) -> Link:
    """Measure the copies to a device of JAX: two sizes, the minimum of several repetitions."""
    took: list[float] = []
    for size in _SIZES:
        array = np.zeros(size, np.uint8)
        took.append(time_shortest_call(partial(_copy, array, place), 10))
    bandwidth = (_SIZES[1] - _SIZES[0]) / max(took[1] - took[0], 1e-9)
    return Link(max(took[0] - _SIZES[0] / bandwidth, 0.0), bandwidth)
