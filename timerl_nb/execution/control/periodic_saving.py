"""Periodic saving of a run's state between two iterations, for a later resumption."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

from timerl_nb.base.errors import OptionError
from timerl_nb.compiler.loops.iteration_cuts import Cut, Cuts
from timerl_nb.execution.control.pause_and_stop import Stopped
from timerl_nb.runtime.run_protocol import RunProtocol
from timerl_nb.runtime.state.run_folder import Manifest, RunFolder

_SECONDS: Final = {"s": 1, "min": 60, "h": 3600}


@dataclass(frozen=True)
class Every:
    """Saving interval, in iterations of the outermost loop or in seconds."""

    text: str
    turns: int | None = None
    seconds: float = 0.0

    @classmethod
    def parse(cls, given: Any) -> Every:
        """Parse an interval such as `10` (iterations) or `"5min"`.

        Raises:
            OptionError: The value has another form.
        """
        if isinstance(given, int) and not isinstance(given, bool) and given > 0:
            return cls(str(given), turns=given)
        if isinstance(given, str):
            if given.isdecimal() and int(given):
                return cls(given, turns=int(given))
            found = re.fullmatch(r"(\d+(?:\.\d+)?) ?(s|min|h)", given)
            if found and (seconds := float(found[1]) * _SECONDS[found[2]]):
                return cls(given, seconds=seconds)
        raise OptionError(
            f"every={given!r} is not an interval.",
            hint='pass every=10 for ten turns, or every="5min" for five minutes ("30s", "2h").',
        )


class Saving:
    """Saves the state of a run in a folder.

    Args:
        folder: The folder.
        manifest: Description of the run: new, or as read from the folder when the run is resumed.
        every: Saving interval.
        cuts: Points of the loop nest for saving a run.

    Attributes:
        turn: Number of completed iterations.
    """

    def __init__(self, folder: RunFolder, manifest: Manifest, every: Every, cuts: Cuts) -> None:
        self._folder, self._manifest, self._every, self._cuts = folder, manifest, every, cuts
        self.turn = manifest.turn
        self._saved = manifest.turn, time.monotonic()
        self._run: RunProtocol | None = None
        self._extendable = cuts.last_extendable_turn

    def attach(self, run: RunProtocol) -> None:
        """Set the run to save."""
        self._run = run

    def on_turn(self, count: int = 1) -> None:
        """Count completed iterations, and save if the interval is over.

        The last state that a run of more iterations can continue from is always saved.
        """
        self.turn += count
        turn, then = self._saved
        now = time.monotonic()
        if now < then:  # the clock was set back, so the elapsed time is unknown
            self._saved = turn, now
        done = (self.turn - turn) if self._every.turns else now - then
        is_last = self.turn <= self._extendable < self.turn + count
        if is_last or done >= (self._every.turns or self._every.seconds):
            cut = self._cuts.cut_after(self.turn)
            if cut is not None:
                self._save(cut)

    def at_stop(self, turned: Callable[..., object]) -> Callable[..., object]:
        """Wrap `turned` to save unsaved iterations before it stops the run."""

        def on_turn(count: int = 1) -> None:
            try:
                turned(count)
            except Stopped:
                cut = self._cuts.cut_after(self.turn)
                if cut is not None and self.turn > self._saved[0]:
                    self._save(cut)
                raise

        return on_turn

    def finish(self) -> None:
        """Save the final state."""
        self._save(None)

    def _save(self, cut: Cut | None) -> None:
        assert self._run is not None
        state = self._run.state(self.turn, cut, self._cuts.live(cut))
        names = self._cuts.plan.names
        lines = {names[tensor]: self._cuts.plan.origin(tensor).text for tensor in state.values}
        about = replace(self._manifest, turn=self.turn, cut=cut, lines=lines)
        before = self._manifest
        if self.turn <= self._extendable:
            about = replace(about, extendable=None)
        elif before.state and before.turn <= self._extendable:
            about = replace(about, extendable=before.extendable_part)
        self._manifest = self._folder.write(about, state.arrays(names))
        self._saved = self.turn, time.monotonic()


def each(*functions: Callable[..., object] | None) -> Callable[..., object] | None:
    """Combine functions into one that calls them in order; None if there are none."""
    some = [function for function in functions if function is not None]
    if len(some) < 2:
        return some[0] if some else None

    def run_both(*args: Any) -> None:
        for function in some:
            function(*args)

    return run_both
