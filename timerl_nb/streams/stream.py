"""A stream: kernels in the order in which a program launches them, a value like every other artifact."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from timerl_nb.dot import Dot
from timerl_nb.entry_points import entry_point
from timerl_nb.errors import OptionError, one_of
from timerl_nb.frontend.foreign import asked
from timerl_nb.inspectable import Inspectable
from timerl_nb.streams.dependences import finder
from timerl_nb.streams.kernels import Kernel
from timerl_nb.streams.report import Report
from timerl_nb.streams.scheduling_window import slots


def upstream_of(kernels: Sequence[Kernel]) -> tuple[tuple[int, ...], ...]:
    """For each kernel those before it that it waits for, but for some that are waited for by way of others."""
    found = finder("auto")
    return tuple(tuple(slots(found.add(k, one))) for k, one in enumerate(kernels))


Runner = Callable[..., Any]
_RUNNERS: dict[str, Runner] = {}
_SIMULATORS: dict[str, Runner] = {}


def runs(how: str) -> Callable[[Runner], Runner]:
    """Let a function of a stream be a way to run it."""
    return lambda function: _RUNNERS.setdefault(how, function)


def simulates(how: str) -> Callable[[Runner], Runner]:
    """Let a function of a stream and `gpu` be a way to simulate it."""
    return lambda function: _SIMULATORS.setdefault(how, function)


@dataclass(frozen=True, repr=False)
class Stream(Inspectable):
    """Kernels in order.

    Attributes:
        begin: is called ahead of every run, if anything has to be.
        result: what they have computed, after a run; None where they only write into buffers.
    """

    name: str
    kernels: tuple[Kernel, ...]
    begin: Callable[[], object] | None = field(default=None, compare=False)
    result: Callable[[], Any] | None = field(default=None, compare=False)

    def __len__(self) -> int:
        return len(self.kernels)

    @cached_property
    def edges(self) -> tuple[tuple[int, ...], ...]:
        """For each kernel those that it waits for, by their place in the stream; who is waited for by way of another
        may be missing."""
        return upstream_of(self.kernels)

    @cached_property
    def depths(self) -> tuple[int, ...]:
        """Of each kernel, how many run one after the other up to it, and with it."""
        depths: list[int] = []
        for upstream in self.edges:
            depths.append(1 + max((depths[u] for u in upstream), default=0))
        return tuple(depths)

    @property
    def width(self) -> float:
        """Kernels over the longest chain of them: how many could run at once, on average."""
        return len(self.kernels) / max(self.depths, default=1)

    @asked
    def run(self, how: str = "window", **options: Any) -> Report:
        """Run the kernels.

        Raises:
            OptionError: there is no such way.
        """
        run = _one("run", _RUNNERS, how)
        if self.begin is not None:
            self.begin()
        report = run(self, **options)
        return report if self.result is None else replace(report, result=self.result())

    @asked
    def simulate(self, how: str = "acs-sw", **options: Any) -> Any:
        """Simulate the kernels on a GPU, which need not be there.

        Raises:
            OptionError: there is no such way.
        """
        return _one("simulate", _SIMULATORS, how)(self, how, **options)

    def __str__(self) -> str:
        chain = max(self.depths, default=0)
        lines = [f"{self.name}: {len(self)} kernels, longest chain {chain}, width {self.width:.2f}"]
        for k, (one, upstream) in enumerate(zip(self.kernels, self.edges, strict=True)):
            after = f" after {', '.join(map(str, upstream))}" if upstream else ""
            lines.append(f"{k:5} {one}{after}")
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        kernels = zip(self.kernels, self.edges, strict=True)
        return {"name": self.name, "kernels": [{**k.to_json(), "upstream": u} for k, u in kernels]}

    def to_svg(self) -> str:
        return entry_point("streams.picture")(self)

    def to_dot(self) -> str:
        dot = Dot(self.name, many=len(self) > 300)
        for k, (one, upstream) in enumerate(zip(self.kernels, self.edges, strict=True)):
            dot.node(str(k), f"{k} {one.name}")
            for u in upstream:
                dot.edge(str(u), str(k))
        return str(dot)


def _one(what: str, ways: Mapping[str, Runner], how: str) -> Runner:
    if how not in ways:
        raise OptionError(f"a stream does not {what} by {how!r}.", hint=one_of(how, tuple(ways)))
    return ways[how]
