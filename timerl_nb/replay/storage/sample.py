"""Samples of a replay buffer, and tickets that identify their rows in later updates."""

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
    """Period between two loads of a buffer.

    Two buffers that load the same file insert different rows under the same serial numbers, as does one
    buffer that loads the file twice. The epoch distinguishes these rows.

    Attributes:
        name: a random identifier.
        start: the number of rows inserted before the epoch.
    """

    name: str
    start: int


@dataclass(frozen=True, repr=False)
class Ticket:
    """Identity of a sample's rows, for `Replay.update`.

    Attributes:
        buffer: the name of the buffer; `Replay.load` adopts the name of the saved buffer.
        serial: i64[count], the number of rows inserted before each row.
        epochs: the buffer's epochs at the time of the draw.

    Example:
        >>> buffer = trl.Replay(100, {"reward": ((), "f32")})
        >>> buffer.insert({"reward": np.ones(3)})
        3
        >>> buffer.sample(2).ticket
        Ticket(2 entries)
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
    """Rows drawn from a replay buffer: copies, or recurrent tensors inside a program.

    Attributes:
        rows: an array [count, …] per field; `sample["obs"]` is `sample.rows["obs"]`.
        index: the slots of the rows in the buffer, i64[count].
        weight: importance-sampling weights for the loss, f32[count].
        probability: the probability of each row per draw, f64[count].
        ticket: the argument of `Replay.update`.

    Example:
        >>> buffer = trl.Replay(100, {"obs": ((2,), "f32")})
        >>> buffer.insert({"obs": np.zeros((3, 2))})
        3
        >>> sample = buffer.sample(4)
        >>> sample["obs"].shape, sample.weight.shape
        ((4, 2), (4,))
    """

    rows: Mapping[str, Any]
    index: Any
    weight: Any
    probability: Any
    ticket: Any

    def torch(self, device: Any = None) -> Sample:
        """Return the sample as PyTorch tensors that share the memory.

        Args:
            device: the device of the tensors; another device than the CPU requires a copy.

        Raises:
            MissingPartError: PyTorch is not installed.
            OptionError: the sample consists of recurrent tensors.
        """
        return self._convert_arrays(graph.make_array_converter("torch", device))

    def jax(self) -> Sample:
        """Return the sample as JAX arrays, without a copy if JAX accepts the memory."""
        return self._convert_arrays(graph.make_array_converter("jax"))

    def _convert_arrays(self, change: Callable[[Any], Any]) -> Sample:
        if isinstance(self.weight, RecurrentTensor):
            raise OptionError(
                "the sample consists of recurrent tensors, which have values only during a run.",
                hint='use ctx.output("weight", sample.weight), or trl.udf(function, sample["obs"], out=…).',
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
                f"the sample has no field {name!r}.", hint=close(str(name), list(self.rows))
            )
        return self.rows[name]

    def __repr__(self) -> str:
        return f"Sample({len(self)} entries: {', '.join(self.rows)})"
