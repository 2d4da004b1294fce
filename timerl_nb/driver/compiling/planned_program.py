"""Stages after the memory plan: loops, tiles, executable."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import cached_property
from typing import Any, Literal

from timerl_nb.base.lru_cache import Lru
from timerl_nb.base.options import Options
from timerl_nb.base.text_formatting import format_count
from timerl_nb.compiler.ir.graph_rewriting import identity_rewrite
from timerl_nb.compiler.isl.operation_limit import limit_isl_work
from timerl_nb.compiler.loops.loop_builder import build_ast
from timerl_nb.compiler.loops.loop_nodes import Execute, Loop
from timerl_nb.compiler.loops.tileable_loops import Tile, find_tiles
from timerl_nb.driver.compiling.compile_pipeline import Front
from timerl_nb.driver.compiling.machine_dependent_options import device_limit, engine_of
from timerl_nb.driver.search.machine_constants import machine_here
from timerl_nb.driver.stages import Stage
from timerl_nb.runtime.engine import Engine
from timerl_nb.runtime.executable import Executable
from timerl_nb.runtime.xla.execution.precompiled_call_cache import CompiledCalls


class PlannedProgram:
    """A memory plan, and cached stages compiled from it."""

    def __init__(self, front: Front, memory: Stage) -> None:
        self.memory, self._front = memory, front
        self.plan: Any = memory.artifact
        self._executables: Lru[tuple[object, ...], Stage] = Lru(4)
        self._tiles: Lru[tuple[object, ...], Stage] = Lru(4)

    @property
    def points(self) -> int:
        """The number of executed points, proportional to the plan's memory."""
        return len(self.plan.clock)

    @cached_property
    def loops(self) -> Stage:
        start, plan = time.perf_counter(), self.plan
        with limit_isl_work("generating the loops"):
            lives = plan.lifetimes.values()
            tree = self._front.tree
            ast = build_ast(plan.constraints, tree, lives, plan.bounds, plan.names, plan.swaps)
        count = sum(isinstance(node, Execute) for node in ast)
        loops = sum(isinstance(node, Loop) for node in ast)
        seconds = time.perf_counter() - start
        return Stage(
            "ast",
            ast,
            seconds,
            f"{format_count(loops, 'loop')}, {format_count(count, 'launch', 'launches')}",
        )

    def tile(self, options: Options) -> Stage | None:
        """Return the tiled loops; None without the option."""
        if options.tile is False:
            return None
        key = options.tile, options.device_count, options.fuse_iterations, machine_here()
        return self._tiles.get(key, lambda: self._tile(options))

    def _tile(self, options: Options) -> Stage:
        ast: Any = self.loops.artifact
        start = time.perf_counter()
        tiles = find_tiles(
            ast, self.plan, options.tile_size, machine_here(), options.fuse_iterations
        )
        made = replace(identity_rewrite(self.plan.pdg), refused=tiles.refused)
        return Stage("tile", tiles, time.perf_counter() - start, tiles.summary, made)

    def executable(self, options: Options, compiled: CompiledCalls | None) -> Stage:
        how = options.executor, options.fuse_iterations, options.device_count, device_limit(options)
        engine = engine_of(options)
        tile: Any = self.tile(options)
        tiles = () if tile is None else tile.artifact.all
        tiled = options.tile, options.tile_kernel, options.tile and machine_here()
        return self._executables.get(
            (*how, *tiled, options.check_nan, engine),
            lambda: self._executable(
                *how,
                compiled,
                tiles,
                options.tile_kernel,
                check_nan=options.check_nan,
                engine=engine,
            ),
        )

    def _executable(
        self,
        executor: str | None,
        fuse: int,
        devices: int,
        budget: int | None,
        compiled: CompiledCalls | None,
        tiles: tuple[Tile, ...],
        tile_kernel: Literal[False, True, "interpret"],
        *,
        check_nan: bool,
        engine: Engine,
    ) -> Stage:
        ast: Any = self.loops.artifact
        start, plan = time.perf_counter(), self.plan
        how = executor, fuse, devices, budget, compiled, tiles, tile_kernel
        executable = Executable(plan.pdg, ast, plan, *how, check_nan=check_nan, engine=engine)
        summary = f"{format_count(len(executable.kernels), 'kernel')}, {executable.how}"
        return Stage("executable", executable, time.perf_counter() - start, summary)
