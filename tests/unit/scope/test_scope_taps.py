"""Wrappers record native calls, behave like the wrapped functions, and are removed without trace."""

from __future__ import annotations

import binascii
import copy
import functools
import importlib
import inspect
import math
import pickle
import queue
import sys
import threading
import time
import types
import weakref
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import timerl_nb as trl
from tests.recorders import own_lane
from tests.recorders import recorder_in as recorder_in
from timerl_nb.base.errors import OptionError, TimeRLWarning
from timerl_nb.scope.analysis.recording_queries import Recording
from timerl_nb.scope.analysis.thread_timelines import Lane
from timerl_nb.scope.recording.recorder import this_lane
from timerl_nb.scope.storage import recording_writer as writing
from timerl_nb.scope.storage.event_format import NAME_BITS, Kind, Library
from timerl_nb.scope.wrappers.function_wrappers import Taps, is_tap, unwrap_function


def calls(recording: Recording, lane: Lane | None = None) -> list[tuple[str, str]]:
    """Return the calls of a track, by default this thread's: library and name."""
    return [
        (Library(top >> NAME_BITS).name.lower(), recording.names[top & ((1 << NAME_BITS) - 1)])
        for _, top, kind, _ in (own_lane(recording) if lane is None else lane).edges.tolist()
        if kind == Kind.CALL_ENTER
    ]


def told(recording: Recording) -> list[str]:
    """Return the events, and the number of unrecorded calls or operations before each."""
    return [
        f"{top} {('calls', 'operations')[depth]}" if kind == Kind.PASSED else Kind(kind).name
        for _, top, kind, depth in own_lane(recording).edges.tolist()
        if kind <= Kind.ON or kind == Kind.PASSED
    ]


def bound() -> dict[str, list[tuple[str, Any]]]:
    """Return all bindings of modules, in order."""
    modules = [(k, m) for k, m in list(sys.modules.items()) if isinstance(m, types.ModuleType)]
    return {name: list(vars(module).items()) for name, module in modules}


def changed(before: dict[str, list[tuple[str, Any]]]) -> list[str]:
    """Return the changed bindings, except those that modules change themselves."""
    now, found = bound(), list[str]()
    for name, items in before.items():
        if name not in now:
            continue
        if [k for k, _ in now[name]][: len(items)] != [k for k, _ in items]:
            found.append(name)
        for (key, old), (_, new) in zip(items, now[name], strict=False):
            state = isinstance(old, weakref.ref)  # of the last recording
            if new is not old and (is_tap(new) or (callable(old) and not state)):
                found.append(f"{name}.{key}")
    return found


@pytest.fixture
def crc() -> Iterator[trl.scope.tap]:
    with trl.scope.tap(zlib, "simulation") as tapped:
        yield tapped


def test_calls_are_recorded_where_they_are_looked_up(crc: trl.scope.tap, tmp_path: Path) -> None:
    assert zlib.crc32(b"x") == 2363233923  # recording is off
    with trl.scope.record(tmp_path / "r", taps=False) as rec, trl.scope.operation("sum"):
        assert zlib.crc32(b"x") == 2363233923
        with pytest.raises(TypeError):
            zlib.crc32("x")
        assert zlib.adler32(b"x") == 7929977
    assert calls(rec.read()) == [
        ("simulation", "zlib.crc32"),
        ("simulation", "zlib.crc32"),
        ("simulation", "zlib.adler32"),
    ]
    assert {cell.library for cell in rec.table().cells if cell.operation == "sum"} == {
        "python",
        "simulation",
    }
    assert trl.scope.transitions(rec.read()) == {("sum", "python", "simulation"): 3}


def test_a_tap_passes_for_what_it_wraps() -> None:
    before = math.hypot
    with trl.scope.tap("math", "backend"):
        tap = math.hypot
        assert tap is not before and tap == before and before == tap
        assert hash(tap) == hash(before) and {before: 1}[tap] == 1
        assert inspect.isbuiltin(tap) and isinstance(tap, types.BuiltinFunctionType)
        assert (repr(tap), tap.__name__, tap.__doc__) == (
            repr(before),
            before.__name__,
            before.__doc__,
        )
        assert tap.__module__ == "math" and tap.__self__ is before.__self__
        assert inspect.signature(math.sqrt) == inspect.signature(unwrap_function(math.sqrt))
        assert pickle.loads(pickle.dumps(tap)) is tap
        assert copy.copy(tap) is tap and copy.deepcopy([tap])[0] is tap
        pickled = pickle.dumps(tap)
    assert math.hypot is before and pickle.loads(pickled) is before


