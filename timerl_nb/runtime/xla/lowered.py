"""A program lowered to XLA: its buffers, and the jitted functions that it runs as.

A loop that contains loops (iterations, as a rule) is one call a turn, or one for every `fuse` turns; all
that stands between such loops is one call. Buffers that a call changes are donated to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
from jax import lax

from timerl_nb.ir.attrs import BoundAttrs
from timerl_nb.ir.ops import DataflowAttrs
from timerl_nb.loops.nodes import Ast, Execute, Fetch, Loop, Node, Offload, Sequence, children
from timerl_nb.memory.plan import MemoryPlan
from timerl_nb.runtime.backends import jax as backend
from timerl_nb.runtime.kernel import Kernel
from timerl_nb.runtime.xla.flow import Flow, Names
from timerl_nb.runtime.xla.lower import Lowering, State
from timerl_nb.runtime.xla.places import Buffer, Places
from timerl_nb.runtime.xla.shards import Shards

# Boxes of point maps may make the buffers larger than the planned peak: up to this many times and bytes.
_LARGER, _MORE = 2, 64 << 20


@dataclass(frozen=True)
class Call:
    """A part of the loop nest that runs as one jitted function.

    Attributes:
        node: what it runs; of a loop, one turn or several.
        changed, constant: the buffers that it takes, donated and as they are.
        made: the buffers that it returns.
    """

    node: Node
    changed: Names
    constant: Names
    made: Names

    @property
    def loop(self) -> Loop | None:
        """The loop of which each call is one turn, or several; None where all is one call."""
        return self.node if isinstance(self.node, Loop) and _is_repeated(self.node) else None


class Lowered:
    """The whole loop nest as XLA programs."""

    def __init__(
        self,
        ast: Ast,
        plan: MemoryPlan,
        kernels: Mapping[int, Kernel],
        fuse: int = 1,
        devices: int = 1,
    ) -> None:
        self.ast, self.plan, self.kernels, self.fuse = ast, plan, kernels, fuse
        self.places = Places(plan)
        self.flow = Flow(ast.root, plan, self.places)
        buffers = self.places.buffers.values()
        self.shards = Shards(plan, buffers, devices) if devices > 1 else None
        self._lowering = Lowering(ast, plan, kernels, self.places, self.flow, self.shards)

    @property
    def nbytes(self) -> int:
        """The bytes of all buffers."""
        return sum(buffer.nbytes for buffer in self.places.buffers.values())

    @property
    def nbytes_each(self) -> int:
        """The bytes of buffers that one device holds."""
        shards, buffers = self.shards, self.places.buffers.values()
        return self.nbytes if shards is None else sum(map(shards.nbytes, buffers))

    @cached_property
    def calls(self) -> tuple[Call, ...]:
        """The functions, in the order in which they run."""
        root = self.ast.root
        parts = root.parts if isinstance(root, Sequence) else (root,)
        groups: list[list[Node]] = []
        alone = False
        for part in parts:
            repeated = _is_repeated(part)
            if repeated or alone or not groups:
                groups.append([])
            groups[-1].append(part)
            alone = repeated
        found: list[Call] = []
        after = self.flow.after
        for group in reversed(groups):
            node = group[0] if len(group) == 1 else Sequence(tuple(group))
            before = self.flow.before(group[0])
            writes = frozenset(name for part in group for name in self.flow.writes(part))
            kept = writes & (after | before)
            if _is_repeated(node):
                assert isinstance(node, Loop)
                kept = self.flow.carried(node)
                taken = kept
            else:
                taken = kept & before
            found.append(Call(node, taken, before - taken, kept))
            after = before
        return tuple(reversed(found))

    @cached_property
    def functions(self) -> tuple[Callable[..., Any], ...]:
        """A jitted function per call: (changed, constant, seed[, counter, turns]) -> buffers made."""
        return tuple(self._function(call) for call in self.calls)

    def _function(self, call: Call) -> Callable[..., Any]:
        def run(node: Node, state: State, env: Mapping[str, Any], seed: Any) -> State:
            self._lowering.run(node, state, env, seed)
            return {n: state[n] if n in state else self._lowering.fresh(n) for n in call.made}

        loop = call.loop
        placed = self._placements(call.made)
        if loop is None:
            return jax.jit(
                lambda changed, constant, seed: run(call.node, {**constant, **changed}, {}, seed),
                donate_argnums=0,
                out_shardings=placed,
            )

        def turn(changed: State, constant: State, seed: Any, counter: Any) -> State:
            env = {loop.counter: counter}
            return run(loop.body, {**constant, **changed}, env, seed)

        def turns(changed: State, constant: State, seed: Any, first: Any, count: Any) -> State:
            def one(k: Any, state: State) -> State:
                return turn(state, constant, seed, first + k * loop.step)

            return lax.fori_loop(0, count, one, changed)

        function = turn if self.fuse == 1 else turns
        return jax.jit(function, donate_argnums=0, out_shardings=placed)

    def _placements(self, names: Iterable[str]) -> Any:
        """By name, where a buffer lies if there are several devices."""
        if self.shards is None:
            return None
        buffers = self.places.buffers
        return {name: self.shards.placement(buffers.get(name)) for name in sorted(names)}

    def fresh(self, name: str) -> Any:
        """A buffer before anything is written to it."""
        return self._lowering.fresh(name)

    def start(self) -> State:
        """The buffers that the first calls take, before anything is written."""
        wanted: set[str] = set()
        known: set[str] = set()
        for call in self.calls:
            wanted |= (call.changed | call.constant) - known
            known |= call.made
        return self._fresh(tuple(sorted(wanted)))

    @cached_property
    def _fresh(self) -> Callable[[tuple[str, ...]], State]:
        """What makes buffers, many in one XLA program."""
        return jax.jit(lambda names: {name: self.fresh(name) for name in names}, static_argnums=0)

    # --- how it shows itself ---------------------------------------------------------------------

    def __str__(self) -> str:
        return "\n".join(line for line, _ in self.found_by())

    def found_by(self) -> Iterable[tuple[str, Seq[str]]]:
        """Each line of the text, with what it can be found by besides."""
        for k, call in enumerate(self.calls, 1):
            node, times = call.node, "once"
            if call.loop is not None:
                node = call.loop.body
                turns = (call.loop.last.const - call.loop.first.const) // call.loop.step + 1
                each = f"{self.fuse} turns" if self.fuse > 1 else "turn"
                times = f"for each of {turns} turns of {call.loop.counter}"
                if self.fuse > 1:
                    times = f"for every {each} of {turns} of {call.loop.counter}"
            yield f"call {k}, {times}:", ()
            for line, about in self.ast.found_in(node):
                yield f"  {line}", about
        held = f"{self.nbytes:,} bytes"
        if self.shards is not None:
            held += f", {self.nbytes_each:,} on each of {self.shards.count} devices"
        yield f"buffers, {held} (the plan holds at most {self.plan.peak:,} at once):", ()
        for buffer in self.places.buffers.values():
            where = " in a turn" if buffer.name in self.flow.local else ""
            yield f"  {buffer}{where}{self._share(buffer)}", ()

    def _share(self, buffer: Buffer) -> str:
        if self.shards is None:
            return ""
        if self.shards.axis(buffer) is None:
            return ", on every device"
        return f", {self.shards.nbytes(buffer):,} on each device"

    def jaxpr(self, call: int = 1) -> str:
        """What JAX traced for a call, counted from 1."""
        arguments = self._arguments(call)
        return str(jax.make_jaxpr(self.functions[call - 1])(*arguments))

    def hlo(self, call: int = 1) -> str:
        """What XLA made of a call, counted from 1; compiles it anew."""
        return self.compiled(call).as_text()

    def compiled(self, call: int = 1) -> Any:
        """XLA's executable of a call, counted from 1, as JAX has it; compiles it anew."""
        arguments = self._arguments(call)
        return self.functions[call - 1].lower(*arguments).compile()

    def _arguments(self, call: int) -> tuple[Any, ...]:
        """The types of what a call takes."""
        if not 1 <= call <= len(self.calls):
            raise IndexError(f"there are calls 1 to {len(self.calls)}")
        one = self.calls[call - 1]
        takes = [self._types(names) for names in (one.changed, one.constant)]
        return (
            *takes,
            backend.seed_words(0),
            *([0] if one.loop else []),
            *([1] if one.loop and self.fuse > 1 else []),
        )

    def _types(self, names: Names) -> dict[str, Any]:
        """The types of buffers, and where they lie."""
        types = jax.eval_shape(lambda: {name: self.fresh(name) for name in sorted(names)})
        placed = self._placements(names)
        if placed is None:
            return types
        return {
            n: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=placed[n]) for n, x in types.items()
        }


