"""Generation of the Python code for the interpreter.

Each statement becomes a function of its point: it looks up operands, launches a kernel and stores the
outputs. Each lifetime becomes a function that frees its values. The loop nest becomes a generator that
calls these functions in order and yields after every instruction. This code is the text form of an
executable.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from functools import partial
from itertools import count
from typing import Final

from timerl_nb.compiler.ir.analysis.resolved_reads import accesses
from timerl_nb.compiler.ir.dependence_graph import Pdg, at_own_point
from timerl_nb.compiler.ir.graph_rewriting import merges_by_length
from timerl_nb.compiler.ir.operation_attributes import BoundAttrs, CheckpointAttrs, OutputAttrs
from timerl_nb.compiler.ir.operations import Op, Read, Tensor, is_sliced
from timerl_nb.compiler.loops.loop_nodes import (
    VERBS,
    Ast,
    Deallocate,
    Execute,
    Fetch,
    Guard,
    If,
    Loop,
    Node,
    Offload,
    Transfer,
)
from timerl_nb.compiler.loops.loop_nodes import Sequence as Block
from timerl_nb.compiler.memory.byte_sizes import moving_symbols
from timerl_nb.compiler.memory.memory_plan import MemoryPlan
from timerl_nb.compiler.memory.placement.donation_records import Donation, Leaf
from timerl_nb.compiler.memory.placement.slice_reads import PointRange
from timerl_nb.compiler.memory.placement.storage_kinds import Store
from timerl_nb.compiler.symbolic.expression_evaluation import python_source, variable
from timerl_nb.compiler.symbolic.index_expressions import (
    FALSE,
    TRUE,
    Cond,
    Lin,
    Slice,
    invent_symbol,
    sym,
)
from timerl_nb.runtime.fused_kernel import Kernel
from timerl_nb.runtime.interpreter.store_names import key_text, store_name

_LENGTH: Final = invent_symbol("length")  # placeholder for the dynamic bound of a loop's guard


class Source:
    """Writer of the Python code.

    Args:
        pdg: Dependence graph.
        ast: Loop nest.
        plan: Memory plan.
        kernels: Kernels by operation.
        record: Whether the code reports every read, write, free and launch to the recorder.
    """

    def __init__(
        self,
        pdg: Pdg,
        ast: Ast,
        plan: MemoryPlan,
        kernels: Mapping[int, Kernel],
        *,
        record: bool = False,
    ) -> None:
        self.pdg, self.ast, self.plan, self.kernels = pdg, ast, plan, kernels
        self.record = record
        self._fresh = count()
        # merges with conditions on a dynamic bound, read at points with another bound
        crossed = {read.source for op in pdg for read in op.inputs if pdg.crossed(read)}
        self._crossed = crossed & merges_by_length(pdg.dims, pdg.ops)

    def text(self) -> str:
        """Return the whole program as Python code."""
        parts: list[str] = []
        executed = {n.op_id for n in self.ast if isinstance(n, Execute)}
        called = {(type(n), n.lifetime) for n in self.ast if isinstance(n, Transfer)}
        for op in self.pdg:
            if op.id in executed:
                write = {
                    "checkpoint": self._sink_text,
                    "call": self._call_out,
                    "udf": self._udf,
                    "bound": self._bound_function,
                }
                text = write.get(op.kind, self._statement)(op)
                parts.append(self._with_length(text, op.domain))
        for merge in (self.pdg[k] for k in sorted(self._crossed)):
            parts.append(self._with_length(self._choice(merge), merge.domain))
        for kind, put in ((Offload, self._move), (Fetch, self._move), (Deallocate, self._free)):
            for name in self.plan.lifetimes:
                if (kind, name) in called:
                    parts.append(put(VERBS[kind], name))
        parts += [self._output(one.op) for one in self.plan.statements.outputs]
        parts.append(self._program())
        return "\n\n".join(parts) + "\n"

    # --- reading -----------------------------------------------------------------------------

    def _key(self, tensor: Tensor, index: Sequence[str]) -> str:
        return key_text(self.plan.stores[tensor], index)

    def _own_key(self, tensor: Tensor, domain: Iterable[str]) -> str:
        return self._key(tensor, [variable(d) for d in domain])

    def _value(self, read: Read) -> str:
        """Return an expression for the value of an unsliced read. A merge becomes a chain of conditions."""
        return self._select_value(Read(read.source, read.out, read.index), self._crossed)

    def _select_value(self, read: Read, kept: Container[int]) -> str:
        (*others, last) = accesses(self.pdg, read, kept)
        text = self._load_value(last.read)
        for access in reversed(others):
            cond = python_source(access.read.cond)
            text = f"({self._load_value(access.read)} if {cond} else {text})"
        return text

    def _load_value(self, read: Read) -> str:
        """Return an expression for the value of a tensor at a point, or a call of a merge's function."""
        tensor = read.tensor
        index = [python_source(e) for e in read.index if isinstance(e, Lin)]
        if read.source in self._crossed:
            return f"{self._merge_name(read.source)}({', '.join(index)})"
        name, key = store_name(tensor), self._key(tensor, index)
        found = f"{name}[{key}]"
        store = self.plan.stores[tensor]
        if store.traits.has_rows:  # single rows are read for outputs only
            at = read.index[store.position]
            assert isinstance(at, Lin)
            row = python_source(at - store.first_row)
            found = f"rt.on_host({found})[{row}]"
        if self.pdg.output(read).reduce is not None:  # nothing may have been accumulated yet
            found = f"{name}.get({key}, start_{name})"
        if self.record:
            point = f"({', '.join(index)}{',' * (len(index) == 1)})"
            return f"rt.read({found}, {self.plan.stores[tensor].name!a}, {point})"
        return found

    @staticmethod
    def _merge_name(merge: int) -> str:
        return f"merge_{merge}"

    def _choice(self, merge: Op) -> str:
        """Define a function to select the branch of a merge."""
        own = at_own_point(merge.id, merge.outputs[0])
        value = self._select_value(own, self._crossed - {merge.id})
        return f"def {self._merge_name(merge.id)}({_params(merge.domain)}):\n    return {value}"

    def _existence_tests(self, read: Read) -> list[str]:
        """Return the conditions for the existence of a point, if dynamic bounds may end before it."""
        domain = self.pdg.output(read).domain
        at = {d: e for d, e in zip(domain, read.index, strict=True) if isinstance(e, Lin)}
        return [
            f"{python_source(at[dim.name])} < {self._length(dim.bound, [at[d] for d in dim.over or ()])}"
            for dim in self.pdg.crossed(read)
            if dim.name in domain
        ]

    def _points(self, read: Read, fill: str, upto: Callable[[Lin], int] | None = None) -> str:
        """Return an expression for the list of a slice's points, in row-major order.

        Args:
            read: The sliced read.
            fill: Expression for missing points.
            upto: Returns a fixed number of points for a slice of varying length.
        """
        loops: list[str] = []
        index: list[Lin] = []
        inside: list[str] = []
        for entry in read.index:
            if isinstance(entry, Lin):
                index.append(entry)
                continue
            symbol = invent_symbol(f"x{next(self._fresh)}")
            name = variable(symbol)
            lo, hi = python_source(entry.lo), python_source(entry.hi)
            if upto is not None:
                inside.append(f"{name} < {hi}")
                hi = f"{lo} + {upto(entry.length)}"
            loops.append(f"for {name} in range({lo}, {hi})")
            index.append(sym(symbol))
        point = Read(read.source, read.out, tuple(index))
        inside += self._existence_tests(point)
        value = self._value(point)
        if inside:
            value += f" if {' and '.join(inside)} else {fill}"
        return f"[{value} {' '.join(loops)}]"

    def _operand(self, kernel: Kernel, slot: int) -> str:
        op, read = kernel.op, kernel.op.inputs[slot]
        if not kernel.is_sliced(slot):
            return self._value(read)
        parts = self.plan.operand_parts(op, slot)
        if parts:
            return f"({''.join(f'{self._part_text(kernel, part)}, ' for part in parts)})"
        lengths = [e.length for e in read.index if isinstance(e, Slice)]
        moving = moving_symbols(self.pdg, op)
        moves = any(length.symbols.intersection(moving) for length in lengths)
        upto = partial(kernel.sizes.capacity, op) if moves else None
        points = self._points(read, f"pad_{op.id}_{slot}", upto)
        return f"rt.{'stack' if kernel.sizes.is_gathered(op, read) else 'points'}({points})"

    def _part_text(self, kernel: Kernel, part: PointRange) -> str:
        """Return an expression for a value or a block; "None" for a block written by the kernel itself."""
        if part.along is None:
            return self._value(Read(*part.tensor, part.index))
        tensor, index = part.tensor, [python_source(e) for e in part.index]
        store = self.plan.stores[tensor]
        found = f"{store_name(tensor)}[{key_text(store, index)}]"
        if kernel.own_block(part) is not None:
            found = "None"
        if self.record:
            counter = f"rt_x{next(self._fresh)}"
            lo, end = index[part.along], python_source(part.index[part.along] + part.count)
            index[part.along] = counter
            points = f"[({', '.join(index)},) for {counter} in range({lo}, {end})]"
            return f"rt.reads({found}, {store.name!a}, {points})"
        return found

    # --- functions ---------------------------------------------------------------------------

    def _name(self, op_id: int) -> str:
        label = self.pdg[op_id].label or self.pdg[op_id].kind
        plain = "".join(c if c.isascii() and c.isalnum() else "_" for c in label)
        if plain.split("_")[0] in ("kernel", "start", "pad", "merge", *VERBS.values(), "output"):
            plain = f"op_{plain}"  # generated names use these prefixes
        return f"{plain}_{op_id}" if plain.strip("_") and not plain[0].isdigit() else f"op_{op_id}"

    def _statement(self, op: Op) -> str:
        """Return the function of a fused kernel: it collects operands, calls the kernel and stores the results."""
        kernel = self.kernels[op.id]
        lines = self._head_lines(op)
        slots: list[str] = []
        grown = [str(self._fixed_bytes(op))]
        for out in kernel.accumulated:
            tensor = (op.id, out)
            name, key = store_name(tensor), self._own_key(tensor, op.outputs[out].domain)
            if self.plan.donates:  # the kernel accumulates in place
                slots.append(f"{name}[{key}] if {key} in {name} else new_{name}()")
            else:
                slots.append(f"{name}.get({key}, start_{name})")
            grown.append(f"({self.plan.stores[tensor].nbytes} if {key} not in {name} else 0)")
        taken = [self._donated_operand(d) for d in kernel.taken.values()]
        gone = [self._let_go(d, op) for d in kernel.taken.values()]
        lines.append(f"    rt_new = {' + '.join(g for g in grown if g != '0') or '0'}")
        lines += self._given_up(kernel)
        blocks, made = self._blocks(kernel)
        lines += made
        operands = [
            "None" if k in kernel.taken else self._operand(kernel, k) for k in range(len(op.inputs))
        ]
        gathered = self.plan.gathered_bytes(op)
        lines += [
            f"    rt_out = kernel_{op.id}(",
            f"        {'rt.seed' if kernel.needs_seed else '()'},",
            f"        {_tuple(kernel.coords)},",
            *_operand_lines(operands),
            *_operand_lines(taken),
            f"        ({''.join(s + ', ' for s in slots)}),",
            f"        ({''.join(b + ', ' for b in blocks)}),",
            "    )",
        ]
        lines += [f"    {text}" for text in gone if text != "None"]
        return "\n".join(lines + self._put_away(op, gathered))

    def _donated_operand(self, donation: Donation) -> str:
        """Return an expression for a donated operand: the value, or a copy if the value is still needed."""

        def position_of(leaf: Leaf) -> tuple[str, str]:
            store, at, key, point = self._leaf(leaf)
            texts = f"{at}[{key}]", f"rt.copied({at}[{key}])"
            if not self.record:
                return texts
            mine, copy = (f"rt.read({text}, {store.name!a}, {point})" for text in texts)
            return mine, copy

        return _by_leaf(donation, position_of)

    def _let_go(self, donation: Donation, op: Op) -> str:
        """Return an expression to remove a donated value from its store after a successful launch.

        It is "None" if an output replaces the value.
        """
        made = [((op.id, k), output.domain) for k, output in enumerate(op.outputs)]
        replaced = {(store_name(tensor), self._own_key(tensor, domain)) for tensor, domain in made}

        def position_of(leaf: Leaf) -> tuple[str, str]:
            store, at, key, point = self._leaf(leaf)
            gone = "None" if (at, key) in replaced else f"{at}.pop({key})"
            if self.record:
                gone = f"({gone}, rt.freed({at!r}, {store.name!a}, {point}, {store.nbytes}))"
            return gone, "None"

        return _by_leaf(donation, position_of)

    def _leaf(self, leaf: Leaf) -> tuple[Store, str, str, str]:
        """Return the store of a value, the store's variable, and expressions for the key and the point."""
        store, index = self.plan.stores[leaf.tensor], [python_source(e) for e in leaf.index]
        point = f"({''.join(e + ', ' for e in index)})"
        return store, store_name(leaf.tensor), key_text(store, index), point

    def _given_up(self, kernel: Kernel) -> list[str]:
        """Return lines to subtract the bytes of donated operands. Outputs reuse them."""
        given: dict[str, int] = {}
        for donation in kernel.taken.values():
            nbytes = self.plan.stores[donation.leaves[0].tensor].nbytes
            where = "" if donation.taken is TRUE else python_source(donation.taken)
            given[where] = given.get(where, 0) + nbytes
        return [
            f"    rt_new -= {nbytes} if {where} else 0" if where else f"    rt_new -= {nbytes}"
            for where, nbytes in given.items()
        ]

    def _blocks(self, kernel: Kernel) -> tuple[list[str], list[str]]:
        """Return expressions for blocks of rows, and lines to create them on first use."""
        op = kernel.op
        found: list[str] = []
        first: dict[str, list[tuple[str, str, int]]] = {}
        for out, store in kernel.blocks.items():
            name, key = store_name((op.id, out)), self._own_key((op.id, out), op.domain)
            found.append(f"{name}[{key}]")
            first.setdefault(store.stored_dim, []).append((name, key, store.unit))
        lines: list[str] = []
        for blocks in first.values():  # blocks along one dimension are created at the same points
            name, key, _ = blocks[0]
            lines.append(f"    if {key} not in {name}:")
            lines += [f"        {name}[{key}] = new_{name}()" for name, key, _ in blocks]
            lines.append(f"        rt_new += {sum(unit for _, _, unit in blocks)}")
        return found, lines

    def _udf(self, op: Op) -> str:
        """Define the function of a host operation: copy operands to the host, outputs back."""
        lines = [*self._head_lines(op), f"    rt_new = {self._fixed_bytes(op)}"]
        operands = self.plan.statements.of_op(op.id).operands
        point = _point(op.domain)
        lines += [
            f"    rt_out = rt.udf({op.id}, {point}, (",
            *(f"        {self._on_host(operand.read, op)}," for operand in operands),
            "    ))",
        ]
        return "\n".join(lines + self._put_away(op, 0))

    def _call_out(self, op: Op) -> str:
        """Define the function of a host operation with effects, but without outputs."""
        point = _point(op.domain)
        values = "".join(f"{self._on_host(read, op)}, " for read in op.inputs)
        lines = [*self._head_lines(op), f"    rt.effect({op.id}, {point}, ({values}))"]
        return "\n".join([*lines, "    rt.trace(rt.ledger.live)"])

    def _on_host(self, read: Read, op: Op) -> str:
        """Return an expression for an operand on the host, cut to its true lengths."""
        found = self._value(read) if not is_sliced(read) else ""
        if not found:
            shape, dtype = self.plan.sizes.point_shape(read), self.pdg.output(read).type.dtype
            found = f"rt.gather({self._points(read, 'None')}, {self._lengths(read)}, {shape}, {dtype!r})"
        sizes = self.pdg.read_type(read).shape
        symbols = {name for s in sizes if isinstance(s, Lin) for name in s.symbols}
        own = () if op.kind == "output" else op.domain
        if not self.pdg.dims.mention(symbols) and not symbols.intersection(own):
            return found
        true = [str(s) if isinstance(s, int) else f"max(0, {python_source(s)})" for s in sizes]
        return f"rt.cut({found}, ({''.join(f'{n}, ' for n in true)}))"

    def _bound_function(self, op: Op) -> str:
        """Define a function to end a dynamic dimension when its operand is true."""
        attrs: BoundAttrs = op.attrs
        key = _tuple(d for d in op.domain if d != attrs.dim)
        return "\n".join(
            [
                *self._head_lines(op),
                f"    if {self._value(op.inputs[0])}:",
                f"        rt_lengths[{self.pdg.dims[attrs.dim].bound!r}][{key}] = {variable(attrs.dim)} + 1",
                "    rt.trace(rt.ledger.live)",
            ]
        )

    def _with_length(self, text: str, domain: Sequence[str]) -> str:
        """Define the dynamic bounds in a function as their values at the function's point."""
        for dim in self.pdg.dims.known(tuple(domain)):
            name = variable(dim.bound)
            head, rest = text.split("\n", 1)
            if re.search(rf"\b{name}\b", rest):
                at = tuple(map(sym, dim.over or ()))
                text = f"{head}\n    {name} = {self._length(dim.bound, at)}\n{rest}"
        return text

    def _length(self, name: str, at: Sequence[Lin] | None) -> str:
        """Return an expression for a dynamic bound at a point; its ceiling until it is known."""
        if at is None:
            return f"rt.longest({name!r})"
        point = "".join(f"{python_source(e)}, " for e in at)
        return f"rt_lengths[{name!r}].get(({point}), rt_most[{name!r}])"

    def _guard_lengths(self, guard: Guard) -> dict[str, str]:
        """Return expressions for the dynamic bounds of a guard."""
        return {name: self._length(name, at) for name, at in guard.lengths}

    def _guard_text(self, guard: Guard) -> str:
        """Return the condition of a guard as Python code."""
        return python_source(guard.cond, self._guard_lengths(guard))

    def _lengths(self, read: Read) -> str:
        lengths = [python_source(e.length) for e in read.index if isinstance(e, Slice)]
        return f"({''.join(f'{n}, ' for n in lengths)})"

    def _head_lines(self, op: Op) -> list[str]:
        lines = [f"def {self._name(op.id)}({_params(op.domain)}):"]
        if self.record:
            lines.append(f"    rt.launch({self.ast.names[op.id]!a}, {_tuple(op.domain)})")
        if self.plan.swaps.all:
            lines.append("    rt.settle()")
        return lines

    def _put_away(self, op: Op, gathered: int) -> list[str]:
        """Return lines to store the outputs `rt_out` and count their bytes."""
        lines: list[str] = []
        kernel = self.kernels.get(op.id)
        for out, output in enumerate(op.outputs):
            tensor = (op.id, out)
            store, name = self.plan.stores[tensor], store_name(tensor)
            key = self._own_key(tensor, output.domain)
            if self.record:
                once = f"0 if {key} in {name} else " if output.reduce else ""
                made = f"{name!r}, {store.name!a}, {_tuple(output.domain)}"
                if store.traits.has_rows:
                    made += f", {store.position}"
                    lines.append(f"    rt.wrote_row({made}, {store.unit})")
                else:
                    lines.append(f"    rt.wrote({made}, {once}{store.nbytes})")
            lines.append(f"    {name}[{key}] = rt_out[{kernel.order[out] if kernel else out}]")
        lines.append("    rt.ledger.live = rt_live = rt.ledger.live + rt_new")
        lines.append(f"    rt.trace(rt_live + {gathered})" if gathered else "    rt.trace(rt_live)")
        return lines

    def _fixed_bytes(self, op: Op) -> int:
        return sum(
            self.plan.stores[op.id, k].nbytes
            for k, output in enumerate(op.outputs)
            if output.reduce is None and not self.plan.stores[op.id, k].traits.has_rows
        )

    def _sink_text(self, op: Op) -> str:
        attrs: CheckpointAttrs = op.attrs
        values = [self._on_host(read, op) for read in op.inputs]
        named = "".join(f"{n!a}: {v}, " for n, v in zip(attrs.names, values, strict=True))
        point = _point(op.domain)
        lines = self._head_lines(op)
        lines.append(f"    rt.save({op.id}, {attrs.path!a}, {point}, {{{named}}})")
        lines.append("    rt.trace(rt.ledger.live)")
        return "\n".join(lines)

    def _move(self, verb: str, name: str) -> str:
        """Define a function to offload or fetch the swapped values of a lifetime."""
        life = self.plan.lifetimes[name]
        lines = [f"def {verb}_{name}({_params(life.domain)}):"]
        for tensor in life.tensors:
            if tensor not in self.plan.swaps.tensors:
                continue
            store, at = self.plan.stores[tensor], store_name(tensor)
            if self.record:
                moved = f"{store.name!a}, {_tuple(life.domain)}"
                change = -store.unit if verb == "offload" else store.unit
                if store.traits.has_rows:
                    lines.append(f"    rt.moved_block({verb!r}, {at!r}, {moved}, {change})")
                else:
                    lines.append(f"    rt.moved({verb!r}, {moved}, {change})")
            lines.append(f"    rt.{verb}({at}, {self._own_key(tensor, store.domain)})")
        return "\n".join(lines)

    def _free(self, verb: str, name: str) -> str:
        life = self.plan.lifetimes[name]
        lines = [f"def {verb}_{name}({_params(life.domain)}):"]
        total = 0
        for tensor in life.tensors:
            store: Store = self.plan.stores[tensor]
            key = self._own_key(tensor, store.domain)
            at = store_name(tensor)
            producer = self.pdg[tensor[0]]
            reduced = producer.outputs[tensor[1]].reduce is not None
            # under a dynamic bound, the value may never have been computed
            reduced = reduced or bool(self.pdg.dims.ending(producer.domain))
            if self.record:
                gone = f"{at!r}, {store.name!a}, {_tuple(life.domain)}"
                if store.traits.has_rows:
                    lines.append(f"    rt.freed_block({gone}, {store.unit})")
                else:
                    lines.append(f"    rt.freed({gone}, {store.nbytes})")
            if reduced:
                lines.append(
                    f"    rt.ledger.live -= {store.nbytes} if {at}.pop({key}, None) is not None else 0"
                )
            else:
                lines.append(f"    del {at}[{key}]")
                total += store.unit
        if total:
            lines.append(f"    rt.ledger.live -= {total}")
        return "\n".join(lines)

    def _output(self, op: Op) -> str:
        attrs: OutputAttrs = op.attrs
        text = (
            f"def output_{op.id}({_params(op.domain)}):  # {attrs.name!a}\n"
            f"    return {self._on_host(op.inputs[0], op)}"
        )
        return self._with_length(text, op.domain)

    # --- control -----------------------------------------------------------------------------

    def _program(self) -> str:
        lines = ["def program():"]
        self._node(self.ast.root, 1, lines)
        if len(lines) == 1:  # an empty program under these bounds
            lines.append("    yield from ()")
        return "\n".join(lines)

    def _node(self, node: Node, depth: int, lines: list[str]) -> None:
        """Append the lines of a part of the loop nest; iterations of the outermost loop also yield to the caller."""
        pad, node = "    " * depth, self.ast.display_node(node)
        if isinstance(node, Block):
            for part in node.parts:
                self._node(part, depth, lines)
        elif isinstance(node, Loop):
            first, end = python_source(node.first), python_source(node.last + 1)
            if node.turns is not None and node.late:
                (length,) = self._guard_lengths(node.turns).values()
                begins = python_source(node.begins - sym(_LENGTH), {_LENGTH: length})
                first = f"max({first}, {begins})"
            counter = variable(node.counter)
            lines.append(f"{pad}for {counter} in range({first}, {end}, {node.step}):")
            if node.turns is not None and not node.late:
                lines.append(f"{pad}    if not {self._guard_text(node.turns)}:")
                lines.append(f"{pad}        break")
            self._node(node.body, depth + 1, lines)
            if depth == 1:
                lines += [f"{pad}    rt.progress()", f"{pad}    yield {counter}"]
        elif isinstance(node, If):
            lines.append(f"{pad}if {python_source(node.cond)}:")
            self._node(node.then, depth + 1, lines)
            if node.other is not None:
                lines.append(f"{pad}else:")
                self._node(node.other, depth + 1, lines)
        elif isinstance(node, Execute):
            name = self.ast.names[node.op_id]
            pad = self._open_guard(node.guard, pad, lines)
            self._call(pad, self._name(node.op_id), "execute", name, node.point, lines)
        else:
            verb = VERBS[type(node)]
            index: list[Lin] = []
            inner = self._open_guard(node.guard, pad, lines)
            for entry in node.point:
                if isinstance(entry, Slice):
                    counter = invent_symbol(f"x{next(self._fresh)}")
                    lo, hi = python_source(entry.lo), python_source(entry.hi)
                    if node.guard is not None:
                        hi = python_source(entry.hi, self._guard_lengths(node.guard))
                    lines.append(f"{inner}for {variable(counter)} in range({lo}, {hi}):")
                    inner += "    "
                    index.append(sym(counter))
                else:
                    index.append(entry)
            function = f"{verb}_{node.lifetime}"
            self._call(inner, function, verb, node.lifetime, tuple(index), lines)

    def _open_guard(self, guard: Guard | None, pad: str, lines: list[str]) -> str:
        """Write the condition of a guard if there is one, and return the indent of the code inside."""
        if guard is None or guard.cond is TRUE:
            return pad
        lines.append(f"{pad}if {self._guard_text(guard)}:")
        return pad + "    "

    def _call(
        self,
        pad: str,
        function: str,
        kind: str,
        name: str,
        point: tuple[Lin, ...],
        lines: list[str],
    ) -> None:
        args = ", ".join(python_source(e) for e in point)
        lines.append(f"{pad}{function}({args})")
        lines.append(f"{pad}yield {kind!r}, {name!a}, ({args}{',' * (len(point) == 1)})")


def _params(symbols: Iterable[str]) -> str:
    return ", ".join(map(variable, symbols))


def _tuple(symbols: Iterable[str]) -> str:
    return f"({''.join(f'{variable(s)}, ' for s in symbols)})"


def _point(symbols: Iterable[str]) -> str:
    """Return a dictionary of symbols by name, as source code."""
    return f"{{{''.join(f'{s!r}: {variable(s)}, ' for s in symbols)}}}"


def _by_leaf(donation: Donation, of: Callable[[Leaf], tuple[str, str]]) -> str:
    """Choose between two expressions per leaf: the first if the leaf is donated, else the second."""
    *others, last = [(leaf.cond, _either(leaf.taken, *of(leaf))) for leaf in donation.leaves]
    found = last[1]
    for cond, text in reversed(others):
        found = _either(cond, text, found)
    return found


def _either(cond: Cond, yes: str, no: str) -> str:
    if cond is FALSE:
        return no
    if cond is TRUE or yes == no:
        return yes
    return f"({yes} if {python_source(cond)} else {no})"


def _operand_lines(items: Sequence[str]) -> list[str]:
    """Return the lines of a tuple of operands."""
    if not items:
        return ["        (),"]
    return ["        (", *(f"            {item}," for item in items), "        ),"]
