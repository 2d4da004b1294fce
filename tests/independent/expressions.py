"""Random expressions of all types over the available tensors."""

from __future__ import annotations

from tests.independent.floats import Floats
from tests.independent.forms import COMPARED, INTEGERS
from tests.independent.programs import Node, Shape


class Expressions(Floats):
    """Integer and boolean expressions, in addition to floating-point ones."""

    def _integer(
        self, symbols: tuple[str, ...], shape: Shape, depth: int, about: tuple[str, ...]
    ) -> Node | None:
        rng = self.rng
        kind = self.choose(
            [
                (4, "pair"),
                (2 if symbols and not shape else 0, "index"),
                (1.5, "argmax"),
                (1, "cast"),
                (1, "where"),
                (1, "slice"),
                (1, "over"),
                (0.8, "round"),
            ]
        )

        def sub(shape: Shape = shape, dtype: str = "i") -> Node:
            return self.tree(symbols, shape, dtype, depth - 1, about if dtype == "i" else ())

        if kind == "pair":
            code, plain = rng.choice(INTEGERS)
            x, y = sub(), sub(shape if rng.random() < 0.7 else ())
            texts = {"x": x.code, "y": y.code}, {"x": x.plain, "y": y.plain}
            return self.join(code.format(**texts[0]), plain.format(**texts[1]), x, y)
        if kind == "index":
            return self.index(symbols)
        if kind == "argmax":
            word = rng.choice(("argmax", "argmin"))
            return (
                self.form(
                    f"{{x}}.{word}(axis=0)",
                    f"np.{word}(loops.near({{x}}), axis=0)",
                    sub((3, *shape), "f"),
                    dtype="i",
                    shape=shape,
                )
                if len(shape) < 2
                else None
            )
        if kind == "cast":
            return self.form('{x}.cast("i32")', "np.asarray({x}, int)", sub(dtype="b"), dtype="i")
        if kind == "where":
            c, x, y = sub(dtype="b"), sub(), sub()
            return self.join(
                f"trl.where({c.code}, {x.code}, {y.code})",
                f"np.where({c.plain}, {x.plain}, {y.plain})",
                x,
                y,
                c,
            )
        if kind == "slice":
            found = self.sliced(symbols, shape, "i", about)
            if found is None or len(found[0].lead) > 1:
                return None
            x, empty = found
            word = "sum" if empty else rng.choice(("sum", "max", "min"))
            return self.form(
                f"({{x}}.{word}(axis=0) % 9)", f"(np.{word}({{x}}, axis=0) % 9)", x, lead=()
            )
        if kind == "over":
            x = self._over(symbols, shape, "i", depth, about)
            return x and self.form("({x} % 9)", "({x} % 9)", x)
        x = sub(dtype="f")
        return self.form(
            '({x}.tanh() * 3.0).round().cast("i32")',
            "np.asarray(np.round(loops.near(np.tanh({x}) * 3.0)), int)",
            x,
            dtype="i",
        )

    def _boolean(
        self, symbols: tuple[str, ...], shape: Shape, depth: int, about: tuple[str, ...]
    ) -> Node | None:
        rng = self.rng
        kind = self.choose(
            [
                (3, "compare"),
                (1, "count"),
                (1.5, "join"),
                (0.7, "not"),
                (1.5 if symbols and not shape else 0, "index"),
                (0.7, "over"),
                (0.7, "slice"),
            ]
        )

        def sub(dtype: str, shape: Shape = shape) -> Node:
            return self.tree(symbols, shape, dtype, depth - 1, about if dtype == "b" else ())

        if kind in ("compare", "count"):
            dtype = "f" if kind == "compare" else "i"
            x = sub(dtype)
            sign = rng.choice(COMPARED[:4] if dtype == "f" else COMPARED)
            if rng.random() < 0.5:
                level = "0.15" if dtype == "f" else "1"
                plain = f"(loops.near({{x}}) {sign} {level})"
                return self.form(f"({{x}} {sign} {level})", plain, x, dtype="b")
            y = sub(dtype)
            return self.join(
                f"({x.code} {sign} {y.code})",
                f"(loops.near({x.plain}) {sign} {y.plain})",
                x,
                y,
                dtype="b",
            )
        if kind == "join":
            sign = rng.choice("&|^")
            x, y = sub("b"), sub("b")
            return self.join(f"({x.code} {sign} {y.code})", f"({x.plain} {sign} {y.plain})", x, y)
        if kind == "not":
            return self.form("(~{x})", "np.logical_not({x})", sub("b"))
        if kind == "index":
            where = self.condition(symbols)
            return Node(f"trl.value{where.text}", f"np.asarray{where.text}", where.dims, (), "b")
        if kind == "over":
            return self._over(symbols, shape, "b", depth, about)
        found = self.sliced(symbols, shape, "b", about)
        if found is None or len(found[0].lead) > 1:
            return None
        word = rng.choice(("any", "all"))
        return self.form(f"{{x}}.{word}(axis=0)", f"np.{word}({{x}}, axis=0)", found[0], lead=())
