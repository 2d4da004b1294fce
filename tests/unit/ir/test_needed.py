"""Unneeded points are not read, even under small bounds."""

from __future__ import annotations

import numpy as np
import pytest

import timerl_nb as trl
from timerl_nb.base.errors import ReadError


def written() -> trl.Context:
    with trl.Context("b", "u") as ctx:
        (b, _), (u, _) = ctx.dims
        s = trl.tensor((), "f32", domain=(b, u))
        s[b, 0] = trl.value(b + 1).cast("f32")
        s[b, u + 1] = s[1, u] * 2
        ctx.output("s", s)
    return ctx


def test_what_is_outside_where_nothing_runs_is_no_error() -> None:
    assert written().compile({"B": 1, "U": 1}).execute(progress=False)["s"].tolist() == [[1]]
    found = written().compile({"B": 2, "U": 3}).execute(progress=False)["s"]
    np.testing.assert_array_equal(found, [[1, 4, 8], [2, 4, 8]])


def test_what_is_outside_where_something_runs_is_one() -> None:
    with pytest.raises(ReadError, match="no value at b = 1, u = 0"):
        written().compile({"B": 1, "U": 2})
