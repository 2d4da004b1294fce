"""Measured time of each launch, from a profile of a program or from a recording."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from timerl_nb.base.entry_points import entry_point
from timerl_nb.base.errors import CallError, OptionError
from timerl_nb.compiler.loops.loop_nodes import Execute, subtree_nodes
from timerl_nb.driver.program import Program
from timerl_nb.runtime.xla.hlo.calls_per_run import count_calls
from timerl_nb.show.stages.operation_costs import estimated_seconds, launch_counts


class MeasuredRow(Protocol):
    """Measurements of one kernel or call, such as `trl.profiler.Row`."""

    @property
    def name(self) -> str: ...
    @property
    def op_ids(self) -> tuple[int, ...]: ...
    @property
    def count(self) -> int: ...
    @property
    def mean(self) -> float: ...


@runtime_checkable
class Measured(Protocol):
    """Measurements of a run, such as `trl.profiler.Profile`."""

    @property
    def rows(self) -> Sequence[MeasuredRow]: ...
    @property
    def by_op(self) -> Mapping[int, float]: ...


@runtime_checkable
class Readable(Protocol):
    """A recording of `trl.scope`, which this module does not import: most programs are never recorded."""

    def read(self) -> Any: ...


def measured_run(given: Measured | Readable) -> Measured:
    """Return the measurements of a profile, or those of the launches in a recording.

    Raises:
        CallError: the argument is neither.
    """
    if isinstance(given, Measured):
        return given
    if isinstance(given, Readable):
        return entry_point("recording.launches")(given)
    raise CallError(
        f"an object of type {type(given).__name__} is neither a profile nor a recording.",
        hint="pass `trl.profile(program)`, or the object of `with trl.scope.record()`.",
    )


def seconds_per_launch(program: Program, given: Measured | Readable) -> dict[int, float]:
    """Return the measured seconds of one launch of each measured kernel.

    A call to XLA runs several launches. Its time is divided among them in proportion to their estimates.

    Args:
        program: the program that ran, possibly under other bounds.
        given: its profile, or a recording that contains its launches.

    Raises:
        CallError: the measurements are neither a profile nor a recording.
        OptionError: nothing in them belongs to the program.
    """
    lowered, names = program.executable.xla_program, program.ast.names
    counts, estimated = launch_counts(program), estimated_seconds(program)
    repeats = (count_calls(lowered) or {}) if lowered is not None else {}
    # by name: the statements, and how often a run of the program executes them together
    parts: dict[str, tuple[tuple[int, ...], int]] = {
        name: ((op_id,), counts[op_id]) for op_id, name in names.items() if op_id in counts
    }
    for call in lowered.calls if lowered is not None else ():
        ran = dict.fromkeys(n.op_id for n in subtree_nodes(call.node) if isinstance(n, Execute))
        parts[f"call {call.number}"] = tuple(ran), repeats.get(call.number, 0)
    rows = [
        (row, *parts[row.name])
        for row in measured_run(given).rows
        if row.name in parts and set(parts[row.name][0]) <= set(row.op_ids)
    ]
    if not rows:
        raise OptionError(
            "the measurements contain no launch of this program.",
            hint="pass `trl.profile(program)` of the shown program, or a recording of its run.",
        )
    shares = Counter(op_id for _, ids, _ in rows for op_id in ids)  # of a kernel, its calls
    found: dict[int, float] = {}
    for row, ids, times in rows:
        weights = {k: counts[k] * estimated[k] / shares[k] for k in ids if counts[k]}
        total = row.mean * (times or row.count)  # in a whole run
        for k, weight in weights.items():
            part = total * weight / sum(weights.values())
            found[k] = found.get(k, 0.0) + part / counts[k]
    return found
