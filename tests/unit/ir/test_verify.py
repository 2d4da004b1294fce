"""Incremental verification misses no change."""

from __future__ import annotations

import gc

import pytest

import timerl_nb as trl
from timerl_nb.base.errors import VerificationError
from timerl_nb.base.garbage_collection import disable_gc
from timerl_nb.compiler.ir.dependence_graph import Pdg
from timerl_nb.compiler.ir.graph_rewriting import Edit
from timerl_nb.compiler.ir.graph_verifier import verify


def _graph(size: int) -> Pdg:
    with trl.Context("t") as ctx:
        ((t, _),) = ctx.dims
        x = trl.arange(size) * 0.5 + t
        ctx.output("y", (x.tanh() * 2.0).exp())
    return ctx.pdg()


def test_what_has_changed_and_who_reads_it_are_looked_at_again() -> None:
    long, short = _graph(4), _graph(3)
    verify(long)
    verify(long, long)
    (tanh,) = (op for op in long if op.kind == "tanh")
    edit = Edit(short)
    edit.insert(tanh)
    mixed = edit.finish().pdg
    # one graph has another operation, the other one has another read
    assert mixed[tanh.id] is long[tanh.id]
    for before in (None, short, long):
        with pytest.raises(VerificationError, match="is declared") as found:
            verify(mixed, before)
        assert "tanh" in str(found.value)


def test_the_collector_rests_and_is_as_it_was_behind() -> None:
    assert gc.isenabled()
    with pytest.raises(ValueError, match="inside"), disable_gc():
        assert not gc.isenabled()
        with disable_gc():
            pass
        assert not gc.isenabled()
        raise ValueError("inside")
    assert gc.isenabled()
