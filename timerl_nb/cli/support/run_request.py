"""What a run was asked for, as JSON in its folder: names and values, looked up and never executed."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Final

from timerl_nb.base.atomic_files import LONGEST_TEXT, parse_json, read_regular, write_whole
from timerl_nb.base.errors import ExecutionError, OptionError, explain_os_errors
from timerl_nb.base.options import Options
from timerl_nb.cli.support.algorithm_arguments import algorithm
from timerl_nb.driver.program import Program
from timerl_nb.driver.program_runs.run_in_folder import HeldFolders, Keeper
from timerl_nb.runtime.state.run_folder import LOCK, checksum_of, damaged_run_file_error

ASKED: Final = "asked.json"
FORMAT: Final = "timerl asked"
VERSION: Final = 1

_ITERATIONS: Final = ("I", "T")  # the bounds of iterations: a program without I has T of them
_FUSED: Final = 20  # iterations in a call: Ctrl-C waits for one, and calls cost little beside it


@dataclass(frozen=True)
class RunRequest:
    """A run of a ready algorithm.

    Attributes:
        algorithm: its name in `trl.algorithms`.
        arguments: all of its arguments that a command line can give, by name.
        bounds: by name.
        options: those of `trl.Options` that were given.
        seed: of all random streams.
        every: how often it saves.
        log: whether its outputs are written to the folder, row by row.
        seeds: how many runs side by side, the first with `seed`; None for one alone.
    """

    algorithm: str
    arguments: Mapping[str, Any]
    bounds: Mapping[str, int]
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    seed: int = 0
    every: str = "5min"
    log: bool = False
    seeds: int | None = None

    def prepared(self) -> tuple[RunRequest, Program]:
        """Return the program, with the options under which its runs can be stopped and saved.

        XLA runs a loop without inner loops in one call. These options divide the loop into several calls.

        Raises:
            TimeRLError: as for `program`.
        """
        program = self._compile()
        executable = program.executable
        if (
            not executable.cuts().is_coarse
            or executable.xla_program is None
            or "fuse_iterations" in self.options
        ):
            asked = self
        else:
            asked = replace(self, options={**self.options, "fuse_iterations": _FUSED})
            program = program.with_options(fuse_iterations=_FUSED)
        return asked, _check_savable(program)

    def program(self) -> Program:
        """Return the compiled program.

        Raises:
            TimeRLError: there is no such algorithm, argument or option, or it does not compile, or no
                run of it can be saved.
        """
        return _check_savable(self._compile())

    def _compile(self) -> Program:
        about = algorithm(self.algorithm)
        given = {n: about.argument(n).validate(value) for n, value in self.arguments.items()}
        options = Options(**self.options)
        return about.make(**given).compile(self.bounds, options, seeds=self.seeds)

    def in_python(self) -> list[str]:
        """Lines that make the same program."""
        about = algorithm(self.algorithm)
        given = [
            f"{name}={value!r}"
            for name, value in self.arguments.items()
            if name == "env" or value != about.arguments[name].default
        ]
        options = ", ".join(f"{name}={value!r}" for name, value in self.options.items())
        under = f"{dict(self.bounds)!r}" + (f", trl.Options({options})" if options else "")
        under += "" if self.seeds is None else f", seeds={self.seeds}"
        return [
            "import timerl_nb as trl",
            f"ctx = trl.algorithms.{self.algorithm}({', '.join(given)})",
            f"program = ctx.compile({under})",
        ]

    def __str__(self) -> str:
        env = self.arguments.get("env")
        sizes = ", ".join(f"{name} = {bound}" for name, bound in self.bounds.items())
        seeds = f"seed {self.seed}"
        if self.seeds is not None:
            seeds = f"seeds {self.seed} to {self.seed + self.seeds - 1}"
        return f"{self.algorithm}{f' on {env}' if env else ''}: {sizes}, {seeds}"

    # --- in a folder -----------------------------------------------------------------------------

    def write(self, folder: Path) -> bool:
        """Keep it in a folder, which is made if need be; returns whether it was.

        Raises:
            ExecutionError: the folder cannot be written to, or something was asked for there before.
        """
        is_new = not folder.exists()
        with explain_os_errors(f"{folder} cannot be written to", hint="choose another --folder."):
            folder.mkdir(parents=True, exist_ok=True)
            if any(not name.startswith(".") for name in os.listdir(folder)):
                raise ExecutionError(
                    f"{folder} is not empty.",
                    hint=f"`timerl resume {folder}` goes on with a run; or give another --folder.",
                )
            write_json(folder / ASKED, FORMAT, VERSION, asdict(self))
        return is_new

    def with_iterations(self, count: int) -> RunRequest:
        """Return the same with another number of iterations.

        Raises:
            OptionError: it is no positive number.
        """
        if count < 1:
            raise OptionError(
                f"--iterations {count} is not possible.", hint="give a positive number."
            )
        name = next(name for name in _ITERATIONS if name in self.bounds)
        return replace(self, bounds={**self.bounds, name: count})

    def write_again(self, folder: Path) -> None:
        """Write the request into the folder of its run, over the previous request."""
        write_json(folder / ASKED, FORMAT, VERSION, asdict(self))

    def take_back(self, folder: Path, *, is_new: bool) -> None:
        """Leave a folder as it was before `write`: the run was refused ahead of its first turn."""
        for name in (ASKED, LOCK):
            (folder / name).unlink(missing_ok=True)
        if is_new:
            with suppress(OSError):  # something else is in it
                folder.rmdir()

    @classmethod
    def read_from(cls, folder: Path) -> RunRequest:
        """What was asked for in a folder.

        Raises:
            ExecutionError: nothing was, or what says so is damaged.
        """
        path = folder / ASKED
        if not path.exists():
            raise ExecutionError(
                f"{folder} has no {ASKED}: `timerl train` did not begin a run there.",
                hint="name the folder that it printed; what program.execute(checkpoint=folder) began, "
                "the program itself goes on with: program.resume(folder).",
            )
        given = read_json(path, FORMAT, VERSION)
        kinds: dict[str, Any] = {
            **dict.fromkeys(("arguments", "bounds", "options"), dict),
            "seed": int,
            "log": bool,
            "seeds": int | None,
        }
        for name in (one.name for one in fields(cls)):
            if not isinstance(given.get(name, ...), kinds.get(name, str)):
                raise damaged_run_file_error(path, f"has no `{name}`, or one of another kind")
        if len(given) > len(fields(cls)):
            raise damaged_run_file_error(path, f"has fields beside those of version {VERSION}")
        asked = cls(**given)
        try:
            about = algorithm(asked.algorithm)
            checked = {n: about.argument(n).validate(x) for n, x in asked.arguments.items()}
        except OptionError as error:
            raise ExecutionError(
                f"{path} asks for what this version of TimeRL-nb does not have: {error.what}",
                hint="use the version that began the run.",
            ) from error
        return replace(asked, arguments=checked)


def _check_savable(program: Program) -> Program:
    """Return a program if its runs can be saved, and refuse others."""
    keeper = Keeper(program.pdg, program.bounds, program.executable, HeldFolders(), recorded=False)
    keeper.check_turns()
    return program


def write_json(path: Path, kind: str, version: int, body: Mapping[str, Any]) -> None:
    """Write a file of names and values, with what it is and a checksum; whole or not at all."""
    said = json.loads(json.dumps({"format": kind, "version": version, **body}))
    text = json.dumps({**said, "checksum": checksum_of(said)}, indent=1)
    write_whole(path, text.encode() + b"\n")


def read_json(path: Path, kind: str, version: int) -> dict[str, Any]:
    """What `write_json` wrote.

    Raises:
        ExecutionError: it is something else, or of another version.
    """
    try:
        given: Any = parse_json(read_regular(path, LONGEST_TEXT, links=False))
    except OSError as error:
        raise damaged_run_file_error(path, f"cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise damaged_run_file_error(path, f"is no JSON: {error}") from None
    if not isinstance(given, dict) or given.get("format") != kind:
        raise damaged_run_file_error(path, f"is something else: its `format` is not {kind!r}")
    if given.get("version") != version:
        raise ExecutionError(
            f"{path} is of `version` {given.get('version')!r}; this version of TimeRL-nb reads {version}.",
            hint="use the version that wrote it.",
        )
    found = given.pop("checksum", None)
    if found != checksum_of(given):
        raise damaged_run_file_error(path, "is not what was written: its `checksum` is another")
    del given["format"], given["version"]
    return given
