"""Interface of a run, implemented by the interpreter and by XLA programs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from timerl_nb.base.array_conversion import Array
from timerl_nb.base.errors import ExecutionError
from timerl_nb.compiler.ir.analysis.partial_outputs import Coordinates
from timerl_nb.compiler.ir.host.host_functions import Host
from timerl_nb.compiler.ir.operations import Op, Tensor
from timerl_nb.compiler.loops.iteration_cuts import Cut, Cuts
from timerl_nb.runtime.call_timing import Stopwatch
from timerl_nb.runtime.interpreter.swap_transfers import Copy
from timerl_nb.runtime.memory_ledger import Ledger
from timerl_nb.runtime.output_assembly import Outputs, OwnPart
from timerl_nb.runtime.state.checkpoint_reader import WrittenCheckpoint
from timerl_nb.runtime.state.resumable_state import RunState, StoredValues
from timerl_nb.runtime.state.run_progress import SoFar


class RunProtocol(Protocol):
    """A run in progress, from its creation until `release`.

    Attributes:
        ledger: Counts of live bytes.
        instructions: Number of executed instructions.
        held_by: Source of the byte counts, in words.
        began: Time of creation (`time.perf_counter`).
        compiling: Seconds of the current wait for XLA to compile; None without a wait.
        compiling_part: Name of the part that XLA compiles, such as `call 2 of 3 (learning)`; "" if all parts are traced,
            or without a wait.
        written_checkpoints: Checkpoints written so far.
        copies: Copies between device and host so far, if the run is recorded.
        coordinates: Positions of the values of conditional outputs, by name.
    """

    ledger: Ledger
    instructions: int
    held_by: str

    @property
    def began(self) -> float: ...

    @property
    def compiling(self) -> float | None: ...

    @property
    def compiling_part(self) -> str: ...

    @property
    def written_checkpoints(self) -> Sequence[WrittenCheckpoint]: ...

    @property
    def copies(self) -> Sequence[Copy]: ...

    @property
    def coordinates(self) -> Mapping[str, Coordinates]: ...

    # run to the end; `progress` may stop the run by an exception, and then `so_far` has the outputs
    def complete(self) -> None: ...

    # the same, but pause after every iteration of an outermost loop, and yield its counter
    def turns(self) -> Iterator[int]: ...

    # with gather=False, outputs that are divided among processes are partial, with the role "local"
    def outputs(self, names: Sequence[str] | None = None, *, gather: bool = True) -> Outputs: ...

    # part of this process; None for a program of one process
    @property
    def own_part(self) -> OwnPart | None: ...

    # after a failure, `lost` receives the names of lost values, and the reasons
    def so_far(
        self,
        reached: SoFar,
        names: Sequence[str] | None = None,
        lost: dict[str, str] | None = None,
    ) -> Outputs: ...

    def lengths(self) -> Mapping[str, Array]: ...

    # between two iterations: take references to outputs at points; the returned function copies them
    def peek(self, wanted: Sequence[tuple[Op, Sequence[int]]]) -> Callable[[], list[list[Any]]]: ...

    def measure(self, watch: Stopwatch | None) -> None: ...

    # between two iterations: copies of the values that later iterations read, by tensor
    def live_values(self, turn: int) -> Mapping[Tensor, StoredValues]: ...

    # between two iterations: the live values by tensor, the seed, dynamic bounds and resources
    def state(self, turn: int, cut: Cut | None, live: Mapping[Tensor, Array]) -> RunState: ...

    # after some iterations: copy the values that the next iteration reads; the function builds the state later
    def snapshot_stores(self, turn: int) -> Callable[[], RunState]: ...

    # before the first iteration: continue from a saved state
    def resume(self, state: RunState) -> None: ...

    @property
    def host(self) -> Host: ...

    # frees all memory; a second error after `error` is added to it as a note
    def release(self, error: BaseException | None = None) -> int: ...


def find_cut(cuts: Cuts, turn: int) -> Cut | None:
    """Return the position after some iterations of a run, or None at its end.

    Raises:
        ExecutionError: the values between two iterations of this program are not known.
    """
    if cuts.why_none:
        raise ExecutionError(
            f"the values between two iterations are unknown: {cuts.why_none}.",
            hint="executor='interpret' and program.step() show the values after every instruction.",
        )
    return cuts.cut_after(turn)


def run_ended_error() -> ExecutionError:
    """Return the error for continuing an ended run."""
    return ExecutionError("this run has ended and cannot continue.", hint="start a new run.")


def changed_already() -> ExecutionError:
    """Return the error for a parameter changed by a failed iteration."""
    return ExecutionError("the failed iteration has changed them")
