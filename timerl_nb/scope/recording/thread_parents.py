"""Recording of parent threads: the starter of each thread, the submitter of each pool task.

When the recording is read, `phase_inheritance` extends phases to these threads and tasks.
"""

from __future__ import annotations

from functools import wraps
from types import ModuleType
from typing import Any, Final

from timerl_nb.scope.recording.recorder import begin_thread, hand, this_lane
from timerl_nb.scope.wrappers.function_wrappers import Taps

_NUMBER: Final = "_trl_scope_number"  # attribute of a thread or task: its number from `hand`
_SUBMIT: Final = ("apply_async", "_map_async", "imap", "imap_unordered")


def wrap_threads(taps: Taps, module: ModuleType) -> None:
    """Wrap `threading.Thread`: a thread's timeline begins when it starts."""
    thread = module.Thread
    start, inside = thread.start, thread._bootstrap_inner

    @wraps(start)
    def starting(self: Any) -> Any:
        vars(self)[_NUMBER] = hand()
        return start(self)

    @wraps(inside)
    def running(self: Any) -> Any:
        begin_thread(self.name, vars(self).pop(_NUMBER, 0))
        return inside(self)

    taps.replace(thread, "start", starting)
    taps.replace(thread, "_bootstrap_inner", running)


def wrap_executors(taps: Taps, module: ModuleType) -> None:
    """Wrap the tasks of `ThreadPoolExecutor`."""
    item = module._WorkItem
    made, run = item.__init__, item.run

    @wraps(made)
    def submitted(self: Any, *args: Any, **named: Any) -> None:
        made(self, *args, **named)
        vars(self)[_NUMBER] = hand()

    @wraps(run)
    def running(self: Any, *args: Any, **named: Any) -> Any:
        return _run(vars(self).get(_NUMBER, 0), run, self, *args, **named)

    taps.replace(item, "__init__", submitted)
    taps.replace(item, "run", running)


def wrap_pools(taps: Taps, module: ModuleType) -> None:
    """Wrap the tasks of `multiprocessing.pool.ThreadPool`."""

    def submitting(submit: Any) -> Any:
        @wraps(submit)
        def submitted(self: Any, func: Any, *args: Any, **named: Any) -> Any:
            number = hand()

            def task(*given: Any, **also: Any) -> Any:
                return _run(number, func, *given, **also)

            return submit(self, task if number else func, *args, **named)

        return submitted

    for name in _SUBMIT:
        taps.replace(module.ThreadPool, name, submitting(getattr(module.ThreadPool, name)))


def _run(number: int, function: Any, *args: Any, **named: Any) -> Any:
    """Call a function as the task with a number from `hand`."""
    lane = this_lane() if number else None
    if lane is None:
        return function(*args, **named)
    before = lane.taken
    lane.take(number)
    try:
        return function(*args, **named)
    finally:
        if this_lane() is lane:
            lane.take(before)