def test_a_method_in_python_is_told_from_what_wraps_it() -> None:
    class Env:
        def step(self, action: int, *, twice: bool = False) -> int:
            """Twice, if requested."""
            return action * (1 + twice)

    taps, before = Taps(), Env.step
    taps.method(Env, "step", Library.SIMULATION)
    outer = functools.wraps(Env.step)(lambda self, action: self.step(action))
    assert is_tap(Env.step) and unwrap_function(Env.step) is before
    assert not is_tap(outer) and unwrap_function(outer) is outer
    assert (Env.step.__doc__, inspect.signature(Env.step)) == (
        before.__doc__,
        inspect.signature(before),
    )
    with trl.scope.record(taps=False) as rec:
        assert Env().step(2, twice=True) == 4 and Env.step(Env(), 3) == 3
    taps.remove_all()
    assert vars(Env)["step"] is before
    names = {name for _, name in calls(rec.read())}
    assert len(calls(rec.read())) == 2 and names == {f"{__name__}.Env.step"}


def test_a_tap_binds_to_instances_where_its_function_does() -> None:
    with trl.scope.record() as rec:

        class Paced:
            factor = 3
            pause = time.sleep
            take = queue.Queue.get

            @functools.partial(jax.jit, static_argnums=0)
            def scaled(self, x: float) -> Any:
                return self.factor * x

            @classmethod
            @functools.partial(jax.jit, static_argnums=0)
            def doubled(cls, x: float) -> Any:
                return 2 * x

        one, full = Paced(), queue.Queue[int]()
        full.put(1)
        one.pause(0)  # a built-in function is not a method
        assert Paced.take(full) == 1
        assert (float(one.scaled(2.0)), float(one.doubled(2.0))) == (6, 4)
        assert not inspect.ismethoddescriptor(time.sleep)
    assert {"time.sleep", "jit scaled", "jit doubled"} <= {name for _, name in calls(rec.read())}
    assert float(one.scaled(2.0)) == 6


def test_taps_are_pickled_as_what_they_wrap() -> None:
    with trl.scope.record():

        class Env(gymnasium.Env[Any, Any]):
            def step(self, action: Any) -> Any:
                return action + 1

        told = [time.sleep, gymnasium.Env.step, queue.Queue.get, jax.jit]
        pickled = [pickle.dumps(one) for one in told]
        sent = cloudpickle.dumps([*told, lambda: Env()])
        assert [pickle.loads(one) for one in pickled] == told
        assert (time.sleep.__module__, time.sleep.__doc__) == (
            "time",
            unwrap_function(time.sleep).__doc__,
        )
    *found, made = cloudpickle.loads(sent)
    assert found == [time.sleep, gymnasium.Env.step, queue.Queue.get, jax.jit]
    assert [pickle.loads(one) for one in pickled] == found
    assert made().step(1) == 2 and not is_tap(vars(type(made()))["step"])


def test_what_was_bound_before_is_tapped_and_all_is_put_back() -> None:
    here = types.ModuleType("bound_before")
    vars(here).update(first=1, crc=binascii.crc32, last=2)
    sys.modules["bound_before"] = here
    try:
        before = bound()
        tapped = trl.scope.tap(binascii, "api")
        with trl.scope.record(taps=False) as rec:
            here.crc(b"x")
        assert changed(before)
        tapped.off()
        tapped.off()
        assert not changed(before)
        assert calls(rec.read()) == [("api", "binascii.crc32")]
    finally:
        del sys.modules["bound_before"]


def test_what_somebody_else_has_set_since_stays(crc: trl.scope.tap) -> None:
    mine, real = (lambda data: 0), unwrap_function(zlib.crc32)
    zlib.crc32 = mine
    crc.off()
    try:
        assert zlib.crc32 is mine
    finally:
        zlib.crc32 = real


