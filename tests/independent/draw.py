"""Random program generator: `make(seed)`.

Excluded: nested clamps; several clamps, quotients and remainders in one read (isl may take hours);
in `small` programs, gradients through recurrences with slices of themselves (minutes); parameters
read at other points before their update; non-finite values.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

from tests.independent.expressions import Expressions
from tests.independent.programs import (
    Branch,
    Data,
    Draw,
    Gradient,
    Let,
    Merge,
    Node,
    Parameter,
    Program,
    Statement,
    Step,
    Where,
)
from tests.independent.reads import Signature

DIMS = ("b", "i", "t", "u")
SHAPES: tuple[tuple[int, ...], ...] = ((), (), (), (2,), (3,), (2, 3))
POINTS = 240  # size of a tensor over all dimensions

OPTIONS: tuple[dict[str, Any], ...] = (
    {"simplify": False},
    {"vectorize": False},
    {"trial": False},
    {"lift": False},
    {"accumulate": False},
    {"contract": False},
    {"fuse": False},
    {"donate": False},
    {"stores": "point"},
    {"fuse_iterations": 3},
    {"incrementalize": 2},
    {"incrementalize": False},
    {"rematerialize": True},
    {"rematerialize": False},
    {"device_memory": "8KiB"},
    {"swap": False},
)


def make(seed: int, *, small: bool = False) -> Program:
    """Return the program of a seed; `small` ones compile quickly."""
    return _Writer(Random(seed), small).program()


# Probability of a statement that must be refused.
WRONG_BRANCH, WRONG_READ = 0.04, 0.004


class _Writer:
    def __init__(self, rng: Random, small: bool) -> None:
        self.rng, self.small = rng, small
        count = rng.choice((1, 1, 2, 2, 2, 3) if small else (1, 1, 2, 2, 2, 3, 3, 4))
        chosen = rng.sample(DIMS, count)
        self.dims = tuple(d for d in DIMS if d in chosen)
        self.bounds = self._bounds()
        depth = 2 if small else 3
        self.words = Expressions(rng, self.dims, self.bounds, WRONG_READ, depth)
        self.statements: list[Statement] = []
        self.count = 0

    def _bounds(self) -> dict[str, int]:
        while True:
            most = {1: 12, 2: 12, 3: 8, 4: 5}[len(self.dims)]
            found = {
                d: 1 if self.rng.random() < 0.1 else self.rng.randint(1, most) for d in self.dims
            }
            total = 1
            for n in found.values():
                total *= n
            if total <= (60 if self.small else POINTS):
                return found

    # --- parts -----------------------------------------------------------------------------------

    def name(self, letter: str) -> str:
        self.count += 1
        return f"{letter}{self.count - 1}"

    def add(self, statement: Statement) -> Statement:
        self.statements.append(statement)
        self.words.enter(
            Signature(
                statement.name,
                statement.dims,
                statement.shape,
                statement.dtype,
                statement.where,
                self.words.opened(statement.reads),
            )
        )
        return statement

    def some(self, least: int = 0) -> tuple[str, ...]:
        count = self.rng.randint(least, len(self.dims))
        if self.rng.random() < 0.5:
            count = len(self.dims)
        chosen = self.rng.sample(self.dims, count)
        return tuple(d for d in self.dims if d in chosen)

    def given(self) -> None:
        kind = self.rng.choice("fffffib")
        self.data(kind, self.some(), self.rng.choice(SHAPES))

    def data(self, kind: str, dims: tuple[str, ...], shape: tuple[int, ...]) -> Statement:
        return self.add(Data(self.name("x"), dims, shape, kind, self.rng.randrange(10**6)))

    def draw(self) -> None:
        call = self.rng.choice(("normal", "uniform", "gumbel"))
        shape = self.rng.choice(SHAPES)
        self.add(Draw(self.name("r"), self.some(), shape, "f", call))

    def let(self, dims: tuple[str, ...] | None = None, kind: str = "", shape: Any = None) -> Let:
        """Add a tensor that is an expression of others."""
        kind = kind or self.rng.choice("ffffffib")
        shape = self.rng.choice(SHAPES) if shape is None else shape
        node = self.words.expression(self.dims if dims is None else dims, shape, kind, 3)
        return self._named(node)

    def _named(self, node: Node) -> Let:
        given: frozenset[Where] = frozenset()
        own = tuple(d for d in self.dims if d in node.dims)
        if own and self.rng.random() < 0.05:
            given = frozenset({self.words.condition(own)})
        dims = tuple(
            d for d in self.dims if d in node.dims or any(d in w.dims for w in node.where | given)
        )
        let = Let(self.name("y"), dims, node.shape, node.dtype, node, given)
        self.add(let)
        return let

    # --- branches --------------------------------------------------------------------------------

    def merge(self) -> None:
        rng = self.rng
        if rng.random() < 0.25:
            self._by_conditions()
        elif rng.random() < 0.12:
            self._reversed()
        elif rng.random() < 0.2 and len(self.dims) > 1:
            self._along_two()
        else:
            self._recurrence()

    def _by_conditions(self) -> None:
        """Return branches by conditions or constants, independent of each other."""
        dims, shape = self.some(1), self.rng.choice(SHAPES)
        kind = self.rng.choice("fffib")
        d = self.rng.choice(dims)
        n = self.bounds[d]
        pair = self.rng.choice(
            (
                (f"({d} % 2 == 0)", f"({d} % 2 == 1)"),
                (f"({d} < {(n + 1) // 2})", f"({d} >= {(n + 1) // 2})"),
                (f"({d} == {d.upper()} - 1)", f"({d} < {d.upper()} - 1)"),
                (f"({d} % 3 == 1)", f"({d} % 3 != 1)"),
            )
        )
        branches = [
            Branch(dims, dims, self._value(dims, shape, kind), Where(text, frozenset({d})))
            for text in pair
        ]
        self._finish(self.name("m"), dims, shape, kind, branches)

    def _reversed(self) -> None:
        dims, shape = self.some(1), self.rng.choice(SHAPES)
        d = self.rng.choice(dims)
        left = tuple(f"{d.upper()} - 1 - {d}" if e == d else e for e in dims)
        branches = [Branch(left, dims, self._value(dims, shape, "f"))]
        if self.rng.random() < 0.3:
            left = tuple(f"2 * {d}" if e == d else e for e in dims)
            odd = tuple(f"2 * {d} + 1" if e == d else e for e in dims)
            branches = [
                Branch(left, dims, self._value(dims, shape, "f")),
                Branch(odd, dims, self._value(dims, shape, "f")),
            ]
        self._finish(self.name("m"), dims, shape, "f", branches)

    def _value(self, dims: tuple[str, ...], shape: tuple[int, ...], kind: str) -> Node:
        return self.words.expression(dims, shape, kind, 2)

    def _finish(
        self, name: str, dims: tuple[str, ...], shape: Any, kind: str, branches: list[Branch]
    ) -> None:
        if self.rng.random() < WRONG_BRANCH:
            fewer = self.rng.random() < 0.5
            branches = branches[:-1] if fewer else [*branches, branches[0]]
        if branches:
            branches = [replace(b, node=self._defined(b)) for b in branches]
            self.add(Merge(name, dims, shape, kind, tuple(branches)))

    def _defined(self, branch: Branch) -> Node:
        """Return a value defined everywhere; sometimes a partial one, which leaves points uncovered."""
        if branch.node.where and self.rng.random() > WRONG_BRANCH:
            return self.words.plain_value(branch.bound, branch.node.shape, branch.node.dtype)
        return branch.node

    def _recurrence(self) -> None:
        """Add one or two tensors with a recurrence along a dimension, forwards or backwards."""
        rng = self.rng
        dims = self.some(1)
        d = rng.choice(dims)
        forward = rng.random() < 0.65
        order = 2 if rng.random() < 0.2 else 1
        kinds = [rng.choice("fffffi")] + (["f"] if rng.random() < 0.25 else [])
        shapes = [rng.choice(SHAPES) for _ in kinds]
        names = [self.name("s") for _ in kinds]
        for name, kind, shape in zip(names, kinds, shapes, strict=True):
            self.words.enter(
                Signature(name, dims, shape, kind, frozenset(), {d: 1 if forward else -1})
            )
        for _ in range(rng.choice((0, 0, 1, 2))):
            node = self.words.expression(dims, rng.choice(SHAPES), "f", 2, about=names)
            self._named(node)
        for name, kind, shape in zip(names, kinds, shapes, strict=True):
            size = d.upper()
            starts = ["0", "1"] if forward else [f"{size} - 1", f"{size} - 2"]
            shifted = f"{d} + {order}" if forward else f"{d} - {order}"
            without = tuple(e for e in dims if e != d)
            branches = []
            for start in starts[:order]:
                at = tuple(start if e == d else e for e in dims)
                if not branches or rng.random() < 0.5:  # else both branches have one value
                    first = self.words.closed(
                        lambda w=without, s=shape, k=kind: self._value(w, s, k)
                    )
                branches.append(Branch(at, without, first))
            node = self.words.bounded(self.words.expression(dims, shape, kind, 2, about=names))
            left = tuple(shifted if e == d else e for e in dims)
            branches.append(Branch(left, dims, node))
            self._finish(name, dims, shape, kind, branches)
        self.words.close()

    def _along_two(self) -> None:
        """Add a recurrence along one dimension that continues along another one."""
        dims = self.some(2)
        outer, inner = sorted(self.rng.sample(dims, 2), key=self.dims.index)
        rest = tuple(e for e in dims if e not in (outer, inner))
        shape = self.rng.choice(SHAPES)
        name = self.name("s")

        def left(**at: str) -> tuple[str, ...]:
            return tuple(at.get(e, e) for e in dims)

        self.words.enter(Signature(name, dims, shape, "f", frozenset(), {outer: 0, inner: 0}))
        first = self.words.closed(lambda: self._value(rest, shape, "f"))
        last = self.words.read(name, {inner: (f"{inner.upper()} - 1",) * 2})
        again = self.words.closed(lambda: self._value((*rest, outer), shape, "f"))
        again = self.words.bounded(self.words.added(last, again))
        step = self.words.bounded(self.words.expression(dims, shape, "f", 2, about=[name]))
        without = tuple(e for e in dims if e != inner)
        branches = [
            Branch(left(**{outer: "0", inner: "0"}), rest, first),
            Branch(left(**{outer: f"{outer} + 1", inner: "0"}), without, again),
            Branch(left(**{inner: f"{inner} + 1"}), dims, step),
        ]
        self._finish(name, dims, shape, "f", branches)
        self.words.close()

    # --- learning --------------------------------------------------------------------------------

    def learning(self) -> list[str]:
        """Add a parameter, a loss, its gradient and an optimiser step; return the outputs that show them."""
        rng = self.rng
        d = rng.choice(self.dims)
        dims = tuple(e for e in self.dims if e == d or (e < d and rng.random() < 0.15))
        dims = (*(e for e in dims if e != d), d)
        if self.dims.index(dims[0]) > self.dims.index(d):
            dims = (d,)
        dims = tuple(e for e in self.dims if e in dims)
        d = dims[-1]
        shape = rng.choice(SHAPES)
        p = Parameter(self.name("w"), dims, shape, "f", rng.randrange(10**6))
        self.add(p)
        updated = rng.random() < 0.8
        if updated:
            self.words.restrict(p.name, dict.fromkeys(dims, 0))
        about = [p.name]
        for _ in range(rng.choice((1, 2, 3))):
            if rng.random() < 0.35 and len(self.dims) > 1:
                about.append(self._through_time(dims, about) or p.name)
                continue
            node = self.words.expression(self.dims, rng.choice(SHAPES), "f", 3, about=about)
            about.append(self._named(node).name)
        loss = self._named(self.words.about(self.dims, rng.choice(SHAPES), about))
        reached = self.reached(loss.name)
        if p.name not in reached or loss.where:
            self.words.close()
            return [loss.name]
        word = ""
        if updated:
            word = rng.choice(("SGD(lr=0.1)", "SGD(lr=0.1, momentum=0.5)", "Adam(lr=0.05)"))
        g = Step(self.name("g"), dims, shape, "f", loss.name, p.name, word)
        self.statements.append(g)
        self.words.close()
        self.words.enter(Signature(g.name, dims, shape, "f", frozenset(), {}))
        self.words.enter(Signature(f"{g.name}_next", dims, shape, "f", frozenset(), {}))
        return [p.name, g.name, f"{g.name}_next", loss.name]

    def _through_time(self, dims: tuple[str, ...], about: list[str]) -> str:
        """Add a recurrence along another dimension, with the parameter in it."""
        others = [d for d in self.dims if d not in dims]
        if not others:
            return ""
        d = self.rng.choice(others)
        shape = self.rng.choice(SHAPES)
        name = self.name("s")
        opened = self.words.opened(frozenset(about))
        self.words.enter(Signature(name, self.dims, shape, "f", frozenset(), {**opened, d: 1}))
        without = tuple(e for e in self.dims if e != d)
        first = self.words.closed(lambda: self.words.plain_value(without, shape, "f"))
        node = self.words.expression(self.dims, shape, "f", 2, about=[name, about[0]])
        node = self.words.bounded(node)
        start = tuple("0" if e == d else e for e in self.dims)
        left = tuple(f"{d} + 1" if e == d else e for e in self.dims)
        if node.where or first.where:
            self.words.forget(name)
            return ""
        branches = (Branch(start, without, first), Branch(left, self.dims, node))
        self.add(Merge(name, self.dims, shape, "f", branches))
        self.words.restrict(name, opened)
        return name

    def reached(self, name: str) -> set[str]:
        """Return the tensors reached by derivatives of a tensor."""
        names = {s.name: s for s in self.statements}
        found: set[str] = set()
        pending = [name]
        while pending:
            one = pending.pop()
            if one in names and one not in found and names[one].dtype == "f":
                found.add(one)
                if not isinstance(names[one], Step | Gradient):
                    pending += names[one].smooth
        return found

    def through_slices(self, name: str) -> bool:
        """Return whether derivatives pass through a recurrence with slices of itself."""
        names = {s.name: s for s in self.statements}
        for one in self.reached(name):
            around = {x for x in self.reached(one) if one in self.reached(x)}
            nodes = [node for x in around for node in names[x].nodes()]
            if any(node.lead and node.reads & around for node in nodes):
                return True
        return False

    def gradients(self) -> list[str]:
        losses = [
            s for s in self.statements if isinstance(s, Let | Merge) and s.dtype == "f" and s.reads
        ]
        if not losses:
            return []
        loss = self.rng.choice(losses)
        names = {s.name: s for s in self.statements}
        leaves = sorted(self.reached(loss.name) - {loss.name})
        leaves = [x for x in leaves if isinstance(names[x], Data | Draw | Let | Merge)]
        # a second name is the same tensor, so reads by either name count
        aliases = {s.name for s in names.values() if isinstance(s, Let) and s.node.code in names}
        leaves = [x for x in leaves if x not in aliases]
        found = []
        most = 1 if self.small else self.rng.choice((1, 1, 2))
        for leaf in self.rng.sample(leaves, min(len(leaves), most)):
            x = names[leaf]
            g = Gradient(self.name("g"), x.dims, x.shape, "f", loss.name, leaf, x.where)
            self.statements.append(g)
            found.append(g.name)
        if self.small and self.through_slices(loss.name):
            del self.statements[len(self.statements) - len(found) :]
            return []
        return [*found, loss.name] if found else []

    # --- the program -----------------------------------------------------------------------------

    def ending(self) -> str:
        """Add a condition that ends the last dimension, before all other statements."""
        d = self.dims[-1]
        x = self.data("f", (d,), ())
        level = self.rng.choice((0.2, 0.6, 1.2))
        node = self.words.compared(x.name, level)
        return self.add(Let(self.name("y"), (d,), (), "b", node)).name

    def program(self) -> Program:
        rng = self.rng
        until = self.ending() if rng.random() < 0.06 else ""
        for _ in range(rng.randint(1, 3)):
            self.given()
        self.data("f", self.dims, rng.choice(SHAPES))
        if rng.random() < 0.15:
            self.draw()
        count = rng.randint(1, 4) if rng.random() < 0.9 else rng.randint(8, 14)
        for _ in range(min(count, 2) if self.small else count):
            if rng.random() < 0.4:
                self.merge()
            else:
                self.let()
        outputs: list[str] = []
        if rng.random() < 0.25 and not until:
            outputs += self.learning()
            if rng.random() < 0.4:
                self.let()
        if rng.random() < 0.65:
            outputs += self.gradients()
        named = [s.name for s in self.statements if isinstance(s, Let | Merge)]
        named = named or [self.let().name]  # an unfinished statement may have been dropped
        outputs += rng.sample(named, min(len(named), rng.randint(1, 3)))
        outputs += named[-1:]
        options: dict[str, Any] = {}
        if rng.random() < 0.45:
            for one in rng.sample(OPTIONS, rng.choice((1, 1, 2, 3))):
                options |= one
        found = Program(
            self.dims, self.bounds, tuple(self.statements), (), options, until, rng.randrange(100)
        )
        return found.returning(outputs)
