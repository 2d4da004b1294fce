"""Table of all operation kinds: operands, type rule, one sentence.

`arity` None means any number of operands. Tags group kinds for common treatment.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from timerl_nb.compiler.ir import type_rules as t
from timerl_nb.compiler.ir.shapes import TensorType
from timerl_nb.compiler.ir.type_rules import Infer, Types


@dataclass(frozen=True)
class KindSpec:
    """A row of the operation table.

    `ulps` is the tolerance against the same operation in float64, in units in the last place of the element
    type. For sums, it applies per term, and to the sum of absolute values. Half-precision values are
    computed in float32 and rounded once more.
    """

    kind: str
    arity: int | None
    infer: Infer
    doc: str
    tags: frozenset[str] = frozenset()
    ulps: int = 0

    def outputs(self, types: Types, attrs: Any) -> tuple[TensorType, ...]:
        """Return the types of all outputs; a sink has none.

        Raises:
            TypeRuleError: the kind does not take operands of these types.
        """
        made = self.infer(types, attrs)
        if "sink" in self.tags:
            return ()
        return made if isinstance(made, tuple) else (made,)


ULPS: Final[Mapping[str, int]] = {
    **dict.fromkeys(("add", "sub", "mul", "div", "mod", "sqrt"), 1),
    **dict.fromkeys(("exp", "log", "sin", "cos", "atan2"), 4),
    **dict.fromkeys(("expm1", "log1p", "tanh", "sigmoid", "erf"), 8),
    **dict.fromkeys(("pow", "erf_inv"), 16),
    **dict.fromkeys(("sum", "prod", "discounted_sum", "sliding_sum", "dot", "conv"), 2),
    **dict.fromkeys(("linear_scan", "scatter_add", "accumulate"), 2),
}


def _table() -> Mapping[str, KindSpec]:
    rows: list[KindSpec] = []

    def row(kind: str, arity: int | None, infer: Infer, tags: str, doc: str) -> None:
        rows.append(KindSpec(kind, arity, infer, doc, frozenset(tags.split()), ULPS.get(kind, 0)))

    row("const", 0, t.const_type, "", "A constant array, equal at every point.")
    row("data", 0, t.const_type, "", "Data arrays, one per point of the domain.")
    row("value", 0, t.value_type, "", "The value of an index expression at the current point.")
    row("rng", 0, t.rng_type, "", "Random bits: a function of seed, stream and point.")

    for kind, doc in (
        ("neg", "-x"),
        ("abs", "|x|"),
        ("sign", "-1, 0 or 1"),
    ):
        row(kind, 1, t.arithmetic_type, "elementwise", f"{doc}, element by element.")
    for kind, doc in (
        ("exp", "e**x"),
        ("expm1", "e**x - 1"),
        ("log", "The natural logarithm"),
        ("log1p", "The natural logarithm of 1 + x"),
        ("sqrt", "The square root"),
        ("sin", "The sine"),
        ("cos", "The cosine"),
        ("tanh", "The hyperbolic tangent"),
        ("sigmoid", "1 / (1 + e**-x)"),
        ("erf", "The error function"),
        ("erf_inv", "The inverse error function"),
        ("floor", "The greatest integer not above x"),
        ("round", "The nearest integer, the even one of two"),
    ):
        row(kind, 1, t.float_type, "elementwise", f"{doc}, element by element.")
    row("not", 1, t.logical_type, "elementwise", "Logical negation; of integers, of each bit.")
    row("cast", 1, t.cast_type, "elementwise", "The same values in another element type.")
    row("unit", 1, t.unit_type, "elementwise", "Random bits as numbers strictly between 0 and 1.")
    row("copy", 1, t.same_type, "elementwise", "x itself, stored separately.")
    row("detach", 1, t.same_type, "elementwise", "x itself; gradients stop here.")
    for kind, doc in (
        ("add", "x + y"),
        ("sub", "x - y"),
        ("mul", "x * y"),
        ("pow", "x ** y"),
        ("max2", "The greater of x and y"),
        ("min2", "The lesser of x and y"),
        ("floordiv", "floor(x / y)"),
        ("mod", "x - y * floor(x / y)"),
    ):
        row(kind, 2, t.arithmetic_type, "elementwise", f"{doc}, element by element.")
    row("div", 2, t.float_type, "elementwise", "x / y, element by element.")
    row("atan2", 2, t.float_type, "elementwise", "The angle of the point (y, x), given x and y.")
    for kind, doc in (("eq", "="), ("ne", "!="), ("lt", "<"), ("le", "<=")):
        row(kind, 2, t.comparison_type, "elementwise", f"x {doc} y, element by element.")
    for kind, doc in (("and", "and"), ("or", "or"), ("xor", "exclusive or")):
        row(kind, 2, t.logical_type, "elementwise", f"Logical {doc}; of integers, bit by bit.")
    row("shl", 2, t.shift_type, "elementwise", "The bits of x, shifted left by y positions.")
    row(
        "shr",
        2,
        t.shift_type,
        "elementwise",
        "The bits of x, shifted right by y positions with the sign.",
    )
    row("where", 3, t.where_type, "elementwise", "y if x is true, else z.")

    row(
        "sum",
        1,
        t.sum_type,
        "reduction",
        "The sum over axes; booleans and narrow integers are added in int32.",
    )
    row("prod", 1, t.sum_type, "reduction", "The product over axes.")
    row("max", 1, t.extremum_type, "reduction", "The greatest element over axes.")
    row("min", 1, t.extremum_type, "reduction", "The least element over axes.")
    for kind, doc in (("argmax", "greatest"), ("argmin", "least")):
        row(kind, 1, t.argmax_type, "", f"The first position of the {doc} element along an axis.")
    row("discounted_sum", 1, t.discounted_type, "", "The discounted sum along an axis.")
    row("sliding_sum", 1, t.sliding_type, "", "The discounted sum of a window at each position.")
    row("sliding_max", 1, t.extrema_type, "", "The greatest element of a window at each position.")
    row("sliding_min", 1, t.extrema_type, "", "The least element of a window at each position.")
    row(
        "dot",
        2,
        t.dot_type,
        "",
        "A contraction: products, summed over labels missing from the result.",
    )

    row(
        "conv",
        2,
        t.conv_type,
        "",
        "A contraction at every position of a sliding window.",
    )
    row("linear_scan", 2, t.scan_type, "", "y[k] = a[k] * y[k - 1] + b[k] along an axis, for a, b.")
    row("argsort", 1, t.argsort_type, "", "The positions in order of their elements; NaNs last.")
    row("orthonormal", 1, t.orthonormal_type, "", "Columns made orthonormal, from left to right.")
    row("jaxed", None, t.jaxed_type, "", "A result of the user's JAX function.")
    row("gather", 2, t.gather_type, "", "Elements at given positions of an axis; 0 beyond it.")
    row("scatter_add", 2, t.scatter_type, "", "Values added up at given positions of an axis.")
    row("scatter_set", 3, t.set_type, "", "x with values at given positions; the last of several.")

    row("reshape", 1, t.reshape_type, "layout", "The same elements, in order, in another shape.")
    row("transpose", 1, t.transpose_type, "layout", "The axes in another order.")
    row("expand", 1, t.expand_type, "layout", "Axes of size 1 repeated.")
    row("concat", None, t.concat_type, "layout", "The operands one after the other along an axis.")
    row("reindex", 1, t.reindex_type, "layout", "An axis read at an expression of the position.")

    row("merge", None, t.merge_type, "", "The branch whose condition is true at the point.")
    row("accumulate", 1, t.same_type, "", "Values combined over dimensions in any order.")
    row("dataflow", None, t.dataflow_type, "", "A fused region, run as one kernel.")
    row("udf", None, t.udf_type, "", "A user function, run on the host.")
    row("output", 1, t.same_type, "sink", "Values that the run returns.")
    row(
        "bound", 1, t.same_type, "sink", "The end of a dimension, at the first point with a true x."
    )
    row("checkpoint", None, t.same_type, "sink", "Values written to a file.")
    row("call", None, t.call_type, "sink", "A user function, called for its effect.")
    return {spec.kind: spec for spec in rows}


KINDS: Final = _table()

REDUCTIONS: Final = tuple(k for k, spec in KINDS.items() if "reduction" in spec.tags)
ELEMENTWISE: Final = frozenset(k for k, spec in KINDS.items() if "elementwise" in spec.tags)
# Kinds that only rearrange the elements of one operand.
LAYOUT: Final = frozenset(
    k for k, spec in KINDS.items() if "layout" in spec.tags and spec.arity == 1
)
SINKS: Final = frozenset(k for k, spec in KINDS.items() if "sink" in spec.tags)
