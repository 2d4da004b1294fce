"""What every run of a program can do, whoever runs it: the interpreter, or XLA."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from timerl_nb.base.array_conversion import Array
from timerl_nb.base.errors import ExecutionError
from timerl_nb.compiler.ir.analysis.partial_outputs import Coordinates
from timerl_nb.compiler.ir.host.host_functions import Host
from timerl_nb.compiler.ir.operations import Op, Tensor
from timerl_nb.compiler.loops.iteration_cuts import Cut
from timerl_nb.runtime.call_timing import Stopwatch
from timerl_nb.runtime.interpreter.swap_transfers import Copy
from timerl_nb.runtime.memory_ledger import Ledger
from timerl_nb.runtime.output_assembly import Outputs
from timerl_nb.runtime.state.checkpoint_reader import WrittenCheckpoint
from timerl_nb.runtime.state.resumable_state import RunState
from timerl_nb.runtime.state.run_progress import SoFar


class RunProtocol(Protocol):
    """A run in progress, from before its first turn until its memory is let go of.

    Attributes:
        ledger: counts what it holds.
        instructions: how many have run.
        held_by: who says what it holds.
        began: when it was made, as `time.perf_counter` counts.
        compiling: for how many seconds it has been waiting for XLA to compile; None if it is not.
        kept: the checkpoints that it has written so far.
        copies: what was copied between device and host so far, if it is recorded.
        coordinates: where the values of conditional outputs are, by name.
    """

    ledger: Ledger
    instructions: int
    held_by: str

    @property
    def began(self) -> float: ...

    @property
    def compiling(self) -> float | None: ...

    @property
    def written_checkpoints(self) -> Sequence[WrittenCheckpoint]: ...

    @property
    def copies(self) -> Sequence[Copy]: ...

    @property
    def coordinates(self) -> Mapping[str, Coordinates]: ...

    # it runs to its end, or to where `progress` raises; outputs are there then, or so far
    def complete(self) -> None: ...

    # the same, resting behind every turn of the outermost loops, of which it tells the counter
    def turns(self) -> Iterator[int]: ...

    def outputs(self, names: Sequence[str] | None = None) -> Outputs: ...

    # after a failure, what it cost is put into `lost`: names, and why
    def so_far(
        self,
        reached: SoFar,
        names: Sequence[str] | None = None,
        lost: dict[str, str] | None = None,
    ) -> Outputs: ...

    def lengths(self) -> Mapping[str, Array]: ...

    # between two turns: outputs at points, to be brought by what is returned; kernels' times
    def peek(self, wanted: Sequence[tuple[Op, Sequence[int]]]) -> Callable[[], list[list[Any]]]: ...

    def measure(self, watch: Stopwatch | None) -> None: ...

    # between two turns: what it holds at points, by tensor; and the seed, the bound's lengths, the host's
    def state(self, turn: int, cut: Cut | None, live: Mapping[Tensor, Array]) -> RunState: ...

    # after so many turns: copy the values that the next one reads; the function makes a state of them later
    def snapshot_stores(self, turn: int) -> Callable[[], RunState]: ...

    # ahead of its first turn: go on from there instead
    def resume(self, state: RunState) -> None: ...

    @property
    def host(self) -> Host: ...

    # of a run that failed with `error`, what fails besides is noted on it
    def release(self, error: BaseException | None = None) -> int: ...


def run_ended_error() -> ExecutionError:
    """A run that has ended, however it did, is told to go on."""
    return ExecutionError("this run has ended, and cannot go on.", hint="begin another one.")


def changed_already() -> ExecutionError:
    """A parameter is asked for as it was before a turn that failed."""
    return ExecutionError("the turn that failed had changed them already")
