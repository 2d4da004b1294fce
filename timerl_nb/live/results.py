"""What a run returns: outputs by name, and what the ledger measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from timerl_nb.arrays import Array
from timerl_nb.entry_points import entry_point
from timerl_nb.errors import OptionError, one_of
from timerl_nb.frontend.actor import Actor
from timerl_nb.frontend.arguments import is_whole
from timerl_nb.ir.selected import Coordinates
from timerl_nb.runtime.loading import Kept
from timerl_nb.runtime.outputs import Outputs
from timerl_nb.runtime.run_protocol import RunProtocol


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
class Rows:
    """Runs side by side: the dimension that counts them, and the seed of each."""

    dim: str
    seeds: tuple[int, ...]


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
    kept: Sequence[Kept] = field(default=(), repr=False)
    _actors: Sequence[Actor] = field(default=(), repr=False)
    _rows: Rows | None = field(default=None, repr=False)

    @classmethod
    def of(
        cls,
        run: RunProtocol,
        values: Outputs,
        seconds: float,
        actors: Sequence[Actor] = (),
        error: BaseException | None = None,
        rows: Rows | None = None,
    ) -> Result:
        """The results of a run that has ended, which lets go of its memory.

        Args:
            values: by (role, name).
            actors: what the program may act by.
            error: what it failed with.
            rows: the runs that it was, where they are several.
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
            tuple(run.kept),
            tuple(actors),
            rows,
        )

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds of the rows; none where the program runs with one seed."""
        return self._rows.seeds if self._rows else ()

    def row(self, s: int) -> Result:
        """What the run with `seeds[s]` returned, as a program without several seeds would have.

        `memory`, `seconds` and `instructions` stay those of all.

        Raises:
            OptionError: there is no such row.
        """
        if self._rows is None:
            raise OptionError(
                "the program runs with one seed.", hint="ctx.compile(bounds, seeds=8) makes rows."
            )
        dim, seeds = self._rows.dim, self._rows.seeds
        if not is_whole(s) or not 0 <= s < len(seeds):
            raise OptionError(
                f"there is no row {s!r}.",
                hint=f"row 0 has the seed {seeds[0]}, row {len(seeds) - 1} the seed {seeds[-1]}.",
            )
        here = {name: at[dim] == s for name, at in self.coordinates.items()}
        return replace(
            self,
            _outputs={n: x[here[n]] if n in here else x[s] for n, x in self._outputs.items()},
            parameters={n: x[s] for n, x in self.parameters.items()},
            coordinates={
                n: {d: x[here[n]] for d, x in at.items() if d != dim}
                for n, at in self.coordinates.items()
            },
            lengths={n: x[s] for n, x in self.lengths.items()},
            kept=tuple(
                replace(one, point={d: v for d, v in one.point.items() if d != dim})
                for one in self.kept
                if one.point[dim] == s
            ),
            _rows=None,
        )

    def policy(self, step: int | Mapping[str, int] | None = None) -> Any:
        """What was learnt, as a function of arrays: `a = result.policy()(observation)`.

        It is the network that the program acts by: that of `trl.DNNBuilder`, or what `ctx.policy`
        says. `policy.evaluate(env, episodes)` plays, `policy.weights` are its weights by name.

        Args:
            step: of which checkpoint that was kept: the iteration, or a point, {"i": 9}; as the last
                iteration left the weights, by default.

        Raises:
            OptionError: there is no such step (those that there are are named), or the program does
                not say by what it acts.
            ExecutionError: the checkpoint is damaged, or weights are missing.
        """
        if self._rows is not None:
            raise OptionError(
                f"there are {len(self.seeds)} policies, one for each seed.",
                hint=f"result.row(0).policy() is that of the seed {self.seeds[0]}.",
            )
        return entry_point("policy")(self._actors, self.parameters, self.kept, step)

    def __getstate__(self) -> dict[str, Any]:
        # networks belong to a context, which stays where the program was written
        return {**vars(self), "_actors": ()}

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
            f"Result({shapes}; {len(self.parameters)} parameters; {self.instructions:,} instructions "
            f"in {self.seconds:.2f} s; peak {self.memory.peak:,} bytes by {self.memory.by})"
        )
