"""Saved runs: a run starts in a new folder, or continues from the folder of an earlier run."""

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
from timerl_nb.compiler.ir.operations import reached_from
from timerl_nb.compiler.passes.generator_choice import generator_of, with_generator
from timerl_nb.compiler.symbolic.index_expressions import Node
from timerl_nb.execution.control.periodic_saving import Every, Saving
from timerl_nb.execution.control.saved_state_conversion import Resuming
from timerl_nb.runtime.executable import Executable
from timerl_nb.runtime.jax_backend.process_group import is_leader
from timerl_nb.runtime.run_protocol import RunProtocol
from timerl_nb.runtime.state.resumable_state import RunState, Saved
from timerl_nb.runtime.state.run_folder import MANIFEST, Manifest, RunFolder

_USUALLY: Final = "5min"
_USUALLY_TURNS: Final = 100  # for several processes, the clocks of which differ


def _new_name() -> str:
    return secrets.token_hex(8)


@dataclass(frozen=True)
class SavedRun:
    """Start of a run: its state, and the object that saves it.

    Attributes:
        seed: the seed of all random streams.
        state: the saved state to continue from; None at the beginning.
        saving: saves the run after iterations; None if the run is not saved.
        name: a unique name, unchanged by resuming.
    """

    seed: int
    state: RunState | None = None
    saving: Saving | None = None
    name: str = field(default_factory=_new_name)

    @property
    def turn(self) -> int:
        """The number of completed iterations."""
        return 0 if self.state is None else self.state.turn

    @property
    def is_over(self) -> bool:
        """Whether the run had finished before."""
        return self.state is not None and self.state.cut is None

    def at_stop(self, turned: Callable[..., object]) -> Callable[..., object]:
        """Return `turned`, extended to save the run before `turned` ends it."""
        return turned if self.saving is None else self.saving.at_stop(turned)

    def attach(self, run: RunProtocol, resources: Pdg) -> None:
        """Restore the state of a new run, and connect the run to its folder.

        Raises:
            OptionError: a resource's state cannot be saved.
            ExecutionError: a resource's `load()` raised an error.
        """
        if self.saving is not None:
            run.host.begin_saving(resources_of(resources))
            self.saving.attach(run)
        if self.state is not None:
            run.resume(self.state)

    def finish(self) -> None:
        """Save the end of the run."""
        if self.saving is not None:
            self.saving.finish()


class FolderLocks:
    """Locked folders of a run.

    A folder is listed before it is locked, so `release` finds it after an interrupt at any moment.
    """

    def __init__(self) -> None:
        self._folders: list[RunFolder] = []

    def enter(self, folder: RunFolder) -> None:
        """Lock a folder.

        Raises:
            ExecutionError: another run has locked it, or it is not writable.
        """
        self._folders.append(folder)
        folder.enter()

    def release(self) -> None:
        """Unlock all folders."""
        for folder in self._folders:
            folder.release()


