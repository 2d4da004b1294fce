"""The face: a context that compiles, the stages of a compilation, and what a run returns."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from tqdm.auto import tqdm

from timerl_nb.advice import advice
from timerl_nb.config import Blocks, Options, progress_by_default
from timerl_nb.errors import (
    BoundsError,
    DomainError,
    OptionError,
    ShapeError,
    TimeRLError,
    one_of,
    user_origin,
)
from timerl_nb.events import Recorder
from timerl_nb.frontend.context import Context as Frontend
from timerl_nb.frontend.context import checked_name
from timerl_nb.frontend.indexing import Index
from timerl_nb.frontend.ordering import order_of
from timerl_nb.frontend.tensor import RecurrentTensor, operand
from timerl_nb.frontend.until import Until, ceiling, write_bound
from timerl_nb.ir.attrs import ConstAttrs, OutputAttrs
from timerl_nb.ir.pdg import Pdg
from timerl_nb.ir.selected import Coordinates
from timerl_nb.ir.verify import prove_reads, verify
from timerl_nb.loops.build import build_ast
from timerl_nb.loops.nodes import Ast, Execute, Loop, children
from timerl_nb.loops.nodes import Sequence as Block
from timerl_nb.memory.budget import planned, refusal
from timerl_nb.memory.forecast import Forecasts
from timerl_nb.memory.least import inevitable, least
from timerl_nb.memory.plan import MemoryPlan
from timerl_nb.passes.accumulate import Accumulate
from timerl_nb.passes.contract import Contract
from timerl_nb.passes.core import Pass, Pipeline
from timerl_nb.passes.dynamic_bounds import DynamicBounds
from timerl_nb.passes.fuse import Fuse, Separate
from timerl_nb.passes.incrementalize import Incrementalize, IncrementalizeToFit
from timerl_nb.passes.lift import Lift
from timerl_nb.passes.simplify import Simplify
from timerl_nb.passes.vectorize import Vectorize, keep_nothing
from timerl_nb.passes.windows import Windows
from timerl_nb.runtime.backends.jax import device_memory, main_memory
from timerl_nb.runtime.executable import Executable
from timerl_nb.runtime.interpret import Instruction, Run
from timerl_nb.runtime.xla.run import LoweredRun
from timerl_nb.schedule.constraints import Constraints
from timerl_nb.schedule.explain import refuse_circles
from timerl_nb.schedule.fallback import Parts, schedule_by_parts_if_needed
from timerl_nb.schedule.schedule import Schedule
from timerl_nb.schedule.solve import bounded
from timerl_nb.schedule.trial import Trials
from timerl_nb.stages import Listing, Stage, Stages
from timerl_nb.symbolic.domain import Ceiling, bounds_text
from timerl_nb.symbolic.expr import Lin, Slice
from timerl_nb.symbolic.scheduling import ScheduleTree

Array = np.ndarray[Any, np.dtype[Any]]


class Context(Frontend):
    """Symbolic dimensions and the program written over them; `compile` makes it runnable.

    Args:
        names: the dimensions' variables, outermost first; the bound of `t` is named `T`.
        num_dims: instead of names: that many dimensions d0, d1, … with bounds D0, D1, …
    """

    def output(self, name: str, x: Any) -> None:
        """Return the values of the tensor `x`, stacked over its domain, as `name`.

        Of a conditional tensor: its values one after the other, in the order of their points, which
        `result.coordinates[name]` names.

        Raises:
            DomainError: an output of that name exists.
            ShapeError: the values' lengths differ, so that they cannot be stacked.
        """
        if checked_name(name) in self.outputs:
            raise DomainError(
                f"there are two outputs named {name!r}.",
                others={"the first is at": self.outputs[name]},
                hint="give each output a name of its own.",
            )
        value = operand(self, x)
        if value.ctx is not self:
            raise DomainError(
                f"the output {name!r} belongs to another context.",
                hint="output a tensor of the context that is compiled.",
            )
        moving = [s for s in value.shape if isinstance(s, Lin) and s.symbols & set(value.domain)]
        if moving:
            raise ShapeError(
                f"the output {name!r} has the length {moving[0]}, which varies over "
                f"({', '.join(value.domain)}): its values cannot be stacked.",
                hint="reduce it first, as in x[0:t + 1].sum(axis=0), or output what it is cut from.",
            )
        self.outputs[name] = user_origin()
        value.named_if_new(name)
        self.add("output", [value.read], OutputAttrs(name, dims=value.domain))

    def before(self, a: Any, b: Any) -> None:
        """Run every point of `a` before the points of `b` that share its coordinates.

        Of a dimension that both vary over the points with the same coordinate are ordered; of one
        that only one of them varies over, all points. Where `a` is indexed, the index says which of
        its points come before a point of `b`: `ctx.before(a[b, i, t + 1], b)`; points outside `a`
        order nothing. The order holds in every schedule, whatever the options: the two run in
        separate kernels, and what is vectorised runs whole. It changes no value. Where nobody needs
        one of the two, it says nothing (see the `order dropped` steps).

        Args:
            a: a tensor, or a read of one.
            b: a tensor, not defined by branches.

        Raises:
            DomainError: `a` or `b` is no tensor of this context, or `b` is a read or a merge.
        """
        self.add_order(order_of(self, a, b))

    def compile(self, bounds: Mapping[Any, int | Until], options: Options | None = None) -> Program:
        """The program under actual bounds: `ctx.compile({B: 64, I: 20, T: 500})`.

        Args:
            bounds: a positive integer for the bound of each dimension; for one of them
                `trl.until(done, at_most=500)`: it ends where the tensor `done` holds.
            options: the decisions of the compilation.

        Raises:
            BoundsError: a bound is missing, unknown or neither a positive integer nor a condition
                that can end its dimension.
            ReadError, BranchError: a tensor is read where it is not defined, has two values at a
                point or none.
            ScheduleError: no order of execution exists.
            BudgetError: it needs more device memory at once than there is, even with swapping.
        """
        if options is not None and not isinstance(options, Options):
            raise OptionError(f"{options!r} are no options.", hint="pass trl.Options(...).")
        try:
            actual, ends = check_bounds(self, bounds)
            dims = [dim for dim in self.space if dim.bound in ends]
            pdg = self.pdg(*(partial(write_bound, self, dim, ends[dim.bound]) for dim in dims))
            if not pdg.sinks:
                raise DomainError(
                    "the program has no output: nothing of it would be computed.",
                    hint='name what the run returns: ctx.output("y", x).',
                )
            return Program(pdg, actual, options or Options(), self)
        except TimeRLError as error:
            raise error.with_traceback(None) from None


def check_bounds(
    ctx: Frontend, given: Mapping[Any, Any]
) -> tuple[dict[str, int], dict[str, Until]]:
    """The bounds by name, each a positive integer or a ceiling, and what ends those with one.

    Raises:
        BoundsError: one is missing, unknown or of another kind.
    """
    known = ctx.space.bounds
    found: dict[str, int] = {}
    ends = {
        k if isinstance(k, str) else _bound_name(ctx, k): v
        for k, v in (given.items() if isinstance(given, Mapping) else ())
        if isinstance(v, Until)
    }
    if len(ends) > 1:
        raise BoundsError(
            f"{' and '.join(ends)} are both dynamic bounds: a program can have one.",
            hint="give all but one as integers.",
        )
    _check_mapping(given)
    for key, value in given.items():
        name = key if isinstance(key, str) else _bound_name(ctx, key)
        if name not in known:
            raise BoundsError(
                f"{name} is not a bound of this context.",
                hint=f"the bounds are {', '.join(known)}.",
            )
        if name in found:
            raise BoundsError(f"the bound {name} is given twice.")
        found[name] = _bound_value(name, value)
    missing = [name for name in known if name not in found]
    if missing:
        raise BoundsError(
            f"the bound {missing[0]} is missing.",
            hint=f"pass {{{', '.join(f'{name}: …' for name in known)}}} to compile.",
        )
    return {name: found[name] for name in known}, ends


def _check_mapping(bounds: Any) -> None:
    if not isinstance(bounds, Mapping):
        raise BoundsError(
            f"{bounds!r} are no bounds.",
            hint="write {B: 64, I: 20, T: 500}: a bound per dimension.",
        )


def _bound_name(ctx: Frontend, key: Any) -> str:
    name = key.lin.as_symbol if isinstance(key, Index) else None
    if name is None:
        raise BoundsError(f"{key!r} is no bound.", hint="use the bound symbols of ctx.dims.")
    if isinstance(key, Index) and key.owner is not ctx:
        raise BoundsError(f"{name} is a symbol of another context.")
    if name in ctx.space:
        raise BoundsError(
            f"{name} is a variable, not a bound.", hint=f"write {ctx.space[name].bound}: …"
        )
    return name


def _bound_value(name: str, value: Any) -> int:
    if isinstance(value, Until):
        return ceiling(value)
    if isinstance(value, RecurrentTensor):
        raise BoundsError(
            f"the bound {name} is the tensor {value.name}, without a ceiling: memory is planned "
            "ahead.",
            hint=f"give the greatest number of points: {{{name}: trl.until({value.name}, "
            "at_most=500)}.",
        )
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise BoundsError(f"the bound {name} must be an integer, not {value!r}.")
    if value < 1:
        raise BoundsError(f"the bound {name} must be at least 1, not {value}.")
    return int(value)


# --- compiling -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Front:
    """All stages that hold for any bounds."""

    stages: tuple[Stage, ...]
    constraints: Constraints
    tree: ScheduleTree
    parts: Parts | None  # where isl reached its ceiling
    seconds: float


def pipeline(
    options: Options,
    bounds: Mapping[str, int],
    trials: Trials | None = None,
    *,
    dynamic: bool = False,
) -> Pipeline:
    """The passes that the options ask for, in order; `dynamic` if a bound is."""
    trials = trials or Trials(options.isl_operations)
    keep = trials.keep if options.trial else keep_nothing
    plan = partial(_plan, options)
    # from the end, since trials take a graph through the passes that follow
    passes: tuple[Pass, ...] = (Fuse() if options.fuse else Separate(),)
    if options.blocks:
        passes = (Incrementalize(options.blocks, bounds), *passes)
    elif options.incrementalize == "auto" and (budget := _limit(options)) is not None:
        to_fit = Forecasts(passes, bounds, trials, plan, _limit(options))
        passes = (IncrementalizeToFit(budget, bounds, to_fit), *passes)
    if options.contract:
        passes = (Contract(), *passes)
    if options.accumulate:
        passes = (Accumulate(), *passes)
    if options.lift:
        passes = (Windows(keep), *passes)
    dims = options.vectorize if isinstance(options.vectorize, tuple) else None
    if options.vectorize:
        forecasts = Forecasts(passes, bounds, trials, plan, _limit(options))
        passes = (Vectorize(dims, keep, forecasts, options.budget), *passes)
    if options.lift:
        passes = (Lift(dims if options.vectorize else (), keep), *passes)
    if options.simplify:
        passes = (Simplify(), *passes)
    if dynamic:
        passes = (DynamicBounds(), *passes)
    return Pipeline(passes)


def _compile_front(pdg: Pdg, options: Options, bounds: Mapping[str, int]) -> _Front:
    """Run the passes and find the schedule."""
    source = pdg
    stages: list[Stage] = []
    trials = Trials(options.isl_operations)
    limit = _limit(options)
    if limit is not None and inevitable(pdg, bounds) > limit:
        options = _unlimited(options)  # nothing to choose from: it is refused in any case
    for one in pipeline(options, bounds, trials, dynamic=pdg.bound is not None):
        start = time.perf_counter()
        with bounded(f"the pass {one.name}"):
            made = trials.run(one, pdg)
        seconds = time.perf_counter() - start
        verify(made.pdg)
        summary = f"{len(pdg)} -> {len(made.pdg)} operations, {len(made.steps)} steps"
        if one.name in ("fuse", "separate"):
            summary = f"{len(pdg)} operations -> {_kernels(made.pdg)} kernels"
        stages.append(Stage(one.name, made.pdg, seconds, summary, made, pdg))
        pdg = made.pdg
        if one.name == DynamicBounds.name:
            source = pdg
    start = time.perf_counter()
    known = trials.known(pdg)
    parts = None
    if known is None:
        constraints = Constraints(pdg)
        with bounded("checking the schedule"):
            tree, parts = schedule_by_parts_if_needed(constraints, options.isl_operations, source)
        known = constraints, tree
    return _Front(tuple(stages), *known, parts, time.perf_counter() - start)


def _unlimited(options: Options) -> Options:
    """The options with passes that do not look for what fits."""
    return options.with_(incrementalize=options.blocks or False, device_memory=None)


def _limit(options: Options) -> int | None:
    """The bytes that may be live on the device at once."""
    return options.budget or device_memory()


def _plan(
    options: Options, constraints: Constraints, tree: ScheduleTree, bounds: Mapping[str, int]
) -> MemoryPlan:
    return planned(
        constraints,
        tree,
        bounds,
        smallest=options.stores == "auto",
        donation=options.donate,
        budget=_limit(options),
        swap=options.swap == "auto",
    )


def _kernels(pdg: Pdg) -> int:
    return sum(op.kind == "dataflow" for op in pdg)


class Program:
    """A compiled program: every stage a value, and ways to run it."""

    def __init__(
        self,
        pdg: Pdg,
        bounds: Mapping[str, int],
        options: Options,
        owner: object,
        front: _Front | None = None,
    ) -> None:
        self._owner = owner  # the context whose symbols are ours
        self.options, self.bounds, self._pdg = options, dict(bounds), pdg
        start = time.perf_counter()
        _check_dims(pdg, options)
        verify(pdg)
        refuse_circles(pdg)
        _check_data(pdg, self.bounds)
        with bounded("proving the program's reads"):
            prove_reads(DynamicBounds().run(pdg).pdg, self.bounds)
        checked = time.perf_counter() - start
        listing = Listing(pdg)
        self._front = front or _compile_front(pdg, options, self.bounds)
        lines = f"{len(listing.lines)} lines"
        summary = f"{len(pdg)} operations, {bounds_text(self.bounds)}"
        stages = [
            Stage("source", listing, 0.0, lines),
            Stage("pdg", pdg, checked, summary),
            *self._front.stages,
        ]
        self.stages = Stages((*stages, *self._back()))
        self._run: Run | None = None
        _warn_of_long_windows(self.memory, self._front.constraints)
        if self._front.parts is not None and self._front.parts.text:
            warnings.warn(self._front.parts.lost(self.memory.peak), stacklevel=3)

    def _back(self) -> Iterator[Stage]:
        """The stages that depend on the bounds."""
        constraints, tree = self._front.constraints, self._front.tree
        schedule = Schedule(constraints, tree, self.bounds)
        summary = (
            f"{len(constraints.statements)} statements, {len(constraints.validity)} dependences"
        )
        if self._front.parts is not None:
            summary += ", by parts"
        yield Stage("schedule", schedule, self._front.seconds, summary)
        start = time.perf_counter()
        budget = _limit(self.options)
        with bounded("finding who reads each value last"):
            plan = _plan(self.options, constraints, tree, self.bounds)
            summary = f"{len(plan.stores)} stores, peak {plan.peak:,} bytes"
            over = budget is not None and plan.peak > budget
        if budget is not None and over:
            if self._front.parts is not None:
                raise self._front.parts.beyond(plan.peak, budget)
            raise refusal(plan, budget, self._advice(plan.peak, budget))
        if plan.swaps.all:
            summary += f", {plan.timeline().host_peak:,} on the host"
        yield Stage("memory", plan, time.perf_counter() - start, summary)
        start = time.perf_counter()
        with bounded("generating the loops"):
            lives = plan.lifetimes.values()
            ast = build_ast(plan.constraints, tree, lives, self.bounds, plan.names, plan.swaps)
        count = sum(isinstance(node, Execute) for node in ast)
        loops = sum(isinstance(node, Loop) for node in ast)
        yield Stage("ast", ast, time.perf_counter() - start, f"{loops} loops, {count} launches")
        start = time.perf_counter()
        options = self.options
        executable = Executable(plan.pdg, ast, plan, options.executor, options.fuse_iterations)
        summary = f"{len(executable.kernels)} kernels, {executable.how}"
        yield Stage("executable", executable, time.perf_counter() - start, summary)

    def _advice(self, needed: int, budget: int) -> str:
        def need(changes: Mapping[str, Any], bounds: Mapping[str, int]) -> int:
            options, actual = self.options.with_(**changes), {**self.bounds, **bounds}
            if (floor := inevitable(self._pdg, actual)) > budget:
                return floor
            prove_reads(self._pdg, actual)
            front = self._front
            if changes:  # what fits without blocks is among what is then chosen from
                front = _compile_front(self._pdg, _unlimited(options), actual)
            if (floor := least(front.constraints.pdg, actual)) > budget:
                return floor
            return _plan(options, front.constraints, front.tree, actual).peak

        bounds = {d.name: (d.bound, self.bounds[d.bound]) for d in self._pdg.dims}
        return advice(needed, budget, self.options, bounds, need)

    # --- the stages by name ----------------------------------------------------------------------

    def _artifact(self, name: str) -> Any:
        return self.stages[name].artifact

    @property
    def pdg(self) -> Pdg:
        """The graph as the user wrote it."""
        return self._artifact("pdg")

    @property
    def meaning(self) -> Pdg:
        """The graph as the user wrote it, with what a dynamic bound means for it."""
        dynamic = self.pdg.bound is not None
        return self._artifact(DynamicBounds.name) if dynamic else self.pdg

    @property
    def fused(self) -> Pdg:
        """The graph that runs: after all passes, with outputs of their own for blocks."""
        return self.memory.pdg

    @property
    def schedule(self) -> Schedule:
        return self._artifact("schedule")

    @property
    def memory(self) -> MemoryPlan:
        return self._artifact("memory")

    @property
    def ast(self) -> Ast:
        return self._artifact("ast")

    @property
    def executable(self) -> Executable:
        return self._artifact("executable")

    @property
    def pipeline(self) -> Pipeline:
        """The passes that ran, in order; prints as one line."""
        return pipeline(self.options, self.bounds, dynamic=self.pdg.bound is not None)

    # --- again, differently ----------------------------------------------------------------------

    def with_options(self, **changes: Any) -> Program:
        """The same program compiled again from its `pdg` stage, with some options changed.

        Raises:
            OptionError: there is no such option, or it does not take that value.
        """
        return Program(self.pdg, self.bounds, self.options.with_(**changes), self._owner)

    def with_bounds(self, bounds: Mapping[Any, int]) -> Program:
        """The same program under other bounds.

        The passes and the schedule are kept, unless there is a budget to choose them for.

        Args:
            bounds: the bounds to change, by symbol or name. The ceiling of a dynamic bound changes
                with `trl.until` of the same condition.

        Raises:
            BoundsError: a bound is unknown, or not of the kind that it was.
        """
        changed = dict(self.bounds)
        _check_mapping(bounds)
        for key, value in bounds.items():
            name = key.lin.as_symbol if isinstance(key, Index) else key
            if isinstance(key, Index) and key.owner is not self._owner:
                raise BoundsError(f"{key} is a symbol of another context.")
            if name not in changed:
                raise BoundsError(
                    f"{key} is not a bound of this program.",
                    hint=f"the bounds are {', '.join(changed)}.",
                )
            self._check_kind(name, value)
            changed[name] = _bound_value(name, value)
        # what is chosen within a budget depends on the bounds
        front = self._front if _limit(self.options) is None else None
        return Program(self.pdg, changed, self.options, self._owner, front)

    def _check_kind(self, name: str, value: Any) -> None:
        """A dynamic bound stays what it is, but for its ceiling."""
        before = self.bounds[name]
        given = value.done.name if isinstance(value, Until) else None
        had = before.until if isinstance(before, Ceiling) else None
        if given == had and (given is None or value.done.ctx is self._owner):
            return
        was = f"{name} ends where {had} holds" if had else f"{name} is a number"
        raise BoundsError(
            f"{was}: that cannot change without compiling again.",
            hint=f"give trl.until({had}, at_most=…), or compile anew." if had else "compile anew.",
        )

    # --- running -----------------------------------------------------------------------------

    def execute(
        self,
        seed: int = 0,
        *,
        progress: bool | None = None,
        on_event: Recorder | None = None,
        outputs: Sequence[str] | None = None,
    ) -> Result:
        """Run the program to its end.

        Args:
            seed: of all random streams; the same seed gives the same result.
            progress: show a progress bar over the outermost loop.
            on_event: is called with every read, write, free and launch (slower).
            outputs: the outputs to return; all by default.

        Raises:
            BudgetError: it needs more memory than the machine has.
            OptionError: an output of that name does not exist, or an argument is of another kind.
        """
        if on_event is not None and not callable(on_event):
            raise OptionError(
                f"on_event={on_event!r} cannot be called.", hint="pass a function of an event."
            )
        if isinstance(outputs, str):
            raise OptionError("outputs are a list of names.", hint=f"write outputs=[{outputs!r}].")
        given = [op.attrs for op in self.pdg.sinks if isinstance(op.attrs, OutputAttrs)]
        known = [attrs.name for attrs in given if attrs.role == "output"]
        for name in outputs or ():
            if name not in known:
                raise OptionError(f"there is no output {name!r}.", hint=one_of(name, known))
        self._check_machine()
        shown = progress_by_default() if progress is None else progress
        turns = _turns(self.ast)
        start = time.perf_counter()
        with tqdm(total=turns, disable=not shown or turns is None, leave=False) as bar:
            update = bar.update if shown else None
            lowered = self.executable.lowered if on_event is None else None
            run: Run | LoweredRun
            if lowered is None:
                run = Run(self.executable, _seed(seed), on_event, update)
            else:
                run = LoweredRun(lowered, _seed(seed), update)
            try:
                run.complete()
                values = run.outputs(outputs)
            except BaseException:
                run.release()
                raise
        seconds = time.perf_counter() - start
        kept = run.release()
        return Result(
            {name: x for (role, name), x in values.items() if role == "output"},
            {name: x for (role, name), x in values.items() if role == "parameter"},
            RunMemory(
                run.ledger.peak,
                tuple(run.ledger.timeline()),
                kept,
                tuple(run.ledger.host_trace),
            ),
            seconds,
            run.instructions,
            run.coordinates,
            run.lengths(),
        )

    def _check_machine(self) -> None:
        """Refuse to begin what ends with the machine's memory; it may be planned all the same."""
        most = main_memory()
        if most is not None and self.memory.peak > most:
            fits = f"device_memory={most // 2} compiles it to fit, if that can be; or give smaller bounds."
            raise refusal(self.memory, most, fits)

    def step(self, seed: int = 0) -> Instruction | None:
        """Run one instruction; None at the end of the program, after which it starts over.

        Args:
            seed: of all random streams; counts at the first instruction.
        """
        if self._run is None:
            self._check_machine()
            self._run = Run(self.executable, _seed(seed), follow=True)
        done = self._run.step()
        if done is None:
            self._run.release()
            self._run = None
        return done

    @property
    def stores(self) -> dict[str, dict[Any, Any]]:
        """What a stepped run holds now: by tensor, values by point."""
        return {} if self._run is None else self._run.stores

    def __repr__(self) -> str:
        return f"Program({bounds_text(self.bounds)})\n{self.stages!r}"


