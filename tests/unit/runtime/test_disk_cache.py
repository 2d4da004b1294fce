"""Disk cache and its keys: equal programs hit, others miss."""

from __future__ import annotations

import pickle
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import timerl_nb as trl
from tests.reinforce import reinforce
from tests.unit.ir.test_digest import written
from timerl_nb.compiler.ir.graph_digest import digest
from timerl_nb.driver.compiling.compiler import Compiler
from timerl_nb.driver.compiling.pass_and_schedule_serialization import (
    deserialize_front,
    serialize_front,
)
from timerl_nb.runtime.state import disk_cache
from timerl_nb.runtime.xla.execution.precompiled_call_cache import (
    CompiledCall,
    CompiledCalls,
    _engine,
    _workers,
)

BOUNDS = {"B": 4, "I": 3, "T": 12}


def ppo() -> trl.Context:
    return trl.algorithms.ppo(trl.env.make("CartPole-v1"), hidden=[8])


def texts(stages: Any) -> list[str]:
    """Return all readable texts of the stages."""
    return [
        f"{s.name} {s.summary}\n{s.artifact}\n{s.diff()}\n{s.steps}\n{s.choices}\n"
        f"{s.rewritten and (s.rewritten.ids, s.rewritten.refused)}"
        for s in stages
    ]


@pytest.mark.parametrize(
    ("write", "changes"),
    [
        (lambda: reinforce(5, hidden=(8,)), {}),
        (lambda: reinforce(None, hidden=(8,)), {"lift": False}),
        (lambda: reinforce(None, hidden=(8,)), {"incrementalize": 4}),
        (lambda: reinforce(None, hidden=(8,)), {"device_memory": "20KiB"}),
        (ppo, {}),
    ],
    ids=["5-step", "Monte Carlo", "in blocks", "within a budget", "PPO"],
)
def test_a_front_is_the_same_from_bytes(
    write: Callable[[], trl.Context], changes: dict[str, Any]
) -> None:
    program = write().compile(BOUNDS, trl.Options(**changes))
    options, compiler = program.options, program._compiled.request.compiler
    front = compiler.compile_front(options, BOUNDS)
    written = digest(compiler.pdg)
    assert written is not None
    payload = serialize_front(front, compiler.pdg, written.lines)
    assert payload is not None
    source = write().compile(BOUNDS, trl.Options(**changes)).pdg  # as in another process
    assert source is not compiler.pdg
    found = digest(source)
    assert found is not None and found.text == written.text
    again = deserialize_front(payload, source, found.lines)
    assert again is not None
    again = Compiler(source).with_forecast_source(again, options, BOUNDS)
    assert texts(again.stages) == texts(front.stages)
    assert again.stages[0].previous is source
    there = {op.origin for op in source}
    assert all(op.origin in there for s in again.stages for op in s.rewritten.pdg)  # type: ignore[union-attr]
    back = Compiler(source).compile_back(again, options, BOUNDS)
    want = compiler.compile_back(front, options, BOUNDS)
    assert texts(back) == texts(want)


def test_bytes_of_something_else_are_no_front() -> None:
    source = written().compile({"T": 2}).pdg
    for payload in (b"", b"nonsense", pickle.dumps((1, 2)), pickle.dumps(([], source, "", 0.0))):
        assert deserialize_front(payload, source, ()) is None


def test_a_key_depends_on_our_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_cache, "_PACKAGE", tmp_path)
    found: list[str] = []
    for text in ("x = 1", "x = 2"):
        (tmp_path / "module.py").write_text(text)
        disk_cache._ourselves.cache_clear()
        found += [disk_cache.key_of("a", "bc"), disk_cache.key_of("ab", "c")]
    disk_cache._ourselves.cache_clear()
    assert len(set(found)) == 4


def test_a_key_depends_on_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    before = _engine()
    assert _engine() == before
    with jax.default_matmul_precision("bfloat16"):
        assert _engine() != before
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_enable_fast_math=true")
    assert _engine() != before


def test_a_kept_call_heeds_debugging_from_then_on(tmp_path: Path) -> None:
    kept = CompiledCalls(disk_cache.DiskCache(tmp_path), "a program")
    call = kept.call("1", jax.jit(jnp.log), lambda: (jnp.float32(1),))
    assert np.isnan(call(jnp.float32(-1)))
    with jax.debug_nans(True), pytest.raises(FloatingPointError):
        call(jnp.float32(-1))
    assert np.isnan(call(jnp.float32(-1)))


