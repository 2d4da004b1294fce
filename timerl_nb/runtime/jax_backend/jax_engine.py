"""JAX as the engine of interpreted programs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from timerl_nb.runtime.engine import Engine
from timerl_nb.runtime.jax_backend import arrays_and_devices as backend
from timerl_nb.runtime.jax_backend import operation_rules as rules
from timerl_nb.runtime.jax_backend import row_block_rules
from timerl_nb.runtime.jax_backend.reduction_rules import COMBINE
from timerl_nb.runtime.jax_backend.trace_context_and_masks import JaxArray, Scope, holding_nans


def make_engine(device: str | None, *, compiled: bool) -> Engine:
    """Return the engine; JAX's own settings choose its device, and it always compiles."""
    return Engine(
        name="jax",
        description="",
        compile_kernel=_compile_kernel,
        compilations=lambda run: run._cache_size(),
        scope=Scope,
        compute=rules.compute,
        kinds_without_padding=rules.NO_PADDING,
        own=_own,
        accumulate=_accumulate,
        write_row=row_block_rules.with_row,
        read_rows=row_block_rules.rows,
        concatenate=row_block_rules.end_to_end,
        has_nans=holding_nans,
        pad_or_cut=backend.fitted,
        stack_points=backend.stack_points,
        stack=backend.stack,
        zeros=backend.zeros,
        fill_factory=backend.fresh,
        copy=backend.copied,
        copy_stores=backend.all_copied,
        snapshot=_itself,
        seed_words=backend.seed_words,
        to_device=backend.to_device,
        move_to_device=backend.bind,
        to_numpy=backend.to_numpy,
        to_user=backend.to_numpy,
        wait=backend.wait,
        is_deleted=backend.is_taken_over,
        placement=_sharding,
        to_host=backend.to_host,
        from_host=backend.from_host,
        device=backend.device,
        memory=backend.device_memory,
        costs=lambda machine: machine,
    )


def _compile_kernel(
    kernel: Any, f: Callable[..., Any], taken: tuple[int, ...], bound: Any
) -> Callable[..., Any]:
    return backend.compile_kernel(f, taken, bound)


def _own(results: Sequence[JaxArray]) -> list[JaxArray]:
    return list(results)  # the results of an XLA program share no memory


def _accumulate(reduce: str, accumulator: JaxArray, value: JaxArray, owned: bool) -> JaxArray:
    return COMBINE[reduce](accumulator, value)  # in place if the accumulator is donated


def _itself(x: JaxArray) -> JaxArray:
    return x  # JAX copies an array that is in use elsewhere before it is donated


def _sharding(x: JaxArray) -> Any:
    return x.sharding