def test_calls_from_inside_a_library_are_its_own() -> None:
    with (
        trl.scope.tap(zlib, "backend"),
        trl.scope.tap(binascii, "backend"),
        trl.scope.tap(math, "api"),
    ):
        both = lambda: (zlib.crc32(b"x"), math.sqrt(4.0))  # noqa: E731
        inside = Taps().get_or_make(both, "outer", Library.BACKEND)
        with trl.scope.record(taps=False) as rec:
            for _ in range(2):
                assert inside()[1] == 2.0
            lane = this_lane()
            assert lane is not None
            lane.silence(True)
            for _ in range(3):
                with trl.scope.operation("silent"), trl.scope.operation("in it"):
                    inside()
            lane.silence(False)
    assert calls(rec.read()) == [("backend", "outer"), ("api", "math.sqrt")] * 2
    # they count where they ran: in a call of the same library, or in an unrecorded part
    recorded = ["CALL_ENTER", "1 calls", "CALL_ENTER", "CALL_EXIT", "CALL_EXIT"]
    assert told(rec.read()) == [*recorded * 2, "OFF", "9 calls", "6 operations", "ON"]


def test_a_disk_that_is_full_ends_the_recording_and_not_the_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with trl.scope.tap(zlib, "api"), trl.scope.record(tmp_path / "r", taps=False) as rec:
        zlib.crc32(b"x")
        monkeypatch.setattr(writing, "_reserve", full)
        made: list[object] = []

        def calling() -> None:
            with pytest.raises(TypeError, match="bytes-like"):
                zlib.crc32("x")
            made.append(zlib.crc32(b"x"))

        with pytest.warns(TimeRLWarning, match="has stopped: No space left on device"):
            thread = threading.Thread(target=calling)
            thread.start()
            thread.join()
        zlib.crc32(b"x")
    assert made == [2363233923]
    assert calls(rec.read()) == [("api", "zlib.crc32")]


def test_a_call_that_ends_its_recording_and_begins_another(tmp_path: Path) -> None:
    first = trl.scope.record(tmp_path / "1", taps=False)
    second = trl.scope.record(tmp_path / "2", taps=False)

    def switched() -> int:
        first.__exit__()
        second.__enter__()
        return zlib.crc32(b"x")

    taps = Taps()
    outer = taps.get_or_make(switched, "switched", Library.BACKEND)
    with trl.scope.tap(zlib, "api"):
        first.__enter__()
        assert outer() == 2363233923
        second.__exit__()
    assert calls(first.read()) == [("backend", "switched")]
    assert calls(second.read()) == [("api", "zlib.crc32")]
    kinds = [Kind(kind) for kind in own_lane(second.read()).edges["kind"].tolist()]
    assert kinds == [Kind.MARK, Kind.CALL_ENTER, Kind.CALL_EXIT]


