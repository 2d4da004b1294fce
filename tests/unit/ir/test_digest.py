"""Digests: equal for equal programs in any file, different otherwise."""

from __future__ import annotations

from typing import Any

import numpy as np

import timerl_nb as trl
from timerl_nb.compiler.ir.graph_digest import digest

LINES = """
with trl.Context("t") as ctx:
    ((t, T),) = ctx.dims
    x = trl.data([{values}], domain=(t,)).named("{name}")
    ctx.output("y", (x[t:T] * {factor}).sum(axis=0))
"""


def written(file: str = "a.py", before: str = "", **changes: Any) -> trl.Context:
    """Return a program as if written in some file."""
    text = LINES.format(**{"values": "1.0, 2.0", "name": "x", "factor": 3.0} | changes)
    names: dict[str, Any] = {"trl": trl}
    exec(compile(before + text, file, "exec"), names)
    return names["ctx"]


def text(ctx: trl.Context) -> str:
    found = digest(ctx.pdg())
    assert found is not None
    return found.text


def test_a_digest_says_what_is_written_and_not_where() -> None:
    known = text(written())
    assert text(written("other.py", before="\n\n")) == known
    others = [{"values": "1.0, 2.5"}, {"values": "1.0, 2.0, 3.0"}, {"name": "z"}, {"factor": 4.0}]
    found = [text(written(**changes)) for changes in others]
    assert len({known, *found}) == 1 + len(others)


def test_functions_have_no_digest() -> None:
    with trl.Context("t") as ctx:
        ((t, _),) = ctx.dims
        x = trl.udf(lambda: np.float32(1), out="f32", domain=(t,))
        ctx.output("y", x)
    assert digest(ctx.pdg()) is None
    result = ctx.compile({"T": 2}).execute()
    np.testing.assert_array_equal(result["y"], [1, 1])
