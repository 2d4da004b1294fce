"""Inputs of a run, one value per iteration of a loop (`trl.given`)."""

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
    """Declare an input: values passed to a run, for each iteration of the outermost loop.

    `execute(given={name: array})` takes the values of all iterations; the first axis counts iterations.
    `turns(given=…)` takes the values of one iteration after the other. Gradients end at an input:
    `trl.grad(loss, x)` is the derivative with respect to it.

    Args:
        name: the input's name, used once per program.
        shape: the shape of the value at a point, as integers.
        dtype: the element type. Arrays of other types are cast if only precision can be lost.
        domain: the dimensions that the input varies over. The first counts the iterations; the others are the
            leading axes of the values of one iteration, in this order.

    Returns:
        a tensor over the domain.

    Raises:
        DomainError: the name is taken, or `domain` is empty.
        ShapeError: the shape contains a symbol.

    Example:
        >>> trl.given("frame", (84, 84), "u8", domain=(i, b))
        u8[84,84] @ (b, i)
    """
    ctx, line = current(), user_origin()
    label = checked_name(name)
    several = domain if isinstance(domain, tuple | list) else (domain,)
    names = tuple(as_dims(ctx, ctx.space, one)[0] for one in several)
    if not names:
        raise DomainError(
            f"the input {label} has no dimension of iterations.", hint="name one: domain=(i,)."
        )
    as_dims(ctx, ctx.space, domain)  # rejects repeated dimensions
    sizes = shape_of_user(shape)
    if any(not isinstance(size, int) for size in sizes):
        raise ShapeError(
            f"the shape of {label} is symbolic.",
            hint="give integers; add a dimension by domain=(i, b).",
        )
    kind, beside = TensorType(sizes, element_type(dtype)), None
    for op_id in ctx.op_ids:
        attrs = ctx[op_id].attrs
        if not isinstance(attrs, UdfAttrs) or not isinstance(attrs.function, Given):
            continue
        before = attrs.function
        if label in before.names:
            raise DomainError(
                f"the input {label} is declared twice.",
                others={"first at": before.lines[before.names.index(label)]},
                hint="use the tensor that the first call returned.",
            )
        if before.domain == names:
            beside = attrs, before, op_id
    if beside is not None:  # one operation reads all inputs of a domain
        attrs, before, op_id = beside
        both = Given((*before.names, label), names, (*before.lines, line))
        changed = replace(attrs, function=both, types=(*attrs.types, kind))
        return tensor_of(ctx, ctx.add_result(op_id, changed, label), len(before.names))
    function = Given((label,), names, (line,))
    attrs = UdfAttrs(function, "given", (kind,), ctx.space.ordered(names), batched=True)
    op = ctx.add("udf", [], attrs, label=label)
    return tensor_of(ctx, op)
