"""Endless isl computations of each kind, ended by interrupts. Run as a script."""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping

import islpy as isl

from timerl_nb.compiler.isl import isl_scheduler as scheduling
from timerl_nb.compiler.isl.ast_generation import Scan
from timerl_nb.compiler.isl.isl_scheduler import Edge, ScheduleTree, solve
from timerl_nb.compiler.isl.operation_limit import TooMuchWork, at_most, coalesce_pieces
from timerl_nb.compiler.isl.sets_and_relations import Relation, Set
from timerl_nb.compiler.symbolic.dimensions import Dim, Dims
from timerl_nb.compiler.symbolic.index_expressions import maximum, minimum, sym

DIMS = Dims((Dim("i", "I"), Dim("j", "J"), Dim("t", "T")))
POINTS = Set.from_condition(DIMS, ("i", "j", "t"))
MANY = 10**12  # operations: no computation here reaches this limit


def sets() -> None:
    e = sym("t")
    for k in range(2, 9):
        e = minimum(maximum(e - sym("i") % k, sym("j") // k), (e + k) % (k + 5), sym("T") - k)
    Relation.reads(POINTS, (e,), Set.from_condition(DIMS, ("t",)))


def coalescing() -> None:
    boxes = [
        f"[i, j, t] : {k} <= i + j <= {2 * k} and {k} <= 2j - t <= {3 * k} and (i + {k}t) mod {k} = 1"
        for k in range(2, 200)
    ]
    coalesce_pieces(isl.Set(f"{{ {'; '.join(boxes)} }}"))


def schedules() -> None:
    scheduling._HERE = 1_000
    names = [f"S{k}" for k in range(60)]
    near = Relation.reads(POINTS, tuple(map(sym, ("i", "j", "t"))), POINTS)
    edges = [Edge(a, b, near) for k, a in enumerate(names) for b in names[k + 1 :]]
    solve(DIMS, dict.fromkeys(names, POINTS), edges, edges, MANY)


class _Nothing:
    def loop(self, *_: object) -> None: ...
    def branch(self, *_: object) -> None: ...
    def sequence(self, *_: object) -> None: ...
    def call(self, *_: object) -> None: ...


def loops() -> None:
    names = [f"S{k}" for k in range(40)]
    places = [f"S{k}[i, j, t] -> [i + {k}, 2j + {k}i, t - {k}j]" for k in range(40)]
    tree = ScheduleTree.leaf(DIMS, names[0], POINTS)
    tree.statements = dict.fromkeys(names, POINTS)
    domain = scheduling._union_set(tree.statements)
    maps = isl.UnionMap(f"{{ {'; '.join(places)} }}").intersect_domain(domain)
    raw = isl.Schedule.from_domain(domain)
    for k in (2, 1, 0):
        to = isl.UnionMap(f"{{ [a, b, c] -> [{'abc'[k]}] }}")
        band = isl.MultiUnionPwAff.from_union_map(maps.apply_range(to))
        raw = raw.insert_partial_schedule(band)
    tree.raw = raw
    Scan(tree, {"I": 9, "J": 9, "T": 9}, _Nothing())


KINDS: Mapping[str, Callable[[], None]] = {
    "sets": sets,
    "coalescing": coalescing,
    "schedules": schedules,
    "loops": loops,
}


def main() -> None:
    gc.disable()  # Python drops exceptions in garbage-collection callbacks, and JAX has one
    for name, work in KINDS.items():
        try:
            print(name, flush=True)
            while True:
                try:
                    with at_most(MANY):
                        work()
                except TooMuchWork:
                    pass
        except KeyboardInterrupt:
            print("interrupted", flush=True)


if __name__ == "__main__":
    main()
