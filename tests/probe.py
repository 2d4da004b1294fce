"""Episodes, losses and gradients of one iteration, for comparison with other programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import timerl_nb as trl
from benchmarks.works import Work
from timerl_nb.compiler.ir.dependence_graph import at_own_point


@dataclass(frozen=True)
class Probe:
    """One iteration: parameters before and after, some tensors, the loss and its gradients."""

    before: dict[str, Any]
    after: dict[str, Any]
    tensors: tuple[Any, ...]
    loss: Any
    grads: dict[str, Any]


def probed(
    ctx: trl.Context,
    names: Sequence[str],
    bounds: Mapping[str, int],
    seed: int = 0,
    options: trl.Options | None = None,
) -> Probe:
    """Return the first iteration of a program of `trl.algorithms`, with the named tensors."""
    found = {op.label: op for op in ctx.pdg() if op.label in names}
    with ctx:
        for name, op in found.items():
            ctx.output(name, trl.RecurrentTensor(ctx, at_own_point(op.id, op.outputs[0])))
        for p in ctx.parameters.values():
            ctx.output(f"before {p.name}", p)
            ctx.output(f"grad {p.name}", p.grad)
    result = ctx.compile({**bounds, "I": 1}, options).execute(seed, progress=False)
    params = list(result.parameters)
    return Probe(
        {name: result[f"before {name}"][0] for name in params},
        dict(result.parameters),
        tuple(np.swapaxes(result[name][:, 0], 0, 1) for name in names),
        result["loss"][0],
        {name: result[f"grad {name}"][0] for name in params},
    )


def probe(work: Work, seed: int = 0, options: trl.Options | None = None) -> Probe:
    """Return our program's first iteration; the tensors are observations, actions, rewards [T, N, …]."""
    bounds = {"B": work.envs, "T": work.steps}
    return probed(work.context(), ("o", "a", "r"), bounds, seed, options)
