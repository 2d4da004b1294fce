"""Cache files can only create allowed kinds of values; forged files run no code."""

from __future__ import annotations

import io
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import timerl_nb as trl
from timerl_nb.driver.compiling.pass_and_schedule_serialization import (
    _TABLE,
    _Unpickler,
    deserialize_front,
)
from timerl_nb.driver.stages import Stage
from timerl_nb.runtime.state.disk_cache import DiskCache
from timerl_nb.runtime.state.safe_unpickling import CLASSES, Allowed
from timerl_nb.runtime.xla.execution.precompiled_call_cache import (
    CompiledCall,
    CompiledCalls,
    _Call,
    _deserialize_call,
    _Trees,
)


class Does:
    """A value whose pickle calls a function."""

    def __init__(self, call: Callable[..., Any], *arguments: Any) -> None:
        self._how = call, arguments

    def __reduce__(self) -> Any:
        return self._how


def touched(path: Path) -> list[bytes]:
    """Pickles that would create a file: by a function, by the interpreter, by a nested attribute."""
    by_path = pickle.dumps(Does(getattr, Does(getattr, trl.Program, "compile"), "__globals__"))
    module = Stage.__module__.encode()
    dotted = b"\x80\x04\x8c%c%s\x8c\x0eStage.__init__\x93." % (len(module), module)
    return [
        pickle.dumps(Does(os.mkdir, str(path))),
        pickle.dumps(Does(exec, f"open({str(path)!r}, 'w')")),
        pickle.dumps(([], Does(os.mkdir, str(path)), "", 0.0)),
        by_path,
        dotted,
    ]


def test_bytes_that_would_call_something_call_nothing(tmp_path: Path) -> None:
    path = tmp_path / "made"
    with trl.Context("t") as ctx:
        ctx.output("y", trl.zeros((2,)))
    pdg = ctx.compile({"T": 1}).pdg
    for payload in touched(path):
        assert deserialize_front(payload, pdg, ()) is None
        assert _deserialize_call(payload, jax.devices()[0]) is None
        for kind in (_Trees, lambda file: _Unpickler(file, pdg, ())):
            with pytest.raises((pickle.UnpicklingError, AttributeError)):
                kind(io.BytesIO(payload)).load()
        with pytest.raises(pickle.UnpicklingError):
            _Call(io.BytesIO(payload), jax.devices()[0].client, jax.devices()[:1]).load()
    assert not path.exists()


def test_a_call_with_something_else_inside_is_made_anew(tmp_path: Path) -> None:
    """The same rule applies to JAX's bytes inside ours."""
    function = jax.jit(lambda x: x + 1)
    x, path = np.zeros(3, np.float32), tmp_path / "made"
    cache = DiskCache(tmp_path)
    calls = CompiledCalls(cache, "program")
    first = calls.call("f", function, lambda: [x])
    np.testing.assert_array_equal(first(x), np.ones(3))
    key = first._key()
    known = cache.load(key)
    assert known is not None and _deserialize_call(known, jax.devices()[0]) is not None
    _, *trees = _Trees(io.BytesIO(known)).load()
    cache.write(key, pickle.dumps((touched(path)[0], *trees)))
    again: CompiledCall = calls.call("f", function, lambda: [x])
    np.testing.assert_array_equal(again(x), np.ones(3))
    assert not path.exists()


@pytest.mark.parametrize(
    "table", [_TABLE, _Trees.table, _Call.table], ids=["front", "trees", "call"]
)
def test_tables_name_what_there_is_and_nothing_that_reaches_further(table: dict[str, Any]) -> None:
    class Named(Allowed):
        pass

    Named.table = table
    reader = Named(io.BytesIO())
    for module, names in table.items():
        for name in names:
            assert name == CLASSES or reader.find_class(module, name) is not None
    for module, name in (("builtins", "getattr"), ("os", "system"), ("operator", "attrgetter")):
        with pytest.raises(pickle.UnpicklingError):
            reader.find_class(module, name)
