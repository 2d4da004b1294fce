"""Memory per device of a program with instances divided among several devices.

A buffer with an axis for the divided dimension is split into equal parts. All other buffers, and
given arrays, are on every device. So all devices hold the same amount.
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

_SHOWN = 5  # number of buffers in texts


def least_share(nbytes: int, count: int) -> int:
    """Return the least bytes of one device if `count` devices hold `nbytes` together."""
    return -(-nbytes // count)


@dataclass(frozen=True)
class Share:
    """The part of one of several devices.

    Attributes:
        dim: the divided dimension: the outermost one vectorised in all operations.
        count: the number of devices.
        live_buffers: the buffers.
        temporaries: estimated bytes of the temporaries in the kernel with the most.
    """

    dim: Dim
    count: int
    live_buffers: tuple[Buffer, ...]
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
        """Return the share of one device.

        Args:
            pdg: the graph.
            bounds: the actual bounds.
            buffers: the buffers of the program.
            ops: the operations with kernels.
            within: returns the bytes of temporaries in a kernel.
            count: the number of devices.

        Raises:
            OptionError: no dimension can be divided.
            BoundsError: the number of points is not a multiple of the number of devices.
        """
        live_buffers = tuple(buffers)
        dim = _dimension(pdg, live_buffers, count)
        size = bounds[dim.bound]
        if size % count:
            fits = sorted({max(count, size - size % count), size - size % count + count})
            raise BoundsError(
                f"{dim.bound} = {format_count(size, 'point')} of {dim.name} cannot be divided equally among "
                f"{count} devices.",
                hint=f"let {dim.bound} be {' or '.join(map(str, fits))}, or change devices.",
            )
        sizes = _Parts(pdg, bounds, dim, count)
        return Share(dim, count, live_buffers, max((within(sizes, op) for op in ops), default=0))

    def axis(self, buffer: Buffer) -> int | None:
        """Return the divided axis of a buffer; None if every device has the whole buffer."""
        k = divided_axis(buffer.sizes, self.dim)
        return None if k is None else len(buffer.axes) + k

    def nbytes(self, buffer: Buffer) -> int:
        """Return one device's bytes of a buffer."""
        return buffer.nbytes if self.axis(buffer) is None else buffer.nbytes // self.count

    @property
    def buffers(self) -> int:
        """One device's bytes of all buffers."""
        return sum(map(self.nbytes, self.live_buffers))

    def __str__(self) -> str:
        return f"each of {self.count} devices, divided along {self.dim.name}"

    def lines(self) -> Iterator[str]:
        """Yield a line per large buffer with one device's bytes."""
        for buffer in sorted(self.live_buffers, key=lambda one: (-self.nbytes(one), one.name))[
            :_SHOWN
        ]:
            yield f"{' and '.join(buffer.tensors)}: {self.nbytes(buffer):,} bytes, {self._describe_part(buffer)}"

    def _describe_part(self, buffer: Buffer) -> str:
        if self.axis(buffer) is None:
            return "on every device"
        return f"1/{self.count} of {buffer.nbytes:,}"


class _Parts(Sizes):
    """Sizes of the parts of values on one device."""

    def __init__(self, pdg: Pdg, bounds: Point, dim: Dim, count: int) -> None:
        super().__init__(pdg, bounds)
        self._dim, self._count = dim, count

    def shape(self, op: Op, shape: Shape) -> tuple[int, ...]:
        whole, divided = super().shape(op, shape), divided_axis(shape, self._dim)
        return tuple(n // self._count if k == divided else n for k, n in enumerate(whole))


def divided_axis(sizes: Shape, dim: Dim) -> int | None:
    """Return the first axis with an element for each point of a dimension."""
    for k, size in enumerate(sizes):
        if isinstance(size, Lin) and size.as_symbol == dim.bound:
            return k
    return None


def _dimension(pdg: Pdg, buffers: Iterable[Buffer], count: int) -> Dim:
    """Return the outermost dimension without a loop and with an axis in some buffer."""
    over: dict[str, str] = {}
    for op in pdg:
        for name in op.domain:
            over.setdefault(name, op.name)
    for dim in pdg.dims:
        if dim.name not in over and any(
            divided_axis(one.sizes, dim) is not None for one in buffers
        ):
            return dim
    names = [dim.name for dim in pdg.dims if dim.name in over]
    raise OptionError(
        f"devices={count} is not possible: no dimension is vectorised in all operations, so none can "
        "be divided among devices.",
        evidence=[f"{over[name]} runs point by point over {name}" for name in names],
        hint="vectorise the dimension of the instances (environments); "
        'program.stages["vectorize"].why(op) explains why it is not. Or omit devices.',
    )
