"""Extension of phases to the threads started and the tasks submitted in them.

A phase covers such a thread or task until the phase ends in its own thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from timerl_nb.base.array_conversion import Array
from timerl_nb.scope.analysis.blocked_time import insert_edges
from timerl_nb.scope.analysis.stack_frames import frames
from timerl_nb.scope.analysis.thread_timelines import Lane
from timerl_nb.scope.storage.event_format import EDGE, INHERITED, NAME_MASK, Kind

_Open = tuple[int, int]  # name of a phase, and its end
_SAID: Final = (Kind.PHASE_ENTER, Kind.PHASE_EXIT, Kind.TAKES)


def with_phases(lanes: Sequence[Lane]) -> list[Lane]:
    """Return the timelines, with phases extended to the threads and tasks started in them."""
    found = list(lanes)
    # by process and number: index of the timeline, time
    handed: dict[tuple[int, int], tuple[int, int]] = {}
    for k, lane in enumerate(lanes):
        for ts, number, _, _ in lane.edges[lane.edges["kind"] == Kind.HANDS].tolist():
            handed[lane.process, number] = k, ts
    done, active = set[int](), set[int]()

    def resolve(k: int) -> Lane:
        """Return a timeline after its parent timelines are done."""
        if k in done or k in active:
            return found[k]
        active.add(k)
        taken = found[k].edges[found[k].edges["kind"] == Kind.TAKES]
        sources: dict[int, Sequence[_Open]] = {}
        for number in np.unique(taken["top"]).tolist():
            source = handed.get((found[k].process, number))
            if source is not None:
                sources[number] = _open_at(resolve(source[0]), source[1])
        if any(sources.values()):
            found[k] = _inherit_phases(found[k], sources)
        active.discard(k)
        done.add(k)
        return found[k]

    for k in range(len(found)):
        resolve(k)
    return found


def _open_at(lane: Lane, ts: int) -> Sequence[_Open]:
    """Return the open phases of a timeline at a time, outermost first."""
    made = frames(lane, "phase")
    here = np.flatnonzero((made.begin <= ts) & (ts < made.end))
    here = here[np.argsort(made.depth[here], kind="stable")]
    return [(int(made.top[k]) & NAME_MASK, int(made.end[k])) for k in here]


def _inherit_phases(lane: Lane, sources: dict[int, Sequence[_Open]]) -> Lane:
    """Return a timeline with the phases of its parents.

    Args:
        lane: the timeline.
        sources: open phases of the parent, by number of the thread or task.
    """
    edges = lane.edges.copy()
    own: list[int] = []  # `top` values of its own phases
    given: list[_Open] = []
    made, place = list[tuple[int, int, int, int]](), list[int]()

    def add(k: int, ts: int, top: int, kind: Kind, depth: int) -> None:
        made.append((ts, top, kind, depth))
        place.append(k)

    def close(k: int, until: int, *, every: bool = False) -> None:
        """End the inherited phases with an end up to `until`, or every one, before event `k`."""
        while given and not own and (every or given[-1][1] <= until):
            _, end = given.pop()
            ts = until if every else max(end, int(edges["ts"][k - 1]))
            add(k, ts, given[-1][0] | INHERITED if given else 0, Kind.PHASE_EXIT, len(given))

    for k in np.flatnonzero(np.isin(edges["kind"], _SAID)).tolist():
        ts, top, kind = int(edges["ts"][k]), int(edges["top"][k]), int(edges["kind"][k])
        if given and not own:
            # inherited phases may end between these events, at a separate position
            while given and given[-1][1] <= ts:
                at = int(np.searchsorted(edges["ts"], given[-1][1], side="right"))
                close(max(1, min(at, k)), given[-1][1])
        if kind == Kind.TAKES:
            close(k, ts, every=True)
            if not own:
                for name, end in sources.get(top, ()):
                    if end > ts:
                        given.append((name, end))
                        add(k + 1, ts, name | INHERITED, Kind.PHASE_ENTER, len(given))
        elif kind == Kind.PHASE_ENTER:
            own.append(top)
            edges["depth"][k] = min(len(given) + len(own), 0xFFFF)
        else:
            if own:
                own.pop()
            under = own[-1] if own else given[-1][0] | INHERITED if given else 0
            edges["top"][k], edges["depth"][k] = under, min(len(given) + len(own), 0xFFFF)
            while given and not own and given[-1][1] <= ts:
                _, _ = given.pop()
                add(
                    k + 1, ts, given[-1][0] | INHERITED if given else 0, Kind.PHASE_EXIT, len(given)
                )
    while given and not own and given[-1][1] < lane.end:
        at = int(np.searchsorted(edges["ts"], given[-1][1], side="right"))
        close(max(1, at), given[-1][1])
    order = np.argsort(np.array(place), kind="stable")
    rows: Array = np.array(made, EDGE)[order]
    return insert_edges(replace(lane, edges=edges), np.array(place, np.int64)[order], rows)
