"""`trl.collect`: environments in progress, whose steps are asked for batch by batch."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from threading import RLock
from typing import Any, NoReturn, Self

from timerl_nb.base.entry_points import entry_point
from timerl_nb.base.errors import ExecutionError, OptionError
from timerl_nb.base.text_formatting import format_count
from timerl_nb.collecting.batch import Batch
from timerl_nb.collecting.collection_task import Task, resolve_environment, spaces
from timerl_nb.collecting.cost_model import likely
from timerl_nb.collecting.policies.collecting_policy import Actions, check_numbers, own
from timerl_nb.collecting.policies.policy_conversion import acting_of
from timerl_nb.collecting.strategies.environment_blocks import Blocks
from timerl_nb.collecting.strategies.envpool_threads import Threads
from timerl_nb.collecting.strategies.gymnasium_loop import Loop
from timerl_nb.collecting.strategies.native_vector_environment import Native
from timerl_nb.collecting.strategies.sharded_devices import Sharded
from timerl_nb.collecting.strategies.shared_memory_processes import Processes
from timerl_nb.collecting.strategies.single_gpu_kernel import OneKernel
from timerl_nb.collecting.strategies.step_by_step import StepByStep
from timerl_nb.collecting.strategies.xla_scan import Scan
from timerl_nb.collecting.strategy import LOST, Counts, Source, Way
from timerl_nb.collecting.strategy_report import Ways
from timerl_nb.collecting.strategy_selection import ANY, AUTO, SelectedStrategy, check, choose
from timerl_nb.compiler.language.argument_checks import integer, seed_of
from timerl_nb.compiler.language.foreign_names import all_asked, explain_call_errors, missing

WAYS: tuple[Way, ...] = (
    Scan(),
    Blocks(),
    OneKernel(),
    Sharded(),
    StepByStep(),
    Native(),
    Loop(),
    Processes(),
    Threads(),
)


@all_asked
class Collector:
    """Environments in progress. `trl.collect` makes it."""

    def __init__(self, task: Task, how: str) -> None:
        self._how = how
        # as one value, so an interrupt leaves it consistent
        self._acts: tuple[Task, Mapping[str, Any]] = task, dict(task.acting.weights)
        self._choice: SelectedStrategy | None = None
        self._source: Source | None = None
        self._unseen: Batch | None = None  # an interrupt came before it was returned
        self._closed = ""
        self._allowed = Actions(task.spaces[1])
        self._lock = RLock()

    @property
    def _task(self) -> Task:
        return self._acts[0]

    @property
    def _weights(self) -> Mapping[str, Any]:
        return self._acts[1]

    def next(self, params: Any = None) -> Batch:
        """The next batch: the environments go on where the last one left them.

        Threads take turns. After an interrupt the next call completes and returns the batch; only
        where it came within a step of environments on the host, these begin new episodes, as the
        interrupt says.

        Args:
            params: newer weights: arrays by name, `result.policy()` or a result; as `load`.

        Raises:
            ExecutionError: the policy makes NaN or an action outside its space; the collector is closed,
                or is asked for a batch by its own policy or environment.
            OptionError: the policy adds something under a name that batches have.
            EnvError: an environment failed.
            ShapeError: weights of other shapes; the collector goes on.
        """
        batch: Batch | None = None
        try:
            with self._lock:
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
                self._unseen = batch  # the next call returns it
            elif source is not None and source.is_lost:
                error.add_note(LOST)
            raise

    def _next_batch(self) -> Batch:
        """A valid batch."""
        if self._closed:
            raise ExecutionError(
                f"the collector is closed: {self._closed}.",
                hint="batches that were collected stay; trl.collect(…) begins anew.",
            )
        if _is_within(self):
            raise ExecutionError(
                "the collector is asked for a batch while it makes one.",
                hint="a policy or an environment cannot call next() of its own collector.",
            )
        try:
            batch = self._open().next(self._weights)
            if self._is_slower():
                batch = self._open().next(self._weights)
            check_numbers({"action": batch.action, **batch.extras})
            self._allowed.check(batch.action)
        except Exception as error:
            self._close(f"a batch was not completed ({type(error).__name__})")
            raise
        return batch

    def _is_slower(self) -> bool:
        """Whether the first batch shows that a remembered choice is out of date: then there is another one."""
        choice, source = self._choice, self._source
        if choice is None or choice.expected is None or source is None or choice.again is None:
            return False
        if source.speed is None:
            return False
        self._choice = replace(choice, expected=None)
        if choice.is_expected(source.speed):
            return False
        source.close()
        self._source = None  # nothing of it was handed out
        self._choice = choice.again()
        return True

    def load(self, params: Any) -> None:
        """Act by other weights from the next batch on.

        Args:
            params: arrays of NumPy, JAX or PyTorch by name, which are copied; `result.policy()`, or a
                result; of a module of PyTorch's what its `load_state_dict` takes.

        Raises:
            OptionError: a function of JAX adds something under a name that batches have.
            ShapeError: they are not those of the policy; those that it has stay.
        """
        with self._lock:
            acting = self._task.acting
            if self._source is None and not self._weights:
                acting = acting.with_weights(params)  # parameters of any structure may be its first
                acting.check(self._task.spaces[0])
                self._choice = None
                self._acts = replace(self._task, acting=acting), dict(acting.weights)
            else:
                self._acts = self._task, acting.check_weights(params)

    @property
    def weights(self) -> dict[str, Any]:
        """Copies of the current weights, by name."""
        return {name: own(x) for name, x in self._weights.items()}

    def _open(self) -> Source:
        if self._source is None:
            self._source = self._strategy_choice.prepared(self._task.seed)
        return self._source

    @property
    def _strategy_choice(self) -> SelectedStrategy:
        with self._lock:
            if self._choice is None:
                self._choice = choose(WAYS, self._task, self._how, self._weights, order=likely)
            return self._choice

    @property
    def ways(self) -> Ways:
        """All ways: how fast they are, what they take or why they do not apply, and which was chosen. Chooses, if
        that was not done.
        """
        return self._strategy_choice.ways

    def ways_for(self, envs: int, steps: int) -> Ways:
        """What `ways` would be of so many environments, and so many steps a batch; these environments stay as they are.

        Raises:
            OptionError: the environments were given as one, and are no others.
        """
        count = integer("envs, the number of environments,", envs, least=1)
        many = integer("steps", steps, least=1)
        task, is_measured = self._task, self._how in (AUTO, ANY)
        if is_measured and (count, many) == (task.envs, task.steps):
            return self.ways
        if task.vector is not None and count != task.envs:
            raise OptionError(
                f"the environments were given, and are {task.envs:,}.",
                hint="give trl.collect the name of one: it makes as many as are asked for.",
            )
        task = replace(task, envs=count, steps=many)
        how = self._how if is_measured else AUTO
        return choose(WAYS, task, how, self._weights, order=likely).ways

    def with_seed(self, seed: int) -> Collector:
        """Other environments of the same kind, under the same policy, by the same way: what was compiled is shared.

        Raises:
            OptionError: the environments were given, and there are no others.
        """
        if self._task.vector is not None:
            raise OptionError(
                "the environments were given, and there are no others.",
                hint="give trl.collect the name of one: it makes as many as are asked for.",
            )
        found = Collector(replace(self._task, seed=seed_of(seed)), self._how)
        found._choice, found._acts = self._strategy_choice, (found._task, self._weights)
        return found

    @property
    def counts(self) -> Counts:
        """What a batch takes: calls, launches and copies."""
        return self._open().counts

    def explore(self) -> Any:
        """The ways as a widget, for whatever numbers of environments and steps are asked for.

        Raises:
            MissingPartError: the widgets are not installed.
        """
        return entry_point("collector.explore")(self)

    @property
    def name(self) -> str:
        """The environment's."""
        return self._task.name

    @property
    def envs(self) -> int:
        return self._task.envs

    @property
    def steps(self) -> int:
        """Of each environment in a batch."""
        return self._task.steps

    def close(self) -> None:
        """End all environments; batches stay. It waits for an unfinished batch of another thread."""
        with self._lock:
            self._close("it was asked to")

    def _close(self, why: str) -> None:
        self._closed = self._closed or why
        self._unseen = None
        if self._source is not None:
            self._source.close()
            self._source = None

    def __iter__(self) -> Iterator[Batch]:
        """Batches until it is closed."""
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
            "a collector holds environments in progress, and can be neither copied nor pickled.",
            hint="c.another(seed) is one of the same kind; batches can be copied and pickled.",
        )

    def __getattr__(self, name: str) -> Any:
        words = {"step": "next(): a batch of steps.", "sample": "next()."}
        raise missing("a collector", name, dir(type(self)), words)

    def __repr__(self) -> str:
        task = self._task
        state = f", closed: {self._closed}" if self._closed else ""
        return f"Collector({task.name}, {format_count(task.envs, 'environment')}, {format_count(task.steps, 'step')} a batch{state})"


