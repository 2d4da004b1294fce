"""Tiled loops: all iterations run for one block of points of a dimension, and then for the next block.

Tiling is possible if the loop treats the points of the dimension independently: each statement has an axis
for them, carries it from every operand (`axis_following`), and writes nothing shared by all points. The
values of a block then stay in the cache between two iterations. The nest itself is unchanged; executors
follow the tiles.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from typing import Any

from timerl_nb.base.display_registry import Inspectable
from timerl_nb.base.graphviz_text import CONTROL, FUSED, Dot
from timerl_nb.base.machine_model import Machine
from timerl_nb.base.text_formatting import format_count
from timerl_nb.compiler.ir.graph_text import about
from timerl_nb.compiler.ir.operations import DataflowAttrs, Tensor
from timerl_nb.compiler.loops.cache_tile_size_model import TileModel
from timerl_nb.compiler.loops.loop_nodes import (
    Ast,
    Execute,
    Fetch,
    Loop,
    Node,
    Offload,
    children,
    is_repeated,
    subtree_nodes,
)
from timerl_nb.compiler.memory.memory_plan import MemoryPlan
from timerl_nb.compiler.memory.placement.buffer_layout import Layout
from timerl_nb.compiler.memory.steady_state.extrapolated_plan import layout_of
from timerl_nb.compiler.passes.vectorization.axis_independence import (
    Axis,
    axis_of,
    followed_through,
)
from timerl_nb.compiler.passes.vectorization.batching_rules import Refused
from timerl_nb.compiler.scheduling.statements import Operand, Statement
from timerl_nb.compiler.symbolic.dimensions import Dim
from timerl_nb.compiler.symbolic.index_expressions import Slice


@dataclass(frozen=True)
class Tile:
    """A tiled loop.

    Attributes:
        loop: the node of the nest.
        dim: the dimension of the divided points; its axis has length `count`.
        count: the number of points.
        size: the block size; the last block may be smaller.
        axes: by buffer, the axis of the points in each value. Buffers without an entry are complete in each
            block.
        in_place: buffers that blocks read and write directly; of other buffers, a block has a copy of its
            part.
        live_bytes: bytes of these copies, in addition to the buffers.
        devices: the number of devices among which the points are divided first.
    """

    loop: Loop
    dim: Dim
    count: int
    size: int
    axes: Mapping[str, int]
    in_place: frozenset[str]
    live_bytes: int
    devices: int = 1

    @property
    def points_per_device(self) -> int:
        """The number of points of a device."""
        return self.count // self.devices

    @property
    def blocks(self) -> int:
        """The number of blocks of a device."""
        return -(-self.points_per_device // self.size)

    def __str__(self) -> str:
        rest = self.points_per_device % self.size
        last = f", the last of {rest}" if rest else ""
        text = f"{format_count(self.blocks, 'block')} of {format_count(self.size, 'point')} of {self.dim.name}{last}"
        return text + _on_each(self.devices)


class Tiles(Inspectable):
    """The tiled loops of a nest along a dimension, and the reasons against tiling others.

    Args:
        ast: the loop nest.
        plan: the memory plan.
        layout: the buffers.
        dim: the dimension.
        size: the block size, or a machine model to choose it.
        fuse: the number of iterations of an outermost loop per call.

    Attributes:
        all: the tiles.
        refused: by operation, the reason why no loop around it can be tiled.
        whole: reasons why further loops are not tiled although they could be.
    """

    def __init__(
        self,
        ast: Ast,
        plan: MemoryPlan,
        layout: Layout,
        dim: Dim,
        size: int | Machine,
        fuse: int = 1,
    ) -> None:
        self.dim = dim
        self.refused: dict[int, str] = {}
        self.whole: list[str] = []
        self._ast, self._plan, self._layout = ast, plan, layout
        self._size, self._fuse = size, fuse
        share = plan.share
        self._devices = share.count if share is not None and share.dim == dim else 1
        self._axes = {tensor: self._axis(tensor) for tensor in layout.homes}
        self._tensors_of_buffer: dict[str, set[Tensor]] = {}  # by buffer
        for tensor, homes in layout.homes.items():
            for home in homes:
                self._tensors_of_buffer.setdefault(home.buffer.name, set()).add(tensor)
        self.all = tuple(self._find_tiles(ast.root, called=True))

    def _axis(self, tensor: Tensor) -> Axis | Refused:
        """Return the axis of a tensor's values for the dimension, or the reason why it is unknown."""
        try:
            op_id, out = tensor
            return axis_of(self._plan.pdg[op_id].outputs[out].type.shape, self.dim)
        except Refused as refusal:
            return refusal

    # --- selection of loops ----------------------------------------------------------------------

    def _find_tiles(self, node: Node, *, called: bool) -> Iterator[Tile]:
        """Yield the outermost tileable loops of a part of the nest.

        Args:
            node: the part.
            called: whether the part is outside all loops, so that nested loops are called per iteration.
        """
        if isinstance(node, Loop):
            tile = self._tile(node, by_turns=called and is_repeated(node, self._fuse))
            if tile is not None:
                yield tile
                return
        for part in children(node):
            yield from self._find_tiles(part, called=called and not isinstance(node, Loop))

    def _tile(self, loop: Loop, *, by_turns: bool) -> Tile | None:
        nodes = subtree_nodes(loop)
        ids = dict.fromkeys(node.op_id for node in nodes if isinstance(node, Execute))
        statements = [self._plan.statements.of_op(op_id) for op_id in ids]
        why: dict[int, str] = {}
        for statement in statements:
            why |= self._untileable_reasons(statement)
        why |= self._swap_conflicts(nodes) | self._end_reasons()
        buffers, odd = self._buffers(statements)
        why |= odd
        if not any(axis is not None for axis in buffers.values()):
            return None  # there is nothing to divide
        self.refused |= {op_id: text for op_id, text in why.items() if op_id not in self.refused}
        count, line = self._plan.bounds[self.dim.bound], self._ast.line(loop)
        size = None if why else self._block(statements, count, line, by_turns=by_turns)
        if size is None:
            return None
        axes = {name: axis for name, axis in buffers.items() if axis is not None}
        in_place = frozenset(filter(self._in_place, axes))
        copied_bytes = sum(self._layout.buffers[name].nbytes for name in axes.keys() - in_place)
        live_bytes = copied_bytes * size // count
        return Tile(loop, self.dim, count, size, axes, in_place, live_bytes, self._devices)

    def _block(
        self, statements: Seq[Statement], count: int, line: str, *, by_turns: bool
    ) -> int | None:
        """Return the block size of a loop; None if it is not tiled."""
        if by_turns:
            self.whole.append(f"{line} each iteration is a separate call")
            return None
        each, why = count // self._devices, ""
        if isinstance(self._size, int):
            size = self._size
        else:
            parted = {tensor: isinstance(axis, int) for tensor, axis in self._axes.items()}
            model = TileModel.from_plan(self._plan, statements, parted, count, self._size)
            size, why = model.of_each(self._devices).size(self._size)
        if size is not None and size >= each:
            size, why = None, f"all {each} points of {self.dim.name} are one block"
        if size is None:
            self.whole.append(f"{line} {why}{_on_each(self._devices)}")
        return size

    # --- conditions ------------------------------------------------------------------------------

    def _untileable_reasons(self, statement: Statement) -> dict[int, str]:
        """Return the reasons why operations of a statement do not treat points independently."""
        op, dim = statement.op, self.dim
        attrs = op.attrs
        if not isinstance(attrs, DataflowAttrs):
            return {op.id: f"the host runs it, for all points of {dim.name} together"}
        if dim.name in op.domain:
            return {op.id: f"it runs point by point over {dim.name}"}
        try:
            axes = [self._operand(operand) for operand in statement.operands]
        except Refused as refusal:
            return {op.id: str(refusal)}
        shapes = [self._plan.pdg.read_type(read).shape for read in op.inputs]
        known, why = followed_through(attrs.body, shapes, axes, dim)
        for k, result in enumerate(attrs.results):
            if result in known and known[result] != self._axes[op.id, k]:
                why[result[0]] = f"its axes are not those of {dim.name}"
            elif result in known and known[result] is None:
                why[result[0]] = (
                    f"all points of {dim.name} share it, and each block would compute it"
                )
        return why | ({op.id: next(iter(why.values()))} if why else {})

    def _operand(self, operand: Operand) -> Axis:
        """Return the axis of a statement's operand."""
        read, dim = operand.read, self.dim
        lead = [e.length for e in read.index if isinstance(e, Slice)]
        if any(dim.bound in length.symbols for length in lead):
            raise Refused(f"it reads many points of {dim.name} together")
        axis = axis_of(self._plan.pdg.output(read).type.shape, dim)
        if any(self._axes[tensor] != axis for tensor in operand.tensors):
            raise Refused(f"its operand has several axes for {dim.name}")
        return None if axis is None else len(lead) + axis

    def _swap_conflicts(self, nodes: Seq[Node]) -> dict[int, str]:
        moves = [node for node in nodes if isinstance(node, Offload | Fetch)]
        moved = [tensor for node in moves for tensor in self._plan.swapped_tensors(node.lifetime)]
        return {op_id: "it is swapped to the host between two iterations" for op_id, _ in moved}

    def _end_reasons(self) -> dict[int, str]:
        text = f"it ends loops at run time, for all points of {self.dim.name} together"
        return {op.id: text for op in self._plan.pdg if op.kind == "bound"}

    def _buffers(self, statements: Seq[Statement]) -> tuple[dict[str, Axis], dict[int, str]]:
        """Return the axis of each buffer that statements access, and reasons for buffers with several axes."""
        touched: dict[Tensor, int] = {}
        for one in statements:
            touched |= {t: one.id for operand in one.operands for t in operand.tensors}
            touched |= {(one.id, k): one.id for k in range(len(one.op.outputs))}
        found: dict[str, Axis] = {}
        why: dict[int, str] = {}
        for tensor, op_id in touched.items():
            for home in self._layout.homes.get(tensor, ()):
                name = home.buffer.name
                axes = {self._axes[other] for other in self._tensors_of_buffer[name]}
                axis = axes.pop()
                if axes or isinstance(axis, Refused):
                    why[op_id] = f"tensors in one buffer have different axes for {self.dim.name}"
                else:
                    found[name] = axis
        return found, why

    def _in_place(self, name: str) -> bool:
        """Whether blocks access their part of a buffer directly, since each slot is written once.

        Slots of sums are cleared for all points together, so sums are excluded.
        """
        outputs = (
            self._plan.pdg[op_id].outputs[out] for op_id, out in self._tensors_of_buffer[name]
        )
        added = any(output.reduce is not None for output in outputs)
        return bool(self._layout.buffers[name].axes) and not added

    # --- display ---------------------------------------------------------------------------------

    @property
    def summary(self) -> str:
        """The tiled loops, or the reason against tiling, in one line."""
        if self.all:
            return "; ".join(f"{self._ast.line(tile.loop)} {tile}" for tile in self.all)
        if self.whole:
            return "; ".join(self.whole)
        names = [name for op_id, name in self._ast.names.items() if op_id in self.refused]
        if names:
            return f"blocks are forbidden by {', '.join(names)}"
        return f"no loop has an axis of points of {self.dim.name}"

    def __str__(self) -> str:
        return "\n".join(line for line, _ in self.searchable_lines())

    def searchable_lines(self) -> Iterable[tuple[str, Seq[str]]]:
        for tile in self.all:
            parts = (
                f"; copies of one block take {tile.live_bytes:,} bytes" if tile.live_bytes else ""
            )
            yield f"{self._ast.line(tile.loop)} {tile}{parts}", ()
            for name, axis in tile.axes.items():
                how = "in place" if name in tile.in_place else "copied block by block"
                yield f"  {self._layout.buffers[name]}: along axis {axis}, {how}", ()
        for line in self.whole:
            yield line, ()
        known = {inner.id: inner for op in self._plan.pdg for inner in (op, *op.body)}
        for op_id, why in sorted(self.refused.items()):
            op = known[op_id]
            yield f"%{op_id} {op.name}, {op.origin}: {why}", about(op)
        if not (self.all or self.whole or self.refused):
            yield self.summary, ()

    def to_json(self) -> dict[str, Any]:
        return {
            "stage": "tile",
            "dim": self.dim.name,
            "tiles": [
                {"loop": self._ast.line(tile.loop), "size": tile.size, "blocks": tile.blocks}
                for tile in self.all
            ],
            "whole": self.whole,
            "refused": {str(op_id): why for op_id, why in sorted(self.refused.items())},
        }

    def to_dot(self) -> str:
        """Return the tiled loops with their operations."""
        graph = Dot("tile")
        for k, tile in enumerate(self.all):
            graph.node(f"t{k}", f"{self._ast.line(tile.loop)}\n{tile}", fill=CONTROL)
            for node in subtree_nodes(tile.loop):
                if isinstance(node, Execute):
                    key = f"op{node.op_id}"
                    graph.node(key, self._ast.names[node.op_id], fill=FUSED, element=key)
                    graph.edge(f"t{k}", key)
        return str(graph)


def _on_each(devices: int) -> str:
    return f", on each of {devices} devices" if devices > 1 else ""


def find_tiles(
    ast: Ast, plan: MemoryPlan, size: tuple[str, int] | None, machine: Machine, fuse: int = 1
) -> Tiles:
    """Return the tiled loops of a nest.

    Args:
        ast: the loop nest.
        plan: the memory plan.
        size: dimension and block size; None for the outermost dimension with a gain by the machine model.
        machine: the machine model.
        fuse: the number of iterations of an outermost loop per call.
    """
    layout, dims = layout_of(plan), plan.pdg.dims
    if size is not None:
        return Tiles(ast, plan, layout, dims[size[0]], size[1], fuse)
    found = (Tiles(ast, plan, layout, dim, machine, fuse) for dim in dims.bounded)
    first: Tiles | None = None
    for tiles in found:
        if tiles.all:
            return tiles
        if first is None or not (first.refused or first.whole):
            first = tiles
    assert first is not None
    return first
