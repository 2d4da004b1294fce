"""View-model of a compilation: its stages with their cost, the options, and the bounds."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from functools import cache
from importlib.util import find_spec
from inspect import cleandoc
from typing import Any, Final, Literal, get_args, get_origin, get_type_hints

from timerl_nb.base.errors import OptionError
from timerl_nb.base.options import Options
from timerl_nb.base.text_formatting import format_milliseconds
from timerl_nb.compiler.ir.dependence_graph import Pdg
from timerl_nb.compiler.symbolic.dimensions import Ceiling
from timerl_nb.driver.program import Program, a_program
from timerl_nb.driver.stages import Stage
from timerl_nb.show.view_model import View, shown

# Passes by name, in order; `separate` runs instead of `fuse` if fusion is off.
PASSES: Final = (
    "dynamic_bounds",
    "simplify",
    "lift",
    "vectorize",
    "windows",
    "accumulate",
    "contract",
    "rematerialize",
    "incrementalize",
    "fuse",
)
# The stage affected by an option, unless the option has the name of a stage and switches it.
STAGE_OF: Final[Mapping[str, str]] = {
    "trial": "vectorize",
    "tile_kernel": "executable",
    "tune": "rematerialize",
    "donate": "memory",
    "stores": "memory",
    "device_memory": "memory",
    "swap": "memory",
    "executor": "executable",
    "fuse_iterations": "executable",
    "devices": "executable",
    "backend": "executable",
    "random": "pdg",
    "isl_operations": "schedule",
    "check_nan": "executable",
}
SWITCH_OF: Final[Mapping[str, str]] = {"windows": "lift", "separate": "fuse"}


@dataclass(frozen=True)
class Option:
    """One compiler option.

    Attributes:
        kind: `bool`; `choice` of `choices`; `dims`: True, False or names of dimensions among `choices`;
            `blocks`: "auto", False, a number, or numbers by dimension; `bytes`: a number, a text with a unit,
            or None; `int`: a positive number.
        value, default: as JSON values.
        stage: the first stage that the option affects.
    """

    name: str
    kind: Literal["bool", "choice", "dims", "blocks", "bytes", "int"]
    value: Any
    default: Any
    choices: tuple[Any, ...]
    doc: str
    stage: str


@dataclass(frozen=True)
class StageRow:
    """One stage, a tab of the explorer.

    Attributes:
        ran: False for a pass that an option switches off.
        seconds: its duration.
        known: whether the result came from an earlier trial, at no cost.
        changed: whether a pass changed anything; None if not compared.
        operations: the number of operations in its graph; None without a graph.
        option: the option that switches the pass, or None.
        is_on: whether that option is on.
        off, on: the values of the option that switch the pass off and on.
    """

    name: str
    ran: bool
    seconds: float
    known: bool
    summary: str
    changed: bool | None
    operations: int | None
    option: str | None
    is_on: bool | None
    off: Any
    on: Any

    @property
    def cost(self) -> str:
        """Its duration, or the reason that it did not run."""
        if self.known:
            return "reused"
        if self.ran:
            return format_milliseconds(self.seconds)
        return "not needed" if self.is_on else "off"


@dataclass(frozen=True)
class BoundRow:
    """Bound with its dimensions; `until` is the condition that ends a dynamic bound early."""

    name: str
    value: int
    dims: tuple[str, ...]
    until: str | None

    @shown
    def dynamic(self) -> bool:
        return self.until is not None


@dataclass(frozen=True)
class PipelineView(View):
    """A program's stages, options and bounds.

    A pass that did not run has a row as well, unless it is off by default.

    Example:
        >>> y = ctx.output("y", trl.random.normal((2,), domain=(t,)))
        >>> program = ctx.compile({B: 1, I: 1, T: 4})
        >>> view = trl.show.PipelineView.from_program(program)
        >>> view.stages[0].name
        'source'
    """

    view = "pipeline"

    stages: tuple[StageRow, ...]
    options: tuple[Option, ...]
    bounds: tuple[BoundRow, ...]

    @classmethod
    def from_program(cls, program: Program) -> PipelineView:
        return cls.of_stages(a_program(program).stages, program.options, program.bounds)

    @classmethod
    def of_stages(
        cls, stages: Mapping[str, Stage], given: Options, actual: Mapping[str, int]
    ) -> PipelineView:
        """Return the view of a program whose compilation may be incomplete.

        Args:
            stages: the completed stages by name.
            given: the options.
            actual: the bounds.
        """
        written: Any = stages["pdg"].artifact
        dims = written.dims
        known = options(given, dims.names)
        found = {name: _row(stage, known) for name, stage in stages.items()}
        rows = [found.pop(name) for name in ("source", "pdg")]
        for name in PASSES:
            if name == "fuse" and "separate" in found:
                rows.append(found.pop("separate"))
            elif name in found:
                rows.append(found.pop(name))
            elif (switch := _switch(name, known))[-1] not in (None, False):
                rows.append(StageRow(name, False, 0.0, False, "", None, None, *switch))
        bounds = tuple(
            BoundRow(
                name,
                int(value),
                tuple(dim.name for dim in dims if dim.bound == name),
                value.until if isinstance(value, Ceiling) else None,
            )
            for name, value in actual.items()
        )
        return cls((*rows, *found.values()), known, bounds)

    @shown
    def seconds(self) -> float:
        """The total duration of all stages."""
        return sum(row.seconds for row in self.stages)

    @property
    def switches(self) -> tuple[dict[str, Any], ...]:
        """The option changes offered as one click, those of the last stages first."""
        found: list[dict[str, Any]] = []
        tiled = any(option.name == "tile" and option.value for option in self.options)
        # these run the program, need another device, change the numbers, or apply only to tiles
        left_out = ("tune", "backend", *_OF_TORCH, "random", *["tile_kernel"] * (not tiled))
        for option in self.options:
            if option.name not in left_out:
                found += [{option.name: value} for value in _others(option)]
        order = [row.name for row in self.stages]

        def place(change: dict[str, Any]) -> int:
            (stage,) = (STAGE_OF.get(name, name) for name in change)
            return order.index(stage) if stage in order else len(order)

        return tuple(sorted(found, key=place, reverse=True))

    def __str__(self) -> str:
        width = max(len(row.name) for row in self.stages)
        lines = [
            f"{row.name:<{width}}  {row.cost:>10}  {row.summary}".rstrip() for row in self.stages
        ]
        given = [f"{o.name}={o.value!r}" for o in self.options if o.value != o.default]
        bounds = ", ".join(f"{row.name} = {row.value}" for row in self.bounds)
        return "\n".join(
            [*lines, f"bounds: {bounds}", f"options: {', '.join(given) or 'defaults'}"]
        )


def _row(stage: Stage, known: Sequence[Option]) -> StageRow:
    count, changed = None, None
    if isinstance(stage.artifact, Pdg):
        count = len(stage.artifact)
        if stage.previous is not None:
            changed = dict(stage.artifact.ops) != dict(stage.previous.ops)
    switch = _switch(stage.name, known)
    cost = stage.seconds, stage.known
    return StageRow(stage.name, True, *cost, stage.summary, changed, count, *switch)


def _switch(name: str, known: Sequence[Option]) -> tuple[str | None, bool | None, Any, Any]:
    """Return the option that switches a pass, whether it is on, and its values for off and on."""
    found = SWITCH_OF.get(name, name)
    option = next((one for one in known if one.name == one.stage == found), None)
    if option is None:
        return None, None, None, None
    is_on = option.value is not False
    return found, is_on, False, option.value if is_on else option.default


def _others(option: Option) -> tuple[Any, ...]:
    """Return the values offered for an option as one click."""
    if option.kind in ("bool", "choice"):
        return tuple(value for value in option.choices if value != option.value)
    if option.kind in ("dims", "blocks"):
        value = option.default if option.value is False else False
        return () if value == option.value else (value,)
    return ()


# --- options -------------------------------------------------------------------------------------


_OF_TORCH: Final = ("device", "torch_compile")  # JAX refuses them, so its programs do not show them


def options(given: Options, dims: tuple[str, ...]) -> tuple[Option, ...]:
    """Return all options with their values and choices."""
    docs, hints = option_docs(), get_type_hints(Options)
    found: list[Option] = []
    for field in fields(Options):
        if field.name in _OF_TORCH and given.backend != "torch":
            continue
        kind, choices = _kind(field.name, hints[field.name], dims)
        default = None if field.default is MISSING else field.default
        value = getattr(given, field.name)
        if field.name == "executor":
            default = Options().executor
        found.append(
            Option(
                field.name,
                kind,
                json_value(value),
                default,
                choices,
                docs[field.name],
                STAGE_OF.get(field.name, field.name),
            )
        )
    return tuple(found)


def _kind(name: str, hint: Any, dims: tuple[str, ...]) -> tuple[Any, tuple[Any, ...]]:
    """Return the kind of an option, as in the view-models, and its choices.

    Raises:
        OptionError: the option has a type without a control.
    """
    special = {
        "vectorize": ("dims", dims),
        "incrementalize": ("blocks", dims),
        "tile": ("blocks", dims),
        "device_memory": ("bytes", ()),
        "devices": ("int", ()),
        "backend": ("choice", ("jax", "torch") if _has_torch() else ("jax",)),
        "device": ("choice", (None, "cpu", "cuda")),
    }
    if name in special:
        return special[name]
    if hint is bool:
        return "bool", (True, False)
    if hint is int:
        return "int", ()
    literals = [hint] if get_origin(hint) is Literal else get_args(hint)
    chosen = [one for part in literals if get_origin(part) is Literal for one in get_args(part)]
    if not chosen:
        raise OptionError(
            f"the option {name} has a type that the explorer cannot show.",
            hint="add its type to pipeline_view._kind.",
        )
    return "choice", tuple(chosen)


@cache
def _has_torch() -> bool:
    return find_spec("torch") is not None


def json_value(value: Any) -> Any:
    """Convert an option's value to JSON; block sizes by dimension become an object."""
    if isinstance(value, tuple) and all(isinstance(pair, tuple) for pair in value):
        return dict(value)
    return list(value) if isinstance(value, tuple) else value


@cache
def option_docs() -> Mapping[str, str]:
    """Return the description of each option from the docstring of `Options`."""
    _, _, listed = cleandoc(Options.__doc__ or "").partition("Attributes:\n")
    parts = re.split(r"^ {4}(\w+): ", listed, flags=re.M)[1:]
    pairs = zip(parts[::2], parts[1::2], strict=True)
    return {name: re.sub(r"\s+", " ", text).strip() for name, text in pairs}
