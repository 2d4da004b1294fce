"""Program lowered to XLA: its buffers, and its jitted functions.

An outermost loop that contains loops makes one call per iteration, or per `fuse` iterations. If `fuse` is
above 1, this holds for every outermost loop. The code between such loops, or between two operations on
the host, is one call. A call receives the buffers that it changes by donation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from collections.abc import Sequence as Seq
from functools import cache, cached_property
from itertools import starmap
from typing import Any, Literal

import jax
from jax import lax

from timerl_nb.base.array_conversion import Array
from timerl_nb.base.errors import OptionError
from timerl_nb.compiler.ir.graph_digest import digest_by_names
from timerl_nb.compiler.ir.host.iteration_io import is_given
from timerl_nb.compiler.ir.operations import Tensor
from timerl_nb.compiler.ir.shapes import NUMPY
from timerl_nb.compiler.loops.iteration_cuts import Cuts
from timerl_nb.compiler.loops.loop_nodes import Ast, Execute, Guard, Loop, Node, subtree_nodes
from timerl_nb.compiler.loops.tileable_loops import Tile
from timerl_nb.compiler.memory.memory_plan import MemoryPlan
from timerl_nb.compiler.memory.placement.buffer import Buffer
from timerl_nb.compiler.memory.placement.passed_data import passed_on
from timerl_nb.compiler.memory.steady_state.extrapolated_plan import layout_of
from timerl_nb.runtime.fused_kernel import Kernel
from timerl_nb.runtime.jax_backend import arrays_and_devices as backend
from timerl_nb.runtime.jax_backend.process_group import check_agreement, settings, versions
from timerl_nb.runtime.output_assembly import OwnPart
from timerl_nb.runtime.state.iteration_counter import TurnCounter
from timerl_nb.runtime.xla.execution.precompiled_call_cache import (
    CompiledCall,
    CompiledCalls,
    read_reported_temporaries,
)
from timerl_nb.runtime.xla.lowering.device_sharding import Shards
from timerl_nb.runtime.xla.lowering.host_regions import (
    HOSTED,
    Call,
    HostControlFlow,
    HostOperation,
    HostTransfer,
    Part,
    Regions,
)
from timerl_nb.runtime.xla.lowering.loop_carried_buffers import Flow, Names
from timerl_nb.runtime.xla.lowering.node_lowering import Lowering, State

# Bytes for counters and scalars in any call; they do not count against a budget.
_OWN = 64 << 10


class Lowered:
    """Loop nest as XLA programs."""

    def __init__(
        self,
        ast: Ast,
        plan: MemoryPlan,
        kernels: Mapping[int, Kernel],
        fuse: int = 1,
        compiled: CompiledCalls | None = None,
        tiles: Seq[Tile] = (),
        tile_kernel: Literal[False, True, "interpret"] = False,
    ) -> None:
        self.ast, self.plan, self.kernels, self.fuse = ast, plan, kernels, fuse
        self._compiled = compiled
        self.met: set[int] = set()  # numbers of calls made by some run
        self.layout = layout_of(plan)
        self.flow = Flow(ast.root, plan, self.layout)
        self.shards = None if plan.share is None else Shards(plan.share)
        self.tiles = tuple(tiles)
        how = self.layout, self.flow, self.shards, tiles, tile_kernel
        self._lowering = Lowering(ast, plan, kernels, *how)
        endless = plan.pdg.dims.endless
        self.counter = None if endless is None else TurnCounter(plan, self.layout)

    @cached_property
    def nbytes(self) -> int:
        """Bytes of all buffers, and of values in transfer between them and the host."""
        return self.layout.nbytes + self.plan.bytes_in_transfer

    @cached_property
    def temporaries(self) -> int:
        """Maximum over all calls of the temporary bytes reported by XLA, without the call's buffers.

        The estimate of the plan is used for calls without a report. Waits for XLA to compile all calls.
        """
        self._begin()
        found = [(call, self._temporary_bytes(call)) for call in self.calls]
        known = [nbytes - self._local_bytes(call) for call, nbytes in found if nbytes is not None]
        return max(0, *known, 0 if len(known) == len(found) else self.plan.temporaries_each)

    @property
    def reported_temporaries(self) -> int | None:
        """Value of `temporaries` if XLA has compiled all calls; None otherwise. It waits for nothing."""
        known = all(isinstance(one, CompiledCall) and one.is_compiled for one in self.callables)
        return self.temporaries if known or "temporaries" in self.__dict__ else None

    def _temporary_bytes(self, call: Call) -> int | None:
        """Return the temporary bytes of a call, reported by XLA; None without a report."""
        ready = self.callables[call.number - 1]
        if isinstance(ready, CompiledCall):
            return ready.temporaries
        return (
            read_reported_temporaries(self.xla_executable(call.number))
            if self._is_alike(call)
            else None
        )

    @property
    def total_bytes(self) -> int:
        """Bytes on each device, including temporaries, without the small overhead of every call."""
        return self.nbytes_each + self.plan.constants + max(0, self.temporaries - _OWN)

    def _begin(self) -> None:
        """Start to load or compile all calls, in parallel. Loops start first, as they take longest."""
        order = sorted(self.calls, key=lambda call: call.loop is None)
        callables = [self.callables[call.number - 1] for call in order]
        CompiledCall.begin(ready for ready in callables if isinstance(ready, CompiledCall))

    def _local_bytes(self, call: Call) -> int:
        """Return the bytes of buffers inside a call only."""
        known = call.changed | call.constant | call.made | self.flow.lengths
        names = self.flow.accessed(call.node) - known
        return sum(self.layout.buffers[name].nbytes for name in names)

    @property
    def nbytes_each(self) -> int:
        """Bytes of buffers on one device."""
        return self.nbytes if self.shards is None else self.shards.share.buffers

    @property
    def processes(self) -> int:
        """Number of processes that run the program together."""
        return 1 if self.shards is None else self.shards.processes

    @property
    def own_part(self) -> OwnPart | None:
        """Part of this process; None for a program of one process."""
        if self.shards is None or self.processes == 1:
            return None
        dim, devices = self.shards.dim, self.shards.own_devices
        each = self.plan.bounds[dim.bound] // self.shards.count
        return OwnPart(dim.name, range(devices.start * each, devices.stop * each))

    def divided_axis(self, buffer: Buffer) -> int | None:
        """Return the axis of a buffer that is divided among devices; None without one."""
        return None if self.shards is None else self.shards.axis(buffer)

    def check_processes(self, seed: int, turn: int) -> None:
        """Check that all processes run the same program, with the same seed and from the same iteration.

        Raises:
            ExecutionError: A process differs from process 0.
        """
        if self.processes == 1:
            return
        check_agreement(
            {
                **versions(),
                **settings(),
                "the seed": str(seed),
                "the first iteration": str(turn),
                "the dependence graph": digest_by_names(self.plan.pdg),
                "the loop nest": str(self),
            }
        )

    @cached_property
    def regions(self) -> Regions:
        """Division of the loop nest into XLA programs and host work."""
        return Regions(self.ast.root, self.plan.pdg, self.flow, self.fuse)

    @property
    def calls(self) -> Seq[Call]:
        """Calls, in the order of their first execution."""
        return self.regions.calls

    @property
    def loops(self) -> Seq[Loop]:
        """Outermost loops that return to the host after each iteration, or after `fuse` iterations."""
        called = [
            part.loop if isinstance(part, Call) else part.node for part in self._runnable_parts
        ]
        return [node for node in called if isinstance(node, Loop)]

    @cached_property
    def cuts(self) -> Cuts:
        """Possible splits of a run."""
        return Cuts(self.ast, self.plan, self.loops)

    @property
    def _runnable_parts(self) -> Seq[Call | HostControlFlow]:
        return [part for part in self.regions.parts if isinstance(part, Call | HostControlFlow)]

    def why_no_kernel(self, tile: Tile) -> str | None:
        """Return the reason why a tile is not a Pallas kernel; None if it is one.

        Traces the tile's call if necessary.
        """
        known = self._lowering.blocks.no_kernel
        for call in self.calls:
            if id(tile.loop) not in known and _has(call.node, tile.loop):
                jax.eval_shape(self.functions[call.number - 1], *self._arguments(call.number))
        return known[id(tile.loop)]

    @cached_property
    def host_operations(self) -> Mapping[str, str]:
        """Operations on the host by name, with the reasons."""
        pdg, names = self.plan.pdg, self.ast.names
        ids = dict.fromkeys(node.op_id for node in self.ast if isinstance(node, Execute))
        return {names[k]: HOSTED[pdg[k].kind] for k in ids if pdg[k].kind in HOSTED}

    @cached_property
    def functions(self) -> tuple[Any, ...]:
        """Jitted function of each call: (changed buffers, constant buffers, seed, …) -> returned buffers.

        The constant buffers include given arrays, because XLA's constant folding loses a NaN in exp inside
        a loop.

        The function of a loop also takes the counter and the number of iterations. Other functions take the
        counters of the loops around them and results of the host. They also return the operands of the next
        operation on the host.
        """
        return tuple(self._function(call) for call in self.calls)

    @cached_property
    def callables(self) -> tuple[Callable[..., Any], ...]:
        """Functions as runs call them: loaded from the disk cache, or compiled."""
        return tuple(map(self._make_callable, self.calls, self.functions))

    def _make_callable(self, call: Call, function: Callable[..., Any]) -> Callable[..., Any]:
        if self._compiled is None or not self._is_alike(call):
            return function
        name = f"{call.number} of\n{self}"
        return self._compiled.call(name, function, lambda: self._arguments(call.number))

    def _is_alike(self, call: Call) -> bool:
        """Whether a call can be cached, because all processes compile the same program for it."""
        # shapes of the host's results are not known in advance, and the devices depend on the process
        checked = call.given is None or is_given(self.plan.pdg[call.given.op_id])
        return checked and self.shards is None

    def _function(self, call: Call) -> Callable[..., Any]:
        """Return the jitted function of a call. It donates the buffers that the call changes."""
        lowering = self._lowering

        def run_call(state: State) -> State:
            return {n: state[n] if n in state else lowering.fresh_buffer(n) for n in call.made}

        def region(
            changed: State, constant: State, seed: Any, counters: Seq[Any], given: Mapping[int, Any]
        ) -> tuple[State, tuple[Any, ...]]:
            state = {**constant, **changed}
            env = dict(zip(call.counters, counters, strict=True))
            if call.given is not None:
                lowering.give(call.given, given, state, env)
            lowering.run(call.node, state, env, seed)
            next_host_operation = (
                ()
                if call.next_host_operation is None
                else lowering.host_operands(call.next_host_operation, state, env)
            )
            return run_call(state), next_host_operation

        loop = call.loop
        placed = self._placements(call.made)
        if loop is None:
            placements = None if placed is None else (placed, None)
            return jax.jit(
                backend.as_jax_promotes(region), donate_argnums=0, out_shardings=placements
            )

        def turns(changed: State, constant: State, seed: Any, first: Any, count: Any) -> State:
            def turn(k: Any, carried: State) -> State:
                state = {**constant, **carried}
                lowering.run(loop.body, state, {loop.counter: first + k * loop.step}, seed)
                return run_call(state)

            return lax.fori_loop(0, count, turn, changed)

        # also for a single iteration, since XLA on a CPU runs the body of a loop faster
        return jax.jit(backend.as_jax_promotes(turns), donate_argnums=0, out_shardings=placed)

    def _placements(self, names: Iterable[str]) -> Any:
        """Return the sharding of each buffer; None for one device."""
        if self.shards is None:
            return None
        buffers = self.layout.buffers
        return {name: self.shards.placement(buffers.get(name)) for name in sorted(names)}

    def fresh_buffer(self, name: str) -> Any:
        """Return a buffer in its initial state."""
        given = self.given_buffers()
        if name in given:
            return given[name]
        if self.processes == 1:
            return self._lowering.fresh_buffer(name)
        return self._start((name,))()[name]

    def place_on_device(self, name: str, array: Array) -> Any:
        """Copy an array to a new buffer, with the buffer's sharding."""
        if self.shards is None:
            return backend.copied(array)
        return backend.copied(self.shards.put(array, self.layout.buffers.get(name)))

    def to_call_argument(self, array: Any) -> Any:
        """Convert a result of the host to an argument of calls."""
        return array if self.shards is None else self.shards.replicate(array)

    def arrays(self) -> State:
        """Return the given arrays on the device of this thread."""
        return self._arrays(backend.device())

    @cached_property
    def _arrays(self) -> Callable[[Any], State]:
        place = jax.device_put if self.shards is None else self.shards.replicate

        return cache(lambda _: {n: place(v.array) for v, n in self._lowering.arrays.items()})

    def given_buffers(self) -> State:
        """Return the buffers with given arrays, on the device of this thread."""
        return self._given_buffers(backend.device())

    @cached_property
    def _given_buffers(self) -> Callable[[Any], State]:
        return cache(lambda _: dict(starmap(self._given_buffer, self.layout.input_arrays.items())))

    def _given_buffer(self, tensor: Tensor, array: Array) -> tuple[str, Any]:
        """Return a buffer's name and contents; it shares memory with an equal array of a kernel."""
        buffer, attrs = (
            self.layout.home_of(tensor).buffer,
            passed_on(self.plan.pdg[tensor[0]], tensor[1]),
        )
        if self.shards is not None:
            return buffer.name, self.shards.put(array, buffer)
        value = None if attrs is None else attrs.value
        known = None if value is None else self._lowering.arrays.get(value)
        if value is None or known is None or array.size != value.array.size:
            return buffer.name, jax.device_put(array)
        return buffer.name, self.arrays()[known]

    def start(self) -> State:
        """Return the initial buffers of the first calls, and start to load or compile all calls.

        Local buffers of iterations are left out.
        """
        self._begin()
        wanted: set[str] = set()
        known: set[str] = set(self.flow.local)
        for call in self.calls:
            wanted |= (call.changed | call.constant) - known
            known |= call.made
        given = self.given_buffers()
        return self._start(tuple(sorted(wanted - given.keys())))() | given

    @cached_property
    def _start(self) -> Callable[[tuple[str, ...]], Callable[[], State]]:
        """Return a factory: from names to a function creating these buffers in one XLA program."""

        def making(names: tuple[str, ...]) -> Callable[[], State]:
            make = lambda: {name: self._lowering.fresh_buffer(name) for name in names}  # noqa: E731
            made = jax.jit(make, out_shardings=self._placements(names))
            if self._compiled is None or self.shards is not None:
                return made
            return self._compiled.call(f"buffers {names} of\n{self}", made, tuple)

        return cache(making)

    @cached_property
    def host_outputs(self) -> tuple[tuple[int, ...], ...]:
        """For each call, the stored outputs of the preceding host operation."""
        return tuple(self._needed_host_outputs(call) for call in self.calls)

    def _needed_host_outputs(self, call: Call) -> tuple[int, ...]:
        if call.given is None:
            return ()
        op, needed = self.plan.pdg[call.given.op_id], self.flow.live_out(call.given)
        return tuple(
            k
            for k in range(len(op.outputs))
            if any(home.buffer.name in needed for home in self.layout.homes[op.id, k])
        )

    # --- text and JSON ---------------------------------------------------------------------------

    def __str__(self) -> str:
        return "\n".join(line for line, _ in self.searchable_lines())

    def searchable_lines(self) -> Iterable[tuple[str, Seq[str]]]:
        """Yield each line of the text, with its search terms."""
        yield from self._lines(self.regions.parts, 0)
        held = f"{self.nbytes:,} bytes"
        if self.shards is not None:
            held += f", {self.nbytes_each:,} on each of {self.shards.count} devices"
        yield f"buffers, {held} (the plan holds at most {self.plan.peak:,} at once):", ()
        for buffer in self.layout.buffers.values():
            where = " in a turn" if buffer.name in self.flow.local else ""
            yield f"  {buffer}{where}{self._share(buffer)}", ()

    def _share(self, buffer: Buffer) -> str:
        if self.shards is None:
            return ""
        if self.shards.axis(buffer) is None:
            return ", on every device"
        return f", {self.shards.nbytes(buffer):,} on each device"

    def _lines(self, parts: Seq[Part], depth: int) -> Iterable[tuple[str, Seq[str]]]:
        pad = "  " * depth
        for part in parts:
            if isinstance(part, Call):
                for line, about in self._call_lines(part):
                    yield f"{pad}{line}", about
            elif isinstance(part, HostOperation):
                why = self.host_operations[self.ast.names[part.node.op_id]]
                for line, about in self.ast.searchable_lines_in(part.node):
                    yield f"{pad}on the host ({why}): {line}", about
            elif isinstance(part, HostTransfer):
                yield f"{pad}{self.ast.line(part.node)}", ()
            else:
                yield f"{pad}{self._head_line(part)}", ()
                yield from (
                    self._lines(part.parts, depth + 1) if part.parts else [(f"{pad}  pass", ())]
                )
                if part.other:
                    yield f"{pad}else:", ()
                    yield from self._lines(part.other, depth + 1)

    def _head_line(self, part: HostControlFlow) -> str:
        """Return the line of a loop or condition on the host."""
        if isinstance(part.node, Guard):
            return f"if {self.ast.display_node(part.node)}:"
        return self.ast.line(part.node)

    def _call_lines(self, call: Call) -> Iterable[tuple[str, Seq[str]]]:
        node, times, names = call.node, "" if call.counters else ", once", self.ast.names
        if call.loop is not None:
            node = call.loop.body
            turns = (call.loop.last.const - call.loop.first.const) // call.loop.step + 1
            each = f"every {self.fuse} turns of" if self.fuse > 1 else "each of"
            what = "" if self.fuse > 1 else " turns"
            times = f", for {each} {turns}{what} of {self.ast.display_node(call.loop).counter}"
        yield f"call {call.number}{times}:", ()
        if call.given is not None:
            yield f"  store the results of {names[call.given.op_id]}", ()
        for line, about in self.ast.searchable_lines_in(node):
            yield f"  {line}", about
        if call.next_host_operation is not None:
            yield f"  return the operands of {names[call.next_host_operation.op_id]}", ()

    def to_json(self) -> list[dict[str, Any]]:
        """Return the parts of the program in order, each with its executor."""
        return self._json(self.regions.parts)

    def _json(self, parts: Seq[Part]) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        for part in parts:
            if isinstance(part, Call):
                lines = [line for line, _ in self._call_lines(part)]
                found.append({"runs": "xla", "call": part.number, "lines": lines})
            elif isinstance(part, HostOperation):
                name = self.ast.names[part.node.op_id]
                found.append({"runs": "host", "name": name, "why": self.host_operations[name]})
            elif isinstance(part, HostTransfer):
                found.append({"runs": "host", "line": self.ast.line(part.node)})
            else:
                inner = {"parts": self._json(part.parts), "else": self._json(part.other)}
                found.append({"runs": "host", "line": self._head_line(part), **inner})
        return found

    def jaxpr(self, call: int = 1) -> str:
        """Return the jaxpr of a call; calls are numbered from 1."""
        arguments = self._arguments(call)
        return jax.make_jaxpr(self.functions[call - 1])(*arguments).pretty_print(use_color=False)

    def hlo(self, call: int = 1) -> str:
        """Return the optimised HLO of a call; calls are numbered from 1."""
        return self.xla_executable(call).as_text()

    def xla_executable(self, call: int = 1) -> Any:
        """Return XLA's executable of a call. Calls are numbered from 1. Without a cache, it is compiled again."""
        arguments = self._arguments(call)
        ready = self.callables[call - 1]
        if isinstance(ready, CompiledCall):
            return ready.executable
        return self.functions[call - 1].lower(*arguments).compile()

    def _arguments(self, call: int) -> tuple[Any, ...]:
        """Return the argument types of a call."""
        if call not in range(1, len(self.calls) + 1):
            raise OptionError(
                f"call {call!r} does not exist.", hint=f"pass a number from 1 to {len(self.calls)}."
            )
        one = self.calls[call - 1]
        takes = [self._types(one.changed), {**self._types(one.constant), **self.arrays()}]
        if one.loop:
            return (
                *takes,
                self.words(self.seed_words(0), 0),
                0,
                1,
            )
        given: dict[int, Any] = {}
        for k in self.host_outputs[call - 1]:
            assert one.given is not None
            op = self.plan.pdg[one.given.op_id]
            kind = op.outputs[k].type
            given[k] = jax.ShapeDtypeStruct(
                self.plan.sizes.shape(op, kind.shape), NUMPY[kind.dtype]
            )
        return (*takes, self.words(self.seed_words(0), 0), (0,) * len(one.counters), given)

    def seed_words(self, seed: int) -> tuple[Any, Any]:
        """Return the seed of a run as two unsigned words, on all devices."""
        high, low = backend.seed_words(seed)
        return self.to_call_argument(high), self.to_call_argument(low)

    def words(self, seed: Any, turn: int) -> tuple[Any, ...]:
        """Return the words for random draws: the seed, then an unbounded program's iteration."""
        return seed if self.counter is None else (*seed, *self.counter.words(turn))

    def _types(self, names: Names) -> dict[str, Any]:
        """Return the types and shardings of buffers."""
        types = jax.eval_shape(
            lambda: {name: self._lowering.fresh_buffer(name) for name in sorted(names)}
        )
        placed = self._placements(names)
        if placed is None:
            return types
        return {
            n: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=placed[n]) for n, x in types.items()
        }


def why_not(plan: MemoryPlan) -> str | None:
    """Return the reason why XLA cannot run a program; None if it can."""
    if plan.share is not None and plan.swaps.all:
        return "values are swapped to the host, which supports one device only"
    return None


def too_little(lowered: Lowered) -> str | None:
    """Return the reason why XLA is not worthwhile; None if it is. Most work would be on the host."""
    if not lowered.host_operations:
        return None
    for call in lowered.calls:
        nodes = subtree_nodes(call.node)
        launches = sum(isinstance(node, Execute) for node in nodes)
        if launches > 1 or any(isinstance(node, Loop) for node in nodes):
            return None
    names = ", ".join(f"{name} ({why})" for name, why in lowered.host_operations.items())
    run = "runs" if len(lowered.host_operations) == 1 else "run"
    return f"{names} {run} on the host, and between them there is no loop and no pair of operations"


def _has(node: Node, loop: Loop) -> bool:
    return any(one is loop for one in subtree_nodes(node))
