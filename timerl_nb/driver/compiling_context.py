"""The public `Context`: the language's context with the methods `output`, `policy`, `evaluate` and
`compile`.
"""

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
from timerl_nb.compiler.language.foreign_names import CONTEXT, explain_method_errors, missing
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
from timerl_nb.driver.program_hooks import announce_program
from timerl_nb.driver.stages import UNOBSERVED, CompileObserver


@explain_method_errors
class Context(Frontend):
    """Symbolic dimensions, and a program over them.

    Enter the context by `with`, write equations, declare outputs, and call `compile`.

    Args:
        names: variables of the dimensions, outermost first. The bound of `t` is `T`.
        num_dims: alternative to names: the number of dimensions d0, d1, … with bounds D0, D1, ….

    Example:
        >>> with trl.Context("t") as ctx:
        ...     ((t, T),) = ctx.dims
        ...     x = trl.tensor((), domain=t)
        ...     x[0] = 1.0
        ...     x[t + 1] = 2.0 * x[t]
        ...     ctx.output("x", x)
        >>> program = ctx.compile({T: 4})
        >>> program.execute(progress=False)["x"].tolist()
        [1.0, 2.0, 4.0, 8.0]
    """

    def __getattr__(self, name: str) -> Any:
        pairs = ", ".join(f"({d.name}, {d.bound})" for d in vars(self).get("space", ()))
        dims = f"{pairs}, = ctx.dims." if pairs else "ctx.dims."
        words = {word: dims for pair in self.dims for word in map(str, pair)}
        raise missing("a context", name, dir(type(self)), {**CONTEXT, **words})

    def __reduce_ex__(self, _: Any) -> NoReturn:
        raise CallError(
            "a context cannot be copied or pickled.",
            hint="store the code of the program instead; ctx.checkpoint saves values.",
        )

    def output(self, name: str, x: Any) -> None:
        """Declare a tensor as an output: a run returns its values, stacked over its domain.

        The values of a conditional tensor are stacked in the order of their points.
        `result.coordinates[name]` has the coordinates.

        Args:
            name: the name in the result.
            x: a tensor of this context, or a number.

        Raises:
            DomainError: an output with this name exists, or the tensor belongs to another context.
            ShapeError: the values have different lengths, so they cannot be stacked.

        Example:
            >>> x = trl.data(np.arange(3.0), domain=t)
            >>> ctx.output("double", 2.0 * x)
            >>> result = ctx.compile({B: 1, I: 1, T: 3}).execute(progress=False)
            >>> result["double"].tolist()
            [0.0, 2.0, 4.0]
        """
        if checked_name(name) in self.outputs:
            raise DomainError(
                f"there are two outputs named {name!r}.",
                others={"the first is at": self.outputs[name]},
                hint="give each output a different name.",
            )
        value = operand(self, x)
        if value.ctx is not self:
            raise DomainError(
                f"the output {name!r} belongs to another context.",
                hint="output a tensor of this context.",
            )
        moving = [s for s in value.shape if isinstance(s, Lin) and s.symbols & set(value.domain)]
        if moving:
            raise ShapeError(
                f"the output {name!r} has the length {moving[0]}, which varies over "
                f"({', '.join(value.domain)}): its values cannot be stacked.",
                hint="reduce it first, as in x[0:t + 1].sum(axis=0), or output the tensor behind the slice.",
            )
        self.outputs[name] = user_origin()
        value.named_if_new(name)
        self.add("output", [value.read], OutputAttrs(name, dims=value.domain))

    def policy(
        self, network: Any, o: Any = None, act: Callable[[Any, RecurrentTensor], Any] | None = None
    ) -> None:
        """Declare the network that acts, so that `result.policy()` can return the trained policy.

        A program with exactly one network from `trl.DNNBuilder` needs no declaration.

        Args:
            network: a module, or a list or mapping of modules and parameters.
            o: a tensor or space with the shape and type of an observation. It can be left out if the policy
                was built from the spaces of an environment.
            act: takes the network and an observation, and returns a distribution or an action. For action
                values it is `lambda q, o: q(o).argmax(-1)`. The default calls the network. The function may
                use its arguments only.

        Raises:
            CallError: `o` is missing, or `act` is not a function.
            DomainError: the program has a declared policy already.

        Example:
            >>> net = trl.nn.Linear(4, 2)
            >>> o = trl.data(np.ones((3, 4), np.float32), domain=t)
            >>> ctx.policy(net, o, act=lambda net, o: net(o).argmax(-1))
            >>> ctx.output("q", net(o))
            >>> result = ctx.compile({B: 1, I: 1, T: 3}).execute(progress=False)
            >>> type(result.policy()).__name__
            'LearntPolicy'
        """
        before = next((one for one in self.policies if one.marked), None)
        if before is not None:
            raise DomainError(
                "ctx.policy was called before.",
                others={"first at": before.origin},
                hint="call ctx.policy once.",
            )
        if act is not None and not callable(act):
            raise CallError(
                f"act={act!r} is not a function.", hint="pass a function of the network and o."
            )
        known = next((one for one in self.policies if one.network is network), None)
        seen = known if o is None else o
        if seen is None or not hasattr(seen, "shape") or not hasattr(seen, "dtype"):
            raise CallError(
                "the shape and element type of observations are unknown.",
                hint="call ctx.policy(network, o) with a tensor or a space of observations as o.",
            )
        if not all(isinstance(n, int) for n in seen.shape):
            raise CallError(
                f"the observation {seen!r} has a symbolic length.",
                hint="pass a tensor with a fixed shape as o: the observation of one point.",
            )
        shape, dtype, how = tuple(seen.shape), element_type(seen.dtype), act or call_network
        read = seen.read if isinstance(seen, RecurrentTensor) else None
        self.policies.append(Actor(network, shape, dtype, how, user_origin(), True, read))

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
        """Return the undiscounted returns of evaluation episodes, played between iterations.

        The mean after every fifth iteration is `ctx.evaluate(env, episodes=8, every=5).mean()`. Evaluation
        uses a copy of the environment and separate random streams, so it does not change training. The
        episodes run in parallel up to the step limit; finished ones stand still.

        Args:
            env: a name, or the result of `trl.env.make`.
            episodes: the number of episodes.
            every: the number of iterations between evaluations, along the first dimension over which the
                network changes.
            sample: draw actions at random, as in training; by default the most likely action is taken.
            explore: keep random actions and noise of training.
            max_steps: the longest episode; by default the environment's own limit.

        Returns:
            a conditional tensor over the iterations, with an array of `episodes` returns.

        Raises:
            OptionError: the program has no declared policy, or does not train it.
            EnvError: the environment does not fit the network, or has no step limit.

        Example:
            >>> with trl.algorithms.reinforce(hidden=(8,)) as ctx:
            ...     returns = ctx.evaluate("CartPole-v1", episodes=4, every=2, max_steps=20)
            ...     ctx.output("evaluation", returns.mean())
            >>> result = ctx.compile({"B": 2, "I": 4, "T": 5}).execute(progress=False)
            >>> result["evaluation"].shape
            (2,)
        """
        found = entry_point("program.evaluate")
        ways = {"sample": sample, "explore": explore}
        return found(self, env, episodes, every, **ways, max_steps=max_steps)

    def debug(self, *, nan: bool = True) -> None:
        """Stop all programs compiled from now on at their first NaN.

        The error names the operation, its point and your line. For a gradient, it also names the
        differentiated line. These programs run on the interpreter, several times slower.
        `Options(check_nan=True)` is the same for one program.

        Args:
            nan: True to stop at a NaN; False to switch the check off.

        Example:
            >>> ctx.debug(nan=True)
            >>> x = trl.data(np.arange(3.0), domain=t)
            >>> ctx.output("y", trl.log(x - 1.0))
            >>> ctx.compile({B: 1, I: 1, T: 3}).execute(progress=False)
            Traceback (most recent call last):
            ...
            timerl_nb.base.errors.ExecutionError: ...
        """
        if not isinstance(nan, bool):
            raise OptionError(f"nan={nan!r} is not possible.", hint="pass True or False.")
        self._checks_nan = nan

    _checks_nan = False

    def _unbounded_dim(self, bounds: Mapping[str, int]) -> str | None:
        """Return the unbounded dimension, if there is one."""
        found = (dim.name for dim in self.space if isinstance(bounds[dim.bound], Endless))
        return next(found, None)

    def before(self, a: Any, b: Any) -> None:
        """Order two tensors: the points of `a` run before the points of `b` with equal coordinates.

        A dimension of only one of the tensors orders all of its points. An index selects the earlier
        points: `ctx.before(a[b, i, t + 1], b)`. Points outside `a` order nothing. The order changes no
        value, but it holds under all options: the two tensors run in separate kernels. It has no effect if
        one of the tensors is not needed (step `order dropped`).

        Args:
            a: a tensor, or a read of one.
            b: a tensor without branches.

        Raises:
            DomainError: `a` or `b` is not a tensor of this context, or `b` is a read or has branches.

        Example:
            >>> x = trl.data(np.arange(3.0), domain=t)
            >>> first, second = trl.exp(x), trl.sin(x)
            >>> ctx.before(first, second)
        """
        self.add_order(order_of(self, a, b))

    def compile(
        self,
        bounds: Mapping[Any, int | Until],
        options: Options | None = None,
        *,
        seeds: int | None = None,
        observer: CompileObserver | None = None,
        tell: bool = True,
    ) -> Program:
        """Compile the program under actual bounds.

        Args:
            bounds: a positive integer for each bound, as in `{B: 64, I: 20, T: 500}`. One bound may be
                dynamic: `trl.until(done, at_most=500)` ends the dimension at the first point with a true
                `done`. The outermost bound may be `trl.endless`; `program.turns()` runs such a program.
            options: the options; by default `trl.Options()`.
            seeds: run this many seeds side by side, as one more dimension. Outputs and parameters get a
                leading axis; row s equals `execute(seed=base + s)` without `seeds`. Memory grows in
                proportion.
            observer: receives every stage of the compilation, in order.
            tell: whether warnings are issued.

        Returns:
            the compiled program.

        Raises:
            BoundsError: a bound is missing, unknown or invalid.
            OptionError: `seeds` is not a positive integer, or an option is invalid.
            ReadError: a tensor is read outside its domain.
            BranchError: branches leave points undefined or overlap.
            ScheduleError: no valid order of execution exists.
            BudgetError: the program needs more memory than the device has, even with swapping.

        Example:
            >>> x = trl.data(np.arange(3.0), domain=t)
            >>> ctx.output("y", x + 1.0)
            >>> program = ctx.compile({B: 1, I: 1, T: 3}, trl.Options(fuse=False))
            >>> program.bounds
            {'B': 1, 'I': 1, 'T': 3}
        """
        if options is not None and not isinstance(options, Options):
            raise OptionError(
                f"options={options!r} is not an Options object.", hint="pass trl.Options(...)."
            )
        if seeds is not None:
            _check_seeds(seeds)
        try:
            actual, ends = check_bounds(self, bounds)
            dims = [dim for dim in self.space if dim.bound in ends]
            names = [dim.name for dim in dims]
            late = (partial(write_bound, self, dim, ends[dim.bound], names) for dim in dims)
            frozen = partial(return_frozen, self)
            pdg = self.pdg(*late, frozen, endless=self._unbounded_dim(actual))
            if not pdg.sinks:
                raise DomainError(
                    "the program has no output, so nothing would be computed.",
                    hint='declare an output, as in ctx.output("y", x).',
                )

            given, watching = options or Options(), observer or UNOBSERVED
            if self._checks_nan:
                given = given.with_(check_nan=True)

            def compile_graph(graph: Pdg) -> Compilation:
                if seeds is None:
                    compiler = Compiler(graph)
                    return compile_program(
                        CompileRequest(compiler, self, actual, given), observer=watching
                    )
                several = Seeds.from_dims(graph.dims)
                under = {several.dim.bound: int(seeds), **actual}
                try:
                    compiler = Compiler(several.run(graph).pdg)
                    return compile_program(
                        CompileRequest(compiler, self, under, given), observer=watching
                    )
                except TimeRLError:
                    Compiler(graph).source(
                        actual
                    )  # errors of the program without seeds are clearer
                    raise

            try:
                compiled = compile_graph(pdg)
            except ReadError as error:
                # The read may be outside under these small bounds only, at points without any effect on the
                # outputs.
                less = restrict_to_needed(pdg, under=actual)
                if less is pdg:
                    raise
                try:
                    compiled = compile_graph(less)
                except ReadError:
                    raise error from None
            if tell:
                compiled.issue_warnings()
            return announce_program(Program(compiled))
        except TimeRLError as error:
            raise error.with_traceback(None) from None


def _check_seeds(seeds: Any) -> None:
    if not is_whole(seeds) or seeds < 1:
        raise OptionError(
            f"seeds={seeds!r} is not possible.",
            hint="pass the number of parallel runs, such as seeds=8; execute(seed=100) sets the first seed.",
        )
