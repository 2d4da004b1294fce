"""`trl.replay.train`: actors, a buffer and a learner, beside each other."""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Mapping, Sequence
from threading import Lock
from typing import Any

from timerl_nb.base.errors import OptionError, one_of, warn
from timerl_nb.base.lru_cache import Lru
from timerl_nb.base.machine_model import cores
from timerl_nb.collecting.collection_task import resolve_environment
from timerl_nb.collecting.collector import Collector, collect
from timerl_nb.compiler.language.argument_checks import integer, number, seed_of
from timerl_nb.compiler.language.foreign_names import expect_type
from timerl_nb.compiler.language.foreign_names import explain_call_errors as as_asked
from timerl_nb.env.envpool import PoolEnvironment
from timerl_nb.env.gymnasium import GymEnvironment
from timerl_nb.execution.control.background_run import Running
from timerl_nb.execution.control.pause_and_stop import RunControl
from timerl_nb.replay.prioritization.priorities import Proportional
from timerl_nb.replay.storage.replay_buffer import Replay
from timerl_nb.replay.storage.ring_rows import Field, fields_of
from timerl_nb.replay.training.algorithm import Algorithm, check_algorithm
from timerl_nb.replay.training.environment_group import Death, Group
from timerl_nb.replay.training.primitive_rates import seconds_of_a_row
from timerl_nb.replay.training.thread_allocation import (
    Allocation,
    Move,
    Policy,
    starting,
    threads_called,
)
from timerl_nb.replay.training.training_curves import Curves
from timerl_nb.replay.training.training_folder import KeptTraining
from timerl_nb.replay.training.training_protocol import Mode, TrainingCourse, TrainingRequest
from timerl_nb.runtime.jax_backend import graph_function as graph

_MODES = ("free", "exact")


class Training(Running):
    """A training run, and the commands to it: a turn is a batch that is drawn, and learnt from.

    Its result has the curves of its turns by name (`loss`, `return` of the episodes that ended, `staleness` of what
    came), with `coordinates` where these are not of all turns, and what is acted by as `parameters`.
    """

    def __init__(
        self, control: RunControl, curves: Curves, course: TrainingCourse, of: int | None
    ) -> None:
        self._training = course
        super().__init__(control, curves, course, of)

    @property
    def weights(self) -> Any:
        """What is acted by now, as `trl.collect(…, params=)` takes it."""
        return self._training.slots.read()[1]

    @property
    def learnt(self) -> Any:
        """The algorithm's state now: its whole state between steps."""
        return graph.frozen(self._training.learnt)

    @property
    def allocation(self) -> Allocation:
        """Which threads act and which train now."""
        return self._training.allocation

    @property
    def experience(self) -> int:
        """Steps of environments that came so far."""
        return self._training.experience

    @property
    def moves(self) -> Sequence[Move]:
        """What was made of it so far, with the numbers that led to it."""
        return tuple(self._training.moves)

    @property
    def deaths(self) -> Sequence[Death]:
        """The groups of environments that failed so far, and why."""
        return tuple(self._training.deaths)

    @property
    def latencies(self) -> Mapping[str, float]:
        """Seconds of the last turns, medians: `block` of acting, `sample`, `learner`, `insert`, `update`, …"""
        return self._training.latencies