def _is_repeated(node: Node) -> bool:
    """Whether a part of the nest is called turn by turn: a loop of loops whose turns are known."""
    if not isinstance(node, Loop) or node.turns is not None:
        return False
    known = node.first.is_const and node.last.is_const and node.last.const > node.first.const
    return known and any(isinstance(inner, Loop) for inner in _inside(node.body))


def _inside(node: Node) -> list[Node]:
    return [node, *(n for part in children(node) for n in _inside(part))]


def why_not(ast: Ast, plan: MemoryPlan) -> str | None:
    """Why a program cannot be lowered whole; None where it can."""
    for node in ast:
        if isinstance(node, Offload | Fetch):
            return "values are swapped to the host, which only the interpreter does"
        if isinstance(node, Execute):
            op = plan.pdg[node.op_id]
            if not isinstance(op.attrs, DataflowAttrs | BoundAttrs):
                return f"{ast.names[op.id]} runs on the host"
    return None


def too_large(lowered: Lowered) -> str | None:
    """Why buffers are too large, where boxes hold many more values than live at once."""
    peak, have = lowered.plan.peak, lowered.nbytes
    if have <= _LARGER * peak + _MORE:
        return None
    return f"its buffers would take {have:,} bytes where the plan holds at most {peak:,} at once"
