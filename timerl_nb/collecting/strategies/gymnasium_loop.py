"""Strategy "loop": Gymnasium's environments, one after the other."""

from __future__ import annotations

from timerl_nb.base.errors import warn
from timerl_nb.collecting.collection_task import Task
from timerl_nb.collecting.strategies.host_stepping import HostStrategy, Stepping
from timerl_nb.env.gymnasium import distinct_seeds, gymnasium
from timerl_nb.env.indexed_environment import Numbered
from timerl_nb.env.vector_environments import VectorStepping

NOT_THERE = "Gymnasium has no such environment"
GIVEN = "a given vector environment steps its environments itself"


def warn_of_infinite() -> None:
    """Warn of a finite observation beyond the range of the space's type."""
    warn(
        "the environments' observations exceed the range of their space's type and become infinite.",
        hint="scale the values, or use a wider type for the space.",
    )


class Loop(HostStrategy):
    name = "loop"
    provenance = "Gymnasium"
    what = "Gymnasium's environments, one after the other"

    def why_not(self, task: Task) -> str | None:
        if task.vector is not None:
            return GIVEN
        return NOT_THERE if task.gym is None else None

    def make_stepping(self, task: Task, seed: int) -> Stepping:
        assert task.gym is not None
        library = gymnasium()
        env = library.make_vec(
            task.gym.spec,
            task.envs,
            "sync",
            wrappers=[lambda env: Numbered(env, 0, [0], warn_of_infinite)],
            vector_kwargs={"copy": False, "autoreset_mode": library.vector.AutoresetMode.SAME_STEP},
        )
        first, total = task.position
        seeds = distinct_seeds(seed, total)[first : first + task.envs]
        return VectorStepping(env, seeds, is_given=False)
