"""Interpreter: runs an executable to its end, or one instruction at a time."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from timerl_nb.base.array_conversion import Array
from timerl_nb.base.errors import ExecutionError
from timerl_nb.base.runtime_events import Recorder
from timerl_nb.compiler.ir.analysis.partial_outputs import Coordinates
from timerl_nb.compiler.ir.host.host_functions import Host, resources_of
from timerl_nb.compiler.ir.operation_attributes import OutputAttrs
from timerl_nb.compiler.ir.operations import Op, Tensor
from timerl_nb.compiler.ir.shapes import NUMPY
from timerl_nb.compiler.loops.iteration_cuts import Cut
from timerl_nb.compiler.symbolic.expression_evaluation import variable
from timerl_nb.runtime.call_timing import Stopwatch
from timerl_nb.runtime.executable import Executable
from timerl_nb.runtime.fused_kernel import Kernel, start
from timerl_nb.runtime.interpreter.runtime_calls import RuntimeCalls
from timerl_nb.runtime.interpreter.store_names import store_name
from timerl_nb.runtime.interpreter.swap_transfers import Copy, SwapStore, Transfers
from timerl_nb.runtime.memory_ledger import Ledger
from timerl_nb.runtime.nan_search import add_nan_check
from timerl_nb.runtime.output_assembly import Returned, no_lengths
from timerl_nb.runtime.run_protocol import changed_already, find_cut, run_ended_error
from timerl_nb.runtime.state.checkpoint_reader import WrittenCheckpoint
from timerl_nb.runtime.state.iteration_counter import TurnCounter
from timerl_nb.runtime.state.resumable_state import RunState, StoredValues
from timerl_nb.runtime.state.run_progress import SoFar


@dataclass(frozen=True)
class Instruction:
    """Instruction that has run."""

    kind: str
    name: str
    point: tuple[int, ...]

    def __str__(self) -> str:
        verb = "run" if self.kind == "execute" else self.kind
        return f"{verb} {self.name}({', '.join(map(str, self.point))})"


class Run:
    """Run of the interpreter: stores, memory ledger, and the position in the program.

    Args:
        executable: The program.
        seed: Seed of all random streams, 64 bits.
        recorder: Called with every event. Recording slows the run down.
        progress: Called after every iteration of the outermost loop.
        follow: Whether to track the points in the stores. This slows the run down.
        waits: Whether the recorder waits for each kernel.
        host: Resources and inputs; None for a program without inputs.
    """

    compiling: float | None = None  # kernels are compiled one by one, and each takes little time
    compiling_part = ""
    held_by = "the run's ledger"

    def __init__(
        self,
        executable: Executable,
        seed: int,
        recorder: Recorder | None = None,
        progress: Callable[[], object] | None = None,
        *,
        follow: bool = False,
        waits: bool = True,
        host: Host | None = None,
    ) -> None:
        self.executable = executable
        self.ledger = Ledger()
        plan = executable.plan
        endless = plan.pdg.dims.endless
        self._counter = None if endless is None else TurnCounter(plan)
        self._transfers = Transfers(self.ledger, plan.copy_duration, executable.engine)
        self._transfers.copies = None if recorder is None else []
        self._stores: dict[tuple[int, int], dict[Any, Any]] = {
            tensor: SwapStore(self._transfers, store, plan.origin(tensor))
            if tensor in plan.swaps.tensors
            else {}
            for tensor, store in plan.stores.items()
        }
        self._lengths = no_lengths(executable.pdg)  # known values of the dynamic bounds
        self._progress = progress
        self._support = RuntimeCalls(
            executable.pdg,
            plan,
            self.ledger,
            self._transfers,
            executable.engine,
            Host(executable.pdg.dims, plan.bounds, seed) if host is None else host,
            seed,
            recorder,
            progress and self._finish_iteration,
            check_nan=executable.check_nan,
            waits=waits,
        )
        # parameters as of the last iteration; weak references do not keep their memory
        self._learned: dict[int, weakref.ref[Any]] = {}
        self._learning: list[dict[Any, Any]] = []
        self._shown: list[dict[Any, Any]] = []
        for op in executable.pdg.sinks:
            if isinstance(op.attrs, OutputAttrs):
                behind = self._learning if op.attrs.role != "output" else self._shown
                (operand,) = plan.statements.of_op(op.id).operands
                behind += [self._stores[access.read.tensor] for access in operand.accesses]
        self.returned = Returned(executable.pdg, plan, self._lengths, executable.engine)
        self._support.longest = self.returned.longest
        self._followed, self._recorder = follow or recorder is not None, recorder
        self._seed = seed
        self._space = self._namespace(executable.code(record=self._followed))
        # yields each instruction, and the loop's counter at the end of an iteration
        self._program: Generator[tuple[str, str, tuple[int, ...]] | int, None, None]
        self._program = self._space["program"]()
        self.instructions = 0
        self.finished = self.failed = False

    def _namespace(self, code: Any) -> dict[str, Any]:
        """Return the variables of the generated program by name."""
        bounds = self.executable.plan.bounds
        space: dict[str, Any] = {"rt": self._support}
        space |= {variable(bound): value for bound, value in bounds.items()}
        engine = self.executable.engine
        bind = engine.move_to_device if self.executable.plan.swaps.all else (lambda x: x)
        if self._lengths:
            space |= {"rt_lengths": self._lengths, "rt_most": bounds}
        for tensor, store in self._stores.items():
            space[store_name(tensor)] = store
        for op_id, kernel in self.executable.kernels.items():
            space[f"kernel_{op_id}"] = self._kernel(kernel)
            for slot in range(len(kernel.op.inputs)):
                if kernel.is_sliced(slot):
                    space[f"pad_{op_id}_{slot}"] = bind(kernel.padding(slot))
        pdg, sizes = self.executable.pdg, self.executable.plan.sizes
        for op_id, out in self._stores:  # including operations without executions
            if pdg[op_id].outputs[out].reduce is not None:
                name, first = store_name((op_id, out)), start(engine, sizes, pdg[op_id], out)
                space[f"new_{name}"], space[f"start_{name}"] = first, bind(first())
        for (op_id, out), store in self.executable.plan.stores.items():
            if store.traits.has_rows:
                kind = pdg[op_id].outputs[out].type
                shape = (store.size, *sizes.shape(pdg[op_id], kind.shape))
                fresh = engine.fill_factory(shape, kind.dtype)
                space[f"new_{store_name((op_id, out))}"] = lambda fresh=fresh: bind(fresh())
        exec(code, space)
        return space

    # --- running -----------------------------------------------------------------------------

    def step(self) -> Instruction | None:
        """Run one instruction, and return it; return None at the end of the program."""
        with self._close_on_failure():
            done = next((one for one in self._program if not isinstance(one, int)), None)
        if done is None:
            self._finish()
            return None
        self.instructions += 1
        return Instruction(*done)

    def step_in_iteration(self) -> Instruction | None:
        """Run one instruction, and return it; return None at the end of an iteration of an outermost loop, or of
        the program.
        """
        with self._close_on_failure():
            done = next(self._program, None)
        if done is None or isinstance(done, int):
            return None
        self.instructions += 1
        return Instruction(*done)

    def complete(self) -> None:
        """Run all remaining instructions."""
        for _ in self.turns():
            pass

    def turns(self) -> Iterator[int]:
        """Run all remaining instructions; yield the loop's counter after every iteration of an outermost loop."""
        with self._close_on_failure():
            for done in self._program:
                if isinstance(done, int):
                    yield done
                else:
                    self.instructions += 1
        self._finish()

    def _finish(self) -> None:
        with self._close_on_failure():
            self._transfers.finish()
        self.finished = True

    @contextmanager
    def _close_on_failure(self) -> Iterator[None]:
        """End all threads if the program fails or is interrupted; it cannot continue then."""
        if self.failed:
            raise run_ended_error()
        try:
            yield
        except BaseException:
            self.failed = True
            self._transfers.close()
            raise

    def _finish_iteration(self) -> None:
        values = [value for store in self._learning for value in store.values()]
        self.executable.engine.wait(
            [values, [next(reversed(store.values()), None) for store in self._shown]]
        )
        self._learned = {id(value): weakref.ref(value) for value in values}
        assert self._progress is not None
        self._progress()

    # --- looking -----------------------------------------------------------------------------

    @property
    def stores(self) -> dict[str, dict[Any, Any]]:
        """Values in memory: by tensor name, then by point.

        Without `follow`, the keys are positions in the store, and later instructions may reuse the arrays.
        Values donated to a failed kernel are missing.
        """
        found: dict[str, dict[Any, Any]] = {}
        engine = self.executable.engine
        for tensor, held in self._stores.items():
            store = self.executable.plan.stores[tensor]
            values = held
            if self._followed:
                points = self._support.points_of_store.get(store_name(tensor), ())
                values = {
                    p[0] if len(p) == 1 else p: engine.to_user(store.value(held, p))
                    for p in points
                    if store.has_row(p) and not engine.is_deleted(dict.get(held, store.key(p)))
                }
            if values:
                found.setdefault(store.name, {}).update(values)
        return found

    def outputs(
        self, names: Sequence[str] | None = None, *, gather: bool = True
    ) -> dict[tuple[str, str], np.ndarray[Any, Any]]:
        """Return the values of the program's outputs by (role, name), stacked over their domains."""
        if not self.finished:
            raise ExecutionError(
                "the run has not ended.", hint="call step() until it returns None."
            )
        return self.returned.outputs(self._output, names)

    @property
    def own_part(self) -> None:
        """None, as the interpreter runs in one process."""

    def so_far(
        self,
        reached: SoFar,
        names: Sequence[str] | None = None,
        lost: dict[str, str] | None = None,
    ) -> dict[tuple[str, str], np.ndarray[Any, Any]]:
        """Return the known outputs between two iterations, in the form of `outputs`.

        Args:
            reached: Known points.
            names: Names of the outputs to return; all by default.
            lost: After a failure inside an iteration: dictionary to fill with lost outputs and reasons.
        """

        def output(op: Op) -> Callable[..., Any]:
            found = self._output(op, reached)
            if lost is None or op.attrs.role == "output":
                return found
            return lambda *point: self._check_unchanged(found(*point))

        return self.returned.outputs(output, names, reached.bounds, lost)

    def _check_unchanged(self, value: Any) -> Any:
        """Return a parameter, if it has not changed since the last iteration."""
        then = self._learned.get(id(value))
        if then is None or then() is not value:
            raise changed_already()
        return value

    def peek(self, wanted: Sequence[tuple[Op, Sequence[int]]]) -> Callable[[], list[list[Any]]]:
        """Take references to outputs at points of their only dimension, between two iterations.

        The returned function copies them to the host, on any thread.
        """
        engine = self.executable.engine
        held = [[engine.snapshot(self._output(op)(k)) for k in points] for op, points in wanted]
        return lambda: [[engine.to_numpy(x) for x in row] for row in held]

    def _output(self, op: Op, reached: SoFar | None = None) -> Callable[..., Any]:
        """Return an output as a function of its point."""
        found = self._space[f"output_{op.id}"]
        if reached is None:
            return found

        def read_output(*point: int) -> Any:
            self._space.update({**self.executable.plan.bounds, **reached.last_bound(op)})
            try:
                return found(*point)
            finally:
                self._space.update(self.executable.plan.bounds)

        return read_output

    # --- saving and resuming -------------------------------------------------------------------------

    def live_values(self, turn: int) -> dict[Tensor, StoredValues]:
        """Return copies of the live values between two iterations, with their points."""
        cuts = self.executable.cuts(recorded=True)
        return self._held_values(cuts.live(find_cut(cuts, turn)), self.lengths())

    def _held_values(
        self, live: Mapping[Tensor, Array], lengths: Mapping[str, Array]
    ) -> dict[Tensor, StoredValues]:
        made = self.executable.cuts(recorded=True).existing_points
        return {
            t: self._find_held(t, made(t, points, lengths), self._stores[t])
            for t, points in live.items()
        }

    def state(self, turn: int, cut: Cut | None, live: Mapping[Tensor, Array]) -> RunState:
        """Return the state between two iterations, restricted to the points `live` of each tensor."""
        lengths = self.lengths()
        values = self._held_values(live, lengths)
        saved = self.host.save(resources_of(self.executable.pdg))
        return RunState(self._seed, turn, cut, values, lengths, saved)

    def snapshot_stores(self, turn: int) -> Callable[[], RunState]:
        """Copy all stores, as the kernels of the next iteration overwrite them."""
        cuts = self.executable.cuts(recorded=True)
        cut = cuts.cut_after(turn)
        if self.executable.plan.swaps.all:
            state = self.state(turn, cut, cuts.live(cut))
            return lambda: state
        held = self.executable.engine.copy_stores(
            {t: dict(store) for t, store in self._stores.items() if store}
        )

        def make_state() -> RunState:
            live = cuts.live(cut).items()
            values = {t: self._find_held(t, points, held.get(t, {})) for t, points in live}
            return RunState(self._seed, turn, cut, values)

        return make_state

    def _find_held(self, tensor: Tensor, points: Array, held: Mapping[Any, Any]) -> StoredValues:
        """Select the points available in a store, and return them with their values."""
        plan, read = self.executable.plan, dict[Any, Array]()
        store, found = plan.stores[tensor], list[Array]()
        there = np.zeros(len(points), np.bool_)
        for k, row in enumerate(points.tolist()):
            key = store.key(tuple(row))
            if key not in read and (key in held or _is_away(held, key)):
                read[key] = self.executable.engine.to_numpy(held[key])
            if key in read:
                there[k] = True
                block = read[key]
                at = row[store.position] - store.first_row if store.traits.has_rows else ...
                found.append(block[at])
        op = plan.pdg[tensor[0]]
        kind = op.outputs[tensor[1]].type
        shape = (len(found), *plan.sizes.shape(op, kind.shape))
        return points[there], np.array(found, NUMPY[kind.dtype]).reshape(shape)

    def resume(self, state: RunState) -> None:
        """Start from a saved state instead of the beginning."""
        self._seed = state.seed
        self._support.seed = self.executable.engine.seed_words(state.seed)
        away = self.executable.cuts(recorded=True).swapped_out
        for tensor, (points, values) in state.values.items():
            self._restore_values(tensor, points, values, away(state.cut, tensor, points))
        for name, lengths in state.lengths.items():
            self._lengths[name] |= dict(np.ndenumerate(lengths))
        self.host.load(resources_of(self.executable.pdg), state.resources)
        code = self.executable.compile_remaining(state.cut, record=self._followed)
        self._space = self._namespace(code)
        self._program = self._space["program"]()

    def _restore_values(self, tensor: Tensor, points: Array, values: Array, away: Array) -> None:
        """Restore the values of a tensor; `away` selects values for the host."""
        plan, held = self.executable.plan, self._stores[tensor]
        if self._followed:
            self._support.points_of_store[store_name(tensor)] = dict.fromkeys(
                map(tuple, points.tolist())
            )
        store, made = plan.stores[tensor], dict[Any, Array]()
        for row, value in zip(points.tolist(), values, strict=True):
            key = store.key(tuple(row))
            if store.traits.has_rows:
                if key not in made:
                    made[key] = np.zeros((store.size, *value.shape), value.dtype)
                made[key][row[store.position] - store.first_row] = value
            else:
                made[key] = value
        hosted = {store.key(tuple(row)) for row in points[away].tolist()}
        for key, value in made.items():
            fresh = self._support.arrive(
                self.executable.engine.copy(value)
            )  # a new array, as kernels may overwrite it
            if key in hosted:
                assert isinstance(held, SwapStore)
                held.put_away(key, fresh)
            else:
                held[key] = fresh
                self.ledger.live += store.unit

    @property
    def host(self) -> Host:
        """Resources of the run."""
        return self._support.host

    def measure(self, watch: Stopwatch | None) -> None:
        """Measure all kernels from now on, running them synchronously; None ends the measurement."""
        for op_id, kernel in self.executable.kernels.items():
            plain = self._kernel(kernel)
            self._space[f"kernel_{op_id}"] = (
                plain if watch is None else watch.wrap(plain, self.executable.engine.wait)
            )

    def _kernel(self, kernel: Kernel) -> Callable[..., Any]:
        """Return the function of a kernel, with NaN checks or a recorder if enabled."""
        executable = self.executable
        run = add_nan_check(kernel, executable.pdg.names) if executable.check_nan else kernel.run
        if self._counter is not None:
            run = self._add_counter_words(run, kernel.coords)
        return run if self._recorder is None else self._support.time_kernel(run)

    def _add_counter_words(
        self, run: Callable[..., Any], coords: Sequence[str]
    ) -> Callable[..., Any]:
        """Pass the words of the iteration to a kernel of an unbounded program."""
        counter = self._counter
        assert counter is not None
        k = coords.index(counter.dim) if counter.dim in coords else None
        if k is None:
            beside = counter.words(0)
            return lambda seed, *args: run((*seed, *beside) if seed else (), *args)

        def at_turn(seed: Any, at: Sequence[int], *args: Any) -> Any:
            seen = (*at[:k], counter.to_31_bits(at[k]), *at[k + 1 :])
            return run((*seed, *counter.words(at[k])) if seed else (), seen, *args)

        return at_turn

    @property
    def coordinates(self) -> dict[str, Coordinates]:
        """Positions of the values of conditional outputs."""
        return self.returned.coordinates

    def lengths(self) -> dict[str, np.ndarray[Any, Any]]:
        """Return the values of dynamic bounds by name, each stacked over the dimensions it varies over."""
        return self.returned.lengths()

    @property
    def written_checkpoints(self) -> Sequence[WrittenCheckpoint]:
        """Checkpoints written so far."""
        return self._support.checkpoints

    @property
    def began(self) -> float:
        """Time of the run's creation (`time.perf_counter`)."""
        return self._support.began

    @property
    def copies(self) -> Sequence[Copy]:
        """Copies between device and host so far, if the run is recorded."""
        return self._transfers.copies or ()

    def release(self, error: BaseException | None = None) -> int:
        """Free all memory, and return the number of bytes used by outputs only."""
        self._support.end()
        self._transfers.close()
        kept = self.ledger.live
        for store in self._stores.values():
            store.clear()
        self.ledger.live = 0
        self._support.host.close(error)
        return kept


def _is_away(held: Mapping[Any, Any], key: Any) -> bool:
    return isinstance(held, SwapStore) and held.is_away(key)
