"""Training loop of the host's runtime thread: sample, learn, insert, update. Source: PEARL §3.2 and §3.3.

Only this thread accesses the sum tree and the rows. Actors deliver rollouts of experience through a bounded
queue. The loop stages these rollouts, and inserts them after a batch has been drawn, while the learner works.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from statistics import median
from typing import Any, Literal

import numpy as np

from timerl_nb.base.array_conversion import Array
from timerl_nb.base.errors import ExecutionError, TimeRLError, warn
from timerl_nb.execution.control.pause_and_stop import RunControl, Stopped
from timerl_nb.execution.control.thread_lifecycle import RunThread
from timerl_nb.execution.results.result_dataframe import OutputDimensions
from timerl_nb.execution.results.run_result import Result, RunMemory
from timerl_nb.replay.distributed.lost_rows import ProcessLoss
from timerl_nb.replay.distributed.sharded_replay import ShardedReplay
from timerl_nb.replay.storage.buffer_writer import concatenate_entries
from timerl_nb.replay.storage.rate_limits import Beta
from timerl_nb.replay.storage.replay_buffer import Replay
from timerl_nb.replay.storage.sample import Ticket
from timerl_nb.replay.training.actor_threads import ActorPool, Actors
from timerl_nb.replay.training.algorithm import Algorithm
from timerl_nb.replay.training.environment_group import ActedSteps, Death, RestartableGroup
from timerl_nb.replay.training.learner_thread import Learner, LearningStep, Learnt
from timerl_nb.replay.training.thread_allocation import Allocation, Latencies, Move, Policy
from timerl_nb.replay.training.training_curves import Curves
from timerl_nb.replay.training.training_folder import SavedTraining
from timerl_nb.replay.training.weight_slots import WeightSlots
from timerl_nb.runtime.jax_backend import graph_function as graph
from timerl_nb.runtime.jax_backend.arrays_and_devices import capture_jax_settings

Mode = Literal["exact", "free"]
_OUTER = "turn"
_MAX_FAILURES = 3  # consecutive lost rollouts after which a group is removed


@dataclass(frozen=True)
class TrainingRequest:
    """Options of a run; see `train`."""

    turns: int | None
    mode: Mode
    batch: int
    beta: Beta
    chunks: int
    blocks: int
    learning_starts: int
    stage: int
    consult: int
    seed: int
    every: int


class TrainingThread(RunThread):
    """Training loop of one run.

    Args:
        curves: receives the values of each iteration.
        policy: reallocates threads; None for a fixed allocation.
        device: the learner's JAX device; None for the run's device.
        claim: the object with which the run has reserved the buffer.
        make_actors: creates the actors, with the arguments of `Actors`.

    Attributes:
        allocation: the current allocation of threads.
        moves: all changes of the allocation.
        deaths: failures of groups of environments.
        losses: processes that have died, in a run on a cluster.
        learnt: the algorithm's state.
        experience: the number of environment steps received.
    """

    def __init__(
        self,
        control: RunControl,
        curves: Curves,
        algorithm: Algorithm,
        buffer: Replay | ShardedReplay,
        groups: Sequence[RestartableGroup],
        request: TrainingRequest,
        allocation: Allocation,
        policy: Policy | None,
        device: Any,
        folder: SavedTraining | None,
        claim: object,
        make_actors: Callable[..., ActorPool] = Actors,
    ) -> None:
        super().__init__(control)
        self._curves, self._algorithm, self._buffer = curves, algorithm, buffer
        self._groups, self._request, self._policy, self._folder = groups, request, policy, folder
        self._claim = claim
        self.allocation = allocation
        self.moves: list[Move] = []
        self.deaths: list[Death] = []
        self.losses: list[ProcessLoss] = []
        self.experience = 0
        self.learnt = graph.move_to_device(graph.frozen(algorithm.begin(request.seed)), device)
        self.slots = WeightSlots(
            graph.move_to_device(graph.frozen(algorithm.acting(self.learnt)), None)
        )
        self._device = device
        self._staged: list[ActedSteps] = []
        self._failures = [0] * len(groups)
        self._seconds = {name: deque[float](maxlen=request.consult) for name in _MEASURED}
        self._steps = 0
        self._begun = time.perf_counter()
        self._first = self._saved = control.turn
        alike, threads = capture_jax_settings(), allocation.actors + allocation.trainers
        self._learner = Learner(algorithm, device, threads, alike)
        ahead = max(request.blocks, len(groups))
        self._actors = make_actors(groups, self.slots.read, ahead, request.mode == "free", alike)

    # --- iterations ------------------------------------------------------------------------------

    def _run_through(self) -> str:
        state, turns = "finished", self._request.turns
        try:
            self._control.enter()
            self._actors.resize(self.allocation.actors)
            while turns is None or self._control.turn < turns:
                self._turn(self._control.turn)
                self._control.on_turn()
        except Stopped:
            state = self._stop()
        except BaseException as error:  # `result` raises it
            state = self._fail(error)
        try:
            self.close()
        except BaseException as error:
            state = "failed"
            self._store_error(self._error or error)
        self._add_late_losses()
        self._result = self._make_result()
        return state

    def close(self) -> None:
        """End all threads and environments, and release the buffer and the folder."""
        with ExitStack() as ends:
            if self._folder is not None:
                ends.callback(self._folder.release)
            ends.callback(self._buffer.release, self._claim)
            ends.callback(self._learner.close)
            ends.callback(self._actors.close)

    def _fail(self, error: BaseException) -> str:
        """Store the error for `result`, and return the final state of the run."""
        self._store_error(error)
        self._curves.error = str(error)
        return "failed"

    def _stop(self) -> str:
        """Save a stopped run, and return its final state.

        In mode "exact" a save restarts the environments, which would change all later results. Therefore
        nothing is saved; the previous save remains, and a resumed run repeats the iterations after it.
        """
        try:
            if self._request.mode == "free" and self._control.turn > self._saved:
                self._save(self._control.turn)
        except Stopped:  # a part of the buffer has never started, so it has no rows
            pass
        except BaseException as error:
            return self._fail(error)
        return "stopped"

    def _turn(self, turn: int) -> None:
        request, exact = self._request, self._request.mode == "exact"
        due: list[int] = []
        has_room = self._has_room
        if exact and has_room:
            weights, count = self.slots.read(), len(self._groups)
            due = [(turn * request.blocks + k) % count for k in range(request.blocks)]
            for number in due:
                self._actors.ask(number, weights)
        begun = time.perf_counter()
        ticket, step = self._begin_step()
        sampled = time.perf_counter()
        if self._staged_rows >= request.stage and self._can_insert:
            self._insert()
        inserted = time.perf_counter()
        if exact:
            came = sorted((self._actors.take() for _ in due), key=lambda one: due.index(one.group))
        elif has_room:
            came = self._actors.available(request.blocks) or (
                [self._actors.take()] if step is None else []
            )
        else:
            came = []
        blocks = [one for one in came if isinstance(one, ActedSteps)]
        for one in came:
            self._looked_at(one)
        self._staged += blocks
        said = self._block_metrics(blocks)
        if step is not None and ticket is not None:
            said |= self._end_step(ticket, step.result())
            for name, seconds in (("sample", sampled - begun), ("insert", inserted - sampled)):
                self._seconds[name].append(seconds)
        self.experience += (steps := sum(one.steps for one in blocks))
        self._curves.add(turn, steps, said | self._losses_of_turn())
        self._save_if_due(turn + 1)

    @property
    def _staged_rows(self) -> int:
        return sum(block.count for block in self._staged)

    @property
    def _can_insert(self) -> bool:
        """Whether the buffer's limiter allows an insertion. Both actions never wait for each other."""
        return len(self._buffer) < self._request.learning_starts or self._buffer.can_insert

    @property
    def _has_room(self) -> bool:
        """Whether this iteration takes rollouts: not while staged rows wait for the limiter."""
        return self._staged_rows < self._request.stage or self._can_insert

    def _begin_step(self) -> tuple[Ticket | None, LearningStep | None]:
        request = self._request
        if len(self._buffer) < request.learning_starts or not self._buffer.can_sample:
            return None, None
        drawn = self._buffer.sample_in_parts(request.batch, request.beta, chunks=request.chunks)
        step = self._learner.start(self.learnt, self.allocation)
        serial: list[Array] = []
        for part in drawn:
            step.add_rows(part.rows, part.weight)
            serial.append(part.ticket.serial)
        return self._buffer.ticket(np.concatenate(serial)), step

    def _end_step(self, ticket: Ticket, made: Learnt) -> dict[str, float]:
        begun = time.perf_counter()
        if self._buffer.priority is not None:
            self._buffer.update(ticket, made.errors)
        self._seconds["update"].append(time.perf_counter() - begun)
        self.learnt = made.state
        self.slots.write(made.params)
        for name in ("learner", "trainers", "sync"):
            self._seconds[name].append(getattr(made, name))
        self._steps += 1
        if self._policy is not None and self._steps % self._request.consult == 0:
            self._allocate(self._policy)
        found = {"loss": made.loss}
        if self._policy is not None:
            found |= {n: getattr(self.allocation, n) for n in ("actors", "trainers", "rows")}
        return found

    def _insert(self) -> None:
        staged, self._staged = self._staged, []
        entries = concatenate_entries([dict(block.entries) for block in staged if block.count])
        if entries:
            self._buffer.insert_entries(entries)

    def _block_metrics(self, blocks: list[ActedSteps]) -> dict[str, float]:
        """Return the curve values of an iteration's rollouts."""
        found: dict[str, float] = {}
        if blocks:
            self._seconds["block"].extend(one.seconds for one in blocks)
            found["staleness"] = float(np.mean([self.slots.version - b.version for b in blocks]))
            returns = np.concatenate([one.returns for one in blocks])
            if len(returns):
                found["return"] = float(returns.mean())
        return found

    def _losses_of_turn(self) -> dict[str, float]:
        """Return curve values about processes that have died since the previous iteration."""
        return {}

    def _add_late_losses(self) -> None:
        """Add the losses after the end of the last turn to its curve values."""
        for name, value in self._losses_of_turn().items():
            if value:
                self._curves.add_to_last(name, value)

    def _looked_at(self, made: ActedSteps | Death) -> None:
        """Handle the result of a rollout: restart a failed group, remove it, or fail the run.

        Raises:
            ExecutionError: all groups have failed, or mode is "exact": results without the failed group would
                differ.
        """
        if isinstance(made, ActedSteps):
            self._failures[made.group] = 0
            return
        self.deaths.append(made)
        error = made.error
        why, remedy = str(error), ""
        if isinstance(
            error, TimeRLError
        ):  # without its line, which belongs to another thread or process
            why, remedy = "; ".join([error.what, *error.evidence]), error.hint
        self._failures[made.group] += 1
        if self._request.mode == "exact":
            raise ExecutionError(
                f"an actor of group {made.group} has failed: {why}",
                hint=f'{self._way_to_resume} mode="free" continues with the other groups.',
            ) from made.error
        if all(lost >= _MAX_FAILURES for lost in self._failures):
            raise ExecutionError(
                f"all actors have failed, the last in group {made.group}: {why}",
                hint=remedy or "fix the environment; the error above is its last one.",
            ) from made.error
        if self._failures[made.group] < _MAX_FAILURES:
            warn(
                f"group {made.group} has failed and restarts; its last rollout is lost: {why}",
                hint=remedy,
            )
            self._groups[made.group].begin_anew()
            self._actors.ask(made.group)
        else:
            warn(
                f"group {made.group} has failed {_MAX_FAILURES} times in a row and is removed: {why}",
                hint=remedy,
            )

    @property
    def _way_to_resume(self) -> str:
        """How the user resumes a failed run."""
        if self._folder is None:
            return "pass folder= to save a run, so that another call can resume it."
        where = f"folder={str(self._folder.path)!r}"
        if not self._folder.has_save:
            return f"{where} has no save yet: choose a smaller every=."
        return f"call trl.replay.train again with {where} to resume from its save after iteration {self._saved}."

    # --- threads ---------------------------------------------------------------------------------

    @property
    def latencies(self) -> dict[str, float]:
        """Median durations of the recent learning steps in seconds; stages without a measurement are missing."""
        return {name: median(found) for name, found in self._seconds.items() if found}

    def _allocate(self, policy: Policy) -> None:
        found = self.latencies
        acting = found.get("block", 0.0) * self._request.blocks / self.allocation.actors
        measured = Latencies(acting, found["learner"], found["trainers"], found["sync"])
        move = policy.move(self.allocation, measured)
        if not move:
            return
        self.moves.append(move)
        self.allocation = move.after
        self._actors.resize(move.after.actors)
        for found_before in self._seconds.values():  # measurements of the previous allocation
            found_before.clear()

    # --- saving ----------------------------------------------------------------------------------

    def _save_if_due(self, turn: int) -> None:
        """Save at the due iterations. In mode "exact" this restarts the environments, whose state cannot be saved."""
        request = self._request
        if turn % request.every == 0 or turn == request.turns:
            self._save(turn)

    def _save(self, turn: int) -> None:
        folder, request = self._folder, self._request
        if folder is None:
            return
        self._insert()
        if request.mode == "exact":
            for group in self._groups:
                group.begin_anew()
        arrays = {f"learner {n}": np.asarray(x) for n, x in graph.leaves(self.learnt).items()}
        arrays |= {f"buffer {n}": x for n, x in self._buffer.state().items()}
        self._add_late_losses()  # a shard may have died during the save, without its rows
        for name, (at, values) in self._curves.values().items():
            arrays |= {f"turns of {name}": at, f"values of {name}": values}
        lives = [group.life + (request.mode == "free") for group in self._groups]
        folder.save(arrays, {"turn": turn, "version": self.slots.version, "lives": lives})
        self._saved = turn

    def restore(self, arrays: Mapping[str, Array], about: Mapping[str, Any]) -> None:
        """Load a saved run before the first iteration."""

        def arrays_with_prefix(prefix: str) -> dict[str, Array]:
            return {n.removeprefix(prefix): x for n, x in arrays.items() if n.startswith(prefix)}

        self.learnt = graph.move_to_device(
            graph.with_leaves(self.learnt, arrays_with_prefix("learner ")), self._device
        )
        params = graph.move_to_device(graph.frozen(self._algorithm.acting(self.learnt)), None)
        self.slots.restore(params, about["version"])
        self._buffer.restore(arrays_with_prefix("buffer "))
        values = arrays_with_prefix("values of ")
        self._curves.restore(
            {n: (at, values[n]) for n, at in arrays_with_prefix("turns of ").items()}
        )
        # further groups of mode "free" begin with seeds that no saved group has used
        lives = about["lives"]
        for k, group in enumerate(self._groups):
            group.life = lives[k] if k < len(lives) else max(lives)

    # --- results ---------------------------------------------------------------------------------

    def so_far(self) -> Result:
        error = self.take_error()
        if error is None:
            return self.result()
        assert self._result is not None
        return self._result

    def _make_result(self) -> Result:
        curves = self._curves.values()
        size = sum(x.nbytes for x in graph.leaves(self.learnt).values()) + self._buffer.nbytes
        return Result(
            {name: values for name, (_, values) in curves.items()},
            {name: np.asarray(x) for name, x in graph.leaves(self.slots.read()[1]).items()},
            RunMemory(size, (size,), by="the buffer's rows and the algorithm's state"),
            time.perf_counter() - self._begun,
            self._control.turn - self._first,
            {name: {_OUTER: at} for name, (at, _) in curves.items()},
            _along=OutputDimensions(_OUTER, None, dict.fromkeys(curves, (_OUTER,))),
        )


_MEASURED = ("block", "sample", "insert", "update", "learner", "trainers", "sync")
