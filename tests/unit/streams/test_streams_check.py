"""Checked windows detect undeclared accesses of kernels, by all access paths."""

from __future__ import annotations

import gc
import sys
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.lib.stride_tricks import sliding_window_view

import timerl_nb as trl
from timerl_nb.base.errors import ExecutionError
from timerl_nb.streams.access_checker import CheckError
from timerl_nb.streams.reachable_arrays import reachable

TABLE = np.arange(4.0)
STATE = types.ModuleType("state")
STATE.held = np.arange(3.0)  # type: ignore[attr-defined]


@dataclass
class Pair:
    left: np.ndarray
    right: np.ndarray


class Slotted:
    __slots__ = ("values",)

    def __init__(self) -> None:
        self.values = np.ones(3)


class Model:
    def __init__(self) -> None:
        self.w, self.b = np.zeros(3), np.zeros(3)

    @trl.kernel(reads=lambda self, x: [self.w, x], writes=lambda self, x: self.w)
    def right(self, x):
        self.w += x

    @trl.kernel(reads=lambda self, x: x, writes=lambda self, x: self.b)
    def forgets(self, x):
        self.b[:] = self._helped(x)

    def _helped(self, x: np.ndarray) -> np.ndarray:
        return self.w * x


def checked(function: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
    with trl.streams.window(check=True):
        function(*args, **kwargs)


def kernels(out: np.ndarray) -> dict[str, tuple[Callable[..., Any], tuple[Any, ...], str]]:
    """Kernels that declare only `out`, by their undeclared access: arguments, and a part of the message."""
    declare = trl.kernel(writes=lambda *a, **k: out)
    captured = np.ones(3)

    @declare
    def mapping(d, out):
        d["a"]["b"][1] = 7

    @declare
    def keyword(out, **rest):
        out[:] = rest["x"]

    @declare
    def closure(out):
        out[:] = captured

    @declare
    def variable(out):
        out[:] = TABLE[:3]

    @declare
    def module(out):
        out[:] = STATE.held

    @declare
    def attribute(pair, out):
        out[:] = pair.left

    @declare
    def slots(one, out):
        out[:] = one.values

    @declare
    def default(out, scale=captured):
        out *= scale

    @declare
    def buffer(raw, out):
        out[0] = raw[0]

    def helper() -> np.ndarray:
        return captured

    @declare
    def helped(out):
        out[:] = helper()

    return {
        "mapping": (mapping, ({"a": {"b": np.ones(3)}}, out), "its argument \"d['a']['b']\""),
        "keyword": (keyword, (), "its argument 'x'"),
        "closure": (closure, (out,), "the captured variable 'captured'"),
        "variable": (variable, (out,), "the captured variable 'TABLE'"),
        "module": (module, (out,), "the captured variable 'STATE.held'"),
        "attribute": (attribute, (Pair(np.ones(3), np.ones(3)), out), "its argument 'pair.left'"),
        "slots": (slots, (Slotted(), out), "its argument 'one.values'"),
        "default": (default, (out,), "its argument 'scale'"),
        "buffer": (buffer, (bytearray(8), out), "its argument 'raw'"),
        "helped": (helped, (out,), "the captured variable 'captured'"),
    }


@pytest.mark.parametrize("name", kernels(np.zeros(3)))
def test_memory_that_a_kernel_names_has_to_be_declared(name: str) -> None:
    out = np.zeros(3)
    function, args, what = kernels(out)[name]
    rest = {"out": out, "x": np.ones(3)} if name == "keyword" else {}
    with pytest.raises(CheckError) as raised:
        checked(function, *args, **rest)
    assert f"does not declare {what}" in str(raised.value)


def test_methods_declare_the_attributes_that_their_code_names() -> None:
    model, x = Model(), np.ones(3)
    checked(model.right, x)
    assert (model.w == 1).all()  # and no name in it reaches `b`
    with pytest.raises(CheckError, match="does not declare its argument 'self.w'"):
        checked(model.forgets, x)


def test_changes_are_found_wherever_they_are() -> None:
    out, pair = np.zeros(4), Pair(np.ones(3), np.ones(3))

    @trl.kernel(writes=lambda pair, out: out)
    def sideways(pair, out):
        vars(pair)["ri" + "ght"][1] = 5

    with pytest.raises(
        CheckError, match="(?s)changed its argument 'pair.right'.*was 1.0 and is 5.0"
    ):
        checked(sideways, pair, out)

    masked = np.ma.masked_array(np.zeros(3), mask=[False] * 3)

    @trl.kernel(writes=lambda m: m.data)
    def masks(m):
        m.mask[1] = True

    with pytest.raises(CheckError, match="does not declare its argument 'm.mask'"):
        checked(masks, masked)

    @trl.kernel(reads=lambda w: w)
    def through_a_window(w):
        w[0, 1] = 9

    with pytest.raises(CheckError, match="has changed its argument 'w'"):
        checked(through_a_window, sliding_window_view(np.zeros(100), 50, writeable=True))


def test_a_part_that_is_declared_may_change_and_no_other() -> None:
    @trl.kernel(writes=lambda out, k: out[k : k + 2])
    def two(out, k):
        out[k : k + 2] = k

    @trl.kernel(writes=lambda out, k: out[k : k + 2])
    def three(out, k):
        out[k : k + 3] = k

    out = np.zeros((6, 2))[:, 1]
    with trl.streams.window(check=True):
        for k in (1, 3):
            two(out, k)
    assert out.tolist() == [0, 1, 1, 3, 3, 0]
    with pytest.raises(CheckError, match=r"out\[3\] was 3.0 and is 1.0"):
        checked(three, out, 1)


def test_arrays_that_are_replaced_or_moved_are_named() -> None:
    class Held:
        def __init__(self) -> None:
            self.w = np.zeros(3)

    @trl.kernel(writes=lambda held: held.w)
    def replaces(held):
        held.w = held.w + 1

    with pytest.raises(CheckError, match="has replaced or moved the array 'held.w'"):
        checked(replaces, Held())

    @trl.kernel(writes=lambda x: x)
    def moves(x):
        x.resize(1 << 20, refcheck=False)

    with pytest.raises(CheckError, match="has replaced or moved the array 'x'"):
        checked(moves, np.zeros(3))


def test_objects_live_until_they_have_been_compared() -> None:
    objects = np.empty(40, object)
    for k in range(40):
        objects[k] = ["x" * 50, k]
    held = sys.getrefcount(objects[7])

    @trl.kernel(reads=lambda objects: objects)
    def replaces(objects):
        for k in range(len(objects)):
            objects[k] = (k, k)
        gc.collect()

    with pytest.raises(CheckError, match=r"objects\[0\] was \['xxxxxx.*and is \(0, 0\)"):
        checked(replaces, objects)
    assert held > 1 and objects[7] == (7, 7)


def test_the_cost_is_of_what_a_kernel_is_given() -> None:
    """Earlier kernels' arguments do not count."""
    seen: list[int] = []

    @trl.kernel(writes=lambda a: a)
    def one(a):
        a += 1

    arrays = [np.zeros(64) for _ in range(30)]
    with trl.streams.window(check=True) as w:
        for a in arrays:
            seen.append(len({id(f.value) for f in reachable(one.kernel(a))}))
            one(a)
    assert seen == [1] * 30 and w.report.count == 30
    with pytest.raises(ExecutionError, match="has raised ValueError"):
        checked(
            trl.kernel(writes=lambda a: a)(lambda a: (_ for _ in ()).throw(ValueError())), arrays[0]
        )
