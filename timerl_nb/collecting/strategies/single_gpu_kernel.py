"""Strategy "kernel": like "blocks", with all steps of a block in one GPU kernel."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar, Final, Literal

from timerl_nb.base.options import Options
from timerl_nb.collecting.collection_task import Task
from timerl_nb.collecting.strategies.environment_blocks import Blocks
from timerl_nb.collecting.strategies.xla_scan import Scan
from timerl_nb.runtime.xla.lowering.pallas_triton_tile_kernel import without_gpu

_MOST: Final = 256  # environments per block: the usual number of threads in a GPU block


class OneKernel(Blocks):
    name = "kernel"
    what = "one XLA call per batch, with all steps of a block of environments in one kernel"
    runs: ClassVar[Literal[True, "interpret"]] = True

    def why_not(self, task: Task) -> str | None:
        why = Scan.why_not(self, task) or without_gpu(self.runs)
        if why is not None:
            return why
        if task.envs == 1:
            return "a block of a kernel needs several environments, but there is one"
        why = super().why_not(task)
        lowered = None if why is not None else self._program(task).executable.xla_program
        return why if lowered is None else lowered.why_no_kernel(lowered.tiles[0])

    def _options(self, task: Task) -> Options:
        # a power of two, smaller than the number of environments
        size = min(_MOST, 1 << (task.envs - 1).bit_length() - 1)
        return replace(self.options, tile={"b": size}, tile_kernel=self.runs)
