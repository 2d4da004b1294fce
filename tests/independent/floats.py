"""Floating-point expressions."""

from __future__ import annotations

from dataclasses import replace

from tests.independent.forms import FUNCTIONS, PAIRS, REDUCED
from tests.independent.layouts import Layouts
from tests.independent.programs import Node, Shape


class Floats(Layouts):
    """Floating-point expressions by kind."""

    def _float(
        self, symbols: tuple[str, ...], shape: Shape, depth: int, about: tuple[str, ...]
    ) -> Node | None:
        rng = self.rng

        def sub(shape: Shape = shape, dtype: str = "f", less: int = 1) -> Node:
            return self.tree(symbols, shape, dtype, depth - less, about)

        kind = self.choose(
            [
                (3, "function"),
                (5, "pair"),
                (1.2, "where"),
                (4, "slice"),
                (2.5, "over"),
                (1.2, "axis"),
                (0.6, "cast"),
                (0.5, "index"),
                (0.8, "matmul"),
                (0.2, "detach"),
                (0.25, "udf"),
                (0.5, "take"),
                (0.3, "otherwise"),
                (3 if shape else 0, "layout"),
            ]
        )
        if kind == "function":
            code, plain, smooth = rng.choice(FUNCTIONS)
            return self.form(code, plain, sub(), smooth)
        if kind == "pair":
            code, plain = rng.choice(PAIRS)
            x, y = sub(), sub(shape if rng.random() < 0.7 else ())
            texts = {"x": x.code, "y": y.code}, {"x": x.plain, "y": y.plain}
            return self.join(code.format(**texts[0]), plain.format(**texts[1]), x, y)
        if kind == "where":
            c = self.tree(symbols, shape if rng.random() < 0.5 else (), "b", depth - 1, ())
            x, y = sub(), sub()
            return self.join(
                f"trl.where({c.code}, {x.code}, {y.code})",
                f"np.where({c.plain}, {x.plain}, {y.plain})",
                x,
                y,
                c,
                smooth=True,
            )
        if kind == "slice":
            return self._over_slice(symbols, shape, about)
        if kind == "over":
            return self._over(symbols, shape, "f", depth, about)
        if kind == "axis":
            at = rng.randint(0, len(shape))
            wide = (*shape[:at], rng.choice((2, 3)), *shape[at:])
            if len(wide) > 3:
                return None
            code, plain, _ = rng.choice(REDUCED)
            return self.form(code, plain, sub(wide), a=at, shape=shape)
        if kind == "cast":
            x = sub(dtype=rng.choice("ib"))
            return self.form('{x}.cast("f32")', "np.asarray({x}, float)", x, dtype="f")
        if kind == "index":
            if shape or not symbols:
                return None
            x = self.index(symbols)
            return self.form('({x}.cast("f32") * 0.125)', "({x} * 0.125)", x, dtype="f")
        if kind == "matmul":
            if len(shape) > 2:
                return None
            k = rng.choice((2, 3))
            x = sub((*shape[:1], k) if len(shape) == 2 or rng.random() < 0.5 else (k,))
            y = sub(
                (k, *shape[1:]) if len(shape) == 2 else (k, *shape) if x.shape == (k,) else (k,)
            )
            made = self.join(f"({x.code} @ {y.code})", f"({x.plain} @ {y.plain})", x, y)
            result = (*x.shape[:-1], *y.shape[1:])
            return replace(made, shape=shape) if result == shape else None
        if kind == "detach":
            x = sub()
            return self.join(f"{x.code}.detach()", self.held(x.plain, x), x, smooth=False)
        if kind == "udf":
            parts = [sub()] if rng.random() < 0.5 else [sub(), sub()]
            word = "wave" if len(parts) == 1 else "twin"
            code, plain = (", ".join(getattr(p, k) for p in parts) for k in ("code", "plain"))
            return self.join(
                f'trl.udf({word}, {code}, out=({shape}, "f32"))',
                self.held(f"{word}({plain})", *parts),
                *parts,
                smooth=False,
            )
        if kind == "take":
            n = rng.choice((2, 3))
            x = sub((n, *shape))
            if symbols and rng.random() < 0.4:
                d = rng.choice(symbols)
                return self.join(
                    f"{x.code}.take({d} % {n})",
                    f"{x.plain}[{d} % {n}]",
                    x,
                    shape=shape,
                    dims=x.dims | {d},
                )
            if rng.random() < 0.5:
                i = self.tree(symbols, (), "i", depth - 2, ())
                return self.join(
                    f"{x.code}.take({i.code} % {n})",
                    f"{x.plain}[{i.plain} % {n}]",
                    x,
                    i,
                    shape=shape,
                )
            k = rng.randrange(n)
            return self.join(f"{x.code}.take({k})", f"{x.plain}[{k}]", x, shape=shape)
        if kind == "otherwise":
            return self._otherwise(symbols, shape)
        return self._layout(symbols, shape, depth, about)

    def _otherwise(self, symbols: tuple[str, ...], shape: Shape) -> Node | None:
        """Return a conditional tensor with a default value elsewhere."""
        found = [
            x
            for x in self.candidates(symbols, shape, "f", ())
            if x.where and not x.open and set(x.dims) <= set(symbols)
        ]
        if not found or self.whole:
            return None
        one = self.rng.choice(found)
        x = self.read(one.name, {})
        joined = " and ".join(w.text for w in sorted(x.where, key=lambda w: w.text))
        return self.join(
            f"{x.code}.otherwise(0.25)",
            f"({x.plain} if {joined} else np.full({shape}, 0.25))",
            x,
            where=frozenset(),
        )
