"""Top-down growth of expressions: from the required shape and type to operands."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from tests.independent.programs import Node, Shape
from tests.independent.reads import Reads


class Trees(Reads, ABC):
    """Expressions of a required shape and type; subclasses add the kinds."""

    @abstractmethod
    def _float(
        self, symbols: tuple[str, ...], shape: Shape, depth: int, about: tuple[str, ...]
    ) -> Node | None: ...

    @abstractmethod
    def _integer(
        self, symbols: tuple[str, ...], shape: Shape, depth: int, about: tuple[str, ...]
    ) -> Node | None: ...

    @abstractmethod
    def _boolean(
        self, symbols: tuple[str, ...], shape: Shape, depth: int, about: tuple[str, ...]
    ) -> Node | None: ...

    # --- nodes ---------------------------------------------------------------------------------

    def join(self, code: str, plain: str, *parts: Node, smooth: bool = True, **given: Any) -> Node:
        """Return a node of parts, with the union of their dimensions and reads."""
        fields: dict[str, Any] = {
            "dims": frozenset().union(*(p.dims for p in parts)),
            "shape": parts[0].shape,
            "dtype": parts[0].dtype,
            "lead": parts[0].lead,
            "reads": frozenset().union(*(p.reads for p in parts)),
            "smooth": frozenset().union(*(p.smooth for p in parts)) if smooth else frozenset(),
            "where": frozenset().union(*(p.where for p in parts)),
        }
        fields |= given
        if fields["dtype"] != "f":
            fields["smooth"] = frozenset()
        return Node(code, plain, parts=parts, **fields)

    def form(
        self, code: str, plain: str, x: Node, smooth: bool = True, a: Any = None, **given: Any
    ) -> Node:
        texts = code.format(x=x.code, a=a), plain.format(x=x.plain, a=a)
        return self.join(*texts, x, smooth=smooth, **given)

    def added(self, x: Node, y: Node) -> Node:
        if x.dtype == "b":
            return self.join(f"({x.code} ^ {y.code})", f"np.not_equal({x.plain}, {y.plain})", x, y)
        return self.join(f"({x.code} + {y.code})", f"({x.plain} + {y.plain})", x, y)

    def bounded(self, x: Node) -> Node:
        """Limit values that a recurrence may repeat often."""
        if x.dtype == "i":
            return self.form("({x} % 11)", "({x} % 11)", x)
        if x.dtype == "b":
            return x
        if self.rng.random() < 0.7:
            return self.form("{x}.tanh()", "np.tanh({x})", x)
        return self.form("({x}.clip(-3.0, 3.0) * 0.6)", "(np.clip({x}, -3.0, 3.0) * 0.6)", x)

    def compared(self, name: str, level: float) -> Node:
        x = self.read(name, {})
        return self.form(f"({{x}} > {level})", f"(loops.near({{x}}) > {level})", x, dtype="b")

    def held(self, plain: str, *parts: Node) -> str:
        """Return a value without derivatives."""
        self.sites += 1
        dims = frozenset().union(*(p.dims for p in parts))
        at = "".join(f"{d}, " for d in self.dims if d in dims)
        return f'loops.detached("d{self.sites}", ({at}), {plain})'

    # --- trees ---------------------------------------------------------------------------------

    def about(self, symbols: Sequence[str], shape: Shape, names: Sequence[str]) -> Node:
        return self.expression(symbols, shape, "f", 2, about=names)

    def expression(
        self,
        symbols: Sequence[str],
        shape: Shape,
        dtype: str,
        depth: int,
        about: Sequence[str] = (),
    ) -> Node:
        """Return an expression that reads at least one tensor of `about`, if one fits."""
        node = self.tree(tuple(symbols), shape, dtype, min(depth, self.depth), tuple(about))
        if about and not node.reads & set(about):
            more = self.any_shape(symbols, shape, dtype, about)
            if more is not None:
                node = self.added(node, more) if node.shape == more.shape else node
        return node

    def plain_value(self, dims: tuple[str, ...], shape: Shape, dtype: str) -> Node:
        """Return an expression that is defined everywhere."""
        before, self.whole = self.whole, True
        try:
            return self.closed(lambda: self.expression(dims, shape, dtype, 1))
        finally:
            self.whole = before

    def tree(
        self, symbols: tuple[str, ...], shape: Shape, dtype: str, depth: int, about: tuple[str, ...]
    ) -> Node:
        if depth <= 0 or self.rng.random() < 0.12:
            found = self.leaf(symbols, shape, dtype, about)
            if found is not None:
                return found
            if depth <= -1 or self.rng.random() < 0.6:
                return self.adapted(symbols, shape, dtype) or self.constant(shape, dtype)
        makers = {"f": self._float, "i": self._integer, "b": self._boolean}
        for _ in range(8):
            node = makers[dtype](symbols, shape, depth, about)
            if node is not None:
                return node
        return self.adapted(symbols, shape, dtype) or self.constant(shape, dtype)

    # --- leaves --------------------------------------------------------------------------------

    def any_shape(
        self, symbols: Sequence[str], shape: Shape, dtype: str, about: Sequence[str]
    ) -> Node | None:
        """Return a tensor as a value of another shape."""
        fits = [
            self.pool[n]
            for n in about
            if n in self.pool and all(d in symbols for d in self.pool[n].open)
        ]
        if self.hidden:
            fits = [x for x in fits if not x.open]
        fits = [x for x in fits if x.dtype == "f" and dtype == "f" and not x.where]
        if not fits:
            return None
        x = self.pick(self.rng.choice(fits), symbols)
        if x.shape:
            x = self.form("{x}.sum()", "np.sum({x})", x, shape=())
        if shape:
            text = ", ".join(map(str, shape))
            x = self.form(
                f"{{x}}.expand({text})", f"np.broadcast_to({{x}}, ({text},))", x, shape=shape
            )
        return x

    def adapted(self, symbols: tuple[str, ...], shape: Shape, dtype: str) -> Node | None:
        """Convert a tensor of another shape or type."""
        found = [
            one
            for one in self.pool.values()
            if one.dtype != "b"
            and not (one.open and (self.hidden or any(d not in symbols for d in one.open)))
            and not one.where
        ]
        if not found or self.rng.random() < 0.1:
            return None
        x = self.pick(self.rng.choice(found), symbols)
        while x.shape:
            k = self.rng.randrange(x.shape[0])
            x = self.form(f"{{x}}.take({k})", f"{{x}}[{k}]", x, shape=x.shape[1:])
        if x.dtype == "f" and dtype == "i":
            x = self.form(
                '{x}.round().cast("i32")',
                "np.asarray(np.round(loops.near({x})), int)",
                x,
                dtype="i",
            )
        if x.dtype == "i" and dtype == "f":
            x = self.form('({x}.cast("f32") * 0.3)', "({x} * 0.3)", x, dtype="f")
        if dtype == "b":
            x = self.form("({x} > 0)", "(loops.near({x}) > 0)", x, dtype="b")
        if shape:
            text = "".join(f"{n}, " for n in shape)
            x = self.form(
                f"{{x}}.expand({text[:-2]})", f"np.broadcast_to({{x}}, ({text}))", x, shape=shape
            )
        return x

    def constant(self, shape: Shape, dtype: str) -> Node:
        value = {
            "f": repr(round(self.rng.uniform(-1.5, 1.5), 3)),
            "i": str(self.rng.randint(-3, 3)),
            "b": str(self.rng.random() < 0.5),
        }[dtype]
        word = {"f": "float", "i": "int", "b": "bool"}[dtype]
        named = {"f": "f32", "i": "i32", "b": "bool"}[dtype]
        return Node(
            f'trl.full({shape}, {value}, "{named}")',
            f"np.full({shape}, {value}, {word})",
            frozenset(),
            shape,
            dtype,
        )

    def index(self, symbols: Sequence[str]) -> Node:
        """Return an index as an integer."""
        d = self.rng.choice(tuple(symbols))
        text = self.rng.choice(
            (d, f"{d} + 1", f"2 * {d} - 3", f"{d} // 2", f"{d} % 3", f"{d.upper()} - {d}")
        )
        if self.rng.random() < 0.3:
            more = self.rng.choice(tuple(symbols))
            if not text.endswith(f"- {more}"):  # it would not be an index of this tensor
                text += f" + {more}"
        dims = frozenset(e for e in symbols if e in text)
        return Node(f"trl.value({text})", f"np.asarray({text})", dims, (), "i")
