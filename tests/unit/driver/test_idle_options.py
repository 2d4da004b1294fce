"""Options without effect are refused by name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import timerl_nb as trl
from timerl_nb.base.errors import OptionError


@pytest.fixture(autouse=True)
def by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TIMERL_EXECUTOR", raising=False)


def program(*, endless: bool = False, **options: Any) -> trl.Program:
    with trl.Context("i", "b") as ctx:
        (i, I), (b, B) = ctx.dims
        s = trl.tensor((), domain=(i, b))
        s[0, b] = trl.value(b).cast("f32")
        s[i + 1, b] = s * 0.5
        ctx.output("s", s.sum(over=b))
    return ctx.compile({I: trl.endless if endless else 4, B: 3}, trl.Options(**options))


IDLE: dict[str, tuple[dict[str, Any], str]] = {
    "blocks of the interpreter": ({"tile": {"b": 2}, "executor": "interpret"}, "tile={"),
    "chosen blocks of it": ({"tile": "auto", "executor": "interpret"}, "tile="),
    "calls of the interpreter": (
        {"fuse_iterations": 3, "executor": "interpret"},
        "fuse_iterations=3 has no effect: executor=",
    ),
    "a kernel without blocks": ({"tile_kernel": "interpret"}, "no loop is tiled"),
    "calls without an end": ({"fuse_iterations": 2, "endless": True}, "fuse_iterations=2 has"),
    "nothing to choose": (
        {"tune": True, "incrementalize": 2, "rematerialize": False},
        "tune=True has no effect",
    ),
}


@pytest.mark.parametrize("name", IDLE)
def test_an_option_without_effect_is_refused(name: str) -> None:
    options, said = IDLE[name]
    with pytest.raises(OptionError) as caught:
        program(**options)
    assert said in str(caught.value) and "What to do: " in str(caught.value)


def test_the_same_options_have_an_effect_elsewhere() -> None:
    want = program().execute(progress=False)["s"]
    for options in ({"fuse_iterations": 2}, {"tile": {"b": 2}, "tile_kernel": "interpret"}):
        found = program(**options, executor="xla").execute(progress=False)["s"]
        np.testing.assert_array_equal(found, want)


def test_debugging_takes_the_options_that_only_xla_knows() -> None:
    with trl.Context("i") as ctx:
        ((i, I),) = ctx.dims
        ctx.output("y", trl.value(i).cast("f32"))
    ctx.debug()
    found = ctx.compile({I: 3}, trl.Options(fuse_iterations=2)).execute(progress=False)
    np.testing.assert_array_equal(found["y"], [0, 1, 2])


def test_swap_says_what_makes_a_program_swap() -> None:
    with pytest.raises(OptionError, match="swap=True") as caught:
        trl.Options(swap=True)  # type: ignore[arg-type]
    assert "device_memory" in caught.value.hint
