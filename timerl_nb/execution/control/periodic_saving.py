"""A run that saves its state now and then, between two turns, so that it can be resumed."""

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
    """How often a run saves: after so many turns, or seconds."""

    text: str
    turns: int | None = None
    seconds: float = 0.0

    @classmethod
    def parse(cls, given: Any) -> Every:
        """What is written as 10 or "5min".

        Raises:
            OptionError: it is neither.
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
            f"every={given!r} does not say how often.",
            hint='every=10 is after ten turns, every="5min" after five minutes ("30s", "2h").',
        )


class Saving:
    """Saves a run's state in a folder.

    Args:
        manifest: what is said of the run, which is not begun or was resumed.
        cuts: where it can be cut.

    Attributes:
        turn: how many turns are done.
    """

    def __init__(self, folder: RunFolder, manifest: Manifest, every: Every, cuts: Cuts) -> None:
        self._folder, self._manifest, self._every, self._cuts = folder, manifest, every, cuts
        self.turn = manifest.turn
        self._saved = manifest.turn, time.monotonic()
        self._run: RunProtocol | None = None

    def attach(self, run: RunProtocol) -> None:
        """Save this run."""
        self._run = run

    def on_turn(self, count: int = 1) -> None:
        """The run has made so many turns."""
        self.turn += count
        turn, then = self._saved
        now = time.monotonic()
        if now < then:  # the clock was put back: what went by since is not known
            self._saved = turn, now
        done = (self.turn - turn) if self._every.turns else now - then
        if done >= (self._every.turns or self._every.seconds):
            cut = self._cuts.cut_after(self.turn)
            if cut is not None:
                self._save(cut)

    def at_stop(self, turned: Callable[..., object]) -> Callable[..., object]:
        """`turned`, which may end the run: what is done by then is saved before it does."""

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
        """The run has ended."""
        self._save(None)

    def _save(self, cut: Cut | None) -> None:
        assert self._run is not None
        state = self._run.state(self.turn, cut, self._cuts.live(cut))
        names = self._cuts.plan.names
        lines = {names[tensor]: self._cuts.plan.origin(tensor).text for tensor in state.values}
        about = replace(self._manifest, turn=self.turn, cut=cut, lines=lines)
        self._manifest = self._folder.write(about, state.arrays(names))
        self._saved = self.turn, time.monotonic()


def each(*functions: Callable[..., object] | None) -> Callable[..., object] | None:
    """What calls functions one after the other; None for none."""
    some = [function for function in functions if function is not None]
    if len(some) < 2:
        return some[0] if some else None

    def run_both(*args: Any) -> None:
        for function in some:
            function(*args)

    return run_both
