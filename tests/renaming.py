"""Programs with renamed dimensions, tensors and outputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

import timerl_nb as trl
from tests.words import bound_of
from timerl_nb.compiler.language.program_context import Context


@dataclass(frozen=True)
class Renaming:
    """New names for the dimensions, tensors and outputs of a program.

    Attributes:
        dims: Names of dimensions.
        word: Function for names of tensors, outputs and parameters.
    """

    dims: Mapping[str, str] = field(default_factory=dict[str, str])
    word: Callable[[str], str] = str

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Rename in every context created inside."""
        init, label, merge, output = (
            Context.__init__,
            Context.set_label,
            Context.open_merge,
            trl.Context.output,
        )

        def made(ctx: Context, *names: str, num_dims: int | None = None) -> None:
            names = names if num_dims is None else tuple(f"d{k}" for k in range(num_dims))
            init(ctx, *(self.dims.get(name, name) for name in names))

        def labelled(ctx: Context, op_id: int, name: str) -> None:
            label(ctx, op_id, self.word(name))

        def merged(ctx: Context, kind: Any, domain: Any, label: str = "", **more: Any) -> Any:
            return merge(ctx, kind, domain, self.word(label) if label else "", **more)

        def given_out(ctx: trl.Context, name: str, x: Any) -> None:
            output(ctx, self.word(name), x)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Context, "__init__", made)
            patch.setattr(Context, "set_label", labelled)
            patch.setattr(Context, "open_merge", merged)
            patch.setattr(trl.Context, "output", given_out)
            yield

    def bounds(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return bounds under their new names."""
        to = {name.upper(): bound_of(new) for name, new in self.dims.items()}
        return {to.get(name, name): value for name, value in given.items()}

    def options(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return options with renamed dimensions."""

        def other(value: Any) -> Any:
            if isinstance(value, Mapping):
                return {self.dims.get(name, name): one for name, one in value.items()}
            if isinstance(value, tuple):
                return tuple(self.dims.get(name, name) for name in value)
            return value

        return {name: other(value) for name, value in given.items()}
