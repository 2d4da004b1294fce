"""Program context: the symbolic dimensions of a program, and the graph under construction.

Every call inside `with Context(...)` adds operations here; `pdg()` returns a frozen copy.
`driver.compiling_context.Context` adds `compile`.
"""

from __future__ import annotations

import keyword
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from itertools import count
from typing import Any, Final, Self

from timerl_nb.base.display_registry import list_public
from timerl_nb.base.errors import (
    BranchError,
    DomainError,
    IndexExpressionError,
    Origin,
    ShapeError,
    user_origin,
    user_variables,
)
from timerl_nb.base.text_formatting import format_count
from timerl_nb.compiler.ir.analysis.needed_points import restrict_to_needed
from timerl_nb.compiler.ir.analysis.requested_orders import Order
from timerl_nb.compiler.ir.analysis.unbounded_programs import without_end
from timerl_nb.compiler.ir.dependence_graph import Pdg, at_own_point, read_type
from timerl_nb.compiler.ir.graph_rewriting import operation
from timerl_nb.compiler.ir.host.host_functions import CallAttrs, UdfAttrs
from timerl_nb.compiler.ir.operation_attributes import (
    NO_ATTRS,
    CheckpointAttrs,
    MergeAttrs,
    ReindexAttrs,
    RngAttrs,
)
from timerl_nb.compiler.ir.operations import Op, Output, Read, Tensor, read_symbols
from timerl_nb.compiler.ir.random_bits import stream_words
from timerl_nb.compiler.ir.shapes import Size, TensorType, same_size
from timerl_nb.compiler.ir.type_rules import TypeRuleError
from timerl_nb.compiler.language.argument_checks import checked_name
from timerl_nb.compiler.language.indexing.branch_precedence import Branch, Branches
from timerl_nb.compiler.language.indexing.conditional_domains import subsets_of
from timerl_nb.compiler.language.indexing.index_parsing import Index
from timerl_nb.compiler.language.indexing.size_equality import difference
from timerl_nb.compiler.language.lint import unreachable
from timerl_nb.compiler.language.policy.environment_and_action_record import Actor, Draw, Played
from timerl_nb.compiler.symbolic.dimensions import Dim, Dims, Domain
from timerl_nb.compiler.symbolic.index_expressions import (
    FALSE,
    TRUE,
    Cond,
    all_of,
    lin,
    negate,
    sym,
)

_OF_FILES: Final = "__metadata__"
_CURRENT: ContextVar[Context | None] = ContextVar("timerl_context", default=None)


def current() -> Context:
    """Return the context of the innermost open `with` block.

    Raises:
        DomainError: no block is open.
    """
    found = _CURRENT.get()
    if found is None:
        raise DomainError(
            "no context is open.",
            hint='write the program inside `with trl.Context("b", "i", "t"):`',
        )
    return found


