"""Repeated switching of an explorer's options: memory is stable.

Messages arrive as from the page, and every trait is computed. The cache that makes switches fast is
bounded; the tries cycle through all switches.
"""

from __future__ import annotations

from typing import Final

from timerl_widgets import Explorer

import timerl_nb as trl
from tests.torture.growth import Growth
from tests.torture.progress import Progress

ABOUT: Final = "toggles of the explorer's options"
COUNT: Final = 200
MINUTES: Final = 20.0
SWITCHES: Final = ("fuse", "vectorize", "lift", "simplify", "rematerialize")
LONGEST: Final = 300.0  # seconds until a switch counts as hung


def explorer() -> Explorer:
    ctx = trl.algorithms.reinforce(hidden=(8,))
    return ctx.compile({"B": 4, "I": 5, "T": 20}).explore(ahead=False)


def run(progress: Progress) -> None:
    growth, shown = Growth(), explorer()
    given = shown.program.options
    for k in range(progress.count):
        if not progress.has_time:
            break
        wrong = toggle(shown, given, k)
        growth.add()
        if wrong or (k + 1 > progress.done and (k + 1 == progress.count or k % 10 == 9)):
            progress.done, progress.figures = k + 1, growth.figures()
            progress.wrong = [*growth.wrong, *wrong]
            progress.save()


def toggle(shown: Explorer, given: trl.Options, k: int) -> list[str]:
    """Switch an option off, or back; return failures."""
    name = SWITCHES[k // 2 % len(SWITCHES)]
    value = getattr(given, name) if k % 2 else False
    shown._handle_custom_msg({"kind": "options", "changes": {name: value}}, [])
    if not shown.wait(LONGEST):
        return [f"{name}={value} is not drawn after {LONGEST:.0f} s"]
    state = shown.status
    if state["state"] != "ready" or getattr(shown.program.options, name) != value:
        return [f"{name}={value}: {state}"]
    return [] if shown.get_state()["graph"]["json"] else [f"{name}={value} draws nothing"]
