"""Disk cache for the compilations of one graph: passes and schedules, compiled XLA calls, measurements."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property

from timerl_nb.base.options import Options
from timerl_nb.compiler.ir.dependence_graph import Pdg
from timerl_nb.compiler.ir.graph_digest import Digest, digest
from timerl_nb.compiler.scheduling.vectorization_trials import Trials
from timerl_nb.compiler.symbolic.dimensions import bounds_text
from timerl_nb.driver.compiling.compile_decision import Stated
from timerl_nb.driver.compiling.compile_pipeline import Front
from timerl_nb.driver.compiling.machine_dependent_options import device_limit, machine_of
from timerl_nb.driver.compiling.pass_and_schedule_serialization import (
    deserialize_front,
    serialize_front,
)
from timerl_nb.runtime.jax_backend.arrays_and_devices import device_name
from timerl_nb.runtime.state.disk_cache import CacheEntry, disk_cache, key_of
from timerl_nb.runtime.xla.execution.precompiled_call_cache import CompiledCalls


class CompilationCache:
    """Results of earlier processes for one graph, if there is a disk cache.

    The key of an entry consists of the graph, the options, the bounds and XLA's memory figures.

    Args:
        pdg: the source graph.
    """

    def __init__(self, pdg: Pdg) -> None:
        self._pdg, self._disk = pdg, disk_cache()

    @cached_property
    def _digest(self) -> Digest | None:
        return digest(self._pdg)

    def get_front(
        self,
        options: Options,
        bounds: Mapping[str, int],
        stated: Stated,
        trials: Trials,
        compile_front: Callable[[], Front],
    ) -> Front:
        """Return the cached front, or compile and store one.

        Args:
            options: part of the key.
            bounds: part of the key.
            stated: part of the key.
            trials: the trials of the compilation; a front with incomplete trials is not stored.
            compile_front: compiles a missing front.
        """
        if self._disk is None or (written := self._digest) is None:
            return compile_front()
        key = _key(written, options, bounds, stated)
        payload = self._disk.load(key)
        if payload is not None:
            known = deserialize_front(payload, self._pdg, written.lines)
            if known is not None:
                return known
        front = compile_front()
        payload = serialize_front(front, self._pdg, written.lines, complete=trials.complete)
        if payload is not None:
            self._disk.write(key, payload)
        return front

    def entry(
        self, what: str, options: Options, bounds: Mapping[str, int], stated: Stated
    ) -> CacheEntry:
        """Return the cache entry for a measurement of the program on this device."""
        written = self._digest if self._disk is not None else None
        if written is None:
            return CacheEntry(None, str)
        key = _key(written, options, bounds, stated)
        return CacheEntry(self._disk, lambda: key_of(what, key, device_name()))

    def compiled_calls(
        self, graph: Pdg, options: Options, bounds: Mapping[str, int], stated: Stated
    ) -> CompiledCalls | None:
        """Return the cache of XLA calls for a fused graph; None without a disk cache."""
        if self._disk is None or (fused := digest(graph)) is None:
            return None
        return CompiledCalls(self._disk, _key(fused, options, bounds, stated))


def _key(of: Digest, options: Options, bounds: Mapping[str, int], stated: Stated) -> str:
    device = device_limit(options), machine_of(options)
    return key_of(of.text, options, bounds_text(bounds), *device, *stated)
