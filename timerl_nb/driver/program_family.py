"""Families of programs: one program for each value of the arguments of a function."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from timerl_nb.base.entry_points import entry_point
from timerl_nb.base.errors import CallError, OptionError, Origin, one_of
from timerl_nb.base.options import Options
from timerl_nb.compiler.language.inputs.actual_bounds import check_mapping
from timerl_nb.driver.compiling_context import Context
from timerl_nb.driver.program import Program
from timerl_nb.driver.stages import UNOBSERVED, CompileObserver

At = Mapping[str, int]  # positions in the lists of values, by argument
# Arguments for the number of steps in a return. None means a return over the whole episode.
LOOKAHEADS: Final = frozenset({"steps", "n_steps", "n_step", "lookahead"})
_NONE: Final[Mapping[str, Any]] = MappingProxyType({})


class Family:
    """The programs that a function writes for several values of its arguments.

    If the function returns a context, all programs adopt the compiler's choices for the first one
    (rematerialisation and block sizes). Two programs then differ by the argument only.

    Attributes:
        function: returns a context or a program.
        swept: values of the list arguments, by name; None comes last.
        bounds: actual bounds, by name.
        options: options for contexts.
        first: the program of the first values.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        arguments: Mapping[str, Any],
        bounds: Mapping[str, Any] | None = None,
        options: Options | None = None,
    ) -> None:
        """Compile the first program.

        Raises:
            CallError: the function does not take the arguments, or returns neither a context nor a program.
            OptionError: a list is empty, or contains a value twice.
            TimeRLError: the first program cannot be compiled.
        """
        if bounds is not None:
            check_mapping(bounds)
        self.function, self.bounds = function, dict(bounds or {})
        _check_call(function, arguments)
        lists = {n: given for n, given in arguments.items() if isinstance(given, list | range)}
        self.swept = {name: _values(name, given) for name, given in lists.items()}
        self._others = {n: given for n, given in arguments.items() if n not in lists}
        self._given, self.options = options, options or Options()
        written = self._call_function(self.start)
        self.first = self._compile(written, tell=True)
        if isinstance(written, Context):
            chosen = _chosen_options(self.first)
            self.options = self.options.with_(**chosen)
            self.first = self.first.again(options=chosen, tell=False) if chosen else self.first

    @property
    def name(self) -> str:
        return getattr(self.function, "__name__", type(self.function).__name__)

    @property
    def start(self) -> dict[str, int]:
        """The position of the first values."""
        return dict.fromkeys(self.swept, 0)

    def label(self, name: str, k: int) -> str:
        """Return a value of an argument as text."""
        value = self.swept[name][k]
        if value is None and name in LOOKAHEADS:
            return "Monte Carlo"
        return str(getattr(value, "__name__", value))

    def program(
        self,
        at: At,
        bounds: Mapping[str, Any] = _NONE,
        options: Mapping[str, Any] = _NONE,
        observer: CompileObserver = UNOBSERVED,
    ) -> Program:
        """Return the program at a position, without issuing its warnings.

        Args:
            at: a position for each swept argument.
            bounds: changed bounds.
            options: changed options.
            observer: receives every new stage.
        """
        return self._compile(self._call_function(at), bounds, options, observer)

    def _call_function(self, at: At) -> Context | Program:
        arguments = {name: self.swept[name][k] for name, k in at.items()}
        made = self.function(**self._others, **arguments)
        if not isinstance(made, Context | Program):
            given = ", ".join(f"{name}={value!r}" for name, value in arguments.items())
            raise CallError(
                f"{self.name}({given}) returned {made!r}, which is neither a context nor a program.",
                others=_place(self.function),
                hint="end it by `return ctx`, or by `return ctx.compile({…})`.",
            )
        if isinstance(made, Program) and self._given is not None:
            raise OptionError(
                f"{self.name} returns a compiled program, so options= has no effect.",
                others=_place(self.function),
                hint="return the context, or pass the options to ctx.compile in the function.",
            )
        return made

    def _compile(
        self,
        written: Context | Program,
        bounds: Mapping[str, Any] = _NONE,
        options: Mapping[str, Any] = _NONE,
        observer: CompileObserver = UNOBSERVED,
        *,
        tell: bool = False,
    ) -> Program:
        under = {**self.bounds, **bounds}
        if isinstance(written, Context):
            return written.compile(
                under, self.options.with_(**options), observer=observer, tell=tell
            )
        if not under and not options:
            return written
        return written.again(bounds=under, options=options, observer=observer, tell=tell)


