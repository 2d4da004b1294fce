"""Why no schedule exists: a cycle of points, found by following the graph at small bounds."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from timerl_nb.errors import ScheduleError
from timerl_nb.ir.lengths import exprs
from timerl_nb.ir.ops import Op, Read
from timerl_nb.ir.pdg import Pdg
from timerl_nb.passes.cycles import components
from timerl_nb.symbolic.evaluate import evaluate
from timerl_nb.symbolic.expr import Slice


def refuse_circles(pdg: Pdg) -> None:
    """Refuse a graph in which some value needs itself at the very same point, whatever the point.

    Passes may rely on merges breaking every cycle; one whose only branch reads on breaks none. Nor
    may an order that the user asks for close a circle at small bounds.

    Raises:
        ScheduleError: there is such a circle; the message shows it.
    """
    own = {
        op.id: [r.source for r in (*op.inputs, *pdg.waits(op)) if pdg.is_identity(r)] for op in pdg
    }
    for component in components(own):
        if len(component) > 1 or component[0] in own[component[0]]:
            raise find_cycle(pdg)
    if (
        pdg.orders
    ):  # equations are acyclic but for merges; what a user asks for beside them may be any
        for size in (1, 2, 3):
            cycle = _cycle(pdg, size)
            if cycle is not None:
                raise _error(pdg, cycle)


PointOf = tuple[int, tuple[int, ...]]


def find_cycle(pdg: Pdg) -> ScheduleError:
    """An error that shows points which need each other in a circle, with their lines."""
    for size in (1, 2, 3, 5, 8):
        cycle = _cycle(pdg, size)
        if cycle is not None:
            return _error(pdg, cycle)
    return ScheduleError(
        "isl finds no schedule for this program.",
        evidence="no values need each other in a circle at bounds up to 8, so some order may exist, "
        "but none that is affine in the indices",
        hint="split a tensor that is written in several loops, or leave all passes on.",
    )


def _cycle(pdg: Pdg, size: int) -> list[PointOf] | None:
    bounds = {d.bound: size for d in pdg.dims}
    state: dict[PointOf, int] = {}  # 1 on the path, 2 done
    for op in pdg:
        for point in product(*(range(pdg.dims[d].count(bounds)) for d in op.domain)):
            start = (op.id, point)
            if start in state:
                continue
            path: list[tuple[PointOf, Iterator[PointOf]]] = [(start, _needs(pdg, start, bounds))]
            state[start] = 1
            while path:
                node, rest = path[-1]
                following = next(rest, None)
                if following is None:
                    state[node] = 2
                    path.pop()
                elif following not in state:
                    state[following] = 1
                    path.append((following, _needs(pdg, following, bounds)))
                elif state[following] == 1:
                    nodes = [n for n, _ in path]
                    return [*nodes[nodes.index(following) :], following]
    return None


def _needs(pdg: Pdg, node: PointOf, bounds: dict[str, int]) -> Iterator[PointOf]:
    op = pdg[node[0]]
    env = {**bounds, **dict(zip(op.domain, node[1], strict=True))}
    if not evaluate(op.where, env):
        return
    for read in (*op.inputs, *pdg.waits(op)):
        if evaluate(read.cond, env):
            yield from _sources(pdg, pdg[read.source], read, env, bounds)
    yield from _decisions(pdg, op, env, bounds)


def _decisions(pdg: Pdg, op: Op, env: dict[str, int], bounds: dict[str, int]) -> Iterator[PointOf]:
    """What says how a point is under a dynamic bound: its condition wherever that matters."""
    dim, bound = pdg.dims.dynamic, pdg.bound
    if dim is None or bound is None or not pdg.dims.know(op.domain) or op.kind == "merge":
        return

    def seen(length: int) -> object:
        here = {**env, dim.bound: length}
        if pdg.dims.ends(op.domain) and here[dim.name] >= length:
            return None
        reads = [list(_sources(pdg, pdg[r.source], r, here, bounds)) for r in op.inputs]
        own = [e for e in exprs(pdg, op) if e.symbols <= here.keys()]
        return evaluate(op.where, here), reads, [evaluate(e, here) for e in own]

    most = seen(bounds[dim.bound])
    for end in range(1, bounds[dim.bound]):
        if seen(end) != most:
            there = {**env, dim.name: end - 1}
            yield from _sources(pdg, pdg[bound.inputs[0].source], bound.inputs[0], there, bounds)


def _sources(
    pdg: Pdg, source: Op, read: Read, env: dict[str, int], bounds: dict[str, int]
) -> Iterator[PointOf]:
    known: dict[str, range] = {}
    for d, entry in zip(pdg.output(read).domain, read.index, strict=True):
        if isinstance(entry, Slice):
            known[d] = range(evaluate(entry.lo, env), evaluate(entry.hi, env))
        else:
            at = evaluate(entry, env)
            known[d] = range(at, at + 1)
    whole = {d: range(pdg.dims[d].count(bounds)) for d in source.domain}
    inside = {d: range(max(r.start, 0), min(r.stop, whole[d].stop)) for d, r in known.items()}
    for point in product(*({**whole, **inside}[d] for d in source.domain)):
        yield source.id, point


def _error(pdg: Pdg, cycle: list[PointOf]) -> ScheduleError:
    lines: list[str] = []
    shown = [node for node in cycle if pdg[node[0]].kind != "merge"] or cycle
    for op_id, point in shown:
        op = pdg[op_id]
        at = ", ".join(f"{d}={v}" for d, v in zip(op.domain, point, strict=True))
        lines.append(f"{op.name}[{at}]   {op.origin}")
    if len(lines) > 12:
        lines = [*lines[:6], f"… {len(lines) - 12} more …", *lines[-6:]]
    inside = {op_id for op_id, _ in cycle}
    asked = [o for o in pdg.orders if {o.before, o.after} <= inside]
    return ScheduleError(
        "no order of execution satisfies this program: these values need each other in a circle.",
        origin=pdg[shown[0][0]].origin,
        others={f"%{o.before} is to run before %{o.after} by": o.origin for o in asked},
        evidence=["each of these needs the next:", *("  " + line for line in lines)],
        hint="let one of them read an earlier point (t - 1), or cut the circle with a branch.",
    )
