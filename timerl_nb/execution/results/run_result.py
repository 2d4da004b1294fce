"""What a run returns: outputs by name, and what the ledger measured."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from timerl_nb.base.array_conversion import Array
from timerl_nb.base.entry_points import entry_point
from timerl_nb.base.errors import OptionError, one_of
from timerl_nb.base.text_formatting import format_count
from timerl_nb.compiler.ir.analysis.partial_outputs import Coordinates
from timerl_nb.compiler.language.argument_checks import is_whole
from timerl_nb.execution.results.result_dataframe import (
    Along,
    Rows,
    output_frame,
    seeds_frame,
    turns_frame,
)
from timerl_nb.execution.results.result_file import damaged_result_error, read_result, write_result
from timerl_nb.runtime.output_assembly import Outputs
from timerl_nb.runtime.run_protocol import RunProtocol
from timerl_nb.runtime.state.checkpoint_reader import WrittenCheckpoint

_WHERE: Final = "coordinates of "
Acting = tuple[Any, Mapping[str, int]]  # a program's context, and its bounds


@dataclass(frozen=True)
class RunMemory:
    """Memory of a run, in bytes on the device.

    Attributes:
        by: how it is known: "the run's ledger", which counted every value; where XLA ran the loop
            nest, "XLA's buffers", which are there throughout.
    """

    peak: int
    _timeline: tuple[int, ...] = field(repr=False)
    kept: int = 0
    _host: tuple[int, ...] = field(repr=False, default=())
    by: str = "the run's ledger"

    def timeline(self) -> Array:
        """Live bytes on the device during each executed point, in order."""
        return np.asarray(self._timeline, np.int64)

    def host_timeline(self) -> Array:
        """Bytes of swapped values on the host during each executed point, in order."""
        return np.asarray(self._host or (0,) * len(self._timeline), np.int64)

    @property
    def host_peak(self) -> int:
        return max(self._host, default=0)


@dataclass(frozen=True)
class Result(Mapping[str, Array]):
    """What a run returned: outputs by name, stacked over their domains.

    Of a program that was compiled for several seeds all have a leading axis with a row for each; of
    conditional tensors' outputs, `coordinates` say which are of which.

    Attributes:
        parameters: each parameter's value after the last iteration.
        memory: what it held.
        seconds: how long the run took.
        instructions: how many instructions ran.
        coordinates: by name of a conditional tensor's output, where each of its values is: an array
            of positions per dimension.
        lengths: the values of a dynamic bound, by its name, stacked over what it varies over;
            outputs along its dimension have zeros beyond.
        kept: the checkpoints that it wrote.
        frozen: last values that the program's policy needs beside its parameters, such as running
            statistics.
    """

    _outputs: Mapping[str, Array] = field(repr=False)
    parameters: Mapping[str, Array] = field(repr=False)
    memory: RunMemory
    seconds: float
    instructions: int
    coordinates: Mapping[str, Coordinates] = field(
        default_factory=dict[str, Coordinates], repr=False
    )
    lengths: Mapping[str, Array] = field(default_factory=dict[str, Array], repr=False)
    kept: Sequence[WrittenCheckpoint] = field(default=(), repr=False)
    _acting: Acting | None = field(default=None, repr=False)
    _along: Along = field(default_factory=Along, repr=False)
    frozen: Mapping[str, Array] = field(default_factory=dict[str, Array], repr=False)

    @classmethod
    def from_run(
        cls,
        run: RunProtocol,
        values: Outputs,
        seconds: float,
        acting: Acting | None = None,
        error: BaseException | None = None,
        along: Along = Along(),  # noqa: B008 (a frozen value)
    ) -> Result:
        """The results of a run that has ended, which lets go of its memory.

        Args:
            values: by (role, name).
            acting: the program, which says how it acts.
            error: what it failed with.
            along: what outputs are stacked over.
        """
        kept = run.release(error)
        trace, host = tuple(run.ledger.timeline()), tuple(run.ledger.host_trace)
        return cls(
            {name: x for (role, name), x in values.items() if role == "output"},
            {name: x for (role, name), x in values.items() if role == "parameter"},
            RunMemory(run.ledger.peak, trace, kept, host, run.held_by),
            seconds,
            run.instructions,
            run.coordinates,
            run.lengths(),
            tuple(run.written_checkpoints),
            acting,
            along,
            {name: x for (role, name), x in values.items() if role == "policy"},
        )

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds of the rows; none where the program runs with one seed."""
        return tuple(self._along.rows.seeds) if self._along.rows else ()

    def row(self, s: int) -> Result:
        """What the run with `seeds[s]` returned, as a program without several seeds would have.

        `memory`, `seconds` and `instructions` stay those of all.

        Raises:
            OptionError: there is no such row.
        """
        rows = self._along.rows
        if rows is None:
            raise OptionError(
                "the program runs with one seed.", hint="ctx.compile(bounds, seeds=8) makes rows."
            )
        dim, seeds = rows.dim, rows.seeds
        if not is_whole(s) or not 0 <= s < len(seeds):
            raise OptionError(
                f"there is no row {s!r}.",
                hint=f"row 0 has the seed {seeds[0]}, row {len(seeds) - 1} the seed {seeds[-1]}.",
            )
        at = self.coordinates
        parts = {n: rows.select_run(s, x, at.get(n)) for n, x in self._outputs.items()}
        return replace(
            self,
            _outputs={n: x for n, (x, _) in parts.items()},
            parameters={n: x[s] for n, x in self.parameters.items()},
            coordinates={n: where for n, (_, where) in parts.items() if where is not None},
            lengths={n: x[s] for n, x in self.lengths.items()},
            kept=tuple(
                replace(one, point={d: v for d, v in one.point.items() if d != dim})
                for one in self.kept
                if one.point[dim] == s
            ),
            _along=self._along.of_one(),
            frozen={n: x[s] for n, x in self.frozen.items()},
        )

    def policy(self, step: int | Mapping[str, int] | None = None) -> Any:
        """What was learnt, as a function of arrays: `a = result.policy()(observation)`.

        It is the part of the program between an environment's observation and the action, or the policy
        of `ctx.policy`. `policy.evaluate(env, episodes)` plays, `policy.weights` are its weights by name.

        Args:
            step: of which checkpoint that was kept: the iteration, or a point, {"i": 9}; as the last
                iteration left the weights, by default.

        Raises:
            OptionError: there is no such step (those that there are are named), or the program does
                not say by what it acts.
            ExecutionError: the checkpoint is damaged, or weights are missing.
        """
        if self._along.rows is not None:
            raise OptionError(
                f"there are {len(self.seeds)} policies, one for each seed.",
                hint=f"result.row(0).policy() is that of the seed {self.seeds[0]}.",
            )
        if self._acting is None:
            raise OptionError(
                "the result does not say what its policy is: it was copied, pickled or loaded, and "
                "knows its parameters alone.",
                hint="pickle result.policy() itself.",
            )
        ctx, bounds = self._acting
        found = entry_point("program.policy")
        return found(ctx, bounds, self.parameters, self.frozen, self.kept, step)

    def frame(self, name: str | None = None) -> Any:
        """The outputs as a table of pandas: a row per turn, a column per output that is one number there.

        The index is the outermost dimension, behind the seed where there are several; outputs that are not defined at all of it have NaN elsewhere.

        Args:
            name: of one output, whatever it varies over: a row per number, indexed by its dimensions
                and then by its axes.

        Raises:
            MissingPartError: pandas is not installed.
            OptionError: there is no such output, or none that is one number per turn.
        """
        if name is None and self._along.rows is not None:
            tables = {seed: self.row(s).frame() for s, seed in enumerate(self.seeds)}
            return seeds_frame(tables, self._along.rows.dim)
        if name is None:
            return turns_frame(self._outputs, self.coordinates, self.lengths, self._along)
        return output_frame(name, self[name], self.coordinates.get(name), self._along)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write all that the run returned to one file, whole or not at all: see `Result.load`.

        It is a safetensors file: numbers and text, and nothing to execute. What was there is replaced.

        Args:
            path: the file; its folder is made.

        Raises:
            ExecutionError: it cannot be written.
        """
        memory = self.memory
        timelines = {"timeline": memory._timeline, "host": memory._host}
        groups = {
            "output": self._outputs,
            "parameter": self.parameters,
            "policy": self.frozen,
            "length": self.lengths,
            "memory": {n: np.asarray(x, np.int64) for n, x in timelines.items()},
            **{f"{_WHERE}{name}": where for name, where in self.coordinates.items()},
        }
        about = {
            "seconds": self.seconds,
            "instructions": self.instructions,
            "memory": {"peak": memory.peak, "kept": memory.kept, "by": memory.by},
            "kept": [[os.fspath(k.path), dict(k.point), list(k.names)] for k in self.kept],
            "along": {
                **asdict(self._along),
                "rows": self._along.rows and self._along.rows.to_json_data,
            },
        }
        return write_result(path, groups, about)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Result:
        """What `result.save(path)` has written; it has no `policy()`, but its weights.

        Raises:
            ExecutionError: there is no such file, or not one of a result, or it is damaged.
        """
        groups, about = read_result(path)
        try:
            timelines, along = groups["memory"], about["along"]
            memory = RunMemory(
                about["memory"]["peak"],
                tuple(timelines["timeline"].tolist()),
                about["memory"]["kept"],
                tuple(timelines["host"].tolist()),
                about["memory"]["by"],
            )
            dims = {name: tuple(found) for name, found in along["dims"].items()}
            rows = along["rows"] and Rows(along["rows"]["dim"], range(*along["rows"]["seeds"]))
            return cls(
                groups.get("output", {}),
                groups.get("parameter", {}),
                memory,
                about["seconds"],
                about["instructions"],
                {n.removeprefix(_WHERE): x for n, x in groups.items() if n.startswith(_WHERE)},
                groups.get("length", {}),
                tuple(
                    WrittenCheckpoint(Path(path), point, tuple(names))
                    for path, point, names in about["kept"]
                ),
                None,
                Along(along["outer"], along["bound"], dims, rows),
                groups.get("policy", {}),
            )
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise damaged_result_error(path, error) from None

    def __getstate__(self) -> dict[str, Any]:
        # a context stays in its own process
        return {**vars(self), "_acting": None}

    def __getitem__(self, name: str) -> Array:
        if name not in self._outputs:
            raise OptionError(
                f"there is no output {name!r}.", hint=one_of(name, list(self._outputs))
            )
        return self._outputs[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._outputs)

    def __len__(self) -> int:
        return len(self._outputs)

    def __repr__(self) -> str:
        shapes = ", ".join(f"{k}: {v.dtype}{list(v.shape)}" for k, v in self._outputs.items())
        return (
            f"Result({shapes}; {format_count(len(self.parameters), 'parameter')}; {format_count(self.instructions, 'instruction')} "
            f"in {self.seconds:.2f} s; peak {self.memory.peak:,} bytes by {self.memory.by})"
        )