@list_public("before compile debug dims evaluate output outputs parameters pdg policy region")
class Context:
    """Symbolic dimensions, outermost first, and the program written over them.

    Args:
        names: the variable of each dimension. The bound of `t` is named `T`.
        num_dims: the number of dimensions, in place of names: d0, d1, … with bounds D0, D1, ….
    """

    def __init__(self, *names: str, num_dims: int | None = None) -> None:
        if num_dims is not None:
            if names:
                raise DomainError(
                    "a context has both names and num_dims.",
                    hint="give names or num_dims, not both.",
                )
            if (
                isinstance(num_dims, bool)
                or not isinstance(num_dims, int)
                or not 0 <= num_dims <= 99
            ):
                raise DomainError(
                    f"num_dims must be a number of dimensions from 0 to 99, not {num_dims!r}.",
                    hint='name the dimensions: trl.Context("b", "i", "t").',
                )
            names = tuple(f"d{k}" for k in range(num_dims))
        self.space = Dims(tuple(Dim(name, _bound_name(name)) for name in names))
        taken = [*self.space.names, *self.space.bounds]
        if len(set(taken)) < len(taken):
            raise DomainError(
                f"the names {', '.join(names)} (with bounds {', '.join(self.space.bounds)}) clash.",
                hint="give each dimension a different name, in lower case.",
            )
        self._symbols = tuple(
            (Index(self, sym(d.name)), Index(self, sym(d.bound))) for d in self.space
        )
        self._ops: dict[int, Op] = {}
        self._streams = 0
        self._stream_prefix: tuple[str, int] | None = (
            None  # prefix and number of the streams inside `streams`
        )
        self._region: tuple[str, ...] = ()
        self._gradient_of: Origin | None = None  # line of the operation under differentiation
        self._traversed: dict[int, Origin] = {}
        self._assigned: dict[int, Branches] = {}  # assignments to open merges
        self.outputs: dict[str, Origin] = {}
        self._tokens: list[Any] = []
        self._orders: list[Order] = []
        self._late: list[Callable[[], None]] = []
        self._default_labels: list[tuple[str, Any]] = []
        self.parameters: dict[int, Any] = {}
        self.after_update: dict[int, Any] = {}  # parameters by the merge of their `next`
        self.rules: dict[int, Any] = {}  # custom gradient rules by result
        self.policies: list[Actor] = []  # candidates for the exported policy
        self.environments: list[Any] = []  # environments that have been reset
        self.played: list[Played] = []  # one entry per step of an environment
        # running statistics: their initial values, and tensors that a policy replaces by them
        self.statistics: dict[Tensor, Read] = {}
        self.same_statistic: dict[Tensor, Read] = {}
        self.draws: dict[Tensor, Draw] = {}  # draws from distributions by drawn tensor
        self.critics: dict[
            Tensor, Callable[[], Any]
        ] = {}  # critics by another output of the network
        self._drawing = 0  # nesting depth of `drawing`
        self.fixed: dict[str, int | Callable[[Mapping[str, int]], int]] = {}

    # --- public interface ------------------------------------------------------------------------

    @property
    def dims(self) -> tuple[tuple[Index, Index], ...]:
        """The dimensions as (variable, bound) pairs.

        Example:
            >>> ctx.dims
            ((b, B), (i, I), (t, T))
        """
        return self._symbols

    def __enter__(self) -> Self:
        self._tokens.append(_CURRENT.set(self))
        return self

    def __exit__(self, *error: object) -> None:
        """Close the block, and name unnamed tensors after the variables that hold them."""
        _CURRENT.reset(self._tokens.pop())
        if error[0] is None:
            for name, value in user_variables().items():
                if getattr(value, "ctx", None) is self:
                    self._label_if_new(name, value)
            for name, value in self._default_labels:
                self._label_if_new(name, value)

    def label_by_default(self, name: str, value: Any) -> None:
        """Label a computed tensor at the end of the block, unless the user has named it by then."""
        if self._ops[value.read.source].kind not in ("const", "merge"):
            self._default_labels.append((name, value))

    def _label_if_new(self, name: str, value: Any) -> None:
        read = getattr(value, "read", None)
        op = self._ops.get(read.source) if isinstance(read, Read) else None
        if op is not None and not op.label and read == at_own_point(op.id, op.outputs[0]):
            self.set_label(op.id, name)

    @contextmanager
    def region(self, name: str) -> Iterator[None]:
        """Label the operations of the block with the region `name`; regions nest.

        Args:
            name: the region's name, shown in pictures and profiles.

        Example:
            >>> with ctx.region("critic"):
            ...     y = trl.zeros(3) + 1.0
        """
        before = self._region
        self._region = (*before, checked_name(name))
        try:
            yield
        finally:
            self._region = before

    @contextmanager
    def gradient_of(self, op: Op) -> Iterator[None]:
        """Mark the operations of the block as the gradient of `op`."""
        before = self._gradient_of
        self._gradient_of = op.origin.gradient_of or op.origin
        try:
            yield
        finally:
            self._gradient_of = before

    def fix(self, bound: Index, value: int | Callable[[Mapping[str, int]], int]) -> None:
        """Set a bound inside the program; `compile` then does not accept it.

        Args:
            bound: a bound of `ctx.dims`.
            value: an integer, or a function that computes it from the other integer bounds. Its argument maps
                their names to integers.

        Raises:
            DomainError: `bound` is not a bound of this context.

        Example:
            >>> ctx.fix(B, 16)
            >>> ctx.fix(T, lambda bounds: 2 * bounds["B"])
        """
        name = bound.lin.as_symbol if isinstance(bound, Index) and bound.owner is self else None
        if name not in self.space.bounds:
            raise DomainError(
                f"{bound!r} is not a bound of this context.", hint="fix a bound of ctx.dims."
            )
        self.fixed[name] = value

    def __repr__(self) -> str:
        dims = ", ".join(f"{d.name} < {d.bound}" for d in self.space)
        return f"Context({dims}; {format_count(len(self._ops), 'operation')})"

    # --- building ----------------------------------------------------------------------------

    def __getitem__(self, op_id: int) -> Op:
        if not isinstance(op_id, int):  # users index contexts by mistake
            raise DomainError(
                f"a context has no {op_id!r}.",
                hint="get its symbols from ctx.dims: (b, B), (t, T) = ctx.dims.",
            )
        return self._ops[op_id]

    @property
    def op_ids(self) -> tuple[int, ...]:
        """The numbers of the operations written so far."""
        return tuple(self._ops)

    def add(
        self,
        kind: str,
        reads: Sequence[Read],
        attrs: Any = NO_ATTRS,
        *,
        label: str = "",
        where: Cond = TRUE,
        origin: Origin | None = None,
    ) -> Op:
        """Append an operation at the points that satisfy `where` and at which its operands are defined.

        Sizes that are written differently but equal at all these points are unified.

        Raises:
            ShapeError: the operands have unsuitable types.
        """
        origin = origin or user_origin()
        if self._gradient_of is not None:
            origin = replace(origin, gradient_of=self._gradient_of)
        where = all_of(where, subsets_of(self.__getitem__, reads))
        try:
            op = operation(
                self.space,
                self._ops,
                len(self._ops),
                kind,
                reads,
                attrs,
                origin=origin,
                region=self._region,
                label=label,
            )
        except TypeRuleError as error:
            against = ""
            if error.sizes is not None:
                alike, against = self.with_sizes(reads, [error.sizes], where)
                if not against and alike != list(reads):
                    return self.add(kind, alike, attrs, label=label, where=where, origin=origin)
            raise ShapeError(
                f"{kind}: {error}.",
                origin=origin,
                evidence=against or (),
                hint="cut both to one length, or reduce them first." if against else error.hint,
            ) from None
        if where is not TRUE:
            domain = self.space.ordered({*op.domain, *where.symbols})
            outputs = tuple(replace(o, domain=domain) for o in op.outputs)
            op = op.with_(where=where, domain=domain, outputs=outputs)
        self._ops[op.id] = op
        return op

    def with_sizes(
        self, reads: Sequence[Read], pairs: Iterable[tuple[Size, Size]], where: Cond
    ) -> tuple[list[Read], str]:
        """Rewrite the second size of each pair as the first, in the types of the reads.

        Returns:
            the rewritten reads and an empty text; or, if the sizes of a pair differ at a point that satisfies
            `where`, the unchanged reads and a counterexample.
        """
        made = list(reads)
        for kept, other in pairs:
            symbols = {s for read in reads for s in read_symbols(read)} | set(where.symbols)
            symbols |= {*lin(kept).symbols, *lin(other).symbols}
            domain = self.space.dims_of_symbols(symbols)
            against = difference(self.space, domain, where, kept, other)
            if against is not None:
                return list(reads), against
            made = [self._with_size(read, kept, other, where) for read in made]
        return made, ""

    def _with_size(self, read: Read, kept: Size, other: Size, where: Cond) -> Read:
        shape = read_type(self._ops[read.source].outputs[read.out], read).shape
        for axis, size in enumerate(shape):
            if same_size(size, other):
                op = self.add(
                    "reindex", [read], ReindexAttrs.from_range(axis, lin(0), lin(kept)), where=where
                )
                read = at_own_point(op.id, op.outputs[0])
        return read

    def add_sink(
        self,
        names: Sequence[str],
        reads: Sequence[Read],
        path: str,
        where: Cond,
        origin: Origin | None = None,
    ) -> None:
        """Append a checkpoint that saves the reads under these names, at the points that satisfy `where`.

        Raises:
            DomainError: there are no reads, the path is empty or already used, or a name is reserved.
        """
        if not path:
            raise DomainError(
                "a checkpoint needs a folder to write to.",
                origin=origin,
                hint='name one: checkpoint("runs/first").',
            )
        if not reads:
            raise DomainError(
                "there is nothing to save: the module has no parameters.",
                origin=origin,
                hint="call the module once before its checkpoint, or remove the checkpoint.",
            )
        if _OF_FILES in names:
            raise DomainError(
                f"no array of a checkpoint can be called {_OF_FILES!r}.",
                origin=origin,
                hint="choose another name: safetensors files reserve this one for metadata.",
            )
        for op in self._ops.values():
            if isinstance(op.attrs, CheckpointAttrs) and op.attrs.path == path:
                raise DomainError(
                    f"two checkpoints write to {path!r}: one would overwrite the other.",
                    origin=origin,
                    others={"the first is at": op.origin},
                    hint="give each checkpoint a different folder.",
                )
        attrs = CheckpointAttrs(path, tuple(names))
        self.add_effect(attrs, reads, where, "checkpoint", origin)

    def add_effect(
        self,
        attrs: CheckpointAttrs | CallAttrs,
        reads: Sequence[Read],
        where: Cond,
        label: str,
        origin: Origin | None = None,
    ) -> None:
        """Append a sink with a side effect at the points that satisfy `where`."""
        kind = "checkpoint" if isinstance(attrs, CheckpointAttrs) else "call"
        op = self.add(kind, reads, attrs, label=label, where=where)
        self._ops[op.id] = op.with_(origin=origin or op.origin)

    def add_to_checkpoint(self, op_id: int, named: Mapping[str, Read]) -> None:
        """Add more tensors to an existing checkpoint."""
        op = self._ops[op_id]
        attrs = replace(op.attrs, names=(*op.attrs.names, *named))
        self._ops[op_id] = op.with_(inputs=(*op.inputs, *named.values()), attrs=attrs)

    def open_merge(
        self, kind: TensorType, domain: Domain, label: str = "", *, turns: bool = False
    ) -> Op:
        """Append a tensor to be defined by branches; `turns` marks the tokens that order a resource's calls."""
        op = Op(
            len(self._ops),
            "merge",
            domain,
            (),
            (Output(kind, domain),),
            MergeAttrs(turns=turns),
            origin=user_origin(),
            region=self._region,
            label=label,
        )
        self._ops[op.id] = op
        return op

    def add_result(self, op_id: int, attrs: UdfAttrs, label: str) -> Op:
        """Add an output to an existing host function."""
        op = self._ops[op_id]
        first = replace(op.outputs[0], label=op.outputs[0].label or op.label)
        more = Output(attrs.types[-1], op.domain, label=label)
        outputs = (first, *op.outputs[1:], more)
        self._ops[op_id] = op.with_(attrs=attrs, outputs=outputs, label=attrs.name)
        return self._ops[op_id]

    def add_branch(self, merge_id: int, read: Read) -> None:
        """Add a branch to an open merge.

        Raises:
            BranchError: a gradient has already been taken through the merge.
        """
        op = self._ops[merge_id]
        if merge_id in self._traversed:
            raise BranchError(
                f"{op.label or 'this tensor'} gets a branch after a gradient was taken through it.",
                others={"the gradient was taken at": self._traversed[merge_id]},
                hint="assign all branches before backward() or trl.grad(). If a branch needs the gradient, as an "
                "update rule does, create the tensor with trl.parameter and write p.update(next_value); "
                "net.params are such parameters.",
            )
        lines = (*op.attrs.lines, user_origin())
        self._ops[merge_id] = op.with_(
            inputs=(*op.inputs, read), attrs=replace(op.attrs, lines=lines)
        )

    def assign_branch(self, merge_id: int, branch: Branch) -> None:
        """Add a branch to an open merge; branches with precedence keep their points.

        Raises:
            BranchError: a gradient has already been taken through the merge.
        """
        before = self._branches(merge_id)
        self.add_branch(merge_id, branch.read)
        self._resolve(merge_id, before.with_branch(branch))
        if branch.read.cond is not FALSE:
            op = self._ops[merge_id]
            unreachable(op.label or "this tensor", op.inputs[-1].cond)

    def prefer_first_match(self, merge_id: int) -> None:
        """Let each branch of an open merge take precedence over all later ones.

        Raises:
            BranchError: a gradient has already been taken through the merge.
        """
        op = self._ops[merge_id]
        if merge_id in self._traversed:
            raise BranchError(
                f"trl.first_match of {op.label or 'this tensor'} comes after a gradient was taken through it.",
                others={"the gradient was taken at": self._traversed[merge_id]},
                hint="call trl.first_match where the tensor is created.",
            )
        self._resolve(merge_id, replace(self._branches(merge_id), first_match=True))

    def _branches(self, merge_id: int) -> Branches:
        found = self._assigned.get(merge_id, Branches())
        more = self._ops[merge_id].inputs[len(found.all) :]  # added by the library
        return replace(found, all=(*found.all, *map(Branch, more)))

    def _resolve(self, merge_id: int, branches: Branches) -> None:
        op = self._ops[merge_id]
        reads = branches.resolve(self.space, op.domain, op.label or "a tensor")
        self._assigned[merge_id] = branches
        self._ops[merge_id] = op.with_(inputs=reads)

    def set_branches(self, merge_id: int, reads: Sequence[Read]) -> None:
        """Replace all branches of a merge."""
        lines = (user_origin(),) * len(reads)
        op = self._ops[merge_id]
        self._ops[merge_id] = op.with_(inputs=tuple(reads), attrs=replace(op.attrs, lines=lines))

    def add_guarded(self, inside: Read, cond: Cond, elsewhere: Read, domain: Domain) -> Op:
        """Append a tensor over `domain`: `inside` at the points that satisfy `cond`, `elsewhere` at the others."""
        source = self._ops[inside.source].outputs[inside.out]
        merge = self.open_merge(read_type(source, inside), domain)
        branches = ((inside, cond), (elsewhere, negate(cond)))
        reads = [Read(r.source, r.out, r.index, all_of(r.cond, c)) for r, c in branches]
        self.set_branches(merge.id, reads)
        return self._ops[merge.id]

    def set_label(self, op_id: int, label: str) -> None:
        self._ops[op_id] = self._ops[op_id].with_(label=checked_name(label))

    def mark_traversed(self, merge_id: int) -> None:
        """Record that a gradient has been taken through a merge: it accepts no further branches."""
        self._traversed.setdefault(merge_id, user_origin())

    @contextmanager
    def attempt(self) -> Iterator[None]:
        """Undo the operations of the block if it raises."""
        kept = dict(self._ops), dict(self._traversed), list(self._late), dict(self.rules)
        assigned, labels = dict(self._assigned), list(self._default_labels)
        try:
            yield
        except Exception:
            self._ops, self._traversed, self._late, self.rules = kept
            self._assigned, self._default_labels = assigned, labels
            raise

    @contextmanager
    def discard_operations(self) -> Iterator[None]:
        """Discard the operations of the block, which only describe the program."""
        kept, before = dict(self._ops), (dict(self.draws), dict(self.critics))
        assigned, labels = dict(self._assigned), list(self._default_labels)
        token = _CURRENT.set(self)
        try:
            yield
        finally:
            _CURRENT.reset(token)
            self._ops, (self.draws, self.critics) = kept, before
            self._assigned, self._default_labels = assigned, labels

    @contextmanager
    def drawing(self) -> Iterator[Callable[[Read, Callable[[frozenset[int]], Draw]], None]]:
        """Record one draw from a distribution; a nested draw belongs to the outer one."""
        begun, self._drawing = len(self._ops), self._drawing + 1

        def record(read: Read, draw: Callable[[frozenset[int]], Draw]) -> None:
            if self._drawing == 1:
                inside = frozenset(range(begun, len(self._ops)))
                self.draws[read.tensor] = draw(inside)

        try:
            yield record
        finally:
            self._drawing -= 1

    def add_order(self, order: Order) -> None:
        """Require that the points of one operation run before those of another."""
        self._orders.append(order)

    def next_stream(self) -> int | str:
        """Return the number of the next random operation, or its name inside a `streams` block."""
        if self._stream_prefix is not None:
            name, count = self._stream_prefix
            self._stream_prefix = name, count + 1
            return self.named_stream(f"{name}.{count}", shared=False)
        self._streams += 1
        return self._streams - 1

    @contextmanager
    def streams(self, name: str) -> Iterator[None]:
        """Name the random streams of the block after `name`, so that other draws keep their numbers."""
        before, self._stream_prefix = self._stream_prefix, (name, 0)
        try:
            yield
        finally:
            self._stream_prefix = before

    def add_dim(self, name: str, size: int) -> tuple[Index, Index]:
        """Add an innermost dimension with a fixed bound, which does not appear in `dims`.

        Returns:
            its variable and its bound; a number is appended to `name` if the name is taken.
        """
        taken = {*self.space.names, *self.space.bounds}
        for k in count(1):
            one = f"{name}{k if k > 1 else ''}"
            bound = _bound_name(one)
            if not taken & {one, bound}:
                break
        self.space = Dims((*self.space, Dim(one, bound)))
        self.fixed[bound] = size
        return Index(self, sym(one)), Index(self, sym(bound))

    def named_stream(self, name: str, *, shared: bool) -> str:
        """Check and return the name of a random stream.

        Raises:
            DomainError: another draw uses the stream, or a stream with the same hash, and not both share it.
        """
        number = stream_words(checked_name(name, "a stream's name"))
        for op in self._ops.values():
            if not isinstance(op.attrs, RngAttrs) or stream_words(op.attrs.stream) != number:
                continue
            if op.attrs.stream != name:
                raise DomainError(
                    f"the streams {op.attrs.stream!r} and {name!r} have the same number, "
                    f"{number[1]:#010x}: they would draw the same bits.",
                    others={"the first is at": op.origin},
                    hint="rename one of them.",
                )
            if not (shared and op.attrs.shared):
                raise DomainError(
                    f"two draws from the stream {name!r} have the same bits at the same points.",
                    others={"the first is at": op.origin},
                    hint="give the streams different names, or shared=True to both if that is intended.",
                )
        return name

    def snapshot(self) -> Pdg:
        """Return the program written so far as a frozen graph."""
        draft = Pdg(self.space, self._ops)
        return Pdg(self.space, {op_id: self._ops[op_id] for op_id in draft.order}, self._orders)

    def at_end(self, late: Callable[[], None]) -> None:
        """Register a function that completes the program when it is compiled."""
        self._late.append(late)

    def pdg(self, *more: Callable[[], None], endless: str | None = None) -> Pdg:
        """Return the complete program as a frozen graph.

        The context does not change, so a notebook can continue to write the program.

        Args:
            more: functions that write further operations, called last.
            endless: the name of the unbounded dimension.

        Raises:
            BoundsError: an operation depends on the end of the unbounded dimension.
        """
        kept, assigned = dict(self._ops), dict(self._assigned)
        try:
            for late in (*self._late, *more):
                late()
            found = self.snapshot()
        finally:
            self._ops, self._assigned = kept, assigned
        return restrict_to_needed(found if endless is None else without_end(found, endless))


def _bound_name(name: str) -> str:
    if (
        not isinstance(name, str)
        or not name.isascii()
        or not name.isidentifier()
        or keyword.iskeyword(name)
        or not name.strip("_")  # `_` denotes a position along an axis
    ):
        raise IndexExpressionError(
            f"{name!r} cannot name a dimension.", hint="use an ASCII identifier such as t or step."
        )
    return name.upper() if name.upper() != name else name + "_bound"
