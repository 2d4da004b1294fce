"""The memory that the plan predicts against what the ledger of a run measures."""

from __future__ import annotations

from collections.abc import Iterator

import timerl_nb as trl
from tests.actor_critic import actor_critic
from tests.patterns import PATTERNS
from tests.reinforce import reinforce
from timerl_nb.driver.program import Program

BOUNDS = {"B": 8, "I": 3, "T": 40}
SMALL = ("training", "cartpole", "window", "random_draws", "forward_recurrence")


def programs() -> Iterator[tuple[str, Program]]:
    """Ten programs: training and access patterns, batched and step by step."""
    yield "REINFORCE, Monte Carlo", reinforce(None).compile(BOUNDS)
    yield "REINFORCE, 5-step", reinforce(5).compile(BOUNDS)
    stepwise = trl.Options(vectorize=("b",))
    yield "REINFORCE, Monte Carlo, t in loops", reinforce(None).compile(BOUNDS, stepwise)
    yield "REINFORCE, 5-step, 4 layers", reinforce(5, hidden=(16,) * 4).compile(BOUNDS)
    yield "actor-critic", actor_critic((16, 16)).compile(BOUNDS)
    for name in SMALL:
        pattern = PATTERNS[name]
        yield name, pattern.context().compile(pattern.bounds)


def main(most: int = 10) -> None:
    """Print predicted and measured peaks, in bytes."""
    print("| program | predicted peak, bytes | ledger | equal |\n|---|---|---|---|")
    for _, (name, program) in zip(range(most), programs(), strict=False):
        predicted, measured = program.memory.peak, program.execute(progress=False).memory.peak
        print(
            f"| {name} | {predicted:,} | {measured:,} | {'yes' if predicted == measured else 'NO'} |"
        )