class RunSaver:
    """Opens the folders of saved runs of a program.

    Args:
        pdg: the user's graph.
        bounds: actual bounds, by name.
        executable: the executable.
        held: receives the locked folders.
        recorded: whether the interpreter runs the program to record events.
    """

    def __init__(
        self,
        pdg: Pdg,
        bounds: Mapping[str, int],
        executable: Executable,
        held: FolderLocks,
        *,
        recorded: bool,
    ) -> None:
        self._pdg, self._bounds, self._executable = pdg, bounds, executable
        self._locks = held
        self._cuts = executable.cuts(recorded=recorded)

    def begin_run(self, seed: int, checkpoint: Any, every: Any) -> SavedRun:
        """Return a new run that saves its state in a new folder.

        Raises:
            OptionError: the program has no iterations between which to save, or an argument is invalid.
            ExecutionError: the folder contains a run, or is not writable.
        """
        often = self._interval(every)
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
            random=generator_of(self._pdg),
        )
        saving = Saving(folder, manifest, often, self._cuts)
        return SavedRun(seed, None, saving, manifest.run)

    def resume_run(self, seed: int, checkpoint: Any, every: Any, resume: Any) -> SavedRun:
        """Return a run that continues from a saved state, and is saved there or in another folder.

        Raises:
            OptionError: an argument is invalid.
            ExecutionError: the folder has no matching run of this program.
        """
        source = RunFolder(_path("resume", resume), is_written=self._is_written)
        before = source.manifest()
        often = self._interval(every, before.every)
        elsewhere = checkpoint is not None and _path("checkpoint", checkpoint) != source.path
        if not elsewhere:
            self._locks.enter(source)
        manifest, arrays = source.read(self._extendable(source.manifest()))
        self._check_program(source.path, manifest)
        if seed not in (0, manifest.seed):
            raise OptionError(
                f"the run in {source.path} has the seed {manifest.seed}, not {seed}.",
                hint="leave out seed=.",
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
            return SavedRun(manifest.seed, gone_on, None, manifest.run)
        folder = self._enter_empty_folder(checkpoint) if elsewhere else source
        now = {name: int(bound) for name, bound in self._bounds.items()}
        saving = Saving(folder, replace(manifest, bounds=now), often, self._cuts)
        return SavedRun(manifest.seed, gone_on, saving, manifest.run)

    @property
    def _is_written(self) -> bool:
        """Whether this process writes the files."""
        return self._executable.processes == 1 or is_leader()

    def _interval(self, every: Any, before: str | None = None) -> Every:
        """Return the interval between two saved states.

        Args:
            every: the interval of the caller; None for a default.
            before: the interval of the run that is resumed.

        Raises:
            OptionError: several processes run the program, and the interval is a time.
        """
        if self._executable.processes == 1:
            return Every.parse((before or _USUALLY) if every is None else every)
        often = Every.parse(before or _USUALLY_TURNS if every is None else every)
        if often.turns is not None:
            return often
        if every is None:
            return Every.parse(_USUALLY_TURNS)
        raise OptionError(
            f"every={every!r} is a time, and the clocks of {self._executable.processes} processes differ.",
            hint="pass a number of iterations, such as every=100.",
        )

    def _extendable(self, manifest: Manifest) -> Manifest:
        """Return the manifest of the state to continue from, an earlier one under other bounds."""
        bounds = {name: int(bound) for name, bound in self._bounds.items()}
        earlier = None if dict(manifest.bounds) == bounds else manifest.earlier
        return manifest if earlier is None else earlier

    def _enter_empty_folder(self, checkpoint: Any) -> RunFolder:
        """Lock a folder without a run."""
        folder = RunFolder(_path("checkpoint", checkpoint), is_written=self._is_written)
        self._locks.enter(folder)
        if folder.is_empty:
            return folder
        raise ExecutionError(
            f"the folder {folder.path} contains another run.",
            hint=f"continue it with resume={os.fspath(folder.path)!r}, or choose another folder.",
        )

    @property
    def _resources(self) -> tuple[str, ...]:
        return tuple(one.name for one in resources_of(self._executable.pdg))

    def check_turns(self, argument: str = "checkpoint") -> None:
        """Refuse a program without iterations.

        Raises:
            OptionError: the program has no iterations; the message names the argument.
        """
        if self._cuts.why_none:
            raise OptionError(
                f"{argument} is not possible: a run is saved between two iterations, and "
                f"{self._cuts.why_none}.",
                hint="set fuse_iterations=20 for calls of 20 iterations, or "
                'executor="interpret" for one iteration at a time.'
                if self._executable.xla_program is not None and not self._cuts.ends_early
                else "write a loop over an outer dimension, or save values with ctx.checkpoint.",
            )

    def _check_program(self, path: Path, manifest: Manifest) -> None:
        """Refuse another program or other bounds."""
        bounds = {name: int(bound) for name, bound in self._bounds.items()}
        origin: Origin | None = None
        if manifest.program not in _known_as(self._pdg):
            self._check_generator(path, manifest)
            what = "of another program: the `program` of its manifest differs"
        elif manifest.resources != self._resources:
            what = f"of a program with the `resources` {manifest.resources}, not {self._resources}"
        elif dict(manifest.bounds) != bounds:
            names = [n for n in bounds if manifest.bounds.get(n) != bounds[n]]
            why, origin = self._why_no_other(names, manifest)
            if not why:
                return
            was = ", ".join(f"{n} = {manifest.bounds.get(n)}" for n in names)
            now = ", ".join(f"{n} = {bounds[n]}" for n in names)
            what = f"under the bounds {was}, and this program has {now}; {why}"
        else:
            return
        raise ExecutionError(
            f"the run in {path / MANIFEST} is {what}.",
            origin=origin,
            hint="compile the program of that run, or start this one in another folder."
            if origin is None
            else "write the length of the schedule as a number instead of the bound, or start a new run with "
            "the weights of the old one: dnn.load(result.parameters).",
        )

    def _check_generator(self, path: Path, manifest: Manifest) -> None:
        """Refuse the same program with another generator of random numbers."""
        now, before = generator_of(self._pdg), manifest.random
        if now != before and manifest.program in _known_as(with_generator(self._pdg, before)):
            raise ExecutionError(
                f"the run in {path / MANIFEST} draws random numbers by {before}, and this program by {now}.",
                hint=f'compile the program with trl.Options(random="{before}"), or start this one in another '
                "folder.",
            )

    def _why_no_other(self, names: list[str], manifest: Manifest) -> tuple[str, Origin | None]:
        """Return the reason, and the line, why a run cannot continue under other bounds; "" if it can.

        The number of iterations may change if no value of the program depends on it. Values without readers do not count.
        """
        loops = self._executable.plan.clock.schedule.loops()
        dims = self._pdg.dims
        outer = {d for around in loops.values() for _, at in around[:1] for d in at.symbols}
        bounds = [dims[d].bound for d in dims.ordered(outer)]
        if bounds != names:
            return "only the number of iterations of the outermost loop may change", None
        (name,) = names
        if manifest.cut is None:
            return "it has finished, and no state before its last iteration was saved", None
        if self._bounds[name] <= manifest.turn:
            return f"it has done {format_count(manifest.turn, 'iteration')}", None
        pdg = self._pdg
        alive = reached_from([op.id for op in pdg.sinks], lambda k: pdg[k].sources)
        for op in pdg:
            if (
                op.id in alive
                and op.kind != "output"
                and name in _symbols((op.where, op.inputs, op.outputs, op.attrs))
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
    """Yield the digests of a graph in manifests; source lines do not matter.

    Early manifests included which operations share a line.
    """
    yield digest_by_names(pdg)
    yield digest_by_names(pdg, lines=True)


def _path(argument: str, given: Any) -> Path:
    if not isinstance(given, str | os.PathLike) or not os.fspath(given):
        raise OptionError(f"{argument}={given!r} is not a folder.", hint="pass a path.")
    return user_path(given)
