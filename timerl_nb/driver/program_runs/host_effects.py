"""Detection of operations with effects on the host, which forbid a second execution."""

from __future__ import annotations

from collections.abc import Iterable

from timerl_nb.base.errors import OptionError
from timerl_nb.compiler.ir.host.host_functions import UdfAttrs
from timerl_nb.compiler.ir.operations import Op


def find_host_effect(ops: Iterable[Op]) -> Op | None:
    """Return an operation with effects on the host, if there is one."""
    for op in ops:
        resource = isinstance(op.attrs, UdfAttrs) and op.attrs.resource is not None
        if resource or op.kind in ("call", "checkpoint"):
            return op
    return None


def refuse_host_effects(ops: Iterable[Op], why: str, hint: str) -> None:
    """Refuse to run a program with effects on the host.

    Args:
        ops: the operations.
        why: the reason for the run.
        hint: the remedy.

    Raises:
        OptionError: an operation has effects on the host.
    """
    effect = find_host_effect(ops)
    if effect is not None:
        what = f"{why}, and {effect.name} has effects on the host."
        raise OptionError(what, origin=effect.origin, hint=hint)