def explore(
    function: Callable[..., Any],
    /,
    bounds: Mapping[str, Any] | None = None,
    *,
    options: Options | None = None,
    **arguments: Any,
) -> Any:
    """Return an explorer widget of a function's programs, with a slider for each list argument.

    None comes last in a list. The slider shows it as "Monte Carlo" for arguments named `steps`, `n_steps`,
    `n_step` or `lookahead`.

    Args:
        function: returns a context or a program.
        bounds: bounds for contexts, or changed bounds of programs, by name.
        options: options for contexts.
        arguments: arguments of the function. Lists and ranges are swept; other values are passed unchanged.

    Raises:
        CallError: the function does not take the arguments, or returns neither a context nor a program.
        OptionError: a list is empty or contains a value twice, or the function returns programs despite
            `options`.
        MissingPartError: the widgets are not installed.
        TimeRLError: the first program cannot be compiled.

    Example:
        >>> def write(steps):
        ...     with trl.Context("t") as ctx:
        ...         ((t, T),) = ctx.dims
        ...         x = trl.data(np.arange(8.0), domain=t)
        ...         ctx.output("y", x[t : trl.min(t + (steps or T), T)].sum(axis=0))
        ...     return ctx
        >>> explorer = trl.explore(write, bounds={"T": 8}, steps=[1, 2, None])  # doctest: +SKIP
    """
    family = Family(function, arguments, bounds, options)
    return entry_point("program.explore")(family.first, family=family)


def _check_call(function: Callable[..., Any], arguments: Mapping[str, Any]) -> None:
    if not callable(function) or isinstance(function, type | Context | Program):
        raise CallError(
            f"{type(function).__name__} is not a function.",
            hint="pass a function that returns a context; for a program, call program.explore().",
        )
    signature = inspect.signature(function)
    try:
        signature.bind(**arguments)
    except TypeError as error:
        takes = [p.name for p in signature.parameters.values() if p.kind not in (p.VAR_POSITIONAL,)]
        unknown = next((name for name in arguments if name not in takes), None)
        raise CallError(
            f"{getattr(function, '__name__', 'the function')}: {error}.",
            others=_place(function),
            hint=one_of(unknown, takes) if unknown else f"pass the arguments {', '.join(takes)}.",
        ) from None


def _values(name: str, given: list[Any] | range) -> tuple[Any, ...]:
    values = sorted(given, key=lambda value: value is None)
    if not values:
        raise OptionError(f"{name} is an empty list.", hint="list the values to sweep.")
    twice = next((v for k, v in enumerate(values) if v in values[:k]), ...)
    if twice is not ...:
        raise OptionError(
            f"{name} is swept over {given!r}, with {twice!r} twice.",
            hint=f"if the list is one value, pass it as a tuple: {name}={tuple(given)!r}.",
        )
    return tuple(values)


def _chosen_options(program: Program) -> dict[str, Any]:
    """Return the compiler's choices for options with the value "auto"."""
    found: dict[str, Any] = {}
    if program.options.rematerialize == "auto":
        stage = program.stages.get("rematerialize")
        found["rematerialize"] = stage is not None and bool(stage.steps)
    if program.options.incrementalize == "auto":
        dims = program.fused.dims
        cut = {dim.bound: dim.step for dim in dims if dim.step != 1}
        along = {dim.name: cut[dim.bound] for dim in dims if dim.step == 1 and dim.bound in cut}
        found["incrementalize"] = along or False
    return found


def _place(function: Callable[..., Any]) -> dict[str, Origin]:
    code = getattr(function, "__code__", None)
    if code is None:
        return {}
    return {"the function is at": Origin(code.co_filename, code.co_firstlineno)}
