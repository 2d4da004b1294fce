"""Limits on the work of isl, per call and per purpose.

islpy holds the interpreter lock during a call. Such a call cannot be interrupted, and no other
thread runs. isl can count its elementary operations and stop at a limit. `spend` sets a limit for
one call, `at_most` sets a budget for many. Between two calls Python handles signals.
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

# isl runs some 3 million operations per second, or 1 million on large sets. So no call takes more
# than some two seconds.
CALL: Final = 3_000_000

# isl does not report the operations of a call. A call is tried with few first, then with ten times
# as many, and so on. This measures the cost within a factor of ten and repeats little work.
_TIERS: Final = (CALL // 100, CALL // 10, CALL)
_FEE: Final = CALL // 30_000  # charged for a call within the first tier

# Budget for one purpose other than scheduling, some half a minute. Programs of 200 unfused
# statements need 8 million. Divisions and remainders in many reads of one value may need any
# number.
BESIDE: Final = 100_000_000

_SIMPLER = (
    "simplify the index expressions (nested divisions, remainders, minima and maxima), or keep "
    "fuse=True to reduce the number of statements."
)

_ONE = threading.Lock()  # the isl context has one limit for all threads
_Args = ParamSpec("_Args")
_Made = TypeVar("_Made")


class TooMuchWork(CeilingError):
    """isl reached its limit on operations.

    Attributes:
        in_one_call: whether the limit of a single call was reached, rather than the budget.
    """

    def __init__(self, *, in_one_call: bool) -> None:
        self.in_one_call = in_one_call
        limit = f"{CALL:,} isl operations in one call" if in_one_call else "the isl operations left"
        super().__init__(
            f"the index computations of the program take more than {limit}.", hint=_SIMPLER
        )


class _Budget(threading.local):
    """Budget of one thread.

    Attributes:
        left: the operations left; None without a limit.
        spent: the operations spent in total.
        inside: whether a memoized function is running. Calls inside it are not memoized separately.
    """

    left: int | None = None
    spent: int = 0
    inside: bool = False


_budget = _Budget()
_CALLED: Final[Any] = operator.call

# Resets the counter for the calls that follow. Each of these is short.
_RENEWAL: Final = (partial(CONTEXT.set_max_operations, CALL), CONTEXT.reset_operations)
for _renew in _RENEWAL:
    _renew()


_ISL: Final = frozenset(kind for kind in vars(isl).values() if isinstance(kind, type))
# Results by function and arguments. The entry holds the arguments, so that their ids stay valid,
# the result and its cost.
_known: Final[Lru[tuple[Hashable, ...], tuple[object, Any, int]]] = Lru(1 << 13)


def memoize_with_cost(function: Callable[_Args, _Made]) -> Callable[_Args, _Made]:
    """Cache a function of isl objects (compared by identity) and plain values.

    A cached result is charged to the budget like the first call. If it cost more than the budget
    left, the call is refused like the first call would be. The cache also saves memory, since islpy
    leaks a little at every call.
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
    """Return the result of one possibly long isl call.

    Raises:
        TooMuchWork: the call takes more operations than one call may, or more than are left.
    """
    for tier in _TIERS:
        try:
            made = _stopped_at(tier, call, *args, **named)
        except isl.Error as error:
            # At its limit, isl may report some other error, such as a syntax error of a text.
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
    """Return the result of one isl call with a fixed limit, without tiers.

    Raises:
        TooMuchWork: the call takes more operations.
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
    """Return the result of a call under a limit for this call only.

    The limit belongs to the context. Calls of other threads, or calls after an interrupt, would
    otherwise meet this limit, or a counter already at the limit. So a single interpreter call sets
    the limit, runs isl and lifts the limit: no thread switch and no signal can occur inside. Nor
    can they between an exception and the first call of its handler. This holds only if no Python
    code runs inside. So the call must be one of isl's own functions, and garbage collection is off,
    because JAX registers a callback for it.
    """
    if isinstance(call, FunctionType | MethodType):
        raise TypeError(
            f"{call.__qualname__} is a Python function, but only isl functions run under an operation limit."
        )
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
    """Return the number of operations left."""
    return 1_000 * CALL if _budget.left is None else max(0, _budget.left)


@memoize_with_cost
def coalesce_pieces(made: Any) -> Any:
    """Return a set, relation or function with fewer pieces, or unchanged if isl finds none.

    isl fails to coalesce some sets with remainders.
    """
    kind: Any = type(made)
    # If interrupted, isl corrupts the function that it coalesces, so it gets a copy.
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
    """Return whether an isl error message reports the operation limit."""
    return "maximal number of operations" in complaint


@contextmanager
def at_most(operations: int) -> Generator[None]:
    """Limit the isl operations inside the block, approximately.

    Budgets nest. Only the innermost one is charged, and the outer one continues afterwards. Each
    thread has separate budgets.

    Raises:
        TooMuchWork: the budget is spent, or one call takes more operations than a call may.
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
    """Limit the isl operations inside the block, so that no program hangs the process.

    Args:
        what: the purpose, as the subject of the error message.
        origin: the user's line for the error message.

    Raises:
        CeilingError: isl reached the limit.
    """
    try:
        with at_most(BESIDE):
            yield
    except TooMuchWork as error:
        limit = f"{CALL:,}" if error.in_one_call else f"{BESIDE:,}"
        raise CeilingError(
            f"{what} takes more than {limit} isl operations.", origin=origin, hint=_SIMPLER
        ) from None
