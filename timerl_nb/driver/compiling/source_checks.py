"""Checks of a source graph: element types, data arrays, defined reads."""

from __future__ import annotations

from collections.abc import Mapping

from timerl_nb.base.errors import BoundsError, ShapeError
from timerl_nb.compiler.ir.dependence_graph import Pdg
from timerl_nb.compiler.ir.graph_verifier import prove_reads
from timerl_nb.compiler.ir.operation_attributes import ConstAttrs
from timerl_nb.compiler.ir.shapes import NUMPY, WIDE
from timerl_nb.compiler.isl.operation_limit import limit_isl_work
from timerl_nb.compiler.passes.dynamic_bound_expansion import DynamicBounds
from timerl_nb.runtime.jax_backend.arrays_and_devices import has_wide_types


def check_reads(pdg: Pdg, bounds: Mapping[str, int]) -> None:
    """Refuse reads of undefined points.

    Raises:
        BoundsError: data arrays are too short.
        ReadError, BranchError: undefined reads, or branches with gaps or overlaps.
    """
    _check_data(pdg, bounds)
    with limit_isl_work("proving the program's reads"):
        prove_reads(DynamicBounds().run(pdg).pdg, bounds)


def check_types(pdg: Pdg) -> None:
    """Refuse 64-bit types if JAX would narrow them."""
    if has_wide_types():
        return
    for op in pdg:
        wide = next((o.type.dtype for o in op.outputs if o.type.dtype in WIDE), None)
        if wide is not None:
            raise ShapeError(
                f"{op.name} has the type {NUMPY[wide].name}, and JAX has 64-bit types disabled.",
                origin=op.origin,
                hint='call jax.config.update("jax_enable_x64", True) first, or use 32-bit types.',
            )


def _check_data(pdg: Pdg, bounds: Mapping[str, int]) -> None:
    """Refuse data arrays without a value for every point."""
    for op in pdg:
        if not isinstance(op.attrs, ConstAttrs):
            continue
        for axis, name in enumerate(op.attrs.dims):
            have, want = op.attrs.value.array.shape[axis], bounds[pdg.dims[name].bound]
            if have < want:
                raise BoundsError(
                    f"the data has {have} values along {name}, but {pdg.dims[name].bound} = {want}.",
                    origin=op.origin,
                    hint="pass more data, or a smaller bound.",
                )
