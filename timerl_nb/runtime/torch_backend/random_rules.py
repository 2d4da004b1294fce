"""Random bits for PyTorch (`compiler/ir/random_bits`).

On a CPU, one JAX program computes the bits of all draws of a kernel, and PyTorch shares their memory. On other
devices, `Word` computes them: PyTorch has no arithmetic for unsigned 32-bit integers, but signed sums and
products wrap around in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import torch

from timerl_nb.compiler.ir import random_bits
from timerl_nb.compiler.ir.operations import Op
from timerl_nb.compiler.symbolic.index_expressions import sym
from timerl_nb.runtime.jax_backend import arrays_and_devices as backend
from timerl_nb.runtime.jax_backend import random_rules
from timerl_nb.runtime.jax_backend.trace_context_and_masks import Scope
from timerl_nb.runtime.torch_backend.trace_context_and_masks import Tensor, TorchScope, grid_of


def make_draws(kernel: Any, device: str) -> Callable[[Any, Sequence[Any]], dict[int, Tensor]]:
    """Return a function of seed words and coordinates that computes all random bits of a kernel."""
    drawn = [op for op in kernel.body if op.kind == "rng"]

    def trace(seed: Any, coords: Sequence[Any]) -> tuple[Any, ...]:
        scope = _jax_scope(kernel.scope(dict(zip(kernel.coords, coords, strict=True)), seed))
        return tuple(random_rules.draw(scope, op, (), ()) for op in drawn)

    compiled = backend.compile_kernel(trace)

    def draw(seed: Any, coords: Sequence[Any]) -> dict[int, Tensor]:
        made = compiled(seed, coords)
        return {op.id: torch.from_dlpack(x) for op, x in zip(drawn, made, strict=True)}

    def draw_here(seed: Any, coords: Sequence[Any]) -> dict[int, Tensor]:
        scope = kernel.scope(dict(zip(kernel.coords, coords, strict=True)), seed)
        return {op.id: bits_of(scope, op) for op in drawn}

    return draw if device == "cpu" else draw_here


def draw(scope: TorchScope, op: Op, args: Sequence[Tensor], sizes: Any) -> Tensor:
    """Return the random bits of a draw: those drawn before a traced kernel, or new ones."""
    if isinstance(scope.seed[0], dict):
        return scope.seed[0][op.id]
    return bits_of(scope, op)


def _jax_scope(scope: TorchScope) -> Scope:
    """Return the same context for JAX."""
    return Scope(
        scope.bounds,
        scope.point,
        scope.seed,
        scope.capacity,
        scope.varies,
        seeds=scope.seeds,
        endless=scope.endless,
        turn=scope.turn,
    )


class Word:
    """Array of unsigned 32-bit integers, stored as signed ones."""

    def __init__(self, bits: Tensor) -> None:
        self.bits = bits

    @property
    def dtype(self) -> _WordType:
        return _WordType(self.bits.device)

    def astype(self, dtype: object) -> Word:
        return self

    def __add__(self, other: Word) -> Word:
        return Word(self.bits + other.bits)

    def __sub__(self, other: Word) -> Word:
        return Word(self.bits - other.bits)

    def __mul__(self, other: Word) -> Word:
        return Word(self.bits * other.bits)

    def __xor__(self, other: Word) -> Word:
        return Word(self.bits ^ other.bits)

    def __or__(self, other: Word) -> Word:
        return Word(self.bits | other.bits)

    def __and__(self, other: Word) -> Word:
        return Word(self.bits & other.bits)

    def __lshift__(self, other: Word) -> Word:
        return Word(self.bits << other.bits)

    def __rshift__(self, other: Word) -> Word:
        """Shift by 1 to 31 positions; the sign bit is not copied."""
        kept = (torch.ones_like(other.bits) << (32 - other.bits)) - 1
        return Word((self.bits >> other.bits) & kept)

    def __lt__(self, other: Word) -> Word:
        least = -(2**31)
        return Word(((self.bits ^ least) < (other.bits ^ least)).to(torch.int32))

    def __ne__(self, other: object) -> Word:  # pyrefly: ignore[bad-override]
        return Word((self.bits != other).to(torch.int32))

    __hash__ = None


@dataclass(frozen=True)
class _WordType:
    """Element type of words; makes constants as NumPy's types do."""

    device: torch.device

    def type(self, value: int) -> Word:
        return Word(_signed(np.uint32(value), self.device))


def _signed(array: Any, device: Any) -> Tensor:
    return torch.from_numpy(np.array(array, np.uint32).view(np.int32)).to(device)


def bits_of(scope: TorchScope, op: Op) -> Tensor:
    """Compute the random bits of a draw at known coordinates."""
    attrs = op.attrs
    lead, shape = scope.shape(attrs.sizes), scope.shape(attrs.shape)
    grid = grid_of(scope, attrs.axes, attrs.sizes, attrs.starts)

    def wide(d: str) -> Tensor:
        coord = grid[d] if d in grid else torch.tensor(int(scope.value(sym(d))))
        coord = coord.to(device=scope.device, dtype=torch.int64)
        return coord[..., None] if coord.ndim else coord.reshape((1,) * (len(lead) + 1))

    def word(x: Tensor) -> Word:
        return Word(x.to(torch.int32))

    words = [Word(_signed(np.asarray(w), scope.device)) for w in (*scope.seed, *scope.turn)]
    seed: Any = tuple(words[:2])
    if scope.seeds is not None:
        seed = random_bits.advance_seed(seed, word(wide(scope.seeds)))
    coords, far = [word(wide(d)) for d in attrs.dims], None
    if scope.endless in attrs.dims:
        k = attrs.dims.index(scope.endless)
        coords[k], far = _in_words(coords[k], words[2:])
    high, low = (
        Word(_signed(np.array([w]), scope.device)) for w in random_bits.stream_words(attrs.stream)
    )
    elements = Word(scope.arange(prod(shape)).to(torch.int32))
    drawn = random_bits.bits(
        seed, (high, low), coords, elements, prod(shape), generator=attrs.generator, far=far
    )
    return drawn.bits.expand(*lead, prod(shape)).reshape(*lead, *shape).view(torch.uint32)


def _in_words(coord: Word, turn: Sequence[Word]) -> tuple[Word, Word]:
    """Return the low and the high word of a coordinate near the current iteration, as in `random_rules`."""
    seen, low, high = turn
    by = coord - seen
    moved, back = low + by, by.bits < 0
    over = Word((~back & ((moved < low).bits != 0)).to(torch.int32))
    under = Word((back & ((low < moved).bits != 0)).to(torch.int32))
    return moved, high + over - under
