"""Input of a compilation, with a check for options without effect."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from timerl_nb.base.errors import OptionError
from timerl_nb.base.options import Blocks, Options
from timerl_nb.compiler.ir.dependence_graph import Pdg
from timerl_nb.compiler.language.program_context import Context
from timerl_nb.compiler.passes.generator_choice import generator_of, with_generator
from timerl_nb.compiler.symbolic.dimensions import Endless
from timerl_nb.driver.compiling.compiler import Compiler
from timerl_nb.driver.compiling.machine_dependent_options import for_all_devices


@dataclass(frozen=True, eq=False)
class CompileRequest:
    """Input of a compilation.

    Attributes:
        compiler: the compiler of the graph, with cached stages; the graph's draws use the generator of
            the options.
        owner: the context of the graph's symbols.
        bounds: actual bounds, by name.
        options: the options.

    Raises:
        OptionError: an option names an unknown dimension, or has no effect.
    """

    compiler: Compiler
    owner: Context
    bounds: dict[str, int]
    options: Options

    def __post_init__(self) -> None:
        if self.options.devices == "all":
            object.__setattr__(self, "options", for_all_devices(self.options))
        _check_dims(self.compiler.pdg, self.options)
        _check_effect(self.options, self.bounds)
        drawing = _with_generator(self.compiler, self.options.random)
        object.__setattr__(self, "compiler", drawing)

    def with_options(self, options: Options) -> CompileRequest:
        return replace(self, options=options)

    def with_bounds(self, bounds: dict[str, int]) -> CompileRequest:
        return replace(self, bounds=bounds)


def _with_generator(compiler: Compiler, generator: str) -> Compiler:
    """Return the compiler of the same graph with a generator of random bits."""
    pdg = with_generator(compiler.pdg, generator)
    if pdg is compiler.pdg:
        return compiler
    compiler.siblings.setdefault(generator_of(compiler.pdg), compiler)
    if generator not in compiler.siblings:
        compiler.siblings[generator] = Compiler(pdg, compiler.siblings)
    return compiler.siblings[generator]


def _check_dims(pdg: Pdg, options: Options) -> None:
    tile = () if options.tile_size is None else options.tile_size[:1]
    named = {
        "vectorize": options.vectorize,
        "incrementalize": _block_dims(options.blocks),
        "tile": tile,
    }
    for option, names in named.items():
        for name in () if isinstance(names, bool) else names:
            if name not in pdg.dims:
                known = ", ".join(pdg.dims.names)
                raise OptionError(
                    f"{option} contains {name!r}, which is not a dimension of the program.",
                    hint=f"choose among the dimensions {known}.",
                )


def _check_effect(options: Options, bounds: Mapping[str, int]) -> None:
    """Refuse options without effect under the bounds or the other options."""
    given = {
        "tile": options.tile is not False,
        "tile_kernel": options.tile_kernel is not False,
        "fuse_iterations": options.fuse_iterations > 1,
    }
    why = hint = ""
    for name in (name for name in given if given[name]):
        if (
            options.asks_for_interpreter and not options.check_nan
        ):  # a search for a NaN changes the executor only
            why = 'executor="interpret" ignores it'
            hint = f'leave out {name}, or use executor="xla".'
        elif name == "tile_kernel" and options.tile is False:
            why, hint = "no loop is tiled without tile", 'add a tile, such as tile="auto".'
        elif name == "fuse_iterations" and any(isinstance(n, Endless) for n in bounds.values()):
            why = "a program over an unbounded dimension returns values after each iteration"
            hint = "leave out fuse_iterations."
        if why:
            value: Any = getattr(options, name)
            value = dict(value) if isinstance(value, tuple) else value
            raise OptionError(f"{name}={value!r} has no effect: {why}.", hint=hint)
    if options.tune and options.incrementalize != "auto" and options.rematerialize != "auto":
        raise OptionError(
            "tune=True has no effect: both incrementalize and rematerialize are set.",
            hint='leave one of them at "auto", or leave out tune.',
        )


def _block_dims(blocks: int | Blocks | None) -> tuple[str, ...]:
    """Return the dimensions with block sizes."""
    return tuple(name for name, _ in blocks) if isinstance(blocks, tuple) else ()