@as_asked
def train(
    algorithm: Algorithm,
    *,
    actors: int | None = 1,
    mode: Mode = "free",
    turns: int | None = None,
    buffer: Replay | None = None,
    batch: int = 64,
    beta: float = 0.4,
    chunks: int = 1,
    groups: int | None = None,
    envs: int = 8,
    steps: int = 8,
    blocks: int = 1,
    least: int = 1000,
    stage: int = 1,
    allocation: Allocation | None = None,
    policy: Policy | None = None,
    consult: int = 50,
    mapping: Any = None,
    how: str | None = None,
    seed: int = 0,
    folder: str | os.PathLike[str] | None = None,
    every: int = 1000,
    paused: bool = False,
) -> Training:
    """Train on a thread of its own, beside threads that act and one that learns; returns at once.

    Args:
        algorithm: `trl.replay.Dqn()`, or another `trl.replay.Algorithm`.
        actors: threads that act; None for so many of the cores as keep up with the replay manager, which is measured first.
        mode: "exact" makes the same bits with however many threads: each turn has its blocks, acted by the weights of
            the turn before. In mode "free" nobody waits: a turn takes the blocks that are there, and says how stale they are.
        turns: how many; None until it is stopped. A turn is a step of learning, once there are `least` rows.
        buffer: by default 100,000 rows of the algorithm's fields, drawn by priority.
        batch, beta: of `Replay.sample`.
        chunks: parts in which a batch's rows are gathered; the learner begins with the first. In other parts sums of
            gradients are other bits.
        groups: environments that act together, `envs` in each; as many as actors by default, in mode "exact" 8.
        envs, steps: a block is so many steps of each of so many environments.
        blocks: of a turn; in mode "free" at most, which is how far acting goes ahead of learning.
        least: rows that there must be before anything is learnt.
        stage: rows that are inserted at once.
        allocation: the threads to begin with, instead of `actors`: some may train a part of each batch.
        policy: allocates threads as it goes, `trl.replay.Stepwise()` or `BySpeed()`, every `consult` steps of learning;
            in mode "free" alone.
        mapping: where the learner runs: the name of a device of JAX's, "cpu:1"; "cpu x2" where two threads learn; or what `trl.compose.choose` has found.
        how: by which way environments are stepped, as `trl.collect` has it; by default "scan" where they are ours, else "loop".
        seed: of all chance.
        folder: where the run is saved every so many turns (`every`), and gone on with where one was. In mode "exact" all
            environments begin anew when it is: a run that was killed ends with the same bits as one that was not.
            An algorithm is the same as that of the saved run if its class, its code and its attributes are, or its `identity`.
        paused: wait before the first turn.

    Raises:
        OptionError, ShapeError: an argument is of another kind.
        EnvError: there is no such environment.
        ExecutionError: another run has the folder or the buffer.
    """
    if mode not in _MODES:
        raise OptionError(f"mode={mode!r} is none.", hint=one_of(str(mode), _MODES))
    algorithm = check_algorithm(algorithm)
    exact = mode == "exact"
    if exact and policy is not None:
        raise OptionError(
            'mode="exact" makes the same bits, and threads that move from acting to training would not.',
            hint='mode="free", or allocation= for threads that stay where they are.',
        )
    if policy is not None:
        expect_type(policy, Policy, "a policy", "trl.replay.Stepwise() or trl.replay.BySpeed().")
    if allocation is not None:
        expect_type(allocation, Allocation, "an allocation", "trl.replay.Allocation(…).")
    size = integer("batch", batch, least=1)
    learner = _learner(mapping)
    threads = threads_called(learner) or 1
    opened = opener(algorithm, envs, steps, how)
    if actors is None:
        rates = seconds_of_a_row(algorithm, opened, size)
        actors, _ = starting(cores(), *rates)
    act = integer("actors", actors, least=1)
    division = allocation or Allocation.of_threads(threads, act, size)
    if division.batch != size:
        raise OptionError(f"allocation is of batches of {division.batch}, and batch={size}.")
    many = division.actors + division.trainers
    count = integer("groups", (8 if exact else many) if groups is None else groups, least=1)
    each = integer("blocks", blocks, least=1)
    if each > count:
        raise OptionError(
            f"blocks={each}, and there are {count} groups.",
            hint="each acts once in a turn, at most.",
        )
    if buffer is None:
        held = Replay(
            100_000, algorithm.fields, priority=Proportional(), gamma=algorithm.gamma, seed=seed
        )
    else:
        held = expect_type(buffer, Replay, "a replay buffer", "trl.Replay(…), or None.")
        _check_rows(held, fields_of(algorithm.fields))
    first = integer("least", least, least=1)
    if first > held.capacity:
        raise OptionError(
            f"the buffer holds {held.capacity:,} rows, and nothing is learnt before least={first:,}.",
            hint="give a larger buffer, or another least=.",
        )
    wanted = TrainingRequest(
        turns=None if turns is None else integer("turns", turns, least=1),
        mode=mode,
        batch=size,
        beta=number("beta", beta, least=0),
        chunks=min(integer("chunks", chunks, least=1), size),
        blocks=each,
        least=first,
        stage=integer("stage", stage, least=1),
        consult=integer("consult", consult, least=1),
        seed=seed_of(seed),
        every=integer("every", every, least=1),
    )
    acting = [Group(k, opened, held.actor, wanted.seed) for k in range(count)]
    # what other turns there are, and in mode "free" groups, is no other run
    apart = ("turns",) if exact else ("turns", "groups")
    plain = {**vars(wanted), "groups": count, "envs": envs, "steps": steps}
    asked = {n: x for n, x in plain.items() if n not in apart}
    kept = None if folder is None else KeptTraining(folder, asked, algorithm)
    course: TrainingCourse | None = None
    claim = object()
    try:
        held.claim(claim)
        saved = None if kept is None else kept.begin()
        control = RunControl(held=bool(paused), turn=0 if saved is None else saved[1]["turn"])
        curves = Curves(control, wanted.turns)
        curves.nbytes = held.nbytes
        course = TrainingCourse(
            control,
            curves,
            algorithm,
            held,
            acting,
            wanted,
            division,
            policy,
            None if learner.lower() == "cpu" or threads_called(learner) else _device(learner),
            kept,
            claim,
        )
        if saved is not None:
            course.restore(*saved)
        return Training(control, curves, course, wanted.turns)
    except BaseException:
        if course is not None and course.give_up():
            raise  # the run's thread has closed all
        try:
            if course is not None:
                course.close()
        finally:
            held.release(claim)
            if kept is not None:
                kept.release()
        raise