def _is_within(collector: Collector) -> bool:
    """Whether this thread is already making a batch of it."""
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
) -> Collector:
    """Steps of environments under a policy, collected batch by batch.

    Args:
        env: a name, "CartPole-v1", or "gym.CartPole-v1" for that of Gymnasium, "envpool.…"; what `trl.env.make`
            returns, which stays as it is; a vector environment of Gymnasium's, which the first batch
            resets, with `seed`, since it shows no observation otherwise; it is not closed.
        policy: `trl.DNNBuilder().from_env(env, hidden=[64, 64])`, a network that it has built,
            `result.policy()`, or `trl.policies.random`; a function of NumPy or a module of PyTorch,
            from the observations of all environments, [envs, …]; a pure function of JAX,
            `f(params, obs, key)`, from the observation of one. A function returns the actions; or a pair
            of these and a dict of what is to be kept beside them, under names that batches do not have.
        envs: how many environments; one, or as many as the vector environment has.
        steps: of each in a batch.
        seed: of all chance.
        how: by which way: "scan" is one XLA call a batch, "blocks" one in which some environments make all
            their steps before the next ones, for states that outgrow the cache, "kernel" one of a single
            kernel on a GPU, "sharded" one on several devices, "step" calls for every step. They give the same
            trajectories. On the host
            "loop" steps Gymnasium's environments one after the other, "processes" those in processes,
            "native" those that are vectors of their own; "threads" steps EnvPool's.
            "auto" measures, when the first batch is asked for, those that apply, in some seconds, on
            environments of their own, and takes the fastest: `c.ways`; it is remembered for this machine,
            environment, policy and sizes. It takes no way of another provenance, whose trajectories are
            others; "any" does.
        params: weights to begin with, as `Collector.load` takes them; of a function of JAX any tree.
        explore: `result.policy()` acts with random actions and noise, as its program did.

    Returns a `Collector`: `c.next()` is a batch.

    Raises:
        EnvError: there is no such environment, or the policy sees something else.
        OptionError: the policy is none, or adds something under a name that batches have; or the way
            does not apply, and why.
        ShapeError: the weights are not those of the policy.
    """
    steps, seed = integer("steps", steps, least=1), seed_of(seed)
    name, sim, vector = resolve_environment(env)
    acting = acting_of(policy, spaces(sim, vector), seed, "explore" if explore else "sample")
    if params is not None:
        acting = acting.with_weights(params)
    acting.check(spaces(sim, vector)[0])
    many = getattr(vector, "num_envs", 1)
    count = many if envs is None else integer("envs, the number of environments,", envs, least=1)
    if vector is not None and count != many:
        raise OptionError(
            f"envs={count}, and the vector environment has {many}.", hint="leave out envs."
        )
    task = Task(name, sim, vector, acting, count, steps, seed)
    check(WAYS, task, how)
    return Collector(task, how)
