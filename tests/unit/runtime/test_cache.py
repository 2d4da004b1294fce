"""The compilation cache is shared by processes, and its failures never end a run."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from jax.experimental.serialize_executable import serialize

from timerl_nb.base import options as config
from timerl_nb.runtime.jax_backend import xla_compilation_cache as jax_cache
from timerl_nb.runtime.state.disk_cache import DiskCache
from timerl_nb.runtime.xla.execution.precompiled_call_cache import CompiledCall, CompiledCalls

ROOT = Path(__file__).parents[3]
PROGRAM = """
import collections, hashlib, json, sys, jax
seen = collections.Counter()
def listen(name, *_, **__):
    seen.update([name.split("/")[-1]])
jax.monitoring.register_event_listener(listen)
jax.monitoring.register_event_duration_secs_listener(listen)
import timerl_nb as trl
from timerl_nb.compiler.scheduling.vectorization_trials import Trials
from timerl_nb.compiler.isl import isl_scheduler as scheduling
from tests.reinforce import reinforce
once, run = scheduling._scheduled, Trials.run
scheduling._scheduled = lambda *args: seen.update(["isl"]) or once(*args)
Trials.run = lambda *args: seen.update(["passes"]) or run(*args)
texts = ""
for executor in ("xla", "interpret"):
    program = reinforce(5, hidden=()).compile({"B": 4, "I": 2, "T": 10}, trl.Options(executor=executor))
    seen["traced"] = -seen["jaxpr_trace_duration"]
    result = program.execute(seed=3)
    seen[f"traced by {executor}"] = seen["traced"] + seen["jaxpr_trace_duration"]
    ran = seen["passes"], seen["isl"]  # what is looked at may need some
    texts += "".join(f"{s.artifact}{s.diff()}{s.steps}{s.choices}" for s in program.stages.values())
    seen["passes"], seen["isl"] = ran
print(json.dumps({"hits": seen["cache_hits"], "misses": seen["cache_misses"],
    "traced": seen["traced by xla"], "passes": seen["passes"], "isl": seen["isl"],
    "texts": hashlib.sha256(texts.encode()).hexdigest(),
    "sums": [float(x.sum()) for x in result.parameters.values()]}))
"""


def run(**environment: str) -> tuple[dict[str, Any], str]:
    """Return the counters and warnings of a separate process."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout), done.stderr


