"""Functions of all kinds as kernels, and functions without launches."""

from __future__ import annotations

import functools

import jax.numpy as jnp
import numpy as np
import pytest

import timerl_nb as trl
from timerl_nb.base.errors import CallError
from timerl_nb.streams import ANY, segment_of


class Model:
    scale = np.full(2, 3.0)

    def __init__(self) -> None:
        self.w = np.zeros(2)

    @trl.kernel(reads=lambda self, x: [self.w, x], writes=lambda self, x: self.w, blocks=4)
    def step(self, x):
        self.w += x

    @trl.kernel(writes=lambda x: x)
    @staticmethod
    def double(x):
        x *= 2

    @trl.kernel(reads=lambda cls, x: cls.scale, writes=lambda cls, x: x)
    @classmethod
    def times(cls, x):
        x *= cls.scale


def test_methods_are_kernels_of_their_instance() -> None:
    one, other, x = Model(), Model(), np.ones(2)
    with trl.streams.window() as w:
        one.step(x)
        one.step(x=x)
        other.step(x)
        Model.double(x)
        one.times(x)
    assert one.w.tolist() == [2, 2] and other.w.tolist() == [1, 1] and x.tolist() == [6, 6]
    by = {launch.kernel: launch for launch in w.report.launches}
    assert by[1].upstream == (0,) and by[2].upstream == () and by[0].name == "step"
    made = one.step.kernel(x)
    assert made.writes == (segment_of(one.w),) and made.blocks == 4
    Model.step(one, x)  # outside a window it runs immediately
    assert one.w.tolist() == [8, 8]


def test_partial_functions_callables_and_built_in_functions() -> None:
    class Adder:
        def __call__(self, a):
            a += 1

    a = np.zeros(2)
    plus = trl.kernel(writes=lambda a: a)(Adder())
    add = trl.kernel(reads=lambda a, b, out: [a, b], writes=lambda a, b, out: out)(np.add)
    part = trl.kernel(writes=lambda out: out)(functools.partial(np.multiply, 2.0, np.ones(2)))
    with trl.streams.window() as w:
        plus(a)
        add(a, a, a)
        part(a)
    assert a.tolist() == [2, 2]
    assert sorted(one.name for one in w.report.launches) == ["Adder", "add", "multiply"]
    with trl.streams.window(check=True):
        add(a, a, a)
    assert a.tolist() == [4, 4]


def test_defaults_that_a_call_leaves_out_are_given_to_reads_and_writes() -> None:
    @trl.kernel(reads=lambda a, by: a, writes=lambda a, by: a)
    def grow(a, by=2):
        a += by

    a = np.zeros(2)
    with trl.streams.window():
        grow(a)
        grow(a, 3)
    assert a.tolist() == [5, 5]
    with pytest.raises(TypeError, match="missing"), trl.streams.window():
        grow()


async def coroutine(a):
    a += 1


async def stepwise(a):
    yield a


def generator(a):
    yield a


class Awaited:
    async def __call__(self, a):
        a += 1


@pytest.mark.parametrize(
    "function",
    [
        coroutine,
        stepwise,
        generator,
        Awaited(),
        functools.partial(coroutine, 1),
        staticmethod(generator),
    ],
)
def test_functions_of_which_a_call_runs_nothing_are_refused(function) -> None:
    with pytest.raises(CallError, match="cannot be a kernel: a call only creates a"):
        trl.kernel(writes=lambda a: a)(function)


def test_decorators_that_are_used_wrongly() -> None:
    with pytest.raises(CallError, match="trl.kernel decorates a function without arguments"):

        @trl.kernel
        def bare(a): ...

    with pytest.raises(CallError, match="int is not a function"):
        trl.kernel()(3)  # type: ignore[arg-type]
    says_nothing = trl.kernel()(lambda a: None)
    assert says_nothing.kernel(np.zeros(1)).writes == (ANY,)


def test_functions_that_launch_no_kernels_are_no_streams() -> None:
    with pytest.raises(CallError, match="'sines' has launched no kernels") as raised:

        def sines(x):
            return jnp.sin(x)

        trl.streams.record(sines, jnp.ones(3))
    assert "jax.jit" in str(raised.value)
    with pytest.raises(CallError, match="only creates a coroutine"):
        trl.streams.record(coroutine, np.ones(1))