def _seed(seed: Any) -> int:
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer):
        raise OptionError(f"the seed must be an integer, not {seed!r}.")
    return int(seed)


def _turns(ast: Ast) -> int | None:
    """How often the outermost loops turn."""
    outer = children(ast.root) if isinstance(ast.root, Block) else [ast.root]
    loops = [node for node in outer if isinstance(node, Loop)]
    ends = [(node.first, node.last, node.step) for node in loops]
    if not loops or not all(first.is_const and last.is_const for first, last, _ in ends):
        return None
    return sum((last.const - first.const) // step + 1 for first, last, step in ends)


def _check_dims(pdg: Pdg, options: Options) -> None:
    named = {"vectorize": options.vectorize, "incrementalize": _named(options.blocks)}
    for option, names in named.items():
        for name in () if isinstance(names, bool) else names:
            if name not in pdg.dims:
                known = ", ".join(pdg.dims.names)
                raise OptionError(
                    f"{option} names {name!r}, which is no dimension of the program.",
                    hint=f"the dimensions are {known}.",
                )


def _named(blocks: int | Blocks | None) -> tuple[str, ...]:
    """The dimensions that block sizes are given for."""
    return tuple(name for name, _ in blocks) if isinstance(blocks, tuple) else ()


def _check_data(pdg: Pdg, bounds: Mapping[str, int]) -> None:
    """Given arrays must have a value for every point."""
    for op in pdg:
        if not isinstance(op.attrs, ConstAttrs):
            continue
        for axis, name in enumerate(op.attrs.dims):
            have, want = op.attrs.value.array.shape[axis], bounds[pdg.dims[name].bound]
            if have < want:
                raise BoundsError(
                    f"the data has {have} values along {name}, but {pdg.dims[name].bound} = {want}.",
                    origin=op.origin,
                    hint="give more data, or a smaller bound.",
                )


def _warn_of_long_windows(plan: MemoryPlan, constraints: Constraints) -> None:
    """Say where every point of a loop gathers a slice that grows with a bound."""
    dims = constraints.pdg.dims
    for op in constraints.ops.values():
        own = {d for d in op.domain if dims[d].step == 1}  # blocks are long on purpose
        for read in op.inputs:
            moving = [e for e in read.index if isinstance(e, Slice) and e.length.symbols & own]
            span = plan.sizes.span(op, read)
            if moving and span > 64:
                source = constraints.pdg[read.source]
                warnings.warn(
                    f"{source.name} is read in slices [{moving[0]}] of up to {span} points at every "
                    f"point of ({', '.join(op.domain)}): padded to {span} each time. "
                    "Leave lift and vectorize on, or shorten the slice.",
                    stacklevel=5,
                )


# --- results -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RunMemory:
    """Memory as the run's ledger measured it, in bytes on the device."""

    peak: int
    _timeline: tuple[int, ...] = field(repr=False)
    kept: int = 0
    _host: tuple[int, ...] = field(repr=False, default=())

    def timeline(self) -> Array:
        """Live bytes on the device during each executed point, in order."""
        return np.asarray(self._timeline, np.int64)

    def host_timeline(self) -> Array:
        """Bytes of swapped values on the host during each executed point, in order."""
        return np.asarray(self._host or (0,) * len(self._timeline), np.int64)

    @property
    def host_peak(self) -> int:
        return max(self._host, default=0)


@dataclass(frozen=True)
class Result(Mapping[str, Array]):
    """What a run returned: outputs by name, stacked over their domains.

    Attributes:
        parameters: each parameter's value after the last iteration.
        memory: the ledger's measurements.
        seconds: how long the run took.
        instructions: how many instructions ran.
        coordinates: by name of a conditional tensor's output, where each of its values is: an array
            of positions per dimension.
        lengths: the values of a dynamic bound, by its name, stacked over what it varies over;
            outputs along its dimension have zeros beyond.
    """

    _outputs: Mapping[str, Array] = field(repr=False)
    parameters: Mapping[str, Array] = field(repr=False)
    memory: RunMemory
    seconds: float
    instructions: int
    coordinates: Mapping[str, Coordinates] = field(
        default_factory=dict[str, Coordinates], repr=False
    )
    lengths: Mapping[str, Array] = field(default_factory=dict[str, Array], repr=False)

    def __getitem__(self, name: str) -> Array:
        if name not in self._outputs:
            raise OptionError(
                f"there is no output {name!r}.", hint=one_of(name, list(self._outputs))
            )
        return self._outputs[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._outputs)

    def __len__(self) -> int:
        return len(self._outputs)

    def __repr__(self) -> str:
        shapes = ", ".join(f"{k}: {v.dtype}{list(v.shape)}" for k, v in self._outputs.items())
        return (
            f"Result({shapes}; {len(self.parameters)} parameters; {self.instructions:,} instructions "
            f"in {self.seconds:.2f} s; peak {self.memory.peak:,} bytes)"
        )
