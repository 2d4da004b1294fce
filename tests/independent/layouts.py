"""Expressions that move elements along concrete axes."""

from __future__ import annotations

from tests.independent.forms import ALONG
from tests.independent.programs import Node, Shape
from tests.independent.reductions import Reductions


class Layouts(Reductions):
    """Concatenation, slicing, sorting and selection along axes."""

    def _layout(
        self, symbols: tuple[str, ...], shape: Shape, depth: int, about: tuple[str, ...]
    ) -> Node | None:
        rng = self.rng

        def sub(shape: Shape = shape, dtype: str = "f") -> Node:
            return self.tree(symbols, shape, dtype, depth - 1, about)

        axis = rng.randrange(len(shape))
        kind = rng.choice(
            (
                "along",
                "along",
                "stack",
                "concat",
                "reshape",
                "transpose",
                "expand",
                "slice",
                "hot",
                "topk",
                "gather",
                "put",
            )
        )
        if kind == "along":
            code, plain = rng.choice(ALONG)
            return self.form(code, plain, sub(), a=axis)
        if kind == "stack":
            parts = [sub((*shape[:axis], *shape[axis + 1 :])) for _ in range(shape[axis])]
            texts = ", ".join(p.code for p in parts), ", ".join(p.plain for p in parts)
            return self.join(
                f"trl.stack([{texts[0]}], axis={axis})",
                f"np.stack([{texts[1]}], axis={axis})",
                *parts,
                shape=shape,
            )
        if kind == "concat":
            if shape[axis] < 2:
                return None
            first = rng.randrange(1, shape[axis])
            x = sub((*shape[:axis], first, *shape[axis + 1 :]))
            y = sub((*shape[:axis], shape[axis] - first, *shape[axis + 1 :]))
            return self.join(
                f"trl.concat([{x.code}, {y.code}], axis={axis})",
                f"np.concatenate([{x.plain}, {y.plain}], axis={axis})",
                x,
                y,
                shape=shape,
            )
        if kind == "reshape":
            flat = 1
            for n in shape:
                flat *= n
            other = (flat,) if len(shape) > 1 else (1, flat)
            return self.form(
                f"{{x}}.reshape{shape}", f"np.reshape({{x}}, {shape})", sub(other), shape=shape
            )
        if kind == "transpose":
            return self.form("{x}.transpose()", "np.transpose({x})", sub(shape[::-1]), shape=shape)
        if kind == "expand":
            small = tuple(1 if k == axis else n for k, n in enumerate(shape))
            return self.form(
                f"{{x}}.expand{shape}", f"np.broadcast_to({{x}}, {shape})", sub(small), shape=shape
            )
        if kind == "slice":
            lo = rng.randint(0, 2)
            wide = tuple(n + 2 if k == axis else n for k, n in enumerate(shape))
            ends = f"{lo}, {lo + shape[axis]}"
            x = sub(wide)
            return self.form(
                f"{{x}}.slice({ends}, axis={axis})",
                f"np.take({{x}}, range({ends}), axis={axis})",
                x,
                shape=shape,
            )
        if kind == "hot":
            if len(shape) != 1:
                return None
            i = self.tree(symbols, (), "i", depth - 1, ())
            x = sub()
            n = shape[0]
            return self.join(
                f"({x.code} * (trl.arange({n}) == {i.code} % {n}))",
                f"({x.plain} * (np.arange({n}) == {i.plain} % {n}))",
                x,
                i,
            )
        if kind == "topk":
            wide = tuple(n + 1 if k == axis else n for k, n in enumerate(shape))
            x = sub(wide)
            return self.form(
                f"{{x}}.topk({shape[axis]}, axis={axis})[0]",
                f"np.take(np.flip(np.sort({{x}}, axis={axis}), {axis}), range({shape[axis]}), {axis})",
                x,
                shape=shape,
            )
        if kind == "gather":
            if axis:
                return None
            wide = (rng.choice((2, 4)), *shape[1:])
            x, i = sub(wide), self.tree(symbols, shape[:1], "i", depth - 1, ())
            return self.join(
                f"{x.code}.take({i.code} % {wide[0]}, axis=0)",
                f"np.take({x.plain}, {i.plain} % {wide[0]}, axis=0)",
                x,
                i,
                shape=shape,
            )
        x, y = sub(), sub((*shape[:axis], *shape[axis + 1 :]))
        i = self.tree(symbols, (), "i", depth - 1, ())
        n = shape[axis]
        return self.join(
            f"{x.code}.put({i.code} % {n}, {y.code}, axis={axis})",
            f"put({x.plain}, {i.plain} % {n}, {y.plain}, {axis})",
            x,
            y,
            i,
        )
