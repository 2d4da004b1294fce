"""State of a random program during generation."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from hypothesis import strategies as st

import timerl_nb as trl
from timerl_nb.compiler.ir.shapes import HALF, NUMPY
from timerl_nb.compiler.symbolic.index_expressions import TRUE

Step = Callable[["Drawn"], None]

SHAPES: Final = ((), (2,), (3,), (2, 3))
FLOATS: Final = ("f32", *HALF)
INTEGERS: Final = ("i32", "i8", "u8")
NUMBERS: Final = (*FLOATS, *INTEGERS)
ANY: Final = (*NUMBERS, "bool")


@dataclass
class Drawn:
    """A program under construction.

    Attributes:
        partial: Conditional tensors.
        leaves: Tensors for gradients.
        calls: Arguments of its host functions at run time.
        kinds: The drawn kind of each choice.
    """

    draw: Any
    ctx: trl.Context
    bounds: dict[str, int]
    tensors: list[trl.RecurrentTensor] = field(default_factory=list)
    partial: list[trl.RecurrentTensor] = field(default_factory=list)
    made: list[trl.RecurrentTensor] = field(default_factory=list)
    leaves: list[trl.RecurrentTensor] = field(default_factory=list)
    calls: list[tuple[str, dict[str, int], float]] = field(default_factory=list)
    log: list[str] = field(default_factory=list)
    kinds: set[str] = field(default_factory=set)

    @property
    def symbols(self) -> dict[str, tuple[Any, Any]]:
        return {str(var): (var, bound) for var, bound in self.ctx.dims}

    @property
    def is_rough(self) -> bool:
        """Return whether values are rounded so coarsely that comparisons may differ."""
        return any(x.dtype in HALF for x in self.made)

    def pick(self, options: Any) -> Any:
        return self.draw(st.sampled_from(list(options)))

    def rarely(self, one_in: int) -> bool:
        return self.draw(st.integers(0, one_in - 1)) == one_in - 1

    def domain(self, among: Collection[str] | None = None) -> tuple[str, ...]:
        names = [n for n in self.symbols if among is None or n in among]
        if not names:
            return ()
        keep = self.draw(st.lists(st.sampled_from(names), unique=True, max_size=len(names)))
        return tuple(n for n in names if n in keep)

    def tensor(
        self, *, shape: Any = None, over: str | None = None, types: Collection[str] = FLOATS
    ) -> trl.RecurrentTensor | None:
        found = [
            x
            for x in self.tensors
            if (shape is None or x.shape == shape)
            and (over is None or over in x.domain)
            and x.dtype in types
        ]
        return self.pick(found) if found else None

    def above(self, x: trl.RecurrentTensor, level: float) -> trl.RecurrentTensor:
        """Return `x > level`, or another condition if rounding would decide it."""
        if self.is_rough:
            return trl.random.uniform(x.shape, domain=x.domain) > 0.5
        return x > level

    def key(self, x: trl.RecurrentTensor, name: str, entry: Any) -> tuple[Any, ...]:
        """Return the index of `x` with `entry` along one dimension."""
        return tuple(entry if n == name else self.symbols[n][0] for n in x.domain)

    def data(self, domain: tuple[str, ...], shape: tuple[int, ...], kind: str) -> np.ndarray:
        """Return random values; some of the `odd` ones are NaN or infinite."""
        sizes = (*(self.bounds[n.upper()] for n in domain), *shape)
        rng = np.random.default_rng(self.draw(st.integers(0, 1000)))
        if kind == "bool":
            return rng.random(sizes) < 0.5
        if kind in INTEGERS:
            return rng.integers(0 if kind == "u8" else -5, 9, sizes).astype(NUMPY[kind])
        values = rng.normal(size=sizes).astype(np.float32)
        if kind == "odd":
            odd = rng.choice(np.float32([np.nan, np.inf, -np.inf]), sizes)
            values = np.where(rng.random(sizes) < 0.2, odd, values)
        return values

    def add(self, x: trl.RecurrentTensor, what: str) -> None:
        (self.tensors if x.subset is TRUE else self.partial).append(x)
        self.made.append(x)
        self.kinds |= {what.split(maxsplit=1)[0], x.dtype}
        self.log.append(f"x{len(self.made) - 1} = {what} : {x}")
