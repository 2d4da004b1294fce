"""Predefined policies (`trl.policies`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from timerl_nb.base.array_conversion import Array
from timerl_nb.base.errors import OptionError
from timerl_nb.collecting.policies.collecting_policy import (
    Acted,
    Acting,
    MaskArgument,
    OnHost,
    StepFeedback,
    Written,
    nothing_follows,
)
from timerl_nb.compiler.ir.shapes import NUMPY
from timerl_nb.compiler.language.foreign_names import explain_call_errors
from timerl_nb.compiler.language.foreign_names import module_names as _module_names
from timerl_nb.compiler.language.indexing.index_parsing import Index
from timerl_nb.compiler.language.inputs.tensor_sources import random_normal, random_uniform, stack
from timerl_nb.compiler.language.operations.random_draws import random_randint
from timerl_nb.compiler.language.recurrent_tensor import RecurrentTensor
from timerl_nb.compiler.symbolic.dimensions import Domain
from timerl_nb.env.spaces import Discrete, MultiDiscrete, half_and_middle, is_bounded

__all__ = ["random"]

__getattr__, __dir__ = _module_names("trl.policies", lambda: __all__)


@explain_call_errors
def random(*_: Any) -> None:
    """Policy with random actions, as an argument of `trl.collect`.

    Actions of discrete or bounded spaces are uniform; actions of unbounded spaces have a normal
    distribution. If environments on the host report an `action_mask`, discrete actions are uniform
    over the permitted ones.

    Raises:
        OptionError: it is called.

    Example:
        >>> with trl.collect("CartPole-v1", trl.policies.random, envs=2, steps=3, how="step") as c:
        ...     batch = c.next()
        >>> batch.action.shape
        (3, 2)
    """
    raise OptionError(
        "trl.policies.random is called, but it is only an argument.",
        hint='pass it without a call: trl.collect("CartPole-v1", trl.policies.random, …).',
    )


@dataclass(frozen=True)
class Random(Acting):
    """Random actions: uniform over the space, or normal for an unbounded one."""

    space: Any

    def write_into_program(self, o: RecurrentTensor, i: Index, time: Domain) -> Written:
        return Written({"action": self._draw_action(o.domain)}, nothing_follows)

    def _draw_action(self, over: Domain) -> RecurrentTensor:
        space = self.space
        if isinstance(space, Discrete):
            return random_randint(space.n, domain=over)
        if isinstance(space, MultiDiscrete):
            each = [random_randint(n, domain=over) for n in space.sizes]
            return stack(each, -1)
        if self._is_open:
            return random_normal(space.shape, domain=over)
        if isinstance(space.low, tuple) or isinstance(space.high, tuple):
            half, middle = half_and_middle(space)
            return random_uniform(space.shape, -1.0, 1.0, domain=over) * half + middle
        return random_uniform(space.shape, space.low, space.high, domain=over)

    @property
    def _is_open(self) -> bool:
        return not is_bounded(self.space)

    @property
    def mask_argument(self) -> MaskArgument:
        return MaskArgument(is_taken=True)

    def on_host(self, seed: int, space: Any) -> OnHost:
        draw, kind = np.random.default_rng(seed % 2**64), NUMPY[self.space.dtype]
        own = (*self.space.shape,)
        last: tuple[int, Any] = (-1, None)

        def draw_actions(shape: tuple[int, ...], mask: Array | None) -> Array:
            if isinstance(self.space, Discrete):
                if mask is not None:
                    return _draw_permitted(draw, mask)
                return draw.integers(space.n, size=shape)
            if isinstance(self.space, MultiDiscrete):
                return draw.integers(space.nvec, size=shape)
            if self._is_open:
                return draw.standard_normal(shape).clip(space.low, space.high)
            return draw.uniform(space.low, space.high, shape)

        def act(
            _: Mapping[str, Any],
            obs: Array,
            number: int = 0,
            came: StepFeedback | None = None,
            mask: Array | None = None,
        ) -> Acted:
            nonlocal last
            if last[0] != number:  # a step repeated after an interrupt must not draw again
                last = number, draw_actions((len(obs), *own), mask).astype(kind)
            return {"action": last[1]}

        return act

    @property
    def text(self) -> str:
        return f"random {self.space}"


def _draw_permitted(draw: np.random.Generator, mask: Array) -> Array:
    """Draw one of the permitted actions per row; one of all if none is permitted."""
    mask = mask | ~mask.any(1, keepdims=True)
    return np.where(mask, draw.random(mask.shape), -1.0).argmax(1)
