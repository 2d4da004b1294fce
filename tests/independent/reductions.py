"""Reductions of slices and over symbolic dimensions."""

from __future__ import annotations

from tests.independent.forms import FUNCTIONS, REDUCED
from tests.independent.programs import Node, Shape
from tests.independent.trees import Trees

OVER = {
    "f": ("sum", "sum", "mean", "max", "min", "prod", "logsumexp", "var"),
    "i": ("sum", "max", "min"),
    "b": ("any", "all"),
}


class Reductions(Trees):
    """Reductions of symbolic dimensions."""

    def _over_slice(
        self, symbols: tuple[str, ...], shape: Shape, about: tuple[str, ...]
    ) -> Node | None:
        """Reduce a slice."""
        rng = self.rng
        found = self.sliced(symbols, shape, "f", about)
        if found is None:
            return None
        x, empty = found
        if not empty and rng.random() < 0.3:
            code, plain, smooth = rng.choice([one for one in FUNCTIONS if one[2]])
            x = self.form(code, plain, x, smooth)
        if rng.random() < 0.2 and len(x.lead) == 1:
            # another tensor in the same slice
            other = self.same_slice(symbols, x, about)
            if other is not None:
                x = self.join(
                    f"({x.code} * {other.code})", f"({x.plain} * {other.plain})", x, other
                )
        while x.lead:
            choices = [one for one in REDUCED if one[2] or not empty]
            code, plain, _ = rng.choice(choices)
            x = self.form(code, plain, x, a=0, lead=x.lead[1:])
        return x

    def _over(
        self, symbols: tuple[str, ...], shape: Shape, dtype: str, depth: int, about: tuple[str, ...]
    ) -> Node | None:
        """Reduce over symbolic dimensions."""
        rng = self.rng
        names = rng.sample(self.dims, 2 if len(self.dims) > 1 and rng.random() < 0.25 else 1)
        inside = tuple(d for d in self.dims if d in symbols or d in names)
        x = self.tree(inside, shape, dtype, depth - 1, about)
        opened = self.opened(x.reads)
        names = [d for d in self.dims if d in names and d in x.dims and d not in opened]
        if not names:
            return None
        moving = [w for w in x.where if w.dims & set(names)]
        if any(not w.dims <= set(names) for w in moving) or (moving and dtype == "b"):
            return None
        # the intersection of several conditions may be empty
        word = "sum" if len(moving) > 1 else rng.choice(OVER[dtype])
        over = names[0] if len(names) == 1 else f"({', '.join(names)})"
        loops = " ".join(f"for {d} in range({d.upper()})" for d in names)
        guard = ""
        if moving:
            guard = " if " + " and ".join(w.text for w in sorted(moving, key=lambda w: w.text))
        cells = f"stacked([{x.plain} {loops}{guard}], {shape})"
        plain = f"logsumexp({cells}, 0)" if word == "logsumexp" else f"np.{word}({cells}, axis=0)"
        code = f"{x.code}.{word}(over={over})"
        return self.join(
            code,
            plain,
            x,
            dims=x.dims - set(names),
            where=x.where - set(moving),
        )
