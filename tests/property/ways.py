"""How a random program is compiled and run, beside its options: drawn like the program."""

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
        executor: the interpreter without compiling its kernels, or with; or what is the default.
        cache: "none", where nothing is kept on disk; "written", or the second of two "loaded".
        seed: of the run.
    """

    executor: Executor = "eager"
    fuse_iterations: int = 1
    devices: int = 1
    cache: str = "written"
    seed: int = 3

    @property
    def kinds(self) -> set[str]:
        """What is drawn, by name."""
        return {
            self.executor,
            f"{self.fuse_iterations} turns a call",
            f"{self.devices} devices",
            f"cache: {self.cache}",
            f"seed {self.seed}",
        }

    @property
    def shows_events(self) -> bool:
        """Whether a run may report its reads and writes: those are the interpreter's alone."""
        return self.executor != "default"

    def compiled(
        self, ctx: trl.Context, bounds: Mapping[Any, Any], options: trl.Options, **more: Any
    ) -> trl.Program:
        """The program; on one device where it cannot be divided, which is refused with a reason."""
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
                seen >= self.devices or self.executor != "default" or f"sees {seen}" in str(error)
            )
        return program

    def run(self, program: trl.Program, **options: Any) -> trl.Result:
        with self._environment(), self.jit():
            return program.execute(**{"seed": self.seed, **options})

    def jit(self) -> Any:
        """The kernels' contents without a compilation per program, where they are not compiled."""
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
    """Ways to run; few of them compile, which takes longest."""
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
    """A random choice of swaps, useful or not; some of them of the values behind a coordinate alone."""
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
