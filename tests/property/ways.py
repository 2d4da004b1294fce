"""Random compile and run configurations, drawn like the program."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from itertools import product
from random import Random
from typing import Any, Final, Literal

import jax
import pytest
from hypothesis import event
from hypothesis import strategies as st

import timerl_nb as trl
from tests.eager import eagerly
from timerl_nb.base.errors import BoundsError, OptionError
from timerl_nb.compiler.memory.budget.swapping import Slack, Swap, Swaps

SEEDS: Final = (0, 3, 12345, 2**32 + 5, 2**63 - 1, -1)
Executor = Literal["eager", "jitted", "default"]
EXECUTORS: Final[tuple[Executor, ...]] = ("eager", "jitted", "default")
TURNS: Final = (1, 1, 2, 3)
DEVICES: Final = (1, 1, 1, 2)
CACHES: Final = ("written", "written", "none", "loaded")


@dataclass(frozen=True)
class Way:
    """How a program is compiled and run.

    Attributes:
        executor: The interpreter with or without compiled kernels, or the default.
        cache: "none" without a disk cache; "written"; or the second of two "loaded".
        seed: Seed of the run.
    """

    executor: Executor = "eager"
    fuse_iterations: int = 1
    devices: int = 1
    cache: str = "written"
    seed: int = 3

    @property
    def kinds(self) -> set[str]:
        """Return the drawn choices, by name."""
        return {
            self.executor,
            f"{self.fuse_iterations} turns a call",
            f"{self.devices} devices",
            f"cache: {self.cache}",
            f"seed {self.seed}",
        }

    @property
    def shows_events(self) -> bool:
        """Return whether a run may report reads and writes: only the interpreter's can."""
        return self.executor != "default"

    def compiled(
        self, ctx: trl.Context, bounds: Mapping[Any, Any], options: trl.Options, **more: Any
    ) -> trl.Program:
        """Return the compiled program, on one device if it cannot be divided (a documented refusal)."""
        with self._environment():
            executor = None if self.executor == "default" else "interpret"
            options = options.with_(executor=executor, fuse_iterations=self.fuse_iterations)
            if self.cache == "loaded":
                ctx.compile(bounds, options, **more)
            program = ctx.compile(bounds, options, **more)
            return program if self.devices == 1 else self._divided(program)

    def _divided(self, program: trl.Program) -> trl.Program:
        try:
            return program.with_options(devices=self.devices)
        except BoundsError as error:
            assert "cannot be divided equally" in str(error)
        except OptionError as error:
            assert f"devices={self.devices} is not possible" in str(error)
            seen = len(jax.devices())
            assert (
                seen >= self.devices or self.executor != "default" or f"finds {seen}" in str(error)
            )
        return program

    def run(self, program: trl.Program, **options: Any) -> trl.Result:
        with self._environment(), self.jit():
            return program.execute(**{"seed": self.seed, **options})

    def jit(self) -> Any:
        """Run kernels without compiling each program, unless kernels are compiled."""
        return eagerly() if self.executor == "eager" else nullcontext()

    @contextmanager
    def _environment(self) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            if self.executor == "default":
                patch.delenv("TIMERL_EXECUTOR", raising=False)
            if self.cache == "none":
                patch.setenv("TIMERL_CACHE", "0")
            yield


WAYS: Final = frozenset().union(
    *(
        Way(e, f, n, c, s).kinds
        for e, f, n, c, s in product(EXECUTORS, TURNS, DEVICES, CACHES, SEEDS)
    )
)


def ways(executor: Executor | None = None) -> st.SearchStrategy[Way]:
    """Configurations; few compile kernels, because that takes longest."""
    executors = ("eager",) * 11 + EXECUTORS if executor is None else (executor,)
    return st.builds(
        Way,
        st.sampled_from(executors),
        st.sampled_from(TURNS),
        st.sampled_from(DEVICES),
        st.sampled_from(CACHES),
        st.sampled_from(SEEDS),
    )


def some_swaps(program: trl.Program, slack: Slack, random: Random) -> Swaps:
    """Return a random choice of swaps; some swap only the values behind a coordinate."""
    swapping = program.memory.swap_search
    share, whole = random.choice((0.3, 0.7, 1.0)), random.choice((0.3, 1.0))

    def some(swap: Swap) -> Swap:
        domain = swapping.domain(swap)
        if not domain or random.random() < whole:
            return swap
        name = random.choice(domain)
        at = program.memory.clock.coordinate(domain, name, swap.away.codes)
        return swapping.restrict_swap(swap, name, random.choice(sorted(set(at.tolist()))))

    classes = swapping.classes(slack)
    swaps = Swaps(tuple(some(swap) for swap in classes if random.random() < share), slack)
    event("swaps" if swaps.all else "nothing to swap")
    event("swaps of some values", any(swap.since for swap in swaps.all))
    return swaps
