"""Kernel stream: the kernels of a program in launch order."""

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
from timerl_nb.streams.simulator.gpu_constants import Gpu, by_name


def upstream_of(kernels: Sequence[Kernel]) -> tuple[tuple[int, ...], ...]:
    """Return, for each kernel, its upstream kernels; some dependences implied by others are
    omitted.
    """
    found = finder("auto")
    return tuple(tuple(slots(found.add(k, one))) for k, one in enumerate(kernels))


@dataclass(frozen=True, repr=False)
class Stream(Inspectable):
    """Kernels in launch order, from `trl.streams.record`, `load` or `workload`.

    Attributes:
        name: the name of the recorded function.
        kernels: the kernels.
        begin: a function called before every run, or None.
        result: a function that returns the results after a run; None if the kernels only write into buffers.

    Example:
        >>> stream = trl.streams.workload("ant")
        >>> stream.width > 1
        True
    """

    name: str
    kernels: tuple[Kernel, ...]
    begin: Callable[[], object] | None = field(default=None, compare=False)
    result: Callable[[], Any] | None = field(default=None, compare=False)

    def __len__(self) -> int:
        return len(self.kernels)

    @cached_property
    def edges(self) -> tuple[tuple[int, ...], ...]:
        """For each kernel, the positions of its upstream kernels. Some dependences implied by others
        are omitted.
        """
        return upstream_of(self.kernels)

    @cached_property
    def depths(self) -> tuple[int, ...]:
        """For each kernel, the length of the longest chain of dependences that ends with it."""
        depths: list[int] = []
        for upstream in self.edges:
            depths.append(1 + max((depths[u] for u in upstream), default=0))
        return tuple(depths)

    @property
    def width(self) -> float:
        """The number of kernels divided by the longest chain: the average number of kernels that can run
        concurrently.
        """
        return len(self.kernels) / max(self.depths, default=1)

    @explain_call_errors
    def run(self, how: str = "window", **options: Any) -> Report:
        """Run the kernels.

        Args:
            how: "serial", "window" or "graph" on threads; "stream-sync", "events" or "cuda-graph" on a GPU
                with PyTorch.
            options: as in `trl.streams.window`: `size`, `streams`, `deps`, …

        Returns:
            The report; `report.result` has the results of a recorded program or module.

        Raises:
            OptionError: the strategy is unknown.
            ExecutionError: a kernel fails, or has no code to run.
        """
        run = _find_strategy("run", how)
        if self.begin is not None:
            self.begin()
        report = run(self, **options)
        return report if self.result is None else replace(report, result=self.result())

    @explain_call_errors
    def simulate(
        self,
        how: str = "acs-sw",
        *,
        gpu: Gpu | str = "RTX3070",
        size: int = 32,
        streams: int = 8,
        scheduled: int = 48,
    ) -> Any:
        """Simulate the stream on a GPU model; no GPU is required.

        Args:
            how: "serial": one queue. "acs-sw": a window on the host with one thread per queue. "events": a
                window on the host that does not wait for kernels. "acs-hw": a window on the device. "graph":
                a graph built before the run. "persistent": one kernel whose threads execute the blocks of all
                kernels.
            gpu: a `Gpu`, or the name of a predefined one.
            size: the number of slots in the window.
            streams: the number of queues of "acs-sw" and "events".
            scheduled: the length of the host's list of kernels, M, in "acs-hw". The paper does not state it;
                its 4 KB (§IV-D) hold 34 kernels with 10 segments, or 57 with 6.

        Returns:
            The simulated times, a `Simulated`.

        Raises:
            OptionError: the strategy or the GPU is unknown, a block of a kernel exceeds a processor, or 8-bit
                identities are not enough.
        """
        simulation = _find_strategy("simulate", how)
        counts = {"the size of a window": size, "streams": streams, "scheduled": scheduled}
        checked = [integer(name, value, least=1) for name, value in counts.items()]
        return simulation(self, by_name(gpu), *checked).simulate(how)

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


def _find_strategy(verb: str, how: str) -> Any:
    strategies = entry_point("streams.strategies")[verb]
    if how not in strategies:
        raise OptionError(
            f"a stream has no strategy {how!r} for {verb}().", hint=one_of(how, tuple(strategies))
        )
    return strategies[how]
