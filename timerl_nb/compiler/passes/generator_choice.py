"""Choice of the generator of random bits for all draws of a graph.

This is not a pass of the pipeline: the compiler starts from the resulting graph, so every executor and every
cache key sees the choice (docs/decisions/059-generators-of-random-bits.md).
"""

from __future__ import annotations

from dataclasses import replace

from timerl_nb.compiler.ir.dependence_graph import Pdg
from timerl_nb.compiler.ir.graph_rewriting import Edit
from timerl_nb.compiler.ir.operation_attributes import RngAttrs
from timerl_nb.compiler.ir.random_bits import DEFAULT


def with_generator(pdg: Pdg, generator: str) -> Pdg:
    """Return a graph whose draws use a generator; operations retain their ids.

    Args:
        pdg: the graph.
        generator: a name in `random_bits.GENERATORS`.
    """
    draws = [op for op in pdg if isinstance(op.attrs, RngAttrs) and op.attrs.generator != generator]
    if not draws:
        return pdg
    edit = Edit(pdg)
    for op in draws:
        edit.insert(op.with_(attrs=replace(op.attrs, generator=generator)))
    return edit.finish().pdg


def generator_of(pdg: Pdg) -> str:
    """Return the generator of a graph's draws; the default one without draws."""
    attrs = (op.attrs for op in pdg)
    return next((one.generator for one in attrs if isinstance(one, RngAttrs)), DEFAULT)
