"""Runs of the library's algorithms that also return local variables, parameters and gradients."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Sequence
from typing import Any

import pytest

import timerl_nb as trl


def recorded_updates(
    module: str,
    monkeypatch: pytest.MonkeyPatch,
    bounds: Any,
    names: Sequence[str],
    options: trl.Options,
    **settings: Any,
) -> trl.Result:
    """Run an algorithm of a module in `timerl_nb.algorithms`.

    The outputs include the local variables `names` of its function, its parameters by name, and their gradients as
    `grad <name>`. A local dictionary has the outputs `<variable> <key>`. Networks have the hidden layers
    (5, 4) unless the settings include `hidden`.
    """
    source = importlib.import_module(f"timerl_nb.algorithms.{module}")

    class Recorded(trl.optim.Adam):
        def step(self) -> None:
            frame = inspect.currentframe()
            assert frame is not None and frame.f_back is not None
            found = frame.f_back.f_locals
            ctx = self.params[0].ctx
            for name in names:
                many = found.get(name)
                several = many if isinstance(many, dict) else {name: many}
                for key, x in several.items():
                    label = key if several is not many else f"{name} {key}"
                    if x is not None and not any(one == label for one in ctx.outputs):
                        ctx.output(label, x)
            for p in self.params:
                ctx.output(p.name, p)
                ctx.output(f"grad {p.name}", p.grad)
            super().step()

    monkeypatch.setattr(source, "Adam", Recorded)
    function = getattr(source, {"ppo_single_epoch": "ppo"}.get(module, module))
    ctx = function(**{"hidden": (5, 4), **settings})
    return ctx.compile(bounds, options).execute(seed=2, progress=False)
