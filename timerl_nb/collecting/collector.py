"""Collector of environment steps: `trl.collect`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from threading import RLock
from typing import Any, Literal, NoReturn, Self

from timerl_nb.base.entry_points import entry_point
from timerl_nb.base.errors import ExecutionError, OptionError, one_of
from timerl_nb.base.text_formatting import format_count
from timerl_nb.collecting.background_batches import BackgroundBatches
from timerl_nb.collecting.batch import Batch
from timerl_nb.collecting.cluster_arguments import check_workers, uses_cluster
from timerl_nb.collecting.collection_task import Task, check_pace, resolve_environment, spaces
from timerl_nb.collecting.cost_model import likely
from timerl_nb.collecting.episode_batches import by_episodes, check_episodes
from timerl_nb.collecting.policies.collecting_policy import Actions, check_numbers, own
from timerl_nb.collecting.policies.policy_conversion import acting_of
from timerl_nb.collecting.strategy import LOST, Counts, Source, Way
from timerl_nb.collecting.strategy_list import CLUSTER_WAYS, WAYS
from timerl_nb.collecting.strategy_report import Ways
from timerl_nb.collecting.strategy_selection import ANY, AUTO, SelectedStrategy, check, choose
from timerl_nb.compiler.language.argument_checks import integer, seed_of
from timerl_nb.compiler.language.foreign_names import (
    explain_call_errors,
    explain_method_errors,
    missing,
)
from timerl_nb.compiler.language.policy.policy_graph import How


@explain_method_errors
class Collector:
    """Open environments under a policy; returned by `trl.collect`.

    `next` returns the next batch of steps. A collector is also an iterator over batches, and a
    context manager: it closes the environments at the end of the block.

    Example:
        >>> with trl.collect("CartPole-v1", trl.policies.random, envs=2, steps=3, how="step") as c:
        ...     counts = [batch.count for batch in (c.next(), c.next())]
        >>> counts
        [6, 6]
    """

    def __init__(
        self,
        task: Task,
        how: str,
        ahead: int = 0,
        episodes: int | None = None,
        *,
        stores_states: bool = False,
    ) -> None:
        self._how, self._ahead, self._episodes = how, ahead, episodes
        self._stores_states = stores_states
        if stores_states or episodes is not None:  # an episode may begin at any step
            task = replace(task, stores_states=True)
        # task, weights and their version; a single attribute, so an interrupt leaves it consistent
        self._acts: tuple[Task, Mapping[str, Any], int] = task, dict(task.acting.weights), 0
        self._choice: SelectedStrategy | None = None
        self._source: Source | None = None
        self._unseen: Batch | None = None  # a batch to return after an interrupt
        self._closed = ""
        self._allowed = Actions(task.spaces[1])
        self._lock = RLock()

    @property
    def _task(self) -> Task:
        return self._acts[0]

    @property
    def _weights(self) -> Mapping[str, Any]:
        return self._acts[1]

    @property
    def policy_version(self) -> int:
        """Version of the current weights: the number of calls of `load` and `next(params=…)`.

        `batch.policy_version` is the version of the weights that made a batch.
        """
        return self._acts[2]

    def next(self, params: Any = None) -> Batch:
        """Return the next batch; the environments continue from the last one.

        Threads take turns. After an interrupt, the next call completes and returns the batch. If
        the interrupt came during a step of environments on the host, they begin new episodes, and a
        note on the exception says so.

        With `ahead=k`, another thread makes the next k batches after this call. A batch then has the
        weights of the k-th call before it, or of the first call. Errors of the thread are raised by
        the call that would return the batch.

        Args:
            params: new weights; see `load`.

        Raises:
            ExecutionError: the policy returns NaN or an action outside of its space; the collector
                is closed; or its own policy or environment calls this method.
            OptionError: the policy returns an extra with a reserved name.
            EnvError: an environment failed.
            ShapeError: the weights have other shapes; the collector stays usable.
        """
        batch: Batch | None = None
        try:
            with self._checked_lock:
                if params is not None:
                    self.load(params)
                batch = self._unseen or self._next_batch()
                if self._source is not None:
                    self._source.handed_out()
                self._unseen = None
                return batch
        except BaseException as error:
            source = self._source
            if batch is not None and not isinstance(error, Exception):
                if source is not None:
                    source.handed_out()
                self._unseen = batch  # returned by the next call
            elif source is not None and source.is_lost:
                error.add_note(LOST)
            raise

    @property
    def _checked_lock(self) -> RLock:
        """The lock, unless this is the thread that another one waits for."""
        source = self._source
        if isinstance(source, BackgroundBatches) and source.is_own_thread:
            raise _called_within()
        return self._lock

    def _next_batch(self) -> Batch:
        """Return a batch after all checks."""
        if self._closed:
            raise ExecutionError(
                f"the collector is closed: {self._closed}.",
                hint="create a new collector: trl.collect(…). Collected batches stay valid.",
            )
        if _is_within(self):
            raise _called_within()
        try:
            _, weights, version = self._acts
            batch = self._open().next(weights, version)
            if self._is_slower():
                batch = self._open().next(weights, version)
            check_numbers({"action": batch.action, **batch.extras})
            self._allowed.check(batch.action)
        except Exception as error:
            self._close(f"a batch failed ({type(error).__name__})")
            raise
        return batch

    def _is_slower(self) -> bool:
        """Check the first batch against the cached measurement, and select again if they differ.

        Returns:
            Whether there was another selection; the batch must then be collected again.
        """
        choice, source = self._choice, self._source
        if choice is None or choice.expected is None or source is None or choice.again is None:
            return False
        if source.speed is None:
            return False
        self._choice = replace(choice, expected=None)
        if choice.is_expected(source.speed):
            return False
        source.close()
        self._source = None  # no batch of it has been returned
        self._choice = choice.again()
        return True

    def load(self, params: Any) -> None:
        """Replace the weights from the next batch on; `policy_version` increases by one.

        Args:
            params: NumPy, JAX or PyTorch arrays by name (they are copied), `result.policy()`, or a
                result. For a PyTorch module, an argument of its `load_state_dict`.

        Raises:
            OptionError: a JAX function returns an extra with a reserved name.
            ShapeError: the weights do not fit the policy; the old ones stay.
        """
        with self._checked_lock:
            acting, version = self._task.acting, self.policy_version + 1
            if self._source is None and not self._weights:
                acting = acting.with_weights(params)  # the first parameters may have any structure
                acting.check(self._task.spaces[0])
                self._choice = None
                self._acts = replace(self._task, acting=acting), dict(acting.weights), version
            else:
                self._acts = self._task, acting.check_weights(params), version

    @property
    def weights(self) -> dict[str, Any]:
        """Copies of the current weights, by name."""
        return {name: own(x) for name, x in self._weights.items()}

    def _open(self) -> Source:
        if self._source is None:
            prepared, seed = self._strategy_choice.prepared, self._task.seed
            if self._episodes is not None:
                stores = self._stores_states
                prepared = by_episodes(prepared, self.envs, self._episodes, stores_states=stores)
            ahead = self._ahead
            self._source = BackgroundBatches(prepared, seed, ahead) if ahead else prepared(seed)
        return self._source

    @property
    def _strategy_choice(self) -> SelectedStrategy:
        with self._lock:
            if self._choice is None:
                self._choice = choose(
                    _ways(self._task), self._task, self._how, self._weights, order=likely
                )
            return self._choice

    @property
    def ways(self) -> Ways:
        """Report of all strategies, with the selected one.

        It has speed and counts of each strategy, or the reason why it does not apply. The first
        access selects a strategy if there was no batch yet.
        """
        return self._strategy_choice.ways

    def ways_for(self, envs: int, steps: int) -> Ways:
        """Return the report of strategies for other batch sizes; this collector does not change.

        Args:
            envs: number of environments.
            steps: steps of each per batch.

        Raises:
            OptionError: the user passed a vector environment of another size.
        """
        count = integer("envs, the number of environments,", envs, least=1)
        many = integer("steps", steps, least=1)
        task, is_measured = self._task, self._how in (AUTO, ANY)
        if is_measured and (count, many) == (task.envs, task.steps):
            return self.ways
        if task.vector is not None and count != task.envs:
            raise OptionError(
                f"the vector environment has {task.envs:,} environments, not {count:,}.",
                hint="pass the name of the environment to trl.collect, which creates any number.",
            )
        if task.ready is not None:
            check_pace(task.ready, count, None)
        task = replace(task, envs=count, steps=many)
        how = self._how if is_measured else AUTO
        return choose(_ways(task), task, how, self._weights, order=likely).ways

    def with_seed(self, seed: int) -> Collector:
        """Return a collector with new environments, the same policy and the same strategy.

        Compiled code is shared.

        Args:
            seed: seed of all random numbers.

        Raises:
            OptionError: the user passed a vector environment, so there are no other ones.
        """
        if self._task.vector is not None:
            raise OptionError(
                "a given vector environment cannot be created again with another seed.",
                hint="pass the name of the environment to trl.collect, which creates any number.",
            )
        task = replace(self._task, seed=seed_of(seed))
        more, stores = (self._ahead, self._episodes), self._stores_states
        found = Collector(task, self._how, *more, stores_states=stores)
        found._choice, found._acts = self._strategy_choice, (found._task, *self._acts[1:])
        return found

    @property
    def counts(self) -> Counts:
        """Calls, launches and copies per batch."""
        return self._open().counts

    def explore(self) -> Any:
        """Show the strategies in a notebook widget, for any number of environments and steps.

        Raises:
            MissingPartError: the widgets are not installed.
        """
        return entry_point("collector.explore")(self)

    @property
    def name(self) -> str:
        """Name of the environment."""
        return self._task.name

    @property
    def envs(self) -> int:
        """Number of environments."""
        return self._task.envs

    @property
    def steps(self) -> int:
        """Steps of each environment per batch, or per part of a batch of episodes."""
        return self._task.steps

    @property
    def episodes(self) -> int | None:
        """Number of episodes per batch; None for batches of steps."""
        return self._episodes

    def close(self) -> None:
        """Close all environments, after the current batch of another thread. Batches stay valid."""
        with self._checked_lock:
            self._close("close() was called")

    def _close(self, why: str) -> None:
        self._closed = self._closed or why
        self._unseen = None
        if self._source is not None:
            self._source.close()
            self._source = None

    def __iter__(self) -> Iterator[Batch]:
        """Iterate over batches until the collector is closed."""
        return self

    def __next__(self) -> Batch:
        with self._lock:
            if self._closed:
                raise StopIteration
            return self.next()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        raise ExecutionError(
            "a collector cannot be copied or pickled, because it holds open environments.",
            hint="create a similar one by c.with_seed(seed); batches can be copied and pickled.",
        )

    def __getattr__(self, name: str) -> Any:
        words = {"step": "next(): a batch of steps.", "sample": "next()."}
        raise missing("a collector", name, dir(type(self)), words)

    def __repr__(self) -> str:
        task = self._task
        state = f", closed: {self._closed}" if self._closed else ""
        size = format_count(task.steps, "step")
        if self._episodes is not None:
            size = format_count(self._episodes, "episode")
        return f"Collector({task.name}, {format_count(task.envs, 'environment')}, {size} a batch{state})"


def _ways(task: Task) -> Sequence[Way]:
    """Return the strategies of a task: those of a cluster only on request."""
    return (*WAYS, *CLUSTER_WAYS) if task.is_clustered else WAYS


def _called_within() -> ExecutionError:
    return ExecutionError(
        "next() is called while the same collector produces a batch.",
        hint="remove the call of next() from the policy or environment.",
    )


def _is_within(collector: Collector) -> bool:
    """Return whether this thread is inside of a `next` of the same collector."""
    frame, code = sys._getframe(2), Collector._next_batch.__code__
    while (frame := frame.f_back) is not None:  # type: ignore[assignment]
        if frame.f_code is code and frame.f_locals.get("self") is collector:
            return True
    return False


@explain_call_errors
def collect(
    env: Any,
    policy: Any,
    *,
    envs: int | None = None,
    steps: int = 128,
    seed: int = 0,
    how: str = AUTO,
    params: Any = None,
    explore: bool = False,
    ahead: int = 0,
    episodes: int | None = None,
    initial_state: Any = None,
    states: Literal["first", "all"] = "first",
    ready: int | None = None,
    workers: int | None = None,
    cluster: Literal["ray"] | None = None,
) -> Collector:
    """Collect environment steps under a policy, batch by batch.

    Args:
        env: environment, one of:

            - a name: "CartPole-v1", "gym.CartPole-v1" for Gymnasium's, or "envpool.…" for
              EnvPool's;
            - a result of `trl.env.make`, which is not changed;
            - a Gymnasium vector environment. The first batch resets it with `seed`; it is not
              closed.
        policy: policy, one of:

            - `trl.DNNBuilder().from_env(env, hidden=[64, 64])`, or a network built by it;
            - `result.policy()`, or `trl.policies.random`;
            - a NumPy function or PyTorch module of the observations of all environments, [envs, …];
            - a pure JAX function `f(params, obs, key)` of one observation;
            - a recurrent JAX function `f(params, obs, state, key)` of one observation. It returns the
              next state as the last element of its tuple.

            A function returns the actions, or a pair of the actions and a dictionary of extras for
            the batch. If it has an argument `action_mask`, it receives the masks of actions that
            environments on the host report in their infos, [envs, …] or of one environment.
        envs: number of environments; default: one, or the size of the vector environment.
        steps: steps of each environment per batch.
        seed: seed of all random numbers.
        how: strategy. These run on the device and return the same trajectories:

            - "scan": one XLA call per batch;
            - "blocks": one XLA call; a block of environments runs all its steps before the next
              block, which keeps the state in the cache;
            - "kernel": one XLA call with a single GPU kernel;
            - "sharded": one XLA call on several devices;
            - "step": several XLA calls per step.

            These run on the host:

            - "loop": Gymnasium's environments one after the other;
            - "processes": Gymnasium's environments in processes;
            - "native": vector environments with their own implementation;
            - "threads": EnvPool's environments.

            These run in the workers of a Ray cluster, as groups of environments with a copy of the
            policy. The trajectories are those of "processes" and "threads":

            - "ray": Gymnasium's environments;
            - "ray-threads": EnvPool's environments.

            "auto" measures the applicable strategies before the first batch, with separate
            environments, and selects the fastest; this takes some seconds. The result is cached for
            the machine, environment, policy and sizes, and reported by `Collector.ways`. "auto"
            considers only strategies with equal trajectories; "any" considers all. Both consider a
            cluster only with `cluster="ray"`.
        params: initial weights; see `Collector.load`. For a JAX function, any pytree.
        explore: whether `result.policy()` adds the exploration of its training program.
        ahead: number of batches collected in the background while the caller learns, with all
            strategies. Equal seeds and calls give equal batches. Their weights are older; see
            `Collector.next`. A PyTorch module is copied, and `load` changes its copy. A
            NumPy function must not read arrays that the caller changes.
        episodes: number of whole episodes per batch, at least `envs`; None for batches of `steps`.
            The batch has the shape [longest, episodes, …], and `valid` is False after the end of an
            episode. Each environment contributes a fixed number of consecutive episodes that begin
            after the call, so the sample is unbiased. Steps of earlier and further episodes are
            dropped. The environments make `steps` steps at a time.
        initial_state: state of a recurrent JAX function at the first step of an episode, a pytree of
            arrays for one environment.
        states: "first" or "all": whether `batch.states` has the state of a recurrent policy before
            the first step, or before every step.
        ready: number of trajectories per batch, at most `envs`, if environments step asynchronously: with
            "processes" (one for each environment) or "threads". None if all environments step
            together. The policy acts whenever `ready` environments have returned a result. A batch has
            the first `ready` completed trajectories of `steps` consecutive steps, [steps, ready, …]; see
            `Batch.env_ids`. Batches are not reproducible, and fast environments contribute more steps.
        workers: number of Ray workers, at most `envs`; None for one per CPU of the cluster. Each
            reserves a CPU.
        cluster: "ray" lets `how="auto"` and `how="any"` select workers of Ray too. With None they do not,
            even if Ray is initialised.

    Returns:
        A `Collector`; its `next()` returns a batch.

    Raises:
        EnvError: the environment does not exist, or the policy has another observation space.
        OptionError: the policy is unsupported or returns an extra with a reserved name, or the
            strategy does not apply; the message has the reason.
        ShapeError: the weights do not fit the policy.

    Example:
        >>> with trl.collect("CartPole-v1", trl.policies.random, envs=2, steps=3, how="step") as c:
        ...     batch = c.next()
        >>> batch.reward.shape
        (3, 2)
    """
    steps, seed = integer("steps", steps, least=1), seed_of(seed)
    name, sim, vector = resolve_environment(env, policy)
    ahead = integer("ahead, the number of batches made in advance,", ahead, least=0)
    if states not in ("first", "all"):
        raise OptionError(
            f"states={states!r} does not exist.", hint=one_of(str(states), ["first", "all"])
        )
    mode: How = "explore" if explore else "sample"
    acting = acting_of(policy, spaces(sim, vector), seed, mode, initial_state)
    is_clustered = uses_cluster(how, cluster)
    acting = acting.in_background() if ahead or is_clustered else acting
    if params is not None:
        acting = acting.with_weights(params)
    acting.check(spaces(sim, vector)[0])
    many = getattr(vector, "num_envs", 1)
    count = many if envs is None else integer("envs, the number of environments,", envs, least=1)
    if vector is not None and count != many:
        raise OptionError(
            f"envs={count}, but the vector environment has {many}.", hint="leave out envs."
        )
    if ready is not None:
        ready = integer("ready, the number of trajectories per batch,", ready, least=1)
        check_pace(ready, count, episodes)
    workers = check_workers(workers, how, count, is_clustered=is_clustered)
    more = {"ready": ready, "is_clustered": is_clustered, "workers": workers}
    task = Task(name, sim, vector, acting, count, steps, seed, **more)
    check((*WAYS, *CLUSTER_WAYS), task, how)
    if episodes is not None:
        episodes = integer("episodes, the number per batch,", episodes, least=1)
        check_episodes(task, episodes)
    return Collector(task, how, ahead, episodes, stores_states=states == "all")
