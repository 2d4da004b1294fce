"""Recorded decisions of passes: the candidates, their estimated costs, and the reason for the choice.

A forecast needs a trial: the remaining passes, a schedule, and a memory plan. Candidates that a pass need
not compare are forecast on request.
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
    """Estimated cost of a graph as a program under actual bounds.

    Attributes:
        peak: the largest number of live device bytes.
        launches: the number of executed statements.
        seconds: by the cost model (`compiler/memory/budget/candidate_cost`), for comparisons only.
        swapped: bytes moved between device and host.
        beside: bytes of kernels in addition to live values.
        buffers: bytes of XLA's buffers; 0 without XLA.
        is_lowered: whether XLA runs the graph, so that its buffers count.
        each: bytes of each device among several; 0 for a single device.
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
        """The total bytes of each device."""
        return self.laid_out if self.is_lowered else self.peak + self.beside

    @property
    def laid_out(self) -> int:
        """The total device bytes with XLA's buffers; the interpreter has no buffers."""
        return self.each or max(self.peak, self.buffers) + self.beside

    def with_kernel_bytes(self, nbytes: int) -> Forecast:
        """Return the forecast with more bytes for kernels, by XLA's figure."""
        each = self.each + nbytes if self.each else 0
        return replace(self, beside=self.beside + nbytes, each=each)

    def __str__(self) -> str:
        moved = f", {self.swapped:,} bytes swapped" if self.swapped else ""
        return f"peak {self.peak:,} bytes, {format_count(self.launches, 'launch', 'launches')}, {self.seconds:.3g} s{moved}"


class Candidate:
    """One candidate of a decision, forecast on first request.

    Attributes:
        name: a short name.
        doc: a description.
        change: fields of a `Decision` that select the candidate.

    Args:
        known: the forecast, if it exists.
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
        """Return the same candidate with a source for a missing forecast."""
        made = Candidate(self.name, self.doc, self.change, self._known)
        made._ask = ask
        return made

    @property
    def forecast(self) -> Forecast | str:
        """The cost, or the reason why there is none."""
        if self._forecast is None:
            assert self._ask is not None
            self._forecast = self._ask(self)
        return self._forecast

    @property
    def is_forecast(self) -> bool:
        """Whether the forecast exists."""
        return self._forecast is not None

    def __str__(self) -> str:
        return f"{self.name} ({self.doc}): {self.forecast}"

    __repr__ = __str__


# The forecast of a candidate, or the reason why there is none.
Ask = Callable[[Candidate], Forecast | str]


class PassChoice(Inspectable):
    """A decision of a pass, with all candidates.

    Attributes:
        what: the decision, such as "vectorize over t".
        taken: the chosen candidate.
        why: the reason.
    """

    def __init__(
        self, what: str, candidates: tuple[Candidate, ...], taken: Candidate, why: str
    ) -> None:
        self.what, self.candidates, self.taken, self.why = what, candidates, taken, why

    def with_forecast_source(self, ask: Ask) -> PassChoice:
        """Return the same decision with a source for missing forecasts."""
        made = tuple(one.with_forecast_source(ask) for one in self.candidates)
        return PassChoice(self.what, made, made[self.candidates.index(self.taken)], self.why)

    def __getitem__(self, name: str) -> Candidate:
        """Return the candidate with that name."""
        for candidate in self.candidates:
            if candidate.name == name:
                return candidate
        raise KeyError(name)

    # --- display ---------------------------------------------------------------------------------

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
