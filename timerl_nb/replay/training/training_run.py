"""Entry point of parallel off-policy training: `trl.replay.train`."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from timerl_nb.base.errors import OptionError, one_of, warn
from timerl_nb.base.machine_model import cores
from timerl_nb.base.stable_identity import identity
from timerl_nb.compiler.language.argument_checks import integer, seed_of
from timerl_nb.compiler.language.foreign_names import expect_type
from timerl_nb.compiler.language.foreign_names import explain_call_errors as explain_call_errors
from timerl_nb.execution.control.background_run import Running
from timerl_nb.execution.control.pause_and_stop import RunControl
from timerl_nb.replay.distributed.lost_rows import ProcessLoss
from timerl_nb.replay.distributed.ray_training import (
    begin_ray_training,
    check_cluster,
    cluster_request,
    remote_groups,
)
from timerl_nb.replay.prioritization.priorities import Proportional
from timerl_nb.replay.storage.rate_limits import Beta, check_beta
from timerl_nb.replay.storage.replay_buffer import Replay
from timerl_nb.replay.storage.ring_rows import fields_of
from timerl_nb.replay.training.algorithm import Algorithm, check_algorithm
from timerl_nb.replay.training.environment_group import Death, Group
from timerl_nb.replay.training.environment_openers import opener
from timerl_nb.replay.training.primitive_rates import seconds_of_a_row
from timerl_nb.replay.training.thread_allocation import (
    Allocation,
    Move,
    Policy,
    starting,
    threads_called,
)
from timerl_nb.replay.training.training_curves import Curves
from timerl_nb.replay.training.training_folder import SavedTraining
from timerl_nb.replay.training.training_protocol import Mode, TrainingRequest, TrainingThread
from timerl_nb.runtime.jax_backend import graph_function as graph

_MODES = ("free", "exact")


class Training(Running):
    """Training run in the background, returned by `trl.replay.train`.

    `result()` returns the curves per iteration: `loss`, `return` (of finished episodes) and `staleness` (age of
    the actors' weights in learning steps). `coordinates` has the iterations of curves without a value in every
    iteration. `parameters` has the final weights of the actors.

    Example:
        >>> run = trl.replay.train(trl.replay.Dqn(), turns=3, learning_starts=8, batch=8, envs=2)
        >>> result = run.result()
        >>> run.experience > 0
        True
    """

    def __init__(
        self, control: RunControl, curves: Curves, run_thread: TrainingThread, of: int | None
    ) -> None:
        self._training = run_thread
        super().__init__(control, curves, run_thread, of)

    @property
    def weights(self) -> Any:
        """The current weights of the actors, for `trl.collect(…, params=)`."""
        return self._training.slots.read()[1]

    @property
    def learnt(self) -> Any:
        """The current state of the algorithm, as of the last completed learning step."""
        return graph.frozen(self._training.learnt)

    @property
    def allocation(self) -> Allocation:
        """The current division of threads between acting and training."""
        return self._training.allocation

    @property
    def experience(self) -> int:
        """The number of environment steps received so far."""
        return self._training.experience

    @property
    def moves(self) -> Sequence[Move]:
        """The changes of the allocation so far, with their reasons."""
        return tuple(self._training.moves)

    @property
    def deaths(self) -> Sequence[Death]:
        """The failures of groups of environments so far."""
        return tuple(self._training.deaths)

    @property
    def losses(self) -> Sequence[ProcessLoss]:
        """The processes of a cluster that have died so far, with the numbers of lost rows."""
        return tuple(self._training.losses)

    @property
    def latencies(self) -> Mapping[str, float]:
        """Median durations of recent iterations in seconds: `block` (of acting), `sample`, `learner`, `insert`,
        `update`, …
        """
        return self._training.latencies


@explain_call_errors
def train(
    algorithm: Algorithm,
    *,
    actors: int | None = 1,
    mode: Mode = "free",
    turns: int | None = None,
    buffer: Replay | None = None,
    batch: int = 64,
    beta: Beta = 0.4,
    chunks: int = 1,
    groups: int | None = None,
    envs: int = 8,
    steps: int = 8,
    blocks: int = 1,
    learning_starts: int = 1000,
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
    cluster: Literal["ray"] | None = None,
    shards: int | None = None,
) -> Training:
    """Train an off-policy algorithm in the background, with parallel actors and a learner.

    Args:
        algorithm: `trl.replay.Dqn()`, or another `trl.replay.Algorithm`.
        actors: the number of actor threads, or of actor processes in the cluster. None measures the cost of acting and
            of the replay operations on this machine first, and chooses the number that balances them.
        mode: "free" for maximal throughput: an iteration takes the finished rollouts without waiting. "exact" for
            reproducible results: every iteration waits for its rollouts, computed with the weights of the previous
            iteration, so results are bitwise equal for any number of threads.
        turns: the number of iterations; None to train until `stop`. An iteration of the training loop takes rollouts and
            makes one learning step, once the buffer has `learning_starts` rows.
        buffer: by default 100,000 rows of the algorithm's fields with proportional priorities. With a
            `limiter`, an iteration draws no batch, or takes no rollouts, while the limiter forbids it.
        batch, beta: as in `Replay.sample`.
        chunks: the number of parts in which a batch is gathered; the learner starts with the first part. The
            number changes the rounding of the gradients.
        groups: the number of groups of environments. By default one per thread, in mode "exact" 8.
        envs, steps: the size of a rollout, which an actor returns at a time: the number of environments of a group, and the
            steps of each.
        blocks: the number of rollouts per iteration. In mode "free" the maximum, which limits the lead of acting
            over learning.
        learning_starts: the number of rows in the buffer before learning starts.
        stage: the number of rows per insertion.
        allocation: the initial allocation of threads, instead of `actors`; trainers take a part of each
            batch.
        policy: reallocates threads every `consult` learning steps, `trl.replay.Stepwise()` or
            `trl.replay.BySpeed()`. In mode "free" only.
        consult: the number of learning steps between two calls of the policy.
        mapping: the learner's device: the name of a JAX device ("cpu:1"), "cpu x2" for two learner threads,
            or the result of `trl.compose.choose`.
        how: the collection strategy, as in `trl.collect`. By default "scan" for environments in JAX,
            "threads" for EnvPool, "loop" otherwise.
        seed: the seed of all random numbers.
        folder: the folder in which the run is saved every `every` iterations. A later call with the same arguments
            and algorithm resumes the run. In mode "exact" every save restarts the environments; a resumed run
            then ends with the same bits as an uninterrupted one.
        every: the number of iterations between saves.
        paused: wait for `resume` before the first iteration.
        cluster: "ray" steps the environments in processes of Ray, on this machine or in a cluster; None steps them in
            threads of this process. `run.losses` lists the processes that have died, and `result["lost"]` has the
            number of rows that were lost with them.
        shards: the number of processes of Ray among which the buffer is divided, with the same probabilities of
            draws; in mode "free" only. None for a buffer in this process.

    Returns:
        The run, immediately. `result()` waits for its end.

    Raises:
        OptionError, ShapeError: an argument has the wrong type or value.
        EnvError: the environment is unknown.
        ExecutionError: another run uses the folder or the buffer, or Ray does not start.
        MissingPartError: Ray is not installed, or too old.

    Example:
        >>> run = trl.replay.train(trl.replay.Dqn(), turns=5, learning_starts=8, batch=8, envs=2)
        >>> result = run.result()
        >>> "loss" in result
        True
    """
    if mode not in _MODES:
        raise OptionError(f"mode={mode!r} is not supported.", hint=one_of(str(mode), _MODES))
    algorithm = check_algorithm(algorithm)
    exact = mode == "exact"
    if exact and policy is not None:
        raise OptionError(
            'mode="exact" excludes a policy: moving threads would change the results.',
            hint='choose mode="free", or a fixed allocation=.',
        )
    if policy is not None:
        expect_type(policy, Policy, "a policy", "trl.replay.Stepwise() or trl.replay.BySpeed().")
    check_cluster(cluster, shards, mode, policy)
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
        raise OptionError(
            f"the allocation divides a batch of {division.batch} rows, but batch={size}.",
            hint="pass the same batch size twice.",
        )
    many = division.actors + division.trainers
    count = integer("groups", (8 if exact else many) if groups is None else groups, least=1)
    each = integer("blocks", blocks, least=1)
    if each > count:
        raise OptionError(
            f"blocks={each} exceeds the number of groups, {count}.",
            hint="choose a smaller blocks= or more groups=: a group runs at most one rollout per iteration.",
        )
    if buffer is None:
        held = Replay(
            100_000, algorithm.fields, priority=Proportional(), gamma=algorithm.gamma, seed=seed
        )
    else:
        held = expect_type(buffer, Replay, "a replay buffer", "trl.Replay(…), or None.")
        _check_rows(held, algorithm)
    first = integer("learning_starts", learning_starts, least=1)
    if held.limiter is not None:
        first = max(first, held.limiter.min_size_to_sample)
    if first > held.capacity:
        raise OptionError(
            f"the buffer's capacity of {held.capacity:,} rows is below learning_starts={first:,}, so learning never starts.",
            hint="choose a larger buffer, or a smaller learning_starts=.",
        )
    wanted = TrainingRequest(
        turns=None if turns is None else integer("turns", turns, least=1),
        mode=mode,
        batch=size,
        beta=check_beta(beta),
        chunks=min(integer("chunks", chunks, least=1), size),
        blocks=each,
        learning_starts=first,
        stage=integer("stage", stage, least=1),
        consult=integer("consult", consult, least=1),
        seed=seed_of(seed),
        every=integer("every", every, least=1),
    )
    remote = None
    if cluster is not None:
        sizes = {"envs": envs, "steps": steps, "how": how, "seed": wanted.seed}
        remote = cluster_request(algorithm, held, shards, **sizes)
    acting = (
        [Group(k, opened, held.actor, wanted.seed) for k in range(count)]
        if remote is None
        else remote_groups(count)
    )
    # a run resumes with another number of iterations and, in mode "free", of groups
    changeable = ("turns",) if exact else ("turns", "groups")
    plain = {**vars(wanted), "groups": count, "envs": envs, "steps": steps}
    plain |= {} if shards is None else {"shards": shards}
    asked = {n: identity(x) if callable(x) else x for n, x in plain.items() if n not in changeable}
    saved_training = None if folder is None else SavedTraining(folder, asked, algorithm)
    run_thread: TrainingThread | None = None
    claim = object()
    try:
        if shards is None:  # otherwise the run has its own buffer, in the shards
            held.claim(claim)
        saved = None if saved_training is None else saved_training.begin()
        control = RunControl(held=bool(paused), turn=0 if saved is None else saved[1]["turn"])
        curves = Curves(control, wanted.turns)
        curves.nbytes = held.nbytes
        device = None if learner.lower() == "cpu" or threads_called(learner) else _device(learner)

        def make(run_thread: Callable[..., TrainingThread], rows: Any) -> Any:
            given = control, curves, algorithm, rows, acting, wanted, division
            return run_thread(*given, policy, device, saved_training, claim)

        made: TrainingThread = (
            make(TrainingThread, held)
            if remote is None
            else begin_ray_training(remote, control, held, make)
        )
        run_thread = made
        if saved is not None:
            made.restore(*saved)
        return Training(control, curves, made, wanted.turns)
    except BaseException:
        if run_thread is not None and run_thread.abort_start():
            raise  # the run's thread has closed everything
        try:
            if run_thread is not None:
                run_thread.close()
        finally:
            held.release(claim)
            if saved_training is not None:
                saved_training.release()
        raise


def _check_rows(buffer: Replay, algorithm: Algorithm) -> None:
    """Check that a buffer has the fields of an algorithm, and its discount factor in n-step returns.

    Raises:
        OptionError: a field is missing or differs, or the discount factor differs.
    """
    if buffer.n_step_gamma not in (None, algorithm.gamma):
        raise OptionError(
            f"the buffer discounts n-step returns by {buffer.n_step_gamma:g}, but the algorithm by {algorithm.gamma:g}.",
            hint="create the buffer by trl.Replay(…, gamma=algorithm.gamma).",
        )
    found = [
        f"{name} is {buffer.fields.get(name, 'missing')}, the algorithm needs {one}"
        for name, one in fields_of(algorithm.fields).items()
        if buffer.fields.get(name) != one
    ]
    if found:
        raise OptionError(
            f"{buffer!r} lacks fields of the algorithm.",
            hint="create the buffer by trl.Replay(capacity, algorithm.fields, …).",
            evidence=found,
        )


def _learner(mapping: Any) -> str:
    """Return the name of the learner's device.

    Raises:
        OptionError: the mapping is not a device name, or places the buffer on a device other than the host.
    """
    best = getattr(mapping, "best", mapping)
    manager, learner = getattr(best, "manager", "cpu"), getattr(best, "learner", best or "cpu")
    if not isinstance(learner, str):
        raise OptionError(
            f"mapping={mapping!r} is not a device name.",
            hint='pass the name of a device, such as "cpu:1".',
        )
    if not str(manager).lower().startswith("cpu"):
        raise OptionError(
            f"the mapping places the buffer on {manager}, but it is always on the host.",
            hint="let trl.compose.choose choose among the devices of this machine.",
        )
    for text in getattr(mapping, "not_executed", ()):
        warn(text, hint="the prediction of trl.compose.choose assumes another device for the rows.")
    return learner


def _device(name: str) -> Any:
    """Return the JAX device with this name.

    Raises:
        OptionError: there is no such device.
    """
    device = graph.device_called(name)
    if device is None:
        raise OptionError(
            f"this machine has no device {name!r}.",
            hint='choose a JAX device, such as "cpu", "cpu:1" or "gpu".',
        )
    return device
