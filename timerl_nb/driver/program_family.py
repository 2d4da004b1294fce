"""Families of programs: a function with some arguments given as lists, one program for each value."""

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

At = Mapping[str, int]  # by argument, the position of its value in its list
# Arguments that count the steps of a return: without a number, the return is the whole episode's.
LOOKAHEADS: Final = frozenset({"steps", "n_steps", "n_step", "lookahead"})
_NONE: Final[Mapping[str, Any]] = MappingProxyType({})


class Family:
    """The programs that a function writes for the values of its arguments.

    What the compiler would choose by itself, to compute again or in blocks, is for all what it is
    for the `first`, where the function returns a context: two programs then differ by the
    argument alone. A function that returns a program has chosen itself.

    Attributes:
        function: returns a context, or a program.
        swept: by name, the values of the arguments that are given as lists; None comes last.
        bounds: actual bounds, by name.
        options: those that contexts are compiled with.
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
            CallError: the function does not take such arguments, or returns neither.
            OptionError: a list is empty, or has a value twice.
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
        """The program at a position; its `warnings` are values.

        Args:
            bounds, options: what is changed of the family's own.
            observer: gets every stage that the family compiles, as soon as it is there.
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
                f"{self.name} returns a program, which has its options.",
                others=_place(self.function),
                hint="return the context, or give the options where it is compiled.",
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
    """The explorer of a function's programs, with a slider for each argument that is given as a list.

    `trl.explore(reinforce, bounds={"B": 64, "I": 20, "T": 500}, steps=[1, 5, 20, None])`: None comes
    last. It is labelled "Monte Carlo" for arguments named `steps`, `n_steps`, `n_step` or
    `lookahead`, and "None" for all others.

    Args:
        function: returns a context, or a program.
        bounds: those that contexts are compiled under, or programs again, by name.
        options: those that contexts are compiled with.
        arguments: of the function: a list or range is swept, all else is passed on.

    Raises:
        CallError: the function does not take such arguments, or returns something else.
        OptionError: a list is empty or has a value twice; the function returns programs, which
            have options.
        MissingPartError: the widgets are not installed.
        TimeRLError: the first program cannot be compiled.
    """
    family = Family(function, arguments, bounds, options)
    return entry_point("program.explore")(family.first, family=family)


def _check_call(function: Callable[..., Any], arguments: Mapping[str, Any]) -> None:
    if not callable(function) or isinstance(function, type | Context | Program):
        raise CallError(
            f"{type(function).__name__} is no function.",
            hint="pass a function that returns a context; of a program, call program.explore().",
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
            hint=one_of(unknown, takes) if unknown else f"its arguments are {', '.join(takes)}.",
        ) from None


def _values(name: str, given: list[Any] | range) -> tuple[Any, ...]:
    values = sorted(given, key=lambda value: value is None)
    if not values:
        raise OptionError(f"{name} is an empty list.", hint="a list names the values to sweep.")
    twice = next((v for k, v in enumerate(values) if v in values[:k]), ...)
    if twice is not ...:
        raise OptionError(
            f"{name} is swept over {given!r}, which has {twice!r} twice.",
            hint=f"if the list is one value, pass it as a tuple: {name}={tuple(given)!r}.",
        )
    return tuple(values)


def _chosen_options(program: Program) -> dict[str, Any]:
    """What the compiler chose where its options left it to it."""
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
