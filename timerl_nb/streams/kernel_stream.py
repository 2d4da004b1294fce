"""A stream: kernels in the order in which a program launches them, a value like every other artifact."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from timerl_nb.base.display_registry import Inspectable
from timerl_nb.base.entry_points import entry_point
from timerl_nb.base.errors import OptionError, one_of
from timerl_nb.base.graphviz_text import Dot
from timerl_nb.base.text_formatting import format_count
from timerl_nb.compiler.language.argument_checks import integer
from timerl_nb.compiler.language.foreign_names import explain_call_errors
from timerl_nb.streams.dependence_analysis import finder, slots
from timerl_nb.streams.kernel_declaration import Kernel
from timerl_nb.streams.run_report import Report
from timerl_nb.streams.simulator.gpu_constants import RTX3070, Gpu, by_name


def upstream_of(kernels: Sequence[Kernel]) -> tuple[tuple[int, ...], ...]:
    """For each kernel those before it that it waits for, but for some that are waited for by way of others."""
    found = finder("auto")
    return tuple(tuple(slots(found.add(k, one))) for k, one in enumerate(kernels))


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

    @explain_call_errors
    def run(self, how: str = "window", **options: Any) -> Report:
        """Run the kernels.

        Raises:
            OptionError: there is no such way.
        """
        run = _way("run", how)
        if self.begin is not None:
            self.begin()
        report = run(self, **options)
        return report if self.result is None else replace(report, result=self.result())

    @explain_call_errors
    def simulate(
        self,
        how: str = "acs-sw",
        *,
        gpu: Gpu | str = RTX3070,
        size: int = 32,
        streams: int = 8,
        scheduled: int = 48,
    ) -> Any:
        """What the kernels would take on a GPU, which need not be there: a `Simulated`.

        Args:
            how: "serial": one queue; "acs-sw": a window on the host, with a thread for each queue; "events": a
                window on the host that waits for no kernel; "acs-hw": a window on the device; "graph": all of it
                constructed ahead; "persistent": one kernel whose threads take the blocks of all.
            gpu: of `GPUS`, by name, or a `Gpu`.
            size: of the window, kernels that are looked at at once.
            streams: queues, of "acs-sw" and "events".
            scheduled: kernels in the host's list, M, of "acs-hw". The paper does not say how many; 4 KB (section IV-D)
                hold 34 kernels of 10 segments, or 57 of 6.

        Raises:
            OptionError: there is no such way or GPU, a kernel's block does not fit a processor, or 8 bits do not tell
                so many kernels apart.
        """
        course = _way("simulate", how)
        counts = {"the size of a window": size, "streams": streams, "scheduled": scheduled}
        checked = [integer(name, value, least=1) for name, value in counts.items()]
        return course(self, by_name(gpu), *checked).simulate(how)

    def __str__(self) -> str:
        chain = max(self.depths, default=0)
        lines = [
            f"{self.name}: {format_count(len(self), 'kernel')}, longest chain {chain}, width {self.width:.2f}"
        ]
        for k, (one, upstream) in enumerate(zip(self.kernels, self.edges, strict=True)):
            after = f" after {', '.join(map(str, upstream))}" if upstream else ""
            lines.append(f"{k:5} {one}{after}")
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        kernels = zip(self.kernels, self.edges, strict=True)
        return {"name": self.name, "kernels": [{**k.to_json(), "upstream": u} for k, u in kernels]}

    def to_svg(self) -> str:
        return entry_point("streams.layout")(self.to_dot())

    def to_dot(self) -> str:
        dot = Dot(self.name, many=len(self) > 300)
        for k, (one, upstream) in enumerate(zip(self.kernels, self.edges, strict=True)):
            dot.node(str(k), f"{k} {one.name}")
            for u in upstream:
                dot.edge(str(u), str(k))
        return str(dot)


def _way(verb: str, how: str) -> Any:
    ways = entry_point("streams.ways")[verb]
    if how not in ways:
        raise OptionError(f"a stream does not {verb} by {how!r}.", hint=one_of(how, tuple(ways)))
    return ways[how]