# what was compiled for the last runs, so that the next of the same algorithm begins at once
_OPENERS = Lru[Any, Callable[[int], Collector]](4)


def opener(
    algorithm: Algorithm, envs: int, steps: int, how: str | None = None
) -> Callable[[int], Collector]:
    """What makes environments of a seed; those of one algorithm share what is compiled for them."""
    wanted = (algorithm, envs, steps, how)
    if isinstance(algorithm, Hashable):
        return _OPENERS.get(wanted, lambda: _opener(*wanted))
    return _opener(*wanted)


def _opener(
    algorithm: Algorithm, envs: int, steps: int, how: str | None
) -> Callable[[int], Collector]:
    """What makes environments of a seed; what they share is compiled once, when the first are made."""
    first = collect(
        algorithm.env,
        algorithm.act,
        envs=envs,
        steps=steps,
        how=_way(algorithm.env) if how is None else how,
        params=algorithm.acting(algorithm.begin(0)),
    )
    one_at_a_time = Lock()

    def open_collector(seed: int) -> Collector:
        with one_at_a_time:
            return first.with_seed(seed)

    return open_collector


def _way(env: Any) -> str:
    """By which environments are stepped, where nobody says."""
    _, sim, _ = resolve_environment(env)
    if isinstance(sim, PoolEnvironment):
        return "threads"
    return "loop" if isinstance(sim, GymEnvironment) else "scan"


def _check_rows(buffer: Replay, wanted: Mapping[str, Field]) -> None:
    """Raises `OptionError` where a buffer's rows lack some of what an algorithm learns from."""
    found = [
        f"{name} is {buffer.fields.get(name, 'missing')}, and has to be {one}"
        for name, one in wanted.items()
        if buffer.fields.get(name) != one
    ]
    if found:
        raise OptionError(
            f"the algorithm learns from rows that {buffer!r} does not hold.",
            hint="trl.Replay(capacity, algorithm.fields, …).",
            evidence=found,
        )


def _learner(mapping: Any) -> str:
    """The name of the learner's device.

    Raises:
        OptionError: it is no name, or the buffer is to be elsewhere than on the host.
    """
    best = getattr(mapping, "best", mapping)
    manager, learner = getattr(best, "manager", "cpu"), getattr(best, "learner", best or "cpu")
    if not isinstance(learner, str):
        raise OptionError(f"mapping={mapping!r} is none.", hint='the name of a device: "cpu:1".')
    if not str(manager).lower().startswith("cpu"):
        raise OptionError(
            f"the buffer would be on {manager}, and is on the host.",
            hint="choose among devices that are there.",
        )
    for text in getattr(mapping, "not_executed", ()):
        warn(text, hint="what trl.compose.choose predicted is of another place of the rows.")
    return learner


def _device(name: str) -> Any:
    """One of JAX's devices.

    Raises:
        OptionError: there is none of that name here.
    """
    device = graph.device_called(name)
    if device is None:
        raise OptionError(f"there is no device {name!r} here.", hint='"cpu", "cpu:1", "gpu".')
    return device
