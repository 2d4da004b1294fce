"""Each device's share of a program whose instances are divided among several.

Buffers with an axis for one dimension lie in parts, a part on each device; all others, and given arrays,
are on every device, so that all devices hold alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from timerl_nb.base.errors import BoundsError, OptionError
from timerl_nb.base.text_formatting import format_count
from timerl_nb.compiler.ir.dependence_graph import Pdg
from timerl_nb.compiler.ir.operations import Op
from timerl_nb.compiler.ir.shapes import Shape
from timerl_nb.compiler.isl.sets_and_relations import Point
from timerl_nb.compiler.memory.byte_sizes import Sizes
from timerl_nb.compiler.memory.placement.buffer import Buffer
from timerl_nb.compiler.symbolic.dimensions import Dim
from timerl_nb.compiler.symbolic.index_expressions import Lin

_SHOWN = 5  # buffers


def least_share(nbytes: int, count: int) -> int:
    """What one of so many devices holds at least, where all of them hold so many bytes, each value once."""
    return -(-nbytes // count)


@dataclass(frozen=True)
class Share:
    """What one of several devices holds.

    Attributes:
        dim: the outermost dimension that is nothing but an axis, along which buffers are divided.
        count: how many devices there are.
        held: the buffers.
        temporaries: bytes that a kernel stores within itself at most, estimated.
    """

    dim: Dim
    count: int
    held: tuple[Buffer, ...]
    temporaries: int

    @staticmethod
    def from_buffers(
        pdg: Pdg,
        bounds: Point,
        buffers: Iterable[Buffer],
        ops: Iterable[Op],
        within: Callable[[Sizes, Op], int],
        count: int,
    ) -> Share:
        """The share of a program with such buffers, kernels, and what these store within themselves.

        Raises:
            OptionError: there is no such dimension.
            BoundsError: its points cannot be divided equally.
        """
        held = tuple(buffers)
        dim = _dimension(pdg, held, count)
        size = bounds[dim.bound]
        if size % count:
            fits = sorted({max(count, size - size % count), size - size % count + count})
            raise BoundsError(
                f"{dim.bound} = {format_count(size, 'point')} of {dim.name} cannot be divided equally among "
                f"{count} devices.",
                hint=f"let {dim.bound} be {' or '.join(map(str, fits))}, or change devices.",
            )
        sizes = _Parts(pdg, bounds, dim, count)
        return Share(dim, count, held, max((within(sizes, op) for op in ops), default=0))

    def axis(self, buffer: Buffer) -> int | None:
        """The axis along which a buffer is divided; None where every device has all of it."""
        k = _axis(buffer.sizes, self.dim)
        return None if k is None else len(buffer.axes) + k

    def nbytes(self, buffer: Buffer) -> int:
        """What one device holds of a buffer."""
        return buffer.nbytes if self.axis(buffer) is None else buffer.nbytes // self.count

    @property
    def buffers(self) -> int:
        """What one device holds of all buffers."""
        return sum(map(self.nbytes, self.held))

    def __str__(self) -> str:
        return f"each of {self.count} devices, divided along {self.dim.name}"

    def lines(self) -> Iterator[str]:
        """The largest buffers, and what each device holds of them."""
        for buffer in sorted(self.held, key=lambda one: (-self.nbytes(one), one.name))[:_SHOWN]:
            yield f"{' and '.join(buffer.tensors)}: {self.nbytes(buffer):,} bytes, {self._describe_part(buffer)}"

    def _describe_part(self, buffer: Buffer) -> str:
        if self.axis(buffer) is None:
            return "on every device"
        return f"1/{self.count} of {buffer.nbytes:,}"


class _Parts(Sizes):
    """What one device holds of values."""

    def __init__(self, pdg: Pdg, bounds: Point, dim: Dim, count: int) -> None:
        super().__init__(pdg, bounds)
        self._dim, self._count = dim, count

    def shape(self, op: Op, shape: Shape) -> tuple[int, ...]:
        whole, divided = super().shape(op, shape), _axis(shape, self._dim)
        return tuple(n // self._count if k == divided else n for k, n in enumerate(whole))


def _axis(sizes: Shape, dim: Dim) -> int | None:
    """The first axis with a place for each point of a dimension."""
    for k, size in enumerate(sizes):
        if isinstance(size, Lin) and size.as_symbol == dim.bound:
            return k
    return None


def _dimension(pdg: Pdg, buffers: Iterable[Buffer], count: int) -> Dim:
    """The outermost dimension that no operation runs over, and that buffers have an axis for."""
    over: dict[str, str] = {}
    for op in pdg:
        for name in op.domain:
            over.setdefault(name, op.name)
    for dim in pdg.dims:
        if dim.name not in over and any(_axis(one.sizes, dim) is not None for one in buffers):
            return dim
    names = [dim.name for dim in pdg.dims if dim.name in over]
    raise OptionError(
        f"devices={count} is not possible: no dimension is an axis throughout, whose points could be "
        "divided among devices.",
        evidence=[f"{over[name]} runs point by point over {name}" for name in names],
        hint="let vectorize make the dimension of the instances (environments) an axis: "
        'program.stages["vectorize"].why(op) says why it did not; or leave out devices.',
    )
