"""Request of a run as JSON in its folder: only names and values, never executed code."""

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
from timerl_nb.driver.program_runs.run_in_folder import FolderLocks, RunSaver
from timerl_nb.runtime.state.run_folder import LOCK, checksum_of, damaged_run_file_error

ASKED: Final = "asked.json"
FORMAT: Final = "timerl asked"
VERSION: Final = 1

_ITERATIONS: Final = ("I", "T")  # bounds that count iterations; a program without I has T of them
_FUSED: Final = 20  # iterations per call: Ctrl-C waits for one call, and the cost of calls is small


@dataclass(frozen=True)
class RunRequest:
    """Request of a run of a built-in algorithm.

    Attributes:
        algorithm: its name in `trl.algorithms`.
        arguments: all arguments with a command-line form, by name.
        bounds: the bounds by name.
        options: the compiler options that differ from the defaults.
        seed: the seed of all random numbers.
        every: the interval between saves.
        log: whether outputs are written to the folder row by row.
        seeds: the number of runs in one program, with consecutive seeds from `seed` on; None for a single
            run.
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
        """Return the program, and the request with options under which its runs can be stopped and saved.

        XLA runs a loop without inner loops in one call. The added options divide the loop into several calls.

        Raises:
            TimeRLError: as in `program`.
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
            TimeRLError: the algorithm, an argument or an option is unknown, the program does not compile, or
                its runs cannot be saved.
        """
        return _check_savable(self._compile())

    def _compile(self) -> Program:
        about = algorithm(self.algorithm)
        given = {n: about.argument(n).validate(value) for n, value in self.arguments.items()}
        options = Options(**self.options)
        return about.make(**given).compile(self.bounds, options, seeds=self.seeds)

    def in_python(self) -> list[str]:
        """Return Python code that compiles the same program."""
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
        """Write the request into a folder, and return whether the folder is new.

        Raises:
            ExecutionError: the folder is not writable or not empty.
        """
        is_new = not folder.exists()
        with explain_os_errors(f"{folder} cannot be written", hint="choose another --folder."):
            folder.mkdir(parents=True, exist_ok=True)
            if any(not name.startswith(".") for name in os.listdir(folder)):
                raise ExecutionError(
                    f"{folder} is not empty.",
                    hint=f"continue a run by `timerl resume {folder}`, or choose another --folder.",
                )
            write_json(folder / ASKED, FORMAT, VERSION, asdict(self))
        return is_new

    def with_iterations(self, count: int) -> RunRequest:
        """Return the request with another number of iterations.

        Raises:
            OptionError: the number is not positive.
        """
        if count < 1:
            raise OptionError(
                f"--iterations {count} is not a positive number.", hint="choose a positive number."
            )
        return replace(self, bounds={**self.bounds, self._counter: count})

    def with_more_iterations(self, count: int) -> RunRequest:
        """Return the request with additional iterations.

        Raises:
            OptionError: the number is not positive.
        """
        if count < 1:
            raise OptionError(
                f"--more {count} is not a positive number.", hint="choose a positive number."
            )
        return self.with_iterations(self.bounds[self._counter] + count)

    @property
    def _counter(self) -> str:
        """The bound that counts iterations."""
        return next(name for name in _ITERATIONS if name in self.bounds)

    def overwrite(self, folder: Path) -> None:
        """Replace the request in the folder of its run."""
        write_json(folder / ASKED, FORMAT, VERSION, asdict(self))

    def take_back(self, folder: Path, *, is_new: bool) -> None:
        """Restore the folder to its state before `write`, after the run was rejected before its first turn."""
        for name in (ASKED, LOCK):
            (folder / name).unlink(missing_ok=True)
        if is_new:
            with suppress(OSError):  # the folder has other contents
                folder.rmdir()

    @classmethod
    def read_from(cls, folder: Path) -> RunRequest:
        """Read the request in a folder.

        Raises:
            ExecutionError: the folder has no request, or a damaged one.
        """
        path = folder / ASKED
        if not path.exists():
            raise ExecutionError(
                f"{folder} has no {ASKED}: it is not the folder of a run of `timerl train`.",
                hint="pass the folder that `timerl train` printed. A run of program.execute(checkpoint=folder) "
                "continues by program.resume(folder).",
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
                raise damaged_run_file_error(path, f"has no `{name}`, or one of the wrong type")
        if len(given) > len(fields(cls)):
            raise damaged_run_file_error(path, f"has fields that version {VERSION} does not define")
        asked = cls(**given)
        try:
            about = algorithm(asked.algorithm)
            checked = {n: about.argument(n).validate(x) for n, x in asked.arguments.items()}
        except OptionError as error:
            raise ExecutionError(
                f"{path} does not fit this version of TimeRL-nb: {error.what}",
                hint="use the version that started the run.",
            ) from error
        return replace(asked, arguments=checked)


def _check_savable(program: Program) -> Program:
    """Return a program if its runs can be saved; raise an error otherwise."""
    keeper = RunSaver(
        program.pdg, program.bounds, program.executable, FolderLocks(), recorded=False
    )
    keeper.check_turns()
    return program


def write_json(path: Path, kind: str, version: int, body: Mapping[str, Any]) -> None:
    """Write names and values atomically, with a format name, a version and a checksum."""
    said = json.loads(json.dumps({"format": kind, "version": version, **body}))
    text = json.dumps({**said, "checksum": checksum_of(said)}, indent=1)
    write_whole(path, text.encode() + b"\n")


def read_json(path: Path, kind: str, version: int) -> dict[str, Any]:
    """Read a file written by `write_json`.

    Raises:
        ExecutionError: the file has another format or version, or is damaged.
    """
    try:
        given: Any = parse_json(read_regular(path, LONGEST_TEXT, links=False))
    except OSError as error:
        raise damaged_run_file_error(path, f"cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise damaged_run_file_error(path, f"is not JSON: {error}") from None
    if not isinstance(given, dict) or given.get("format") != kind:
        raise damaged_run_file_error(path, f"has another format: its `format` is not {kind!r}")
    if given.get("version") != version:
        raise ExecutionError(
            f"{path} has `version` {given.get('version')!r}, but this version of TimeRL-nb reads {version}.",
            hint="use the version of TimeRL-nb that wrote the file.",
        )
    found = given.pop("checksum", None)
    if found != checksum_of(given):
        raise damaged_run_file_error(path, "has been changed: its `checksum` does not match")
    del given["format"], given["version"]
    return given
