"""Samples of a replay buffer, and tickets for updates of their priorities."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from timerl_nb.base.array_conversion import Array
from timerl_nb.base.errors import OptionError
from timerl_nb.compiler.language.foreign_names import close
from timerl_nb.compiler.language.recurrent_tensor import RecurrentTensor
from timerl_nb.runtime.jax_backend import graph_function as graph


@dataclass(frozen=True)
class Epoch:
    """The time between two loads of a buffer, which begins at a number of inserted rows.

    Two buffers that load the same file insert different rows under the same serial numbers; so does one
    buffer that loads it twice. The epoch distinguishes these rows.
    """

    name: str
    start: int


@dataclass(frozen=True, repr=False)
class Ticket:
    """The rows of a sample, for `Replay.update` to find in the buffer.

    Attributes:
        buffer: the name of their buffer, which `Replay.load` takes over.
        serial: i64[count], the number of rows that were inserted before each.
        epochs: those of the buffer when the sample was drawn.
    """

    buffer: str
    serial: Array
    epochs: tuple[Epoch, ...]

    def __len__(self) -> int:
        return len(self.serial)

    def __repr__(self) -> str:
        return f"Ticket({len(self)} entries)"


@dataclass(frozen=True, repr=False)
class Sample:
    """Entries that were drawn; copies, which stay as they are. In a program all are recurrent tensors.

    Attributes:
        rows: by field, [count, …].
        index: their places in the buffer, i64[count].
        weight: by which a loss makes up for how they were drawn, f32[count].
        probability: of each to be drawn, f64[count].
        ticket: what `update` takes.
    """

    rows: Mapping[str, Any]
    index: Any
    weight: Any
    probability: Any
    ticket: Any

    def torch(self, device: Any = None) -> Sample:
        """As tensors of PyTorch, of the same memory.

        Args:
            device: where they are to be; copied once if that is elsewhere.

        Raises:
            MissingPartError: PyTorch is not installed.
        """
        return self._convert_arrays(graph.make_array_converter("torch", device))

    def jax(self) -> Sample:
        """As arrays of JAX, of the same memory where it takes it as it is."""
        return self._convert_arrays(graph.make_array_converter("jax"))

    def _convert_arrays(self, change: Callable[[Any], Any]) -> Sample:
        if isinstance(self.weight, RecurrentTensor):
            raise OptionError(
                "this sample is of recurrent tensors, whose values are there in a run alone.",
                hint='ctx.output("weight", sample.weight), or trl.udf(function, sample["obs"], out=…).',
            )
        rows = {name: change(x) for name, x in self.rows.items()}
        return replace(
            self, rows=rows, weight=change(self.weight), probability=change(self.probability)
        )

    def __len__(self) -> int:
        return int(self.index.shape[0])

    def __getitem__(self, name: str) -> Any:
        if name not in self.rows:
            raise OptionError(
                f"there is no field {name!r} in these rows.", hint=close(str(name), list(self.rows))
            )
        return self.rows[name]

    def __repr__(self) -> str:
        return f"Sample({len(self)} entries: {', '.join(self.rows)})"