def test_a_kept_call_follows_jaxs_settings(tmp_path: Path) -> None:
    kept = CompiledCalls(disk_cache.DiskCache(tmp_path), "a program")
    call = kept.call("1", jax.jit(lambda x, k: x * k), lambda: (jnp.float32(1), 2))
    assert call(jnp.float32(3), 2) == 6
    with jax.enable_x64(True):
        assert call(jnp.float32(3), 2) == 6
    traced: list[str | None] = []

    def precision(x: Any) -> Any:
        traced.append(jax.config.jax_default_matmul_precision)  # type: ignore[attr-defined]
        return x

    call = kept.call("2", jax.jit(precision), lambda: (jnp.float32(1),))
    call(jnp.float32(1))
    with jax.default_matmul_precision("highest"):
        call(jnp.float32(1))
    assert traced == [None, "highest"]


def test_calls_that_have_begun_are_compiled_beside_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = CompiledCalls(disk_cache.DiskCache(tmp_path), "a program")
    traced: list[int] = []
    threads: list[int] = []
    compile_ = CompiledCall._compile

    def compiled(call: CompiledCall, *args: Any) -> Any:
        threads.append(threading.get_ident())
        return compile_(call, *args)

    monkeypatch.setattr(CompiledCall, "_compile", compiled)

    def function(k: int) -> Any:
        def times(x: Any) -> Any:
            traced.append(threading.get_ident())
            return x * k

        return jax.jit(times)

    calls = [kept.call(str(k), function(k), lambda: (jnp.float32(1),)) for k in range(3)]
    CompiledCall.begin(calls)
    CompiledCall.begin(calls)
    assert [float(call(jnp.float32(2))) for call in calls] == [0, 2, 4]
    here = threading.get_ident()
    assert traced == [here] * 3
    assert len(threads) == 3 and here not in threads


def test_an_interrupt_ends_the_queue_of_what_is_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = CompiledCalls(disk_cache.DiskCache(tmp_path), "a program")
    calls = [
        kept.call(str(k), jax.jit(lambda x, k=k: x * k), lambda: (jnp.float32(1),))
        for k in range(3)
    ]
    compile_, begun, go = CompiledCall._compile, threading.Event(), threading.Event()
    main = threading.main_thread().ident
    assert main is not None

    def slow(call: CompiledCall, *args: Any) -> Any:
        begun.set()
        assert go.wait(60)
        return compile_(call, *args)

    monkeypatch.setattr(CompiledCall, "_compile", slow)
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    _workers.cache_clear()
    CompiledCall.begin(calls)
    assert begun.wait(60)
    futures = [call._begun for call in calls]
    interrupt = threading.Timer(0.2, lambda: signal.pthread_kill(main, signal.SIGINT))
    interrupt.start()
    with pytest.raises(KeyboardInterrupt):
        calls[0](jnp.float32(2))
    assert [one is not None and one.cancelled() for one in futures] == [False, True, True]
    go.set()
    CompiledCall.begin(calls[:2])  # the third is compiled by its creator
    assert [float(call(jnp.float32(2))) for call in calls] == [0, 2, 4]
    _workers.cache_clear()


def test_a_cache_gives_whole_results_or_none(tmp_path: Path) -> None:
    cache = disk_cache.DiskCache(tmp_path)
    assert cache.load("k") is None
    cache.write("k", b"result")
    assert cache.load("k") == b"result"
    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes()[:-1])
    assert cache.load("k") is None
    gone = disk_cache.DiskCache(tmp_path / "gone")
    gone.write("k", b"result")
    assert gone.load("k") is None


def test_a_call_that_could_not_be_compiled_is_compiled_by_the_next_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The device may have been full at the first attempt."""
    call = CompiledCalls(disk_cache.DiskCache(tmp_path), "a program").call(
        "1", jax.jit(lambda x: x + 1), lambda: (jnp.float32(1),)
    )

    def full(*_: Any) -> Any:
        raise RuntimeError("out of memory")

    with monkeypatch.context() as patched:
        patched.setattr(CompiledCall, "_compile", full)
        CompiledCall.begin([call])
        with pytest.raises(RuntimeError, match="out of memory"):
            call(jnp.float32(1))
    CompiledCall.begin([call])
    assert call(jnp.float32(1)) == 2
