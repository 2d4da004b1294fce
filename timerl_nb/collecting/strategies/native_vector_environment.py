"""Strategy "native": vector environments with an implementation of their own."""

from __future__ import annotations

from timerl_nb.collecting.collection_task import Task
from timerl_nb.collecting.strategies.gymnasium_loop import NOT_THERE
from timerl_nb.collecting.strategies.host_stepping import HostStrategy, Stepping
from timerl_nb.env.gymnasium import distinct_seeds, gymnasium
from timerl_nb.env.vector_environments import VectorStepping


class Native(HostStrategy):
    name = "native"
    provenance = "Gymnasium"
    what = "the environment's vector implementation"

    def why_not(self, task: Task) -> str | None:
        if task.vector is not None:
            return None
        if task.gym is None:
            return NOT_THERE
        if task.gym.spec.vector_entry_point is None:
            return f"{task.gym.spec.id} has no vector implementation"
        if task.gym.spec.additional_wrappers:
            return f"{task.gym.spec.id} has wrappers"
        return None

    def make_stepping(self, task: Task, seed: int) -> Stepping:
        (one,) = distinct_seeds(seed, 1)
        if task.vector is not None:
            return VectorStepping(task.vector, one, is_given=True)
        assert task.gym is not None
        env = gymnasium().make_vec(task.gym.spec, task.envs, "vector_entry_point")
        return VectorStepping(env, one, is_given=False)
