"""Colours of operations and tensors, equal in all views and figures."""

from __future__ import annotations

from collections.abc import Mapping

from timerl_nb.compiler.memory.memory_plan import MemoryPlan
from timerl_nb.compiler.scheduling.schedule_artifact import Schedule

# Palette of Okabe and Ito, for all kinds of colour vision.
SERIES = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#B8A800", "#777777")
GREY = SERIES[-1]
# Other hues for tensors than for operations (palette of Tol, also for all kinds of colour vision). Its darkest and its
# lightest colours are moved towards the middle, to be visible on dark and light backgrounds.
TENSORS = ("#5A4AC4", "#44AA99", "#CC6677", "#999933", "#A03A6C")
TENSORS += ("#117733", "#BFA73A", "#AA4499", "#9C3A20", "#6699CC")

Numbers = Mapping[str, int]


def of_statements(*schedules: Schedule) -> Numbers:
    """Assign a number to each statement name; statements of earlier schedules keep their numbers."""
    return _numbers([sorted(one.statements) for one in schedules])


def of_tensors(*plans: MemoryPlan) -> Numbers:
    """Assign a number to each tensor name, in descending order of stored bytes."""
    stores = [
        sorted(one.stores.values(), key=lambda store: (-store.most * store.unit, store.name))
        for one in plans
    ]
    return _numbers([[store.name for store in ones] for ones in stores])


def operation_colour(k: int) -> str:
    return SERIES[k % (len(SERIES) - 1)]  # the last one is grey


def lighten_colour(colour: str) -> str:
    """Blend a colour with white, one third to two thirds, as a background for dark text."""
    parts = (int(colour[k : k + 2], 16) for k in (1, 3, 5))
    return "#" + "".join(f"{255 - (255 - x) // 3:02x}" for x in parts)


def tensor_colour(k: int) -> str:
    return TENSORS[k % len(TENSORS)]


def _numbers(names: list[list[str]]) -> Numbers:
    return {name: k for k, name in enumerate(dict.fromkeys(n for part in names for n in part))}
