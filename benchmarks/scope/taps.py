"""Cost of recording: extra nanoseconds per wrapped call, by recorder.

The wrapped function is almost empty, and so is the body of the annotation. Before each *cold* call,
4 MiB are read to evict the nearer caches. The figures are medians and quartiles of many rounds; all
variants alternate.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from contextlib import nullcontext
from statistics import median, quantiles
from time import perf_counter_ns, thread_time_ns
from typing import Any, Final

import numpy as np

import timerl_nb as trl
from timerl_nb.scope.storage.event_format import Library
from timerl_nb.scope.wrappers import c_or_python_recorder, python_recorder
from timerl_nb.scope.wrappers.function_wrappers import Taps

CALLS: Final = 20_000
ROUNDS: Final = 41
_FAR: Final = np.zeros(1 << 22, np.uint8)


def main() -> None:
    """Print a table."""
    print("| a call, beside an untapped one, ns | in a tight loop | cold |\n|---|--:|--:|")
    for name, (tight, cold) in measured(CALLS, ROUNDS).items():
        print(f"| {name} | {_text(tight)} | {_text(cold)} |")


def measured(calls: int, rounds: int) -> dict[str, tuple[list[float], list[float]]]:
    """Return the extra time of a wrapped call per round, by variant: in a tight loop, and cold."""
    built = c_or_python_recorder.module
    ways = dict[str, tuple[Any, Callable[..., Any], bool]]()
    for name, module in (("C", built), ("Python", python_recorder)):
        if name == "C" and built is python_recorder:
            continue
        c_or_python_recorder.module = module
        tap = Taps().get_or_make(operator.index, "index", Library.BACKEND)
        ways[f"{name}, nothing recorded"] = module, tap, False
        ways[f"{name}, recorded"] = module, tap, True
        ways[f"{name}, an annotation, nothing recorded"] = module, _annotation, False
        ways[f"{name}, an annotation, recorded"] = module, _annotation, True
    found: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name in ways}
    for _ in range(rounds):
        bare = {one: (_tight(one, calls), _cold(one, calls // 200)) for one in _BARE}
        for name, (module, tap, is_recorded) in ways.items():
            c_or_python_recorder.module = module
            with trl.scope.record(taps=False) if is_recorded else nullcontext():
                tap(1)
                took = _tight(tap, calls), _cold(tap, calls // 200)
            for k in range(2):
                beside = _nothing if tap is _annotation else operator.index
                found[name][k].append(took[k] - bare[beside][k])
    c_or_python_recorder.module = built
    return found


def _annotation(_: int) -> int:
    with trl.scope.operation("index"):
        return 1


def _nothing(_: int) -> int:
    return 1


_BARE: Final = (operator.index, _nothing)


def _tight(function: Callable[[int], int], calls: int) -> float:
    """Return the nanoseconds per call."""
    begun = thread_time_ns()
    for _ in range(calls):
        function(1)
    return (thread_time_ns() - begun) / calls


def _cold(function: Callable[[int], int], calls: int) -> float:
    """Return the median nanoseconds of some calls."""
    spent = []
    for _ in range(calls):
        _FAR.sum()
        begun = perf_counter_ns()
        function(1)
        spent.append(perf_counter_ns() - begun)
    return median(spent)


def _text(values: list[float]) -> str:
    first, middle, third = quantiles(values, n=4)
    return f"{middle:,.0f} ({first:,.0f} to {third:,.0f})"
