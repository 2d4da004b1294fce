"""Lifetimes of values, with the last reader of each value.

The tensors are the outputs of statements. Tensors share a lifetime if their producer, domain, block,
readers and returned points are equal. One instruction frees their values at a point, inserted into
the schedule after the last reader. Values returned by the run are not freed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from timerl_nb.base.errors import CeilingError
from timerl_nb.base.lru_cache import Lru
from timerl_nb.compiler.ir.dependence_graph import Pdg
from timerl_nb.compiler.ir.operations import Tensor
from timerl_nb.compiler.isl.isl_scheduler import Edge, NoLatest, ScheduleTree
from timerl_nb.compiler.isl.sets_and_relations import Likeness, Relation, Set
from timerl_nb.compiler.scheduling.dependence_constraints import Constraints
from timerl_nb.compiler.scheduling.statements import statement_name
from timerl_nb.compiler.symbolic.dimensions import Domain
from timerl_nb.compiler.symbolic.index_expressions import Div, Lin, Mod, sym


@dataclass(frozen=True)
class Lifetime:
    """Tensors with common allocation and free.

    Attributes:
        name: the name of the lifetime.
        tensors: the tensors.
        domain: the dimensions of the values (of the blocks, for tensors stored as blocks).
        producer: the statement that computes the values.
        made: the producer's points -> the values.
        frees: the values -> the last statement points before their free.
        returned: the returned values, or None.
        uses: the values -> all statement points that write or read them.
        taken: the values -> the statement points that reuse their memory. Such values need no free.
    """

    name: str
    tensors: tuple[Tensor, ...]
    domain: Domain
    producer: str
    made: Relation
    frees: tuple[Edge, ...]
    returned: Set | None
    uses: tuple[Edge, ...] = ()
    taken: tuple[Edge, ...] = ()


# Lifetimes depend only on the schedule, not on the bounds or the budget.
KnownLifetimes = Lru[tuple[Constraints, ScheduleTree], tuple[Lifetime, ...]]


def find_lifetimes(
    constraints: Constraints, schedule: ScheduleTree, blocks: Mapping[Tensor, int] | None = None
) -> tuple[Lifetime, ...]:
    """Return the lifetimes of all tensors under a schedule.

    Args:
        constraints: the statements and dependences.
        schedule: the schedule.
        blocks: the tensors stored as blocks, with the position of the blocked dimension in their
            domain. A block is live from its first write to its last read.

    Raises:
        CeilingError: isl cannot find a last reader within its limit.
    """
    pdg, blocks = constraints.pdg, blocks or {}
    whole = {tensor: _projection(pdg, tensor, k) for tensor, k in blocks.items()}
    readers: dict[Tensor, dict[tuple[str, Likeness], Edge]] = {}  # without duplicates
    for use in constraints.uses:
        name, tensor = statement_name(pdg[use.reader]), use.tensor
        values = use.values.then(whole[tensor]) if tensor in whole else use.values
        edge = Edge("", name, values.inverse())
        readers.setdefault(tensor, {}).setdefault((name, edge.pairs.identity_key), edge)
    alike: dict[tuple[object, ...], list[Tensor]] = {}
    for op in constraints.statements.ops.values():
        for out, output in enumerate(op.outputs):
            uses = readers.get((op.id, out), {})
            returned = constraints.returned_points.get((op.id, out))
            key = (
                op.id,
                output.domain,
                blocks.get((op.id, out)),
                returned and returned.identity_key,
                frozenset(uses),
            )
            alike.setdefault(key, []).append((op.id, out))
    uses_of: list[Edge] = []
    drafts: list[Lifetime] = []
    for k, tensors in enumerate(alike.values()):
        op = pdg[tensors[0][0]]
        made = constraints.contributions(op, tensors[0][1])
        returned = constraints.returned_points.get(tensors[0])
        if tensors[0] in whole:
            made = made.then(whole[tensors[0]])
            returned = returned and _image(whole[tensors[0]], returned)
        name, producer = f"V{k}", statement_name(op)
        # The producer counts as a reader too: a value without readers is freed after it.
        pairs = [Edge(name, producer, made.inverse())]
        pairs += [Edge(name, e.sink, e.pairs) for e in readers.get(tensors[0], {}).values()]
        life = Lifetime(
            name, tuple(tensors), made.right, producer, made, (), returned, tuple(pairs)
        )
        drafts.append(life)
        uses_of += [
            e if returned is None else Edge(name, e.sink, _exclude_returned(e.pairs, returned))
            for e in pairs
        ]
    frees: dict[str, list[Edge]] = {}
    try:
        last = schedule.last_readers(uses_of)
    except NoLatest as error:
        raise _refusal(constraints, drafts, error) from None
    for edge in last:
        frees.setdefault(edge.source, []).append(edge)
    return tuple(replace(d, frees=tuple(frees.get(d.name, []))) for d in drafts)


def _refusal(constraints: Constraints, lives: Iterable[Lifetime], why: NoLatest) -> CeilingError:
    """Return an error with the value without a known last reader, and its readers."""
    pdg, ops = constraints.pdg, constraints.statements.ops.values()
    made = next(pdg[life.tensors[0][0]] for life in lives if life.name == why.value)
    readers = [op for op in ops if statement_name(op) in why.readers]
    reads = [
        (op, f"[{', '.join(map(str, read.index))}]")
        for op in readers
        for read in op.inputs
        if any(isinstance(e, Lin) and _has_remainder(e) for e in read.index)
    ]
    return CeilingError(
        f"isl cannot find the last reader of {made.name} within its limit on operations.",
        origin=made.origin,
        others={f"{op.name} reads it:": op.origin for op, _ in reads},
        evidence=f"indices: {', '.join(dict.fromkeys(text for _, text in reads))}" if reads else (),
        hint="choose divisors such that the larger ones are multiples of the smaller ones, use fewer "
        "different divisors in reads of this value, or vectorise the dimension.",
    )


def _has_remainder(e: Lin) -> bool:
    return any(isinstance(atom, Mod | Div) for atom, _ in e.terms)


def _projection(pdg: Pdg, tensor: Tensor, along: int) -> Relation:
    """Return the points of a tensor -> the points of its blocks."""
    domain = pdg[tensor[0]].outputs[tensor[1]].domain
    rest = tuple(d for k, d in enumerate(domain) if k != along)
    index = tuple(sym(d) for d in rest)
    return Relation.reads(
        Set.from_condition(pdg.dims, domain), index, Set.from_condition(pdg.dims, rest)
    )


def _image(relation: Relation, points: Set) -> Set:
    return relation.inverse().restrict_range(points).inverse().range()


def _exclude_returned(pairs: Relation, returned: Set) -> Relation:
    inside = pairs.inverse().restrict_range(returned).inverse()
    return pairs - inside


def free_calls(lifetimes: tuple[Lifetime, ...]) -> list[Edge]:
    """Return the frees as calls to insert after statements."""
    return [
        Edge(edge.sink, free_name(life), edge.pairs.inverse())
        for life in lifetimes
        for edge in life.frees
    ]


def free_name(life: Lifetime) -> str:
    """Return the name of a lifetime's free in the loop tree."""
    return f"F{life.name[1:]}"
