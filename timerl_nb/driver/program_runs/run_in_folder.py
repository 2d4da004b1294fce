"""How a run is kept in a folder: begun there, or gone on with from there."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, Final

from timerl_nb.base.atomic_files import user_path
from timerl_nb.base.errors import ExecutionError, OptionError, Origin
from timerl_nb.base.text_formatting import format_count
from timerl_nb.compiler.ir.dependence_graph import Pdg
from timerl_nb.compiler.ir.graph_digest import digest_by_names
from timerl_nb.compiler.ir.host.host_functions import resources_of
from timerl_nb.compiler.symbolic.index_expressions import Node
from timerl_nb.execution.control.periodic_saving import Every, Saving
from timerl_nb.execution.control.saved_state_conversion import Resuming
from timerl_nb.runtime.executable import Executable
from timerl_nb.runtime.run_protocol import RunProtocol
from timerl_nb.runtime.state.resumable_state import RunState, Saved
from timerl_nb.runtime.state.run_folder import MANIFEST, Manifest, RunFolder

_USUALLY: Final = "5min"


def _new_name() -> str:
    return secrets.token_hex(8)


@dataclass(frozen=True)
class KeptRun:
    """What a run begins with, and what saves it.

    Attributes:
        seed: of all random streams.
        state: where it goes on; None at the beginning.
        saving: what is told of its turns; None where nothing is saved.
        name: tells it from all others, and stays when it is resumed.
    """

    seed: int
    state: RunState | None = None
    saving: Saving | None = None
    name: str = field(default_factory=_new_name)

    @property
    def turn(self) -> int:
        """How many turns were done before."""
        return 0 if self.state is None else self.state.turn

    @property
    def is_over(self) -> bool:
        """Whether it had come to its end."""
        return self.state is not None and self.state.cut is None

    def at_stop(self, turned: Callable[..., object]) -> Callable[..., object]:
        """`turned`, which may end the run: where it is saved, it is saved before it does."""
        return turned if self.saving is None else self.saving.at_stop(turned)

    def attach(self, run: RunProtocol, resources: Pdg) -> None:
        """Let a run that was just made go on from the state, and be saved.

        Raises:
            OptionError: a resource's state cannot be saved.
            ExecutionError: a resource's `load()` raised.
        """
        if self.saving is not None:
            run.host.begin_saving(resources_of(resources))
            self.saving.attach(run)
        if self.state is not None:
            run.resume(self.state)

    def finish(self) -> None:
        """The run has come to its end."""
        if self.saving is not None:
            self.saving.finish()


class HeldFolders:
    """The folders that a run keeps other runs out of.

    They are noted before they are entered: an interrupt at any moment leaves none that `leave` misses.
    """

    def __init__(self) -> None:
        self._folders: list[RunFolder] = []

    def enter(self, folder: RunFolder) -> None:
        """Enter a folder.

        Raises:
            ExecutionError: another run is in it, or it cannot be written to.
        """
        self._folders.append(folder)
        folder.enter()

    def release(self) -> None:
        """Let other runs into all folders."""
        for folder in self._folders:
            folder.release()


class Keeper:
    """Prepares the runs of a program that are kept.

    Args:
        pdg: what the user wrote.
        held: receives the folders that runs enter.
        recorded: whether it is the interpreter that runs it, whatever would.
    """

    def __init__(
        self,
        pdg: Pdg,
        bounds: Mapping[str, int],
        executable: Executable,
        held: HeldFolders,
        *,
        recorded: bool,
    ) -> None:
        self._pdg, self._bounds, self._executable = pdg, bounds, executable
        self._held = held
        self._cuts = executable.cuts(recorded=recorded)

    def begin_run(self, seed: int, checkpoint: Any, every: Any) -> KeptRun:
        """A run that saves its state in a folder of its own.

        Raises:
            OptionError: it has no turns to save at, or an argument is of another kind.
            ExecutionError: there is a run in the folder, or it cannot be written to.
        """
        often = Every.parse(_USUALLY if every is None else every)
        self.check_turns()
        folder = self._enter_empty_folder(checkpoint)
        manifest = Manifest(
            _new_name(),
            digest_by_names(self._pdg),
            digest_by_names(self._executable.pdg),
            {name: int(bound) for name, bound in self._bounds.items()},
            self._executable.how,
            seed,
            often.text,
            0,
            None,
            {},
            self._resources,
        )
        saving = Saving(folder, manifest, often, self._cuts)
        return KeptRun(seed, None, saving, manifest.run)

    def resume_run(self, seed: int, checkpoint: Any, every: Any, resume: Any) -> KeptRun:
        """A run that goes on where it was saved last, and is saved there again, or elsewhere.

        Raises:
            OptionError: an argument is of another kind.
            ExecutionError: no run of this program was saved there, or not one that can go on so.
        """
        source = RunFolder(_path("resume", resume))
        before = source.manifest()
        often = Every.parse(before.every if every is None else every)
        elsewhere = checkpoint is not None and _path("checkpoint", checkpoint) != source.path
        if not elsewhere:
            self._held.enter(source)
        manifest, arrays = source.read()
        self._check_program(source.path, manifest)
        if seed not in (0, manifest.seed):
            raise OptionError(
                f"the run in {source.path} has the seed {manifest.seed}, not {seed}.",
                hint="leave out the seed.",
            )
        if manifest.cut is not None:
            self.check_turns("resume")
        state = source.path / manifest.state
        saved = Saved(state, arrays, len(manifest.resources))
        how = self._executable.how
        same = manifest.graph in _known_as(self._executable.pdg)
        found = Resuming(source.path, manifest, saved, self._cuts, how, same=same)
        gone_on = found.state()
        if manifest.is_finished:
            source.release()
            return KeptRun(manifest.seed, gone_on, None, manifest.run)
        folder = self._enter_empty_folder(checkpoint) if elsewhere else source
        now = {name: int(bound) for name, bound in self._bounds.items()}
        saving = Saving(folder, replace(manifest, bounds=now), often, self._cuts)
        return KeptRun(manifest.seed, gone_on, saving, manifest.run)

    def _enter_empty_folder(self, checkpoint: Any) -> RunFolder:
        """A folder in which no run is yet."""
        folder = RunFolder(_path("checkpoint", checkpoint))
        self._held.enter(folder)
        if folder.is_empty:
            return folder
        raise ExecutionError(
            f"there is a run in {folder.path} already.",
            hint=f"go on with it by resume={os.fspath(folder.path)!r}, or give this one a folder of its own.",
        )

    @property
    def _resources(self) -> tuple[str, ...]:
        return tuple(one.name for one in resources_of(self._executable.pdg))

    def check_turns(self, argument: str = "checkpoint") -> None:
        """Refuse a program without turns.

        Raises:
            OptionError: it has none, for which the argument asks.
        """
        if self._cuts.why_none:
            raise OptionError(
                f"{argument} is not possible: a run is saved between two turns, and "
                f"{self._cuts.why_none}.",
                hint="fuse_iterations=20 divides an outermost loop into calls of 20 iterations; "
                'executor="interpret" runs it one iteration at a time.'
                if self._executable.xla_program is not None
                else "let a dimension be iterated over, or save values with ctx.checkpoint.",
            )

    def _check_program(self, path: Path, manifest: Manifest) -> None:
        """Refuse another program, and other bounds."""
        bounds = {name: int(bound) for name, bound in self._bounds.items()}
        origin: Origin | None = None
        if manifest.program not in _known_as(self._pdg):
            what = "of another program: the `program` of its manifest is another"
        elif manifest.resources != self._resources:
            what = f"of other `resources`: {manifest.resources}, not {self._resources}"
        elif dict(manifest.bounds) != bounds:
            names = [n for n in bounds if manifest.bounds.get(n) != bounds[n]]
            why, origin = self._why_no_other(names, manifest)
            if not why:
                return
            was = ", ".join(f"{n} = {manifest.bounds.get(n)}" for n in names)
            now = ", ".join(f"{n} = {bounds[n]}" for n in names)
            what = f"under other bounds: {was}, where this program has {now}; {why}"
        else:
            return
        raise ExecutionError(
            f"the run in {path / MANIFEST} is {what}.",
            origin=origin,
            hint="compile the program that was begun there, or begin this one in another folder.",
        )

    def _why_no_other(self, names: list[str], manifest: Manifest) -> tuple[str, Origin | None]:
        """Return why a run cannot go on under other bounds, and the line; nothing where it can.

        It can with more or fewer iterations if none of its values depends on their number.
        """
        loops = self._executable.plan.clock.schedule.loops()
        dims = self._pdg.dims
        outer = {d for around in loops.values() for _, at in around[:1] for d in at.symbols}
        bounds = [dims[d].bound for d in dims.ordered(outer)]
        if bounds != names:
            return "only the number of iterations of the outermost loop may be another", None
        (name,) = names
        if manifest.cut is None:
            return "it has finished, and its last iteration's state is not kept", None
        if self._bounds[name] <= manifest.turn:
            return f"it has done {format_count(manifest.turn, 'iteration')}", None
        for op in self._pdg:
            if op.kind != "output" and name in _symbols(
                (op.where, op.inputs, op.outputs, op.attrs)
            ):
                return f"{op.name} depends on {name}", op.origin
        return "", None


def _symbols(value: Any) -> frozenset[str]:
    """Return the symbols of all expressions in a value: a record, a sequence, or an expression."""
    if isinstance(value, Node):
        return getattr(value, "symbols", frozenset())
    if isinstance(value, list | tuple):
        return frozenset[str]().union(*map(_symbols, value))
    if is_dataclass(value) and not isinstance(value, type | Origin):
        return _symbols([getattr(value, one.name) for one in fields(value)])
    return frozenset()


def _known_as(pdg: Pdg) -> Iterator[str]:
    """The digests that manifests have of a graph: where its lines stand, and which it shares, is no part.

    At first they told which operations share a line.
    """
    yield digest_by_names(pdg)
    yield digest_by_names(pdg, lines=True)


def _path(argument: str, given: Any) -> Path:
    if not isinstance(given, str | os.PathLike) or not os.fspath(given):
        raise OptionError(f"{argument}={given!r} is no folder.", hint="pass a path.")
    return user_path(given)
