"""Lowering of loop-nest nodes to JAX: each node transforms the traced buffers.

Loops become `fori_loop`s, or `while_loop`s if a dynamic bound ends them. They carry only buffers
needed by a later iteration or by the code after the loop. Deallocations do nothing, except that they
reset accumulators to the identity of their reduction.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Sequence as Seq
from dataclasses import replace
from math import prod
from types import MappingProxyType
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax import lax

from timerl_nb.compiler.ir.operation_attributes import BoundAttrs
from timerl_nb.compiler.ir.operations import Op, Read, Tensor, is_sliced
from timerl_nb.compiler.ir.shapes import NUMPY
from timerl_nb.compiler.loops.loop_nodes import (
    Ast,
    Deallocate,
    Execute,
    Guard,
    If,
    Loop,
    Node,
    Sequence,
    subtree_nodes,
)
from timerl_nb.compiler.loops.tileable_loops import Tile
from timerl_nb.compiler.memory.memory_plan import MemoryPlan
from timerl_nb.compiler.memory.placement.buffer import Buffer
from timerl_nb.compiler.memory.placement.buffer_layout import Home, Layout
from timerl_nb.compiler.memory.placement.passed_data import is_free
from timerl_nb.compiler.memory.placement.slice_reads import PointRange, is_picked, split
from timerl_nb.compiler.symbolic.array_evaluation import values
from timerl_nb.compiler.symbolic.dimensions import Domain
from timerl_nb.compiler.symbolic.expression_evaluation import evaluate
from timerl_nb.compiler.symbolic.index_expressions import (
    TRUE,
    Entry,
    Lin,
    Slice,
    maximum,
    minimum,
    span,
    sym,
)
from timerl_nb.compiler.symbolic.substitution import subst_entry
from timerl_nb.runtime.fused_kernel import Kernel
from timerl_nb.runtime.jax_backend.arrays_and_devices import fitted
from timerl_nb.runtime.jax_backend.gather_scatter_rules import Picks
from timerl_nb.runtime.jax_backend.reduction_rules import COMBINE
from timerl_nb.runtime.jax_backend.trace_context_and_masks import JaxArray
from timerl_nb.runtime.xla.lowering.buffer_access import (
    EVERY,
    AxisRange,
    InPlace,
    clear,
    cut,
    look_up,
    put,
    put_row,
)
from timerl_nb.runtime.xla.lowering.device_sharding import Shards
from timerl_nb.runtime.xla.lowering.loop_carried_buffers import Flow, Names, length_buffer
from timerl_nb.runtime.xla.lowering.tile_loops import Blocks

State = dict[str, JaxArray]  # buffers by name
Env = Mapping[str, Any]  # symbols by name, traced or not
Change = Callable[[State], None]

NOTHING: Mapping[str, Any] = MappingProxyType({})


class Lowering:
    """Executes nodes on traced buffers."""

    def __init__(
        self,
        ast: Ast,
        plan: MemoryPlan,
        kernels: Mapping[int, Kernel],
        layout: Layout,
        flow: Flow,
        shards: Shards | None = None,
        tiles: Seq[Tile] = (),
        tile_kernel: Literal[False, True, "interpret"] = False,
    ) -> None:
        self.ast, self.plan, self.pdg, self.shards = ast, plan, plan.pdg, shards
        self.kernels, self.layout, self.flow = kernels, layout, flow
        free = [k for k in kernels if is_free(self.pdg[k], layout.input_arrays)]
        self.free = frozenset(free)  # operations without computation: results are given arrays
        used = (kernel for k, kernel in kernels.items() if k not in self.free)
        found = {value: None for kernel in used for value in kernel.arrays}
        self.arrays = {value: f"array {k}" for k, value in enumerate(found)}
        self._loops = 0  # number of loops around the traced code
        self.blocks = Blocks(layout, flow, shards, tiles, tile_kernel, self._loop, self._constants)

    def run(self, node: Node, state: State, env: Env, seed: Any) -> None:
        """Execute a node; it changes `state` in place."""
        if isinstance(node, Sequence):
            for part in node.parts:
                self.run(part, state, env, seed)
        elif isinstance(node, Loop):
            tile = self.blocks.tiles.get(id(node))
            if tile is None:
                self._loop(node, state, env, seed)
            else:
                names = sorted(self.flow.loop_carried(node))
                state |= {name: self._buffer(name, state) for name in names}
                state |= self.blocks.run(tile, state, env, seed)
        elif isinstance(node, If):
            self._branch(node, state, env, seed)
        elif isinstance(node, Execute):
            self._run_guarded(node, state, env, lambda s: self._execute(node, s, env, seed))
        elif isinstance(node, Deallocate) and self.flow.writes(node):
            self._run_guarded(node, state, env, lambda s: self._clear(node, s, env))

    def fresh_buffer(self, name: str) -> JaxArray:
        """Return a buffer in its initial state."""
        for dim in self.pdg.dims.dynamic:
            if name == length_buffer(dim.bound):
                sizes = [self.plan.bounds[self.pdg.dims[d].bound] for d in dim.over or ()]
                return jnp.full(sizes, self.plan.bounds[dim.bound], jnp.int32)
        buffer = self.layout.buffers[name]
        block = self.blocks.now
        here = buffer if block is None else block.output_buffer(buffer)
        array = jnp.full(here.array_shape, buffer.fill, NUMPY[buffer.dtype])
        shards = self._sharding
        if shards is None:
            return array
        return lax.with_sharding_constraint(array, shards.placement(buffer))

    def _buffer(self, name: str, state: State) -> JaxArray:
        """Return a buffer, or its initial state if nothing was written to it."""
        return state[name] if name in state else self.fresh_buffer(name)

    @property
    def _sharding(self) -> Shards | None:
        """Distribution over devices; None inside a tile, which runs separately on each device."""
        now = self.blocks.now
        return None if now is not None and now.runs_per_device else self.shards

    def _block_view(self, buffer: Buffer) -> tuple[Buffer, AxisRange | None]:
        """Return the tile's part of a buffer, and its range if the buffer is complete."""
        return (buffer, None) if self.blocks.now is None else self.blocks.now.buffer_in_tile(buffer)

    def _constants(self, node: Node) -> set[str]:
        """Return the names of the given arrays used in a node."""
        ids = {one.op_id for one in subtree_nodes(node) if isinstance(one, Execute)}
        return {self.arrays[v] for k in ids - self.free for v in self.kernels[k].arrays}

    # --- control ---------------------------------------------------------------------------------

    def _functionalize(
        self, names: Names, state: State, run: Change
    ) -> tuple[State, Callable[[State], State]]:
        """Return the named buffers, and `run` as a function from buffers to buffers."""
        found = {n: self._buffer(n, state) for n in sorted(names)}
        carry = {n: x for n, x in found.items() if not isinstance(x, InPlace)}

        def changed(inner: State) -> State:
            here = {**state, **inner}
            run(here)
            return {name: here[name] for name in carry}

        return carry, changed

    def _loop(self, node: Loop, state: State, env: Env, seed: Any) -> None:
        """Trace a loop as `fori_loop`, or as `while_loop` if a guard may end it, and update `state`."""
        first, last = values(node.first, env, jnp), values(node.last, env, jnp)
        names = self.flow.loop_carried(node)
        counter: list[Any] = [None]

        def body(inner: State) -> None:
            self._loops += 1
            try:
                self.run(node.body, inner, {**env, node.counter: counter[0]}, seed)
            finally:
                self._loops -= 1

        carry, changed = self._functionalize(names, state, body)

        def turn(at: Any, inner: State) -> State:
            counter[0] = at
            return changed(inner)

        turns = node.turns
        if turns is not None and node.late:
            first = jnp.maximum(first, self._begins(node, turns, state, env))
        if turns is not None and not node.late:

            def is_unfinished(pair: tuple[Any, State]) -> JaxArray:
                at = {**env, node.counter: pair[0]}
                return (pair[0] <= last) & self._evaluate_guard(turns, {**state, **pair[1]}, at)

            begin = (jnp.asarray(first, jnp.int32), carry)
            step = lambda pair: (pair[0] + node.step, turn(*pair))  # noqa: E731
            _, carry = lax.while_loop(is_unfinished, step, begin)
        elif node.step == 1:
            carry = lax.fori_loop(first, last + 1, turn, carry)
        else:
            count = (last - first) // node.step + 1
            carry = lax.fori_loop(0, count, lambda k, s: turn(first + k * node.step, s), carry)
        state |= carry

    def _begins(self, node: Loop, turns: Guard, state: State, env: Env) -> JaxArray:
        """Return the first iteration for which a loop's guard holds."""
        ((name, length),) = self._guard_lengths(turns, state, env).items()
        return values(node.begins, {**env, name: 0, node.counter: 0}, jnp) - length

    def _branch(self, node: If, state: State, env: Env, seed: Any) -> None:
        if self.flow.writes(node):
            then, other = node.then, node.other
            self._choose(
                values(node.cond, env, jnp),
                self.flow.writes(node),
                state,
                lambda s: self.run(then, s, env, seed),
                lambda s: None if other is None else self.run(other, s, env, seed),
            )

    def _run_guarded(self, node: Execute | Deallocate, state: State, env: Env, run: Change) -> None:
        if node.guard is None or node.guard.cond is TRUE:
            run(state)
        else:
            asked = self._evaluate_guard(node.guard, state, env)
            self._choose(asked, self.flow.writes(node), state, run, lambda _: None)

    def _choose(self, cond: Any, names: Names, state: State, then: Change, other: Change) -> None:
        if isinstance(cond, bool):
            (then if cond else other)(state)
            return
        carry, changed = self._functionalize(names, state, then)
        _, unchanged = self._functionalize(names, state, other)
        state |= lax.cond(cond, changed, unchanged, carry)

    # --- dynamic bounds --------------------------------------------------------------------------

    def _evaluate_guard(self, guard: Guard, state: State, env: Env) -> Any:
        return values(guard.cond, {**env, **self._guard_lengths(guard, state, env)}, jnp)

    def _guard_lengths(self, guard: Guard, state: State, env: Env) -> dict[str, JaxArray]:
        """Return the values of the dynamic bounds of a guard, by name."""
        return {name: self._length(name, at, state, env) for name, at in guard.lengths}

    def _length(self, name: str, at: tuple[Lin, ...] | None, state: State, env: Env) -> JaxArray:
        """Return a dynamic bound at a point, or its maximum; its ceiling while it is unknown."""
        lengths = self._buffer(length_buffer(name), state)
        if at is None:
            return jnp.max(lengths)
        return lengths[tuple(values(e, env, jnp) for e in at)]

    # --- instructions ----------------------------------------------------------------------------

    def _execute(self, node: Execute, state: State, env: Env, seed: Any) -> None:
        if node.op_id in self.free:
            return
        op, at = self.pdg[node.op_id], self._point(node, state, env)
        with jax.named_scope(self.ast.names[op.id]):
            found = {k: self._operand(op, k, state, at) for k in range(len(op.inputs))}
            if isinstance(op.attrs, BoundAttrs):
                self._end(op, op.attrs, found[0], state, at)
                return
            kernel = self.kernels[op.id]
            scope = kernel.scope({d: at[d] for d in kernel.coords}, seed)
            given = {value: state[self.arrays[value]] for value in kernel.arrays}
            division = None if self._sharding is None else self._sharding.division
            scope = replace(scope, division=division, once=not self._loops, given=given)
            if self.blocks.now is not None:
                block = self.blocks.now.block
                scope = replace(scope, block=block, capacity=block.static_sizes(scope.capacity))
            for out, value in enumerate(kernel.compute(scope, found)):
                self._write((op.id, out), value, state, at)

    def _point(self, node: Execute, state: State, env: Env) -> Env:
        """Return the values of symbols at the point of an operation, including the dynamic bounds."""
        op = self.pdg[node.op_id]
        at = {d: values(e, env, jnp) for d, e in zip(op.domain, node.point, strict=True)}
        return {**self.plan.bounds, **at, **self._lengths(op.domain, state, at)}

    def _lengths(self, domain: Domain, state: State, at: Env) -> dict[str, JaxArray]:
        """Return the dynamic bounds that a point of a domain determines, by name."""
        return {
            dim.bound: self._length(dim.bound, tuple(map(sym, dim.over or ())), state, at)
            for dim in self.pdg.dims.known(domain)
        }

    def host_operands(self, node: Execute, state: State, env: Env) -> tuple[JaxArray, ...]:
        """Return the operands of an operation on the host; padding is arbitrary."""
        op, at = self.pdg[node.op_id], self._point(node, state, env)
        count = len(self.plan.statements.of_op(op.id).operands)
        return tuple(self._operand(op, k, state, at) for k in range(count))

    def give(self, node: Execute, found: Mapping[int, JaxArray], state: State, env: Env) -> None:
        """Store the results of an operation on the host, by output."""
        at = self._point(node, state, env)
        for out, value in found.items():
            self._write((node.op_id, out), value, state, at)

    def _end(self, op: Op, attrs: BoundAttrs, ended: JaxArray, state: State, at: Env) -> None:
        """End a dynamic dimension at this point if the operand is true."""
        name = length_buffer(self.pdg.dims[attrs.dim].bound)
        lengths = self._buffer(name, state)
        where = tuple(at[d] for d in op.domain if d != attrs.dim)
        length = jnp.where(ended, at[attrs.dim] + 1, lengths[where])
        state[name] = lengths.at[where].set(length.astype(lengths.dtype))

    def _write(self, tensor: Tensor, value: JaxArray, state: State, at: Env) -> None:
        if tensor in self.layout.input_arrays:
            return
        op = self.pdg[tensor[0]]
        reduce = op.outputs[tensor[1]].reduce
        block = self.plan.placed.blocks.get(tensor)
        for home in self.layout.homes[tensor]:
            buffer, within = self._block_view(home.buffer)
            array = self._buffer(buffer.name, state)
            coordinates = [values(e, at, jnp) for e in home.coordinates]
            if reduce is not None:
                value = COMBINE[reduce](look_up(array, buffer, coordinates, within), value)
            if block is not None and block.cut:
                # the slots beside the rows may contain initial values of a recurrence
                row = at[op.outputs[tensor[1]].domain[block.along]]
                inside = block.axis.has_slot(row)
                array = put_row(array, buffer, coordinates, value, inside, within)
            else:
                array = put(array, buffer, coordinates, value, within)
            state[buffer.name] = array

    def _clear(self, node: Deallocate, state: State, env: Env) -> None:
        """Reset accumulators after their last read."""
        for tensor in self.plan.lifetimes[node.lifetime].tensors:
            if self.pdg[tensor[0]].outputs[tensor[1]].reduce is None:
                continue
            home = self.layout.home_of(tensor)
            at, inside = self._range(tensor, node, state, env)
            coordinates = [values(e, {**self.plan.bounds, **at}, jnp) for e in home.coordinates]
            array = state.get(home.buffer.name, None)
            if array is not None:
                state[home.buffer.name] = clear(array, home.buffer, coordinates, inside)

    def _range(
        self, tensor: Tensor, node: Deallocate, state: State, env: Env
    ) -> tuple[dict[str, Any], Any]:
        """Return the points of a deallocation, per dimension, and a mask of existing points."""
        domain = self.pdg[tensor[0]].outputs[tensor[1]].domain
        at: dict[str, Any] = {}
        inside: Any = True
        slices = sum(isinstance(e, Slice) for e in node.point)
        axis = 0
        for d, entry in zip(domain, node.point, strict=True):
            if isinstance(entry, Lin):
                at[d] = values(entry, env, jnp)
                continue
            if node.guard is not None:
                env = {**env, **self._guard_lengths(node.guard, state, env)}
            along = [-1 if k == axis else 1 for k in range(slices)]
            steps = jnp.arange(self.pdg.dims[d].count(self.plan.bounds)).reshape(along)
            at[d] = values(entry.lo, env, jnp) + steps
            inside = inside & (at[d] < values(entry.hi, env, jnp))
            axis += 1
        return at, inside

    # --- reading ---------------------------------------------------------------------------------

    def _operand(self, op: Op, slot: int, state: State, at: Env) -> JaxArray | Picks:
        """Return an operand at one point; values beyond the end of a slice are arbitrary."""
        read = op.inputs[slot]
        if not is_sliced(read):
            latest = self.layout.latest.get((op.id, slot), {})
            return self._points(read, self._indices(read, at), state, latest)
        if self.blocks.now is None and is_picked(op, slot):
            return self._make_picks(op, read, state, at)
        if self.plan.operand_parts(op, slot) and not self._home_of(read):
            # a tile alone can use another home, where every part of the slice is found without a choice
            parts = split(self.pdg, self.plan.bounds, read, self.layout.merges)
            if not isinstance(parts, str):
                return jnp.concatenate([self._read_part(op, part, state, at) for part in parts])
        return self._slice(op, read, state, at)

    def _make_picks(self, op: Op, read: Read, state: State, at: Env) -> Picks:
        """Return a slice with reads at selected positions only."""
        ((along, entry),) = [(d, e) for d, e in self._entries(read).items() if isinstance(e, Slice)]
        value = self._point_shape(read)
        whole = self.plan.sizes.capacity(op, entry.length), *value

        def look_up(position: JaxArray, elements: Mapping[int, JaxArray]) -> JaxArray:
            index = {**self._indices(read, at), along: values(entry.lo, at, jnp) + position}
            rest = [n for k, n in enumerate(value) if k not in elements]
            found = self._points(read, index, state, elements=elements)
            return jnp.broadcast_to(found, (*position.shape, *rest))

        return Picks(whole, NUMPY[self.pdg.output(read).type.dtype], look_up)

    def _indices(self, read: Read, at: Env) -> dict[str, Any]:
        """Return the index at a point, by dimension of the tensor."""
        return {d: values(e, at, jnp) for d, e in self._entries(read).items() if isinstance(e, Lin)}

    def _entries(self, read: Read) -> dict[str, Entry]:
        domain = self.pdg[read.source].outputs[read.out].domain
        return dict(zip(domain, read.index, strict=True))

    def _home_of(self, read: Read) -> Home | None:
        """Return the single home of a tensor or merge; None if the home depends on the point."""
        if self.pdg[read.source].kind == "merge":
            return self.layout.merges.get(read.source)
        return self.layout.home_of(read.tensor)

    def _points(
        self,
        read: Read,
        at: Env,
        state: State,
        latest: Mapping[str, Home] = NOTHING,
        elements: Mapping[int, JaxArray] = EVERY,
    ) -> JaxArray:
        """Return the value of a tensor or merge at a point, or at many points.

        Args:
            read: The tensor or merge.
            at: Coordinates by dimension, as scalars or arrays.
            state: Buffers by name.
            latest: Buffers to read the last written value of, and the homes of these values.
            elements: Elements to select from each value, as in `look_up`.
        """
        env = {**self.plan.bounds, **at}
        home = self._home_of(read)
        if home is not None:
            home = latest.get(home.buffer.name, home)
            coordinates = [values(e, env, jnp) for e in home.coordinates]
            buffer, within = self._block_view(home.buffer)
            shards = self._sharding
            divided = None if shards is None else shards.axis(buffer)
            array = self._array(home, state)
            return look_up(array, buffer, coordinates, within, elements, divided)
        merge = self.pdg[read.source]
        env |= self._lengths(merge.domain, state, env)  # conditions of branches may use them
        found: JaxArray = None
        for branch, holds in reversed(self._branches(merge, env)):
            value = self._points(branch, self._indices(branch, env), state, latest, elements)
            if not elements:  # branches may have shorter axes than the merge
                own = self._point_shape(read)
                value = fitted(value, (*value.shape[: value.ndim - len(own)], *own))
            if found is not None:
                cond = jnp.asarray(holds)
                rank = len(self.pdg.output(branch).type.shape) - len(elements) + cond.ndim
                cond = cond.reshape((*cond.shape, *[1] * (rank - cond.ndim)))
                value = jnp.where(cond, value, found)
            found = value
        return found

    def _branches(self, merge: Op, env: Env) -> list[tuple[Read, Any]]:
        """Return the possible branches of a merge, and their conditions. The last one is the default.

        Conditions that are already decided during tracing exclude branches, which may read points that do not
        exist.
        """
        found: list[tuple[Read, Any]] = []
        for branch in merge.inputs:
            holds = values(branch.cond, env, jnp)
            if holds is not False:
                found.append((branch, holds))
            if holds is True:
                break
        return found

    def _array(self, home: Home, state: State) -> JaxArray:
        return self._buffer(home.buffer.name, state)

    def _read_part(self, op: Op, part: PointRange, state: State, at: Env) -> JaxArray:
        """Return one of the consecutive ranges of values in a slice."""
        if part.along is None:
            read = Read(*part.tensor, part.index)
            return self._points(read, self._indices(read, at), state)[None]
        index: list[Entry] = list(part.index)
        first = part.index[part.along]
        index[part.along] = span(first, first + part.count)
        return self._slice(op, Read(*part.tensor, tuple(index)), state, at)

    def _slice(self, op: Op, read: Read, state: State, at: Env) -> JaxArray:
        """Return the values of a slice, up to its capacity; values beyond its end are arbitrary."""
        entries = self._entries(read)
        sliced = {d: e for d, e in entries.items() if isinstance(e, Slice)}
        sizes = {d: self.plan.sizes.capacity(op, e.length) for d, e in sliced.items()}
        value = self._point_shape(read)
        whole = (*sizes.values(), *value)
        if not prod(sizes.values()):
            return jnp.zeros(whole, NUMPY[self.pdg.output(read).type.dtype])
        home = self._home_of(read)
        if home is not None:
            starts = self._starts(op, home, entries, sizes)
            if starts is not None:
                return self._slice_buffer(home, starts, sizes, state, at).reshape(whole)
        index = self._indices(read, at)
        for axis, (d, entry) in enumerate(sliced.items()):
            along = [-1 if k == axis else 1 for k in range(len(sizes))]
            steps = jnp.arange(sizes[d], dtype=jnp.int32).reshape(along)
            index[d] = values(entry.lo, at, jnp) + steps
        return jnp.broadcast_to(self._points(read, index, state), whole)

    def _starts(
        self, op: Op, home: Home, entries: Mapping[str, Entry], sizes: Mapping[str, int]
    ) -> list[tuple[Lin, str | None]] | None:
        """Return the start of a slice along each axis of a buffer, if its slots are consecutive.

        Each start is paired with the sliced dimension of that axis, or None. The result is None if the slots
        are not consecutive, or some may lie outside of the buffer.
        """
        found: list[tuple[Lin, str | None]] = []
        for axis in home.buffer.axes:
            coordinate = home.coordinates[axis.coordinate]
            runs = [d for d in coordinate.symbols if d in sizes]
            entry = subst_entry(coordinate, {d: _low(e) for d, e in entries.items()})
            assert isinstance(entry, Lin)
            start, along = entry - axis.first, runs[0] if runs else None
            if axis.ring:
                if along is not None:
                    return None
                if axis.prologue:
                    beyond = maximum(start - axis.prologue, 0)
                    start = minimum(start, axis.prologue) + beyond % axis.turns
                else:
                    start = start % axis.size
            elif along is not None:
                shifted = len(runs) == 1 and (coordinate - sym(along)).is_const
                if not shifted or not self._is_within_axis(op, start, sizes[along], axis.size):
                    return None
            found.append((start, along))
        runs = [along for _, along in found if along is not None]
        return found if runs == list(sizes) else None

    def _is_within_axis(self, op: Op, start: Lin, count: int, size: int) -> bool:
        """Whether a range of slots lies within an axis at every point of an operation."""
        if start.symbols <= self.plan.bounds.keys() - self._unknown():
            low = evaluate(start, self.plan.bounds)
            return 0 <= low <= size - count
        if self.pdg.dims.dynamic:
            return False
        points = self.pdg.points(op)
        return (
            points.greatest(start, self.plan.bounds) + count <= size
            and points.greatest(-start, self.plan.bounds) <= 0
        )

    def _unknown(self) -> set[str]:
        return {dim.bound for dim in self.pdg.dims.dynamic}

    def _slice_buffer(
        self,
        home: Home,
        starts: list[tuple[Lin, str | None]],
        sizes: Mapping[str, int],
        state: State,
        at: Env,
    ) -> JaxArray:
        counts = [1 if along is None else sizes[along] for _, along in starts]
        places = [values(e, at, jnp) for e, _ in starts]
        return cut(self._array(home, state), places, counts, self._block_view(home.buffer)[1])

    def _point_shape(self, read: Read) -> tuple[int, ...]:
        """Return the shape of one value of a tensor, inside a tile if there is one."""
        shape = self.plan.sizes.point_shape(read)
        if self.blocks.now is None:
            return shape
        sizes, block = self.pdg.output(read).type.shape, self.blocks.now.block
        return tuple(
            block.size if block.is_along(size) else n for size, n in zip(sizes, shape, strict=True)
        )


def _low(entry: Entry) -> Lin:
    return entry.lo if isinstance(entry, Slice) else entry