def test_a_second_process_makes_nothing_again(tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    first, _ = run(TIMERL_CACHE=str(folder))
    files = {path.name for path in folder.iterdir()}
    compiled = [name for name in files if not name.startswith("timerl-")]
    assert first["hits"] == 0 and first["misses"] == len(compiled) > 10
    assert first["passes"] > 10 and first["isl"] > 0
    second, said = run(TIMERL_CACHE=str(folder))
    assert second["misses"] == second["passes"] == second["isl"] == 0
    assert second["traced"] < first["traced"] // 4
    assert second["sums"] == first["sums"] and second["texts"] == first["texts"]
    assert {path.name for path in folder.iterdir()} == files
    assert not said
    for k, path in enumerate(sorted(folder.glob("timerl-*"))):
        whole = path.read_bytes()
        path.write_bytes(whole[: len(whole) // 2] if k % 2 else whole[:40] + b"?" + whole[41:])
    third, said = run(TIMERL_CACHE=str(folder))
    assert third["passes"] == first["passes"] and third["misses"] == 0
    assert third["sums"] == first["sums"] and third["texts"] == first["texts"]
    assert not said
    fourth, said = run(TIMERL_CACHE=str(folder))
    assert fourth["passes"] == fourth["misses"] == 0 and fourth["sums"] == first["sums"]
    assert not said


def test_without_a_folder_a_program_runs_and_says_so_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    seen, said = run(TIMERL_CACHE=str(tmp_path / "file" / "cache"))
    assert (seen["hits"], seen["misses"]) == (0, 0) and seen["sums"]
    assert said.count("cannot be used") == 1 and "TIMERL_CACHE" in said


def test_what_is_no_call_is_compiled_anew(tmp_path: Path) -> None:
    """Damaged files, other content, and a call that needs more devices."""
    tmp_path.chmod(0o700)
    function = jax.jit(lambda x: 2 * x)
    mesh = jax.sharding.Mesh(np.array(jax.devices()), ("b",))
    everywhere = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
    other = jax.jit(lambda x: 3 * x, in_shardings=everywhere).lower(1.0).compile()
    wrong = [b"", b"?", pickle.dumps(3), pickle.dumps((b"", 1, 2)), pickle.dumps(serialize(other))]
    for payload in wrong if len(jax.devices()) > 1 else wrong[:-1]:
        cache = DiskCache(tmp_path)
        call = CompiledCalls(cache, "program").call("double", function, lambda: (np.float32(1),))
        cache.write(call._key(), payload)
        for begun in (False, True):
            call = CompiledCalls(cache, "program").call(
                "double", function, lambda: (np.float32(1),)
            )
            if begun:
                CompiledCall.begin([call])
            assert call(np.float32(4)) == 8
            with jax.default_device(jax.devices()[-1]):
                assert call(np.float32(5)) == 10


def test_calls_are_loaded_on_other_threads_before_their_first_execution(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    # a function of its own in each process: an executable of JAX's cache could not be serialised
    cache, factor = DiskCache(tmp_path), time.time_ns() % 1_000_003
    function = jax.jit(lambda x: factor * x)

    def call_of(calls: CompiledCalls, function: Any) -> CompiledCall:
        return calls.call("multiply", function, lambda: (np.int32(1),))

    earlier = CompiledCalls(cache, "program")
    key = call_of(earlier, function)._key()
    cache.write(key, pickle.dumps(serialize(function.lower(np.int32(1)).compile())))
    earlier.add_stored(key)
    calls = CompiledCalls(cache, "program")
    calls.preload()
    loaded = calls.preloaded[key]
    call = call_of(calls, None)  # without a function, it cannot be compiled
    assert call(np.int32(4)) == 4 * factor and call.executable is loaded.result()
    assert not calls.preloaded
    other = CompiledCalls(cache, "other program")
    other.preload()
    assert not other.preloaded
    (path,) = tmp_path.glob(f"*{key}*")
    path.write_bytes(b"?")
    calls.preload()
    assert calls.preloaded and call_of(calls, function)(np.int32(4)) == 4 * factor
    path.unlink(missing_ok=True)
    calls.preload()
    assert not calls.preloaded  # absent calls are compiled on other threads


@pytest.mark.usefixtures("no_cache_yet")
def test_the_folder_is_where_the_environment_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIMERL_CACHE", "0")
    jax_cache.use_cache()
    assert config.cache_folder() is None and jax.config.jax_compilation_cache_dir is None
    monkeypatch.delenv("TIMERL_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert config.cache_folder() == tmp_path / "timerl-nb"
    monkeypatch.setenv("XDG_CACHE_HOME", "not/absolute")  # the specification requires ignoring it
    assert config.cache_folder() == Path.home() / ".cache" / "timerl-nb"
    monkeypatch.setenv("TIMERL_CACHE", str(tmp_path / "mine"))
    jax_cache.use_cache()
    assert jax.config.jax_compilation_cache_dir == str(tmp_path / "mine")
    assert (tmp_path / "mine").stat().st_mode & 0o077 == 0


@pytest.mark.usefixtures("no_cache_yet")
def test_a_folder_that_jax_has_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIMERL_CACHE", str(tmp_path / "ours"))
    jax.config.update("jax_compilation_cache_dir", str(tmp_path / "theirs"))
    jax_cache.use_cache()
    assert jax.config.jax_compilation_cache_dir == str(tmp_path / "theirs")
    assert jax.config.jax_persistent_cache_min_compile_time_secs == 1.0
    assert not (tmp_path / "ours").exists()


@pytest.mark.usefixtures("no_cache_yet")
def test_our_own_results_are_not_where_others_may_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(0o700)
    monkeypatch.setenv("TIMERL_CACHE", str(tmp_path))
    assert jax_cache.our_folder() == tmp_path
    tmp_path.chmod(0o770)  # JAX uses it as if the user had set it
    assert jax.config.jax_compilation_cache_dir == str(tmp_path)
    assert jax_cache.our_folder() is None


@pytest.mark.usefixtures("no_cache_yet")
@pytest.mark.parametrize("mode", [0o777, 0o770])
def test_nothing_is_loaded_from_where_others_may_write(
    mode: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(mode)
    monkeypatch.setenv("TIMERL_CACHE", str(tmp_path))
    with pytest.warns(
        UserWarning, match="can be written by other users, so programs are compiled again"
    ):
        jax_cache.use_cache()
    assert jax.config.jax_compilation_cache_dir is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        jax_cache.use_cache()  # one warning


@pytest.mark.usefixtures("no_cache_yet")
def test_what_was_used_longest_ago_leaves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for age in range(4):
        path = tmp_path / f"jit_{age}-cache"
        path.write_bytes(bytes(100))
        os.utime(path, (1e9 - age, 1e9 - age))
    (tmp_path / "notes.txt").write_text("x" * 1000)
    monkeypatch.setattr(jax_cache, "MOST", 250)
    monkeypatch.setenv("TIMERL_CACHE", str(tmp_path))
    jax_cache.use_cache()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["jit_0-cache", "jit_1-cache", "notes.txt"]
