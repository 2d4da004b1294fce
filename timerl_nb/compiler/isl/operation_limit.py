"""The ceiling on isl's work: no call of isl may take long, nor what is done for one purpose in all.

islpy keeps the interpreter while isl works, so that a call can neither be interrupted nor let
another thread run. isl counts its elementary operations and stops at a ceiling; here every call that
may be long gets one (`spend`), and a budget for all of them together (`at_most`). Between two calls
signals are seen.
"""

from __future__ import annotations

import gc
import operator
import threading
from collections.abc import Callable, Generator, Hashable
from contextlib import contextmanager
from functools import partial, wraps
from types import FunctionType, MethodType
from typing import Any, Final, ParamSpec, TypeVar

import islpy as isl

from timerl_nb.base.errors import CeilingError, Origin
from timerl_nb.base.lru_cache import Lru

CONTEXT: Final = isl.DEFAULT_CONTEXT

# Some 3 million operations take a second, on large sets 1 million does: no call takes above two.
CALL: Final = 3_000_000

# isl does not say how many operations a call took. It is tried with few first, then with ten times as
# many, and so on: so that is known to a factor of ten, and little work is done twice.
_TIERS: Final = (CALL // 100, CALL // 10, CALL)
_FEE: Final = CALL // 30_000  # for a call within the first

# For one purpose beside scheduling, some half a minute. Programs of 200 unfused statements need 8
# million; divisions and remainders in the reads of one value by many statements can need any number.
BESIDE: Final = 100_000_000

_SIMPLER = (
    "simplify the index expressions (divisions, remainders, minima and maxima inside each other), or "
    "keep fuse=True so that fewer statements are left."
)

_ONE = threading.Lock()  # the context has one ceiling, whichever thread has set it
_Args = ParamSpec("_Args")
_Made = TypeVar("_Made")


class TooMuchWork(CeilingError):
    """The ceiling on isl's operations was reached; what isl was doing is lost, nothing else."""

    def __init__(self, *, in_one_call: bool) -> None:
        self.in_one_call = in_one_call
        limit = f"{CALL:,} isl operations in one call" if in_one_call else "the isl operations left"
        super().__init__(f"the program's points take more than {limit}.", hint=_SIMPLER)


class _Budget(threading.local):
    """What a thread may spend, None without limit, and what it has spent in all.

    Attributes:
        inside: whether what is asked is part of something that is remembered as one.
    """

    left: int | None = None
    spent: int = 0
    inside: bool = False


_budget = _Budget()
_CALLED: Final[Any] = operator.call

# Lets the calls that follow, each of them short, go on.
_RENEWAL: Final = (partial(CONTEXT.set_max_operations, CALL), CONTEXT.reset_operations)
for _renew in _RENEWAL:
    _renew()


_ISL: Final = frozenset(kind for kind in vars(isl).values() if isinstance(kind, type))
# By what was asked: its arguments, which so stay alive as their ids do, the answer, and its price.
_known: Final[Lru[tuple[Hashable, ...], tuple[object, Any, int]]] = Lru(1 << 13)


def memoize_with_cost(function: Callable[_Args, _Made]) -> Callable[_Args, _Made]:
    """A function of isl's values, by identity, and of plain ones: asked once for each, paid each time.

    Compiling asks the same again and again, and islpy leaves something behind at every call. What is
    known to cost more than is left is refused as if it were asked.
    """

    @wraps(function)
    def asked(*args: _Args.args, **named: _Args.kwargs) -> _Made:
        assert not named
        if _budget.inside:
            return function(*args, **named)
        key = (function, *[id(one) if type(one) in _ISL else one for one in args])
        found = _known.lookup(key)
        if found is not None:
            _charge(found[2])
            return found[1]
        before, _budget.inside = _budget.spent, True
        try:
            made = function(*args, **named)
        finally:
            _budget.inside = False
        price = _budget.spent - before
        return _known.get(key, lambda: (args, made, price))[1]

    return asked


@memoize_with_cost
def spend(call: Callable[_Args, _Made], *args: _Args.args, **named: _Args.kwargs) -> _Made:
    """The result of one call of isl that may be long.

    Raises:
        TooMuchWork: it takes more operations than a call may, or than are left.
    """
    for tier in _TIERS:
        try:
            made = _stopped_at(tier, call, *args, **named)
        except isl.Error as error:
            # stopped by its ceiling, isl may complain of something else: of a text's syntax, say
            if tier == CALL and not is_ceiling(str(error)):
                raise
            _charge(tier)
            continue
        _charge(_FEE if tier == _TIERS[0] else tier // 2)
        return made
    raise TooMuchWork(in_one_call=True)


def spend_once(
    operations: int, call: Callable[_Args, _Made], *args: _Args.args, **named: _Args.kwargs
) -> _Made:
    """The result of one call that is tried with so many operations, and not again.

    Raises:
        TooMuchWork: it takes more.
    """
    try:
        return _stopped_at(operations, call, *args, **named)
    except isl.Error as error:
        if not is_ceiling(str(error)):
            raise
        raise TooMuchWork(in_one_call=True) from None
    finally:
        _charge(operations)


def _stopped_at(
    operations: int, call: Callable[_Args, _Made], *args: _Args.args, **named: _Args.kwargs
) -> _Made:
    """The result of a call under a ceiling that is the call's alone.

    Other threads' calls of isl, and those behind an interrupt, would meet the ceiling or, worse, a
    count that has reached it. So it is set, used and lifted by one call of the interpreter, in which
    neither threads change nor signals are seen; nor are they between an error and the first call of
    its handler. That holds while no Python runs inside: the call is isl's own function, and garbage,
    for which JAX has a callback, is not collected.
    """
    if isinstance(call, FunctionType | MethodType):
        raise TypeError(f"{call.__qualname__} is Python; a ceiling is set around isl's own calls.")
    limited = operations if _budget.left is None else max(1, min(operations, _budget.left))
    with _ONE:
        ending = (*_RENEWAL, gc.enable) if gc.isenabled() else _RENEWAL
        steps = (
            gc.disable,
            CONTEXT.reset_operations,
            partial(CONTEXT.set_max_operations, limited),
            partial(call, *args, **named),
            *ending,
        )
        forward, renewal = map(_CALLED, steps), map(_CALLED, ending)
        try:
            return list(forward)[3]
        except BaseException:
            list(renewal)
            raise


def remaining_operations() -> int:
    """How many operations may still be spent."""
    return 1_000 * CALL if _budget.left is None else max(0, _budget.left)


@memoize_with_cost
def coalesce_pieces(made: Any) -> Any:
    """A set, relation or function with fewer pieces, where isl finds them within the ceiling.

    It may fail to: some sets with remainders are beyond its coalescing, which then answers nothing.
    """
    kind: Any = type(made)
    # stopped half way, isl leaves a function broken that it coalesces: it gets one of its own
    own = made.neg().neg() if kind is isl.PwAff else made
    try:
        return spend(kind.coalesce, own)
    except (TooMuchWork, isl.Error):
        if _budget.left is not None and _budget.left <= 0:
            raise
        return made


def _charge(operations: int) -> None:
    _budget.spent += operations
    if _budget.left is None:
        return
    _budget.left -= operations
    if _budget.left <= 0:
        raise TooMuchWork(in_one_call=False)


def is_ceiling(complaint: str) -> bool:
    """Whether isl stopped because it had reached its ceiling."""
    return "maximal number of operations" in complaint


@contextmanager
def at_most(operations: int) -> Generator[None]:
    """Let isl spend about so many elementary operations inside.

    Budgets nest: the innermost counts, and the one around it goes on behind it. Each thread has its
    own.

    Raises:
        TooMuchWork: they are spent, or one call takes more than a call may.
    """
    before, _budget.left = _budget.left, operations
    try:
        yield
    except isl.Error as error:
        if is_ceiling(str(error)):
            raise TooMuchWork(in_one_call=True) from None
        raise
    finally:
        _budget.left = before


@contextmanager
def limit_isl_work(what: str, origin: Origin | None = None) -> Generator[None]:
    """A ceiling on isl's work on `what`, so that no program hangs the process.

    Raises:
        CeilingError: isl reached it.
    """
    try:
        with at_most(BESIDE):
            yield
    except TooMuchWork as error:
        limit = f"{CALL:,}" if error.in_one_call else f"{BESIDE:,}"
        raise CeilingError(
            f"{what} takes more than {limit} isl operations.", origin=origin, hint=_SIMPLER
        ) from None
