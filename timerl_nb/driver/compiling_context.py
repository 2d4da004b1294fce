"""The face: a context that compiles."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NoReturn

from timerl_nb.base.entry_points import entry_point
from timerl_nb.base.errors import (
    CallError,
    DomainError,
    OptionError,
    ReadError,
    ShapeError,
    TimeRLError,
    user_origin,
)
from timerl_nb.base.options import Options
from timerl_nb.compiler.ir.analysis.needed_points import restrict_to_needed
from timerl_nb.compiler.ir.dependence_graph import Pdg
from timerl_nb.compiler.ir.operation_attributes import OutputAttrs
from timerl_nb.compiler.language.argument_checks import checked_name, element_type, is_whole
from timerl_nb.compiler.language.foreign_names import CONTEXT, all_asked, missing
from timerl_nb.compiler.language.indexing.execution_order import order_of
from timerl_nb.compiler.language.inputs.actual_bounds import check_bounds
from timerl_nb.compiler.language.inputs.dynamic_bound_inputs import Until, write_bound
from timerl_nb.compiler.language.policy.environment_and_action_record import Actor, call_network
from timerl_nb.compiler.language.policy.policy_slice import return_frozen
from timerl_nb.compiler.language.program_context import Context as Frontend
from timerl_nb.compiler.language.recurrent_tensor import RecurrentTensor, operand
from timerl_nb.compiler.passes.seed_batching import Seeds
from timerl_nb.compiler.symbolic.dimensions import Endless
from timerl_nb.compiler.symbolic.index_expressions import Lin
from timerl_nb.driver.compilation import Compilation
from timerl_nb.driver.compile_request import CompileRequest
from timerl_nb.driver.compiling.compiler import Compiler
from timerl_nb.driver.program import Program
from timerl_nb.driver.program_compilation import compile_program
from timerl_nb.driver.program_hooks import made_known
from timerl_nb.driver.stages import UNOBSERVED, CompileObserver


@all_asked
class Context(Frontend):
    """Symbolic dimensions and the program written over them; `compile` makes it runnable.

    Args:
        names: the dimensions' variables, outermost first; the bound of `t` is named `T`.
        num_dims: instead of names: that many dimensions d0, d1, … with bounds D0, D1, …
    """

    def __getattr__(self, name: str) -> Any:
        pairs = ", ".join(f"({d.name}, {d.bound})" for d in vars(self).get("space", ()))
        dims = f"{pairs}, = ctx.dims." if pairs else "ctx.dims."
        words = {word: dims for pair in self.dims for word in map(str, pair)}
        raise missing("a context", name, dir(type(self)), {**CONTEXT, **words})

    def __reduce_ex__(self, _: Any) -> NoReturn:
        raise CallError(
            "a context cannot be copied or pickled.",
            hint="keep the code that writes the program; x.checkpoint saves values.",
        )

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

    def policy(
        self, network: Any, o: Any = None, act: Callable[[Any, RecurrentTensor], Any] | None = None
    ) -> None:
        """Say by what the program acts: `result.policy()` is that, with what was learnt.

        The network that `trl.DNNBuilder` makes says so itself, where there is one alone.

        Args:
            network: a module; or a list or mapping of modules and parameters.
            o: what an observation looks like: a tensor or a space; of a policy that an environment's
                spaces made it is known.
            act: from the network and an observation to a distribution, or to an action: for a network
                of values `lambda q, o: q(o).argmax(-1)`. By default the network is called. It may use
                what it is given alone.

        Raises:
            CallError: `o` is missing, or `act` is no function.
            DomainError: the program has said so before.
        """
        before = next((one for one in self.policies if one.marked), None)
        if before is not None:
            raise DomainError(
                "the program has said by what it acts.",
                others={"first at": before.origin},
                hint="call ctx.policy once.",
            )
        if act is not None and not callable(act):
            raise CallError(f"{act!r} is no function.", hint="act takes the network and o.")
        known = next((one for one in self.policies if one.network is network), None)
        seen = known if o is None else o
        if seen is None or not hasattr(seen, "shape") or not hasattr(seen, "dtype"):
            raise CallError(
                "an observation has a shape and an element type.",
                hint="ctx.policy(network, o): o is the tensor, or the space, of observations.",
            )
        if not all(isinstance(n, int) for n in seen.shape):
            raise CallError(
                f"observations have one length: {seen!r} is none.", hint="give what a point sees."
            )
        shape, dtype, how = tuple(seen.shape), element_type(seen.dtype), act or call_network
        self.policies.append(Actor(network, shape, dtype, how, user_origin(), marked=True))

    def evaluate(
        self,
        env: Any,
        episodes: int = 10,
        every: int = 1,
        *,
        sample: bool = False,
        explore: bool = False,
        max_steps: int | None = None,
    ) -> RecurrentTensor:
        """The returns of episodes that are played after iterations, by the weights as these left them.

        `ctx.output("evaluation", ctx.evaluate(env, episodes=8, every=5).mean())` is their mean after every
        fifth iteration. The environment is another one like `env`; what is drawn has streams of its own, so
        that all else in the program is as without. All episodes are played side by side, for as many steps as
        one may take at most; those that are over stand still.

        Args:
            env: a name, or what `trl.env.make` returns.
            episodes: how many.
            every: after how many iterations, along the first dimension that the network changes along.
            sample: draw actions, as the program does; the most likely ones otherwise.
            explore: act with random actions and noise, too, as the program does.
            max_steps: the longest that an episode may be; the environment's own by default.

        Returns an array of as many returns, over the iterations, where they are made.

        Raises:
            OptionError: the program does not say by what it acts, or that is not trained yet.
            EnvError: the environment shows something else than the network sees, takes other actions, or its
                episodes have no end.
        """
        found = entry_point("program.evaluate")
        ways = {"sample": sample, "explore": explore}
        return found(self, env, episodes, every, **ways, max_steps=max_steps)

    def debug(self, *, nan: bool = True) -> None:
        """Let programs compiled from here on stop at the first NaN that they make.

        The error names the operation, its point and the line that wrote it; of a gradient also the
        line that it is the gradient of. The interpreter runs them, whatever `Options.executor` says,
        and looks at what every kernel makes: several times slower. `Options(check_nan=True)` is the
        same for one program.

        Args:
            nan: whether they do; False switches it off again.
        """
        if not isinstance(nan, bool):
            raise OptionError(f"nan={nan!r} is not possible.", hint="nan is True or False.")
        self._checks_nan = nan

    _checks_nan = False

    def _unbounded_dim(self, bounds: Mapping[str, int]) -> str | None:
        """The dimension without an end."""
        found = (dim.name for dim in self.space if isinstance(bounds[dim.bound], Endless))
        return next(found, None)

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

    def compile(
        self,
        bounds: Mapping[Any, int | Until],
        options: Options | None = None,
        *,
        seeds: int | None = None,
        observer: CompileObserver = UNOBSERVED,
        tell: bool = True,
    ) -> Program:
        """The program under actual bounds: `ctx.compile({B: 64, I: 20, T: 500})`.

        Args:
            bounds: a positive integer for the bound of each dimension; for one of them
                `trl.until(done, at_most=500)`: it ends where the tensor `done` holds; or, for that of
                the outermost loop, `trl.endless`: it has no end, and `program.turns()` runs it.
            options: the decisions of the compilation.
            seeds: so many runs side by side, in one more dimension: outputs and parameters get a
                leading axis, along which row s is what `execute(seed=base + s)` returns of the program
                without it. It takes about as much memory as so many runs.
            observer: gets every stage of the program, in order, as soon as it is there.
            tell: issue the program's `warnings`.

        Raises:
            BoundsError: a bound is missing, unknown or neither a positive integer nor a condition
                that can end its dimension; or a dimension is to have no end, and something depends on it.
            OptionError: `seeds` is no positive integer.
            ReadError, BranchError: a tensor is read where it is not defined, has two values at a
                point or none.
            ScheduleError: no order of execution exists.
            BudgetError: it needs more device memory at once than there is, even with swapping.
        """
        if options is not None and not isinstance(options, Options):
            raise OptionError(f"{options!r} are no options.", hint="pass trl.Options(...).")
        if seeds is not None:
            _check_seeds(seeds)
        try:
            actual, ends = check_bounds(self, bounds)
            dims = [dim for dim in self.space if dim.bound in ends]
            late = (partial(write_bound, self, dim, ends[dim.bound]) for dim in dims)
            frozen = partial(return_frozen, self)
            pdg = self.pdg(*late, frozen, endless=self._unbounded_dim(actual))
            if not pdg.sinks:
                raise DomainError(
                    "the program has no output: nothing of it would be computed.",
                    hint='name what the run returns: ctx.output("y", x).',
                )

            given = options or Options()
            if self._checks_nan:
                given = given.with_(check_nan=True)

            def compile_graph(graph: Pdg) -> Compilation:
                if seeds is None:
                    compiler = Compiler(graph)
                    return compile_program(
                        CompileRequest(compiler, self, actual, given), observer=observer
                    )
                several = Seeds.from_dims(graph.dims)
                under = {several.dim.bound: int(seeds), **actual}
                try:
                    compiler = Compiler(several.run(graph).pdg)
                    return compile_program(
                        CompileRequest(compiler, self, under, given), observer=observer
                    )
                except TimeRLError:
                    Compiler(graph).source(actual)  # what is wrong without seeds is said so
                    raise

            try:
                compiled = compile_graph(pdg)
            except ReadError as error:
                # outside under such small bounds alone, and perhaps where nothing is needed
                less = restrict_to_needed(pdg, under=actual)
                if less is pdg:
                    raise
                try:
                    compiled = compile_graph(less)
                except ReadError:
                    raise error from None
            if tell:
                compiled.issue_warnings()
            return made_known(Program(compiled))
        except TimeRLError as error:
            raise error.with_traceback(None) from None


def _check_seeds(seeds: Any) -> None:
    if not is_whole(seeds) or seeds < 1:
        raise OptionError(
            f"seeds={seeds!r} is not possible.",
            hint="seeds=8 is eight runs side by side; which they are, execute(seed=100) says.",
        )
