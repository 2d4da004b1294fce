"""Tensors that a run is given, turn by turn of a loop (`trl.given`)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from timerl_nb.base.errors import DomainError, ShapeError, user_origin
from timerl_nb.compiler.ir.host.host_functions import UdfAttrs
from timerl_nb.compiler.ir.host.iteration_io import Given
from timerl_nb.compiler.ir.shapes import TensorType
from timerl_nb.compiler.language.argument_checks import checked_name, element_type
from timerl_nb.compiler.language.foreign_names import explain_call_errors
from timerl_nb.compiler.language.indexing.index_parsing import as_dims
from timerl_nb.compiler.language.inputs.tensor_sources import shape_of_user
from timerl_nb.compiler.language.program_context import current
from timerl_nb.compiler.language.recurrent_tensor import RecurrentTensor, tensor_of


@explain_call_errors
def given(name: str, shape: Any = (), dtype: Any = "f32", *, domain: Any) -> RecurrentTensor:
    """An input: values that a run is given, for each turn of the outermost loop.

    `execute(given={name: array})` takes those of all turns, the first axis counting turns; `turns(given=…)`
    one turn's after the other. Nothing is known of the values while compiling, and gradients end here:
    `trl.grad(loss, x)` is the derivative by what was given.

    Args:
        name: by which it is given; each is given once.
        shape: integers: of the value at a point.
        dtype: its element type. Arrays of other types are cast where nothing can be lost but precision.
        domain: the dimensions that it varies over: first that whose turns bring it, then those that are
            the leading axes of what a turn brings, in this order.

    Returns:
        a tensor over the domain.

    Raises:
        DomainError: the name is taken, or there is no dimension.
        ShapeError: the shape is not of integers.
    """
    ctx, line = current(), user_origin()
    label = checked_name(name)
    several = domain if isinstance(domain, tuple | list) else (domain,)
    names = tuple(as_dims(ctx, ctx.space, one)[0] for one in several)
    if not names:
        raise DomainError(
            f"{label} is given at turns of no dimension.", hint="name it: domain=(i,)."
        )
    as_dims(ctx, ctx.space, domain)  # refuses a dimension that is named twice
    sizes = shape_of_user(shape)
    if any(not isinstance(size, int) for size in sizes):
        raise ShapeError(
            f"the shape of {label} is not of integers.",
            hint="what varies along a dimension is given over it: domain=(i, b).",
        )
    kind, beside = TensorType(sizes, element_type(dtype)), None
    for op_id in ctx.op_ids:
        attrs = ctx[op_id].attrs
        if not isinstance(attrs, UdfAttrs) or not isinstance(attrs.function, Given):
            continue
        before = attrs.function
        if label in before.names:
            raise DomainError(
                f"{label} is given twice.",
                others={"first at": before.lines[before.names.index(label)]},
                hint="use the tensor that the first call returned.",
            )
        if before.domain == names:
            beside = attrs, before, op_id
    if beside is not None:  # brought together
        attrs, before, op_id = beside
        both = Given((*before.names, label), names, (*before.lines, line))
        changed = replace(attrs, function=both, types=(*attrs.types, kind))
        return tensor_of(ctx, ctx.add_result(op_id, changed, label), len(before.names))
    function = Given((label,), names, (line,))
    attrs = UdfAttrs(function, "given", (kind,), ctx.space.ordered(names), batched=True)
    op = ctx.add("udf", [], attrs, label=label)
    return tensor_of(ctx, op)
