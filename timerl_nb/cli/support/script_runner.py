"""Execution of scripts to collect their compiled programs: up to the first run of a program, or to the end."""

from __future__ import annotations

import argparse
import linecache
import runpy
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from threading import get_ident

from timerl_nb.base.atomic_files import user_path
from timerl_nb.base.errors import ExecutionError, Origin, TimeRLError
from timerl_nb.cli.support.argument_parser import Parser, bounds, merge_dicts
from timerl_nb.driver.program import Program
from timerl_nb.driver.program_hooks import ProgramObserver, add_observer, remove_observer


@dataclass(frozen=True)
class Compiled:
    """Compiled program of a script, with the line that compiled it."""

    program: Program
    origin: Origin


class _Enough(BaseException):
    """The script is about to run a program. A BaseException, so that no `except Exception` of the script catches
    it.
    """


class _ScriptObserver(ProgramObserver):
    """Collects the programs compiled on a script's main thread, and stops the script at the first run of a
    program.
    """

    def __init__(self, script: Script) -> None:
        self._script, self._thread = script, get_ident()

    def compiled(self, program: Program, origin: Origin) -> None:
        if get_ident() == self._thread:
            self._script.compiled.append(Compiled(program, origin))

    def begins(self, program: Program, origin: Origin) -> None:
        if get_ident() == self._thread and not self._script.whole:
            self._script.stopped = origin
            raise _Enough


@dataclass
class Script:
    """Executed script.

    Attributes:
        path: the file.
        whole: whether the script may run its programs.
        compiled: the programs in the order of compilation.
        stopped: the line at which the script was stopped.
        error: the exception that ended the script.
    """

    path: Path
    whole: bool
    compiled: list[Compiled] = field(default_factory=list[Compiled])
    stopped: Origin | None = None
    error: Exception | None = None

    @classmethod
    def run(cls, path: Path, words: Sequence[str], *, whole: bool) -> Script:
        """Run a script like Python, with its arguments.

        Args:
            path: the file.
            words: the script's arguments.
            whole: let the script run its programs; otherwise it is stopped at the first run.

        Raises:
            ExecutionError: the file does not exist, or compiles no program.
        """
        if not path.is_file() or path.suffix == ".ipynb":
            what = "is a notebook" if path.is_file() else "is not a file"
            raise ExecutionError(
                f"{path} {what}.",
                hint="pass a Python script. `jupyter nbconvert --to script` converts a notebook to one.",
            )
        script = cls(path, whole)
        linecache.checkcache(str(path))  # this process may have cached another file of that name
        # stdout is for the command's output
        observer = _ScriptObserver(script)
        with redirect_stdout(sys.stderr), as_python_does(path, words):
            add_observer(observer)
            try:
                runpy.run_path(str(path), run_name="__main__")
            except (_Enough, SystemExit):
                pass
            except Exception as error:
                script.error = error
            finally:
                remove_observer(observer)
        if not script.compiled and script.error is None:
            raise ExecutionError(
                f"{path} compiles no program.",
                hint="call ctx.compile({...}) in the script, or below `if __name__ == '__main__':`. "
                "Arguments after -- go to the script.",
            )
        return script

    # --- reporting ---------------------------------------------------------------------------

    def compile_under(self, given: argparse.Namespace) -> list[Compiled]:
        """Return the programs, compiled with changed bounds if the command line has any."""
        changed = merge_dicts(given.bounds)
        if not changed:
            return self.compiled
        return [Compiled(one.program.with_bounds(changed), one.origin) for one in self.compiled]

    def report_end(self) -> int:
        """Print how the script ended, and return the exit status.

        Raises:
            TimeRLError: the error that ended the script.
        """
        if isinstance(self.error, TimeRLError):
            raise self.error
        if self.error is not None:
            at = self.error.__traceback__
            while at is not None and at.tb_frame.f_code.co_filename != str(self.path):
                at = at.tb_next
            traceback.print_exception(type(self.error), self.error, at)
            return 1
        if self.stopped is not None:
            print(
                f"\nstopped before running the program at {self.stopped}; --run lets the script continue"
            )
        return 0


@contextmanager
def as_python_does(path: Path, words: Sequence[str]) -> Iterator[None]:
    """Set `sys.argv` and the first entry of `sys.path` as Python does for a script."""
    before = sys.argv, list(sys.path)
    sys.argv = [str(path), *words]
    sys.path.insert(0, str(path.resolve().parent))
    try:
        yield
    finally:
        sys.argv, sys.path[:] = before


def read_with_script(parser: Parser, words: Sequence[str]) -> tuple[argparse.Namespace, Script]:
    """Parse the arguments of a command about a script, and run the script."""
    parser.add_argument("script", type=user_path, help="a Python file that compiles programs")
    parser.add_argument(
        "--run",
        action="store_true",
        help="let the script run its programs (default: stop at the first run)",
    )
    parser.add_argument(
        "--bounds",
        type=bounds,
        action="append",
        metavar="T=1000",
        help="other bounds than those in the script",
    )
    cut = words.index("--") if "--" in words else len(words)
    given = parser.parse_words(words[:cut])
    return given, Script.run(given.script, words[cut + 1 :], whole=given.run)