def test_threads_start_as_ever() -> None:
    with trl.scope.record() as rec:
        threads = [threading.Thread(target=zlib.crc32, args=(b"x",), name=f"n{k}") for k in "ab"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        known = set(threading.enumerate())
    assert not known & set(threads) and not any("Dummy" in repr(one) for one in known)
    recording = rec.read()
    assert all(lane.name for lane in recording.lanes)


def test_threads_have_calls_of_their_own() -> None:
    with trl.scope.tap(zlib, "api"), trl.scope.record(taps=False) as rec:
        barrier = threading.Barrier(3)

        def calling() -> None:
            barrier.wait()
            for _ in range(100):
                zlib.crc32(b"x")

        threads = [threading.Thread(target=calling) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    recording = rec.read()
    found = sorted(len(calls(recording, lane)) for lane in recording.lanes)
    assert found == [0, 100, 100, 100]


@pytest.mark.parametrize(
    ("module", "category", "said"),
    [
        ("zlib", "simulations", "the category 'simulations' does not exist"),
        ("zlib", "python", "the category 'python' does not exist"),
        ("no_such_module", "backend", "no_such_module cannot be imported"),
        (3, "backend", "3 is not a module"),
        ("this_has_nothing", "backend", "has no native functions to wrap"),
    ],
)
def test_wrong_taps_are_refused(module: Any, category: str, said: str) -> None:
    sys.modules["this_has_nothing"] = types.ModuleType("this_has_nothing")
    try:
        with pytest.raises(OptionError, match=said):
            trl.scope.tap(module, category)
    finally:
        del sys.modules["this_has_nothing"]


# --- automatic wrappers ----------------------------------------------------------------------


def test_jitted_functions_are_calls_and_operations() -> None:
    def twice(x: Any) -> Any:
        return 2 * x

    x = jnp.ones(3)
    ahead = jax.jit(twice)
    sys.modules["has_jitted"] = here = types.ModuleType("has_jitted")
    here.ahead = ahead
    before = bound()
    try:
        with trl.scope.record() as rec:
            f = jax.jit(twice)
            g = jax.jit(static_argnums=0)(lambda n, x: n * x)
            assert isinstance(f, type(ahead)) and f.lower(x).as_text() == ahead.lower(x).as_text()
            f(x)
            with trl.scope.operation("mine"):
                g(3, x)
            here.ahead(x).block_until_ready()
            assert jax.vmap(f)(x).tolist() == [2, 2, 2]
            assert jax.grad(lambda x: f(x).sum())(x).tolist() == [2, 2, 2]
    finally:
        del sys.modules["has_jitted"]
    assert not changed(before)
    assert here.ahead is ahead
    recording = rec.read()
    found = calls(recording)
    assert found[:2] == [("backend", "jit twice"), ("backend", "jit <lambda>")]
    assert ("waiting", "jaxlib._jax.ArrayImpl.block_until_ready") in found
    by = {(cell.operation, cell.library) for cell in rec.table().cells}
    assert {("jit twice (guessed)", "backend"), ("mine", "backend")} <= by
    assert not any("<lambda>" in name for name, _ in by)  # annotated explicitly
    np.testing.assert_array_equal(f(x), [2, 2, 2])  # it continues after the recording


class Counting(gymnasium.Env[Any, Any]):
    """An environment that counts its calls."""

    observation_space = action_space = gymnasium.spaces.Discrete(2)
    asked = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self.asked += 1
        return 0, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.asked += 1
        return 0, 0.0, False, False, {}


def test_steps_of_environments_are_guessed_and_annotations_win() -> None:
    env = gymnasium.wrappers.TimeLimit(Counting(), 10)
    plain = vars(Counting)["step"]
    with trl.scope.record() as rec:

        class Later(Counting):
            def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
                return super().step(action)

        env.reset()
        env.step(0)
        Later().step(0)
        with trl.scope.operation("collect"):
            env.step(1)
    assert vars(Counting)["step"] is plain and "__init_subclass__" not in vars(gymnasium.Env)
    recording = rec.read()
    entered = [
        recording.names[top & ((1 << NAME_BITS) - 1)]
        for _, top, kind, _ in own_lane(recording).edges.tolist()
        if kind == Kind.OPERATION_ENTER
    ]
    assert entered == ["simulation (guessed)"] * 3 + ["collect"]
    assert env.unwrapped.asked == 3
    # of a wrapper, of the environment, and of its `super` calls: none belongs to a library
    two, three = (["OPERATION_ENTER", f"{n} calls", "OPERATION_EXIT"] for n in (2, 3))
    assert told(recording) == [*three, *two * 3]


def test_waiting_is_a_category_of_its_own() -> None:
    given: queue.Queue[int] = queue.Queue()
    with trl.scope.record() as rec:
        thread = threading.Thread(target=lambda: given.put(3))
        thread.start()
        assert given.get() == 3
        thread.join()
        time.sleep(0.001)
    recording = rec.read()
    found = [name for library, name in calls(recording) if library == "waiting"]
    assert [n for n in found if "Event" not in n] == [
        "queue.Queue.get",
        "threading.Thread.join",
        "time.sleep",
    ]
    assert rec.table().by("library")[("waiting",)] >= 1_000_000


def test_a_library_that_is_imported_later_is_tapped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "ale_py"
    package.mkdir()
    (package / "__init__.py").write_text("from ale_py._ale_py import crc\n")
    (package / "_ale_py.py").write_text("from zlib import crc32 as crc\n")
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("ale_py", "ale_py._ale_py"):  # Stable-Baselines3 has imported the real one
        monkeypatch.delitem(sys.modules, name, raising=False)
    finders = list(sys.meta_path)
    try:
        with trl.scope.record() as rec:
            made = importlib.import_module("ale_py")
            made.crc(b"x")
            spec = sys.modules["ale_py._ale_py"].__spec__
            assert type(spec.loader).__name__ == "SourceFileLoader"
        assert made.crc is zlib.crc32 and sys.meta_path == finders
    finally:
        for name in ("ale_py", "ale_py._ale_py"):
            sys.modules.pop(name, None)
    assert calls(rec.read()) == [("simulation", "ale_py._ale_py.crc")]


def test_all_is_put_back_behind_a_recording() -> None:
    before = bound()
    array = dict(vars(type(jnp.ones(1))))
    event = dict(vars(threading.Event))
    with trl.scope.record():
        assert changed(before)
    assert not changed(before)
    assert dict(vars(type(jnp.ones(1)))) == array and list(vars(threading.Event).items()) == list(
        event.items()
    )
