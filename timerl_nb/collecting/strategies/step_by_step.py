"""Strategy "step": the same program as "scan", with a separate call per kernel and step."""

from __future__ import annotations

from math import prod

from timerl_nb.base.options import Options
from timerl_nb.collecting.strategies.xla_scan import Scan
from timerl_nb.collecting.strategy import Counts
from timerl_nb.driver.program import Program


class StepByStep(Scan):
    name = "step"
    what = "one XLA call per kernel and step"
    options = Options(executor="interpret")

    def count_work(self, program: Program) -> Counts:
        dims = program.fused.dims
        turn = dims.endless
        assert turn is not None
        domains = [kernel.op.domain for kernel in program.executable.kernels.values()]
        calls = sum(
            prod(dims[d].count(program.bounds) for d in domain if d != turn.name)
            for domain in domains
            if turn.name in domain
        )
        return Counts(calls, None, 0)
