"""Functions called by the interpreter's generated code: host operations, transfers, events."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from time import perf_counter
from typing import Any

import numpy as np

from timerl_nb.base.runtime_events import Event, EventKind, Recorder
from timerl_nb.compiler.ir.dependence_graph import Pdg
from timerl_nb.compiler.ir.host.host_functions import Host
from timerl_nb.compiler.ir.host.iteration_io import is_iteration_output
from timerl_nb.compiler.ir.shapes import NUMPY
from timerl_nb.compiler.memory.memory_plan import MemoryPlan
from timerl_nb.runtime.engine import Engine
from timerl_nb.runtime.interpreter.swap_transfers import Transfers
from timerl_nb.runtime.memory_ledger import Ledger
from timerl_nb.runtime.nan_search import check_host
from timerl_nb.runtime.state.checkpoint_reader import WrittenCheckpoint
from timerl_nb.runtime.state.checkpoint_writer import write_checkpoint


class RuntimeCalls:
    """Object `rt` of the generated code: functions and counters."""

    def __init__(
        self,
        pdg: Pdg,
        plan: MemoryPlan,
        ledger: Ledger,
        transfers: Transfers,
        engine: Engine,
        host: Host,
        seed: int,
        recorder: Recorder | None,
        progress: Callable[[], object] | None,
        *,
        check_nan: bool = False,
        waits: bool = True,
    ) -> None:
        self.ledger, self._check_nan, self._is_waiting = ledger, check_nan, waits
        self.checkpoints: list[WrittenCheckpoint] = []
        self._pdg, self._engine = pdg, engine
        self.seed = engine.seed_words(seed)
        self.host = host
        self.stack = engine.stack
        self.on_host = engine.to_numpy
        self.copied = engine.copy
        self.points: Callable[[list[Any]], tuple[Any, ...]] = tuple
        swaps = bool(plan.swaps.all)
        self.arrive = engine.move_to_device if swaps else engine.to_device
        self.trace = ledger.record_both if swaps else ledger.trace.append
        self.offload, self.fetch = transfers.offload, transfers.come_back
        self.settle = transfers.drop_due
        self.progress: Callable[[], object] = progress or (lambda: None)
        self.longest: Callable[[str], int] = int
        self._recorder = recorder
        self._step = -1
        self._at: tuple[str, tuple[int, ...]] = ("", ())  # name and point of the last launch
        self.began = perf_counter()
        self.points_of_store: dict[str, dict[tuple[int, ...], None]] = {}
        self._rows: dict[
            tuple[str | int, ...], list[tuple[int, ...]]
        ] = {}  # written rows per block

    def save(
        self, op_id: int, folder: str, point: Mapping[str, int], arrays: Mapping[str, Any]
    ) -> None:
        begun = perf_counter()
        named = {n: self._engine.to_numpy(x) for n, x in arrays.items()}
        path = write_checkpoint(folder, point, named, self._pdg[op_id].origin)
        self.checkpoints.append(WrittenCheckpoint(path, dict(point), tuple(named)))
        self._report_event(begun)

    def udf(self, op_id: int, point: Mapping[str, int], args: Sequence[Any]) -> list[Any]:
        op, begun = self._pdg[op_id], perf_counter()
        given = [self._engine.to_user(x) for x in args]
        made = self.host.call(op.attrs, point, given, op.origin)
        if self._check_nan:
            check_host(op, point, made, self._pdg.dims)
        self._report_event(begun)
        return [self.arrive(x) for x in made]

    def effect(self, op_id: int, point: Mapping[str, int], args: Sequence[Any]) -> None:
        op, begun = self._pdg[op_id], perf_counter()
        if is_iteration_output(
            op
        ):  # the user keeps these values, and later kernels may reuse the memory
            args = [np.array(self._engine.to_numpy(x)) for x in args]
        else:
            args = [self._engine.to_user(x) for x in args]
        self.host.effect(op.attrs, point, args, op.origin)
        self._report_event(begun)

    def gather(
        self, points: Sequence[Any], lengths: tuple[int, ...], shape: tuple[int, ...], dtype: str
    ) -> np.ndarray[Any, Any]:
        none = np.zeros(shape, NUMPY[dtype])
        values = [none if x is None else self._engine.to_numpy(x) for x in points]
        return np.array(values, NUMPY[dtype]).reshape((*lengths, *shape))

    def cut(self, value: Any, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
        """Cut a padded value to its true lengths, on the host."""
        return self._engine.to_numpy(value)[tuple(map(slice, shape))]

    # --- events --------------------------------------------------------------------------------

    def _emit(self, kind: Any, name: str, point: tuple[int, ...], nbytes: int = 0) -> None:
        if self._recorder is not None:
            time = perf_counter() - self.began
            self._recorder(Event(self._step, kind, name, point, nbytes, time))

    def end(self) -> None:
        """Report the end of the run to an asynchronous recorder."""
        if not self._is_waiting:
            self._emit("end", "", ())

    def time_kernel(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap a kernel to report its execution time, or its launch time if nothing waits for it."""
        wait: Callable[[Any], Any] = self._engine.wait if self._is_waiting else lambda made: made

        def kernel(*args: Any) -> Any:
            begun = perf_counter()
            made = wait(function(*args))
            self._report_event(begun, "done" if self._is_waiting else "launch")
            return made

        return kernel

    def _report_event(self, begun: float, kind: EventKind = "done") -> None:
        if self._recorder is not None:
            now = perf_counter()
            time, seconds = now - self.began, now - begun
            self._recorder(Event(self._step, kind, *self._at, 0, time, seconds))

    def launch(self, name: str, point: tuple[int, ...]) -> None:
        self._step += 1
        self._at = name, point
        self._emit("execute", name, point)

    def read(self, value: Any, name: str, point: tuple[int, ...]) -> Any:
        self._emit("read", name, point)
        return value

    def wrote(self, store: str, name: str, point: tuple[int, ...], nbytes: int) -> None:
        self.points_of_store.setdefault(store, {})[point] = None
        self._emit("write", name, point, nbytes)

    def reads(self, value: Any, name: str, points: Sequence[tuple[int, ...]]) -> Any:
        for point in points:
            self._emit("read", name, point)
        return value

    def wrote_row(
        self, store: str, name: str, point: tuple[int, ...], along: int, nbytes: int
    ) -> None:
        rows = self._rows.setdefault((store, *point[:along], *point[along + 1 :]), [])
        self.wrote(store, name, point, 0 if rows else nbytes)
        rows.append(point)

    def freed_block(self, store: str, name: str, rest: tuple[int, ...], nbytes: int) -> None:
        rows = self._rows.pop((store, *rest))
        for k, point in enumerate(rows):
            self.freed(store, name, point, nbytes if k == len(rows) - 1 else 0)

    def freed(self, store: str, name: str, point: tuple[int, ...], nbytes: int) -> None:
        if self.points_of_store.get(store, {}).pop(point, 0) is None:
            self._emit("free", name, point, -nbytes)

    def moved(self, verb: str, name: str, point: tuple[int, ...], nbytes: int) -> None:
        self._emit(verb, name, point, nbytes)

    def moved_block(
        self, verb: str, store: str, name: str, rest: tuple[int, ...], nbytes: int
    ) -> None:
        rows = self._rows[(store, *rest)]
        for k, point in enumerate(rows):
            self._emit(verb, name, point, nbytes if k == len(rows) - 1 else 0)
