"""Cost of the interpreter compared with one jitted call per statement.

Three programs alternate in one process. The first is the interpreter. *statements* is a Python loop
nest with a jitted call per statement, on the buffers of the lowered program, with donated outputs.
*bare* repeats the interpreter's kernel calls with operands recorded from a run. It does no
bookkeeping and emits no events, so it is a lower bound for *statements*.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterable, Sequence
from statistics import median
from typing import Any

import jax
import jax.numpy as jnp

import timerl_nb as trl
from benchmarks.compiler.compiling import compiled
from benchmarks.compiler.interpreter import Recording, whole
from timerl_nb.compiler.loops.loop_nodes import Execute, If, Loop, Node
from timerl_nb.compiler.symbolic.expression_evaluation import python_source
from timerl_nb.driver.program import Program
from timerl_nb.runtime.executable import Executable
from timerl_nb.runtime.jax_backend import arrays_and_devices as backend
from timerl_nb.runtime.xla.lowering.host_regions import (
    Call,
    HostControlFlow,
    Part,
    Regions,
    _Draft,
    _flat,
)
from timerl_nb.runtime.xla.lowering.lowered_program import Lowered

STEPS = 2_000
COUNTS = (1, 8, 40)


class ByStatement(Regions):
    """One call per statement and per reset of a sum; the host runs the loops."""

    def _has_host_work(self, node: Node) -> bool:
        return isinstance(node, Loop | If) or super()._has_host_work(node)

    def _draft_calls(self, nodes: Iterable[Node], counters: tuple[str, ...]) -> list[Any]:
        return [
            node if self._has_host_work(node) else _Draft(nodes=[node], closed=True)
            for node in _flat(nodes)
            if isinstance(node, Execute | Loop | If) or self._flow.writes(node)
        ]


class Statements:
    """Python program that runs a lowered program statement by statement."""

    def __init__(self, executable: Executable) -> None:
        plan = executable.plan
        self._lowered = lowered = Lowered(executable.ast, plan, executable.kernels)
        self._lowering = lowered._lowering
        self._lowering._loops = 1  # inside a loop, unless random bits are made in it
        self._space: dict[str, Any] = {"seed": backend.seed_words(0)}
        regions = ByStatement(executable.ast.root, plan.pdg, lowered.flow)
        self.calls = regions.calls
        names = {*lowered.layout.buffers, *lowered.arrays()}
        made = {**{n: lowered.fresh_buffer(n) for n in lowered.layout.buffers}, **lowered.arrays()}
        self._space["fresh"] = jax.jit(
            lambda: {n: jnp.copy(made[n]) for n in names if made[n].size}
        )
        lines = ["def program():", "    new = fresh()"]
        lines += [f"    {_variable(n)} = new[{n!r}]" for n in sorted(names)]
        self._write(regions.parts, lines, "    ")
        exec("\n".join([*lines, f"    return {self._last}"]), self._space)
        self.run: Callable[[], Any] = self._space["program"]

    def _write(self, parts: Sequence[Part], lines: list[str], pad: str) -> None:
        for part in parts:
            if isinstance(part, Call):
                lines.append(pad + self._call(part))
                continue
            assert isinstance(part, HostControlFlow)
            node = part.node
            if isinstance(node, Loop):
                ends = python_source(node.first), f"{python_source(node.last)} + 1", str(node.step)
                lines.append(f"{pad}for {node.counter} in range({', '.join(ends)}):")
            else:
                assert isinstance(node, If)
                lines.append(f"{pad}if {python_source(node.cond)}:")
            self._write(part.parts, lines, pad + "    ")
            lines.append(f"{pad}    pass")
            if part.other:
                lines.append(f"{pad}else:")
                self._write(part.other, lines, pad + "    ")

    def _call(self, call: Call) -> str:
        changed, made = sorted(call.changed), sorted(call.made)
        constant = [*sorted(call.constant), *sorted(self._lowering.arrays.values())]

        def function(taken: Any, looked: Any, seed: Any, counters: Any) -> tuple[Any, ...]:
            state = dict(zip([*constant, *changed], [*looked, *taken], strict=True))
            env = dict(zip(call.counters, counters, strict=True))
            self._lowering.run(call.node, state, env, seed)
            return tuple(state[n] if n in state else self._lowering.fresh_buffer(n) for n in made)

        self._space[f"call_{call.number}"] = jax.jit(function, donate_argnums=0)
        taken, looked, given = map(_tuple, (changed, constant, made))
        self._last = _variable(made[-1])
        at = "".join(f"{c}, " for c in call.counters)
        return f"{given} = call_{call.number}({taken}, {looked}, seed, ({at}))"


def _variable(name: str) -> str:
    return "b_" + name.replace(" ", "_")


def _tuple(names: Sequence[str]) -> str:
    return f"({''.join(_variable(n) + ', ' for n in names)})"


def recurrences(count: int) -> Program:
    """Return a chain of vectors, each computed from the previous one, in one kernel."""
    with trl.Context("t") as ctx:
        ((t, T),) = ctx.dims
        for k in range(count):
            x = trl.like(trl.full((4,), float(k)), domain=(t,))
            x[0] = trl.full((4,), float(k))
            x[t + 1] = x[t] * 0.5 + 1.0
            ctx.output(f"x{k}", x[T - 1].sum())
    options = trl.Options(lift=False, vectorize=False, executor="interpret")
    return ctx.compile({T: STEPS}, options)


def timed(work: Callable[[], Any]) -> float:
    """Return CPU seconds until all started work is complete."""
    gc.collect()
    start = time.process_time()
    jax.block_until_ready(work())
    return time.process_time() - start


def measure(program: Program, repeats: int) -> dict[str, str]:
    executable = program.executable
    recording, statements = Recording(executable), Statements(executable)
    ways: dict[str, Callable[[], Any]] = {
        "interpreter": lambda: whole(executable),
        "statements": statements.run,
        "bare": recording.bare,
    }
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(repeats + 2):
        for name, run in ways.items():
            times[name].append(timed(run) / recording.count * 1e6)
    found = {f"{name}, µs of CPU a launch": f"{median(t[2:]):.1f}" for name, t in times.items()}
    pairs = zip(times["statements"][2:], times["interpreter"][2:], strict=True)
    return {
        "launches": f"{recording.count:,}",
        "buffers changed by a call, at most": str(max(len(c.changed) for c in statements.calls)),
        **found,
        "statements / interpreter": f"{median(a / b for a, b in pairs):.2f}",
    }


def main(repeats: int = 10) -> None:
    """Print medians over repeats."""
    programs = {f"{n} recurrences": recurrences(n) for n in COUNTS}
    programs |= {n: compiled(n).with_bounds({"I": 5}) for n in ("Monte Carlo", "5-step")}
    found = {name: measure(program, repeats) for name, program in programs.items()}
    print(f"| a statement a call, {repeats} runs | {' | '.join(found)} |")
    print("|---" * (len(found) + 1) + "|")
    for title in found["Monte Carlo"]:
        print(f"| {title} | {' | '.join(values[title] for values in found.values())} |")
