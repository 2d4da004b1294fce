"""Constants of the simulated GPU and its host, each with its source.

Sources are Tables IV and V and §VI of the ACS paper. Constants without a source are estimates made before any
simulation; none is fitted to results. The work per operation is free: sweeps over it support the claims.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from timerl_nb.base.errors import OptionError
from timerl_nb.compiler.language.foreign_names import explain_constructor
from timerl_nb.streams.kernel_declaration import THREADS, Kernel

WARPS: Final = THREADS // 32  # warps per block
CYCLES: Final = 1400.0  # cycles per µs in Table V, the clock for which block times are given


def _constant(value: Any, source: str) -> Any:
    return field(default=value, metadata={"source": source})


@explain_constructor
@dataclass(frozen=True)
class Gpu:
    """GPU and host of a simulation. Times are in µs; each field's metadata has its source.

    Example:
        >>> fast = trl.streams.Gpu("my GPU", processors=64)
        >>> trl.streams.workload("ant").simulate("acs-sw", gpu=fast).us > 0
        True
    """

    name: str = "RTX3070"
    processors: int = _constant(46, "paper, Table V")
    clock: float = _constant(1400.0, "paper, Table V: cycles per µs")
    warps: int = _constant(48, "CUDA guide, compute capability 8.6: resident on a processor")
    blocks: int = _constant(16, "CUDA guide, compute capability 8.6: resident on a processor")
    registers: int = _constant(32768, "paper, Table V: of a processor (NVIDIA says 65,536)")
    saturation: int = _constant(24, "estimate: warps from which on a processor gets no faster")
    floor: float = _constant(
        1.5, "estimate: of a block that computes nothing, at 1,400 cycles per µs"
    )
    operation: float = _constant(
        0.25, "free, swept: an operation of a thread, at 1,400 cycles per µs"
    )
    issue: float = _constant(3.0, "estimate: the host's time for a launch call, one at a time")
    launch: float = _constant(5000 / 1132, "Accel-Sim, SM86_RTX3070: 5,000 cycles at 1.132 GHz")
    queued: float = _constant(
        1.0, "estimate: between two kernels of a queue; baseline accel-sim: launch"
    )
    sync: float = _constant(5.0, "paper, section II-D: 5 to 20 with the launch")
    check: float = _constant(0.51, "paper, Table II: window 32, 6 segments")
    update: float = _constant(0.3, "estimate: the host's window after a completion, locked")
    event: float = _constant(0.7, "estimate: the host's time to record an event or to wait for one")
    waited: float = _constant(1.0, "estimate: from an event to the kernel of another queue")
    dispatch: float = _constant(0.5, "estimate: from ready to running, on the device")
    node: float = _constant(4.0, "estimate: to construct and instantiate a node of a graph")
    graph: float = _constant(10.0, "estimate: to launch a graph")
    task: float = _constant(1.0, "estimate: a persistent thread's look into its queue")

    @property
    def capacity(self) -> int:
        """The number of warps that run at full speed simultaneously."""
        return self.processors * self.saturation

    def microseconds(self, kernel: Kernel) -> float:
        """Return the duration of a block on a processor that is not saturated, in µs."""
        operations = kernel.operations / (kernel.blocks * THREADS)
        return (self.floor + self.operation * operations) * CYCLES / self.clock

    def resident(self, registers: int) -> int:
        """Return the maximal number of resident blocks, for threads with this number of registers."""
        by_warps = min(self.blocks, self.warps // WARPS)
        return self.processors * min(by_warps, self.registers // (registers * THREADS))


RTX3070: Final = Gpu()
RTX3060: Final = Gpu("RTX3060", processors=28, clock=1300.0)
RTX4090: Final = Gpu("RTX4090", processors=128, clock=2520.0, blocks=24, registers=65536)
# In Accel-Sim a kernel of a queue starts after the end of the previous one, and pays the launch.
ACCEL_SIM: Final = Gpu("RTX3070, Accel-Sim", queued=RTX3070.launch)
GPUS: Final = {gpu.name: gpu for gpu in (RTX3070, ACCEL_SIM, RTX3060, RTX4090)}


def by_name(gpu: Gpu | str) -> Gpu:
    """Return a GPU unchanged, or the predefined GPU with this name."""
    if isinstance(gpu, Gpu):
        return gpu
    if gpu not in GPUS:
        raise OptionError(
            f"the GPU {gpu!r} is unknown",
            hint=f"choose one of {', '.join(map(repr, GPUS))}, or pass a trl.streams.Gpu",
        )
    return GPUS[gpu]
