"""The Python program that a compiled program runs as.

Each statement becomes a function of its point that looks up its operands, launches its kernel and
puts away the outputs; each lifetime a function that frees its values; the loop AST a generator that
calls them in order and yields after every instruction. It is the executable's text: what one reads
is what runs.
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

_LENGTH: Final = invent_symbol("length")


class Source:
    """Writes the program.

    `record` makes every read, write, free and launch report itself to `emit`.
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
        # merges that choose by a dynamic bound, and are read where it is another
        crossed = {
            read.source for op in pdg for read in op.inputs if pdg.is_read_across_bounds(read)
        }
        self._crossed = crossed & merges_by_length(pdg.dims, pdg.ops)

    def text(self) -> str:
        """The whole program as Python source."""
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
        """An expression for what a read without slices yields: a chain of conditions for a merge."""
        return self._select_value(Read(read.source, read.out, read.index), self._crossed)

    def _select_value(self, read: Read, kept: Container[int]) -> str:
        (*others, last) = accesses(self.pdg, read, kept)
        text = self._load_value(last.read)
        for access in reversed(others):
            cond = python_source(access.read.cond)
            text = f"({self._load_value(access.read)} if {cond} else {text})"
        return text

    def _load_value(self, read: Read) -> str:
        """An expression for the value at a point of a tensor, or of a merge that has a function."""
        tensor = read.tensor
        index = [python_source(e) for e in read.index if isinstance(e, Lin)]
        if read.source in self._crossed:
            return f"{self._merge_name(read.source)}({', '.join(index)})"
        name, key = store_name(tensor), self._key(tensor, index)
        found = f"{name}[{key}]"
        store = self.plan.stores[tensor]
        if store.traits.has_rows:  # only the run's outputs are read from it one by one
            at = read.index[store.position]
            assert isinstance(at, Lin)
            row = python_source(at - store.first_row)
            found = f"rt.on_host({found})[{row}]"
        if self.pdg.output(read).reduce is not None:  # nothing may have been added
            found = f"{name}.get({key}, start_{name})"
        if self.record:
            point = f"({', '.join(index)}{',' * (len(index) == 1)})"
            return f"rt.read({found}, {self.plan.stores[tensor].name!a}, {point})"
        return found

    @staticmethod
    def _merge_name(merge: int) -> str:
        return f"merge_{merge}"

    def _choice(self, merge: Op) -> str:
        """A function for what a merge is at a point."""
        own = at_own_point(merge.id, merge.outputs[0])
        value = self._select_value(own, self._crossed - {merge.id})
        return f"def {self._merge_name(merge.id)}({_params(merge.domain)}):\n    return {value}"

    def _existence_tests(self, read: Read) -> list[str]:
        """Whether a point is there at all, where a dynamic bound may end before it."""
        domain, dim = self.pdg.output(read).domain, self.pdg.dims.dynamic
        if (
            dim is None
            or not self.pdg.dims.ends(domain)
            or not self.pdg.is_read_across_bounds(read)
        ):
            return []
        at = {d: e for d, e in zip(domain, read.index, strict=True) if isinstance(e, Lin)}
        length = self._length([at[d] for d in self._dynamic_dims])
        return [f"{python_source(at[dim.name])} < {length}"]

    def _points(self, read: Read, fill: str, upto: Callable[[Lin], int] | None = None) -> str:
        """An expression for the list of a slice's points, in row-major order.

        Args:
            fill: what stands for points that are not there.
            upto: how many points there are to be along a slice, whatever its length at this point.
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
        """One value, or the block that rows are cut from (None where the kernel has it anyway)."""
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
            plain = f"op_{plain}"  # our own names begin with these
        return f"{plain}_{op_id}" if plain.strip("_") and not plain[0].isdigit() else f"op_{op_id}"

    def _statement(self, op: Op) -> str:
        kernel = self.kernels[op.id]
        lines = self._head_lines(op)
        slots: list[str] = []
        grown = [str(self._fixed_bytes(op))]
        for out in kernel.accumulated:
            tensor = (op.id, out)
            name, key = store_name(tensor), self._own_key(tensor, op.outputs[out].domain)
            if self.plan.donates:  # the kernel adds in place
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
        """An operand that the kernel takes over: the value, or a copy where that lives on."""

        def position_of(leaf: Leaf) -> tuple[str, str]:
            store, at, key, point = self._leaf(leaf)
            texts = f"{at}[{key}]", f"rt.copied({at}[{key}])"
            if not self.record:
                return texts
            mine, copy = (f"rt.read({text}, {store.name!a}, {point})" for text in texts)
            return mine, copy

        return _by_leaf(donation, position_of)

    def _let_go(self, donation: Donation, op: Op) -> str:
        """What takes that value out of its store, once its kernel has not failed, or None.

        Where an output takes its place that is enough.
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
        """The store that a value is in, how that is called, the key, and the point."""
        store, index = self.plan.stores[leaf.tensor], [python_source(e) for e in leaf.index]
        point = f"({''.join(e + ', ' for e in index)})"
        return store, store_name(leaf.tensor), key_text(store, index), point

    def _given_up(self, kernel: Kernel) -> list[str]:
        """The lines that count the bytes of operands that are taken over: they become outputs'."""
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
        """The blocks that a kernel writes rows of, and the lines that make them at the first."""
        op = kernel.op
        found: list[str] = []
        first: dict[str, list[tuple[str, str, int]]] = {}
        for out, store in kernel.blocks.items():
            name, key = store_name((op.id, out)), self._own_key((op.id, out), op.domain)
            found.append(f"{name}[{key}]")
            first.setdefault(store.stored_dim, []).append((name, key, store.unit))
        lines: list[str] = []
        for blocks in first.values():  # all along one dimension begin at the same points
            name, key, _ = blocks[0]
            lines.append(f"    if {key} not in {name}:")
            lines += [f"        {name}[{key}] = new_{name}()" for name, key, _ in blocks]
            lines.append(f"        rt_new += {sum(unit for _, _, unit in blocks)}")
        return found, lines

    def _udf(self, op: Op) -> str:
        """A host function: its operands go to the host, its outputs come back."""
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
        """A host function that is called for its effect."""
        point = _point(op.domain)
        values = "".join(f"{self._on_host(read, op)}, " for read in op.inputs)
        lines = [*self._head_lines(op), f"    rt.effect({op.id}, {point}, ({values}))"]
        return "\n".join([*lines, "    rt.trace(rt.ledger.live)"])

    def _on_host(self, read: Read, op: Op) -> str:
        """An operand of an operation on the host: at its true length, but for a run's outputs."""
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
        """Where a dynamic dimension ends: at the first point at which the operand holds."""
        attrs: BoundAttrs = op.attrs
        key = _tuple(d for d in op.domain if d != attrs.dim)
        return "\n".join(
            [
                *self._head_lines(op),
                f"    if {self._value(op.inputs[0])}:",
                f"        rt_lengths[{key}] = {variable(attrs.dim)} + 1",
                "    rt.trace(rt.ledger.live)",
            ]
        )

    def _with_length(self, text: str, domain: Sequence[str]) -> str:
        """A function in which a dynamic bound is the length at the function's point, as known now."""
        for name in self.pdg.dims.lengths(tuple(domain)):
            head, rest = text.split("\n", 1)
            if re.search(rf"\b{variable(name)}\b", rest):
                at = tuple(map(sym, self._dynamic_dims))
                text = f"{head}\n    {variable(name)} = {self._length(at)}\n{rest}"
        return text

    @property
    def _dynamic_dims(self) -> Sequence[str]:
        dim = self.pdg.dims.dynamic
        return dim.over or () if dim is not None else ()

    def _length(self, at: Sequence[Lin] | None) -> str:
        """The dynamic bound at a point of what it varies over: its ceiling until it is known."""
        if at is None:
            return "rt.longest()"
        return f"rt_lengths.get(({''.join(f'{python_source(e)}, ' for e in at)}), rt_most)"

    def _guard_text(self, guard: Guard) -> str:
        """A guard as Python."""
        return python_source(guard.cond, {guard.name: self._length(guard.at)})

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
        """Store the outputs `rt_out`, and count their bytes."""
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
        """Send what is swapped of a lifetime to the host, or bring it back."""
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
            # and under a dynamic bound there may have been no point that made it
            reduced = reduced or self.pdg.dims.ends(producer.domain)
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
        if len(lines) == 1:  # nothing to do under these bounds
            lines.append("    yield from ()")
        return "\n".join(lines)

    def _node(self, node: Node, depth: int, lines: list[str]) -> None:
        pad, node = "    " * depth, self.ast.display_node(node)
        if isinstance(node, Block):
            for part in node.parts:
                self._node(part, depth, lines)
        elif isinstance(node, Loop):
            first, end = python_source(node.first), python_source(node.last + 1)
            if node.turns is not None and node.late:
                length = {_LENGTH: self._length(node.turns.at)}
                first = f"max({first}, {python_source(node.begins - sym(_LENGTH), length)})"
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
                        length = {node.guard.name: self._length(node.guard.at)}
                        hi = python_source(entry.hi, length)
                    lines.append(f"{inner}for {variable(counter)} in range({lo}, {hi}):")
                    inner += "    "
                    index.append(sym(counter))
                else:
                    index.append(entry)
            function = f"{verb}_{node.lifetime}"
            self._call(inner, function, verb, node.lifetime, tuple(index), lines)

    def _open_guard(self, guard: Guard | None, pad: str, lines: list[str]) -> str:
        """Write the condition of what follows, if it has one; returns its indent."""
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
    """The values of symbols, by name."""
    return f"{{{''.join(f'{s!r}: {variable(s)}, ' for s in symbols)}}}"


def _by_leaf(donation: Donation, of: Callable[[Leaf], tuple[str, str]]) -> str:
    """Of two expressions for each leaf that of the one read: the first where it is taken over."""
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
    """A tuple of operands, one a line."""
    if not items:
        return ["        (),"]
    return ["        (", *(f"            {item}," for item in items), "        ),"]
