"""Terms of the cost model are equal for every way of adding them."""

from __future__ import annotations

import numpy as np

import timerl_nb as trl
from timerl_nb.base.machine_model import Machine
from timerl_nb.compiler.ir.analysis.cost_terms import MADE, READ, computing, moving
from timerl_nb.compiler.memory.budget.candidate_cost import point_seconds
from timerl_nb.compiler.passes.tiling.reduction_block_size_model import BandwidthModel

QUICK = Machine(launch=0.0, bandwidth=float("inf"))  # only arithmetic takes time


def program(*, fuse: bool) -> trl.Program:
    with trl.Context("t") as ctx:
        ((t, T),) = ctx.dims
        x = trl.random.normal((6, 5, 4), domain=(t,))
        y = trl.random.normal((6, 4, 3), domain=(t,))
        taken = trl.data(np.ones((1000, 3), np.float32)).take(trl.data(np.array([1, 2], np.int32)))
        z = (x @ y).tanh().reshape((30, 3)).sum(axis=0)
        ctx.output("z", (z + taken.sum(axis=0))[0:T])
    return ctx.compile({"T": 2}, trl.Options(vectorize=False, fuse=fuse, simplify=False))


def test_a_graph_computes_as_long_as_its_kernels() -> None:
    fused = program(fuse=True)
    sizes = fused.memory.sizes
    kernels = [op for op in fused.fused if op.kind == "dataflow"]
    inside = [op for kernel in kernels for op in kernel.attrs.body]
    assert {"dot", "tanh", "sum", "gather"} <= {op.kind for op in inside}
    points = {op.id: len(op.domain) + 1 for op in kernels}  # T is 2
    seconds = sum(points[op.id] * point_seconds(sizes, op, QUICK) for op in kernels)
    model = BandwidthModel(fused.pdg, {"T": 2}, QUICK)
    assert np.isclose(seconds, model.computing(fused.pdg.ops))


def test_a_contraction_is_its_multiplications() -> None:
    dot = next(op for op in program(fuse=False).pdg if op.kind == "dot")
    # a batch of 6 multiplies the count, not every operand
    assert (
        computing(dot, [(6, 5, 4), (6, 4, 3)], (6, 5, 3), QUICK) == 2 * 6 * 5 * 4 * 3 / QUICK.flops
    )


def test_what_is_taken_is_counted_and_not_the_table() -> None:
    gather = next(op for op in program(fuse=False).pdg if op.kind == "gather")
    assert computing(gather, [(1000, 3), (2,)], (2, 3), QUICK) == 6 / QUICK.elements


def test_memory_costs_what_does_not_stay_in_the_cache() -> None:
    here = Machine(near=1 << 10, far=1 << 20, bandwidth=1e9)
    nbytes = (MADE + READ) * 1000
    assert moving(nbytes, here.near, here) == 0
    assert moving(nbytes, here.far, here) == moving(nbytes, 8 * here.far, here) == nbytes / 1e9
    assert np.isclose(moving(nbytes, 1 << 15, here), nbytes / 2e9)
