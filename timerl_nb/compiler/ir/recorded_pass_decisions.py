"""Choices: what a pass could have done, what each way would cost, and why it took the one it took.

A forecast takes a trial: the rest of the passes, a schedule, a memory plan. Candidates that a pass
need not compare are forecast when somebody looks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from timerl_nb.base.display_registry import Inspectable
from timerl_nb.base.graphviz_text import FUSED, PLAIN, Dot
from timerl_nb.base.text_formatting import format_count


@dataclass(frozen=True)
class Forecast:
    """What a graph would cost as a program, under actual bounds.

    Attributes:
        peak: the greatest number of live device bytes.
        launches: how many statements run.
        seconds: by the cost model (`compiler/memory/budget/candidate_cost`); good for comparing, not for promising.
        swapped: bytes that move between device and host.
        beside: bytes that kernels need beside what is live.
        buffers: bytes of XLA's buffers; 0 where XLA runs none.
        is_lowered: XLA is to run it, so that its buffers are what it needs.
        each: bytes that each of several devices needs in all; 0 on one.
    """

    peak: int
    launches: int
    seconds: float
    swapped: int = 0
    beside: int = 0
    buffers: int = 0
    is_lowered: bool = False
    each: int = 0

    @property
    def needed(self) -> int:
        """Bytes of each device in all."""
        return self.laid_out if self.is_lowered else self.peak + self.beside

    @property
    def laid_out(self) -> int:
        """Device bytes in all, values in the buffers that XLA runs on; the interpreter needs none."""
        return self.each or max(self.peak, self.buffers) + self.beside

    def with_kernel_bytes(self, nbytes: int) -> Forecast:
        """The same forecast with more bytes for kernels, by XLA's figure."""
        each = self.each + nbytes if self.each else 0
        return replace(self, beside=self.beside + nbytes, each=each)

    def __str__(self) -> str:
        moved = f", {self.swapped:,} bytes swapped" if self.swapped else ""
        return f"peak {self.peak:,} bytes, {format_count(self.launches, 'launch', 'launches')}, {self.seconds:.3g} s{moved}"


class Candidate:
    """One way to go on, forecast when somebody first looks.

    Attributes:
        name: a short name.
        doc: what it is.
        change: by field, what a decision for it says that is not left to the passes.

    Args:
        known: the forecast, where it has been made.
    """

    def __init__(
        self,
        name: str,
        doc: str,
        change: tuple[tuple[str, Any], ...] = (),
        known: Forecast | str | None = None,
    ) -> None:
        self.name, self.doc, self.change = name, doc, change
        self._known = self._forecast = known
        self._ask: Ask | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return Candidate, (self.name, self.doc, self.change, self._known)

    def with_forecast_source(self, ask: Ask) -> Candidate:
        """The same candidate, whose forecast is asked for where it is not known."""
        made = Candidate(self.name, self.doc, self.change, self._known)
        made._ask = ask
        return made

    @property
    def forecast(self) -> Forecast | str:
        """The cost; a text if no schedule exists."""
        if self._forecast is None:
            assert self._ask is not None
            self._forecast = self._ask(self)
        return self._forecast

    @property
    def is_forecast(self) -> bool:
        """Whether the forecast has been made."""
        return self._forecast is not None

    def __str__(self) -> str:
        return f"{self.name} ({self.doc}): {self.forecast}"

    __repr__ = __str__


# The forecast of a candidate, or why there is none.
Ask = Callable[[Candidate], Forecast | str]


class PassChoice(Inspectable):
    """The ways that a pass could take at one place, and the one that it took.

    Attributes:
        what: the place, such as "vectorize over t".
        taken: the candidate that was taken.
        why: the reason.
    """

    def __init__(
        self, what: str, candidates: tuple[Candidate, ...], taken: Candidate, why: str
    ) -> None:
        self.what, self.candidates, self.taken, self.why = what, candidates, taken, why

    def with_forecast_source(self, ask: Ask) -> PassChoice:
        """The same choice between candidates whose forecasts are asked for."""
        made = tuple(one.with_forecast_source(ask) for one in self.candidates)
        return PassChoice(self.what, made, made[self.candidates.index(self.taken)], self.why)

    def __getitem__(self, name: str) -> Candidate:
        """The candidate of that name."""
        for candidate in self.candidates:
            if candidate.name == name:
                return candidate
        raise KeyError(name)

    # --- how it shows itself ---------------------------------------------------------------------

    def __str__(self) -> str:
        lines = [f"{self.what}: {self.taken.name}, because {self.why}"]
        lines += [f"{'*' if c is self.taken else ' '} {c}" for c in self.candidates]
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        return {
            "stage": "choice",
            "what": self.what,
            "taken": self.taken.name,
            "why": self.why,
            "candidates": [
                {"name": c.name, "doc": c.doc, **_json(c.forecast)} for c in self.candidates
            ],
        }

    def to_dot(self) -> str:
        graph = Dot("choice")
        graph.node("what", self.what)
        for k, candidate in enumerate(self.candidates):
            fill = FUSED if candidate is self.taken else PLAIN
            graph.node(f"c{k}", f"{candidate.name}\n{candidate.forecast}", fill=fill)
            graph.edge("what", f"c{k}")
        return str(graph)


def _json(forecast: Forecast | str) -> dict[str, Any]:
    if isinstance(forecast, str):
        return {"problem": forecast}
    return {
        "peak": forecast.peak,
        "launches": forecast.launches,
        "seconds": forecast.seconds,
        "swapped": forecast.swapped,
        "beside": forecast.beside,
        "buffers": forecast.buffers,
    }
