"""Scripts, run for the programs that they compile: up to where they run one, or to their end."""

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
    """A program of a script, and the line that compiled it."""

    program: Program
    origin: Origin


class _Enough(BaseException):
    """The script is about to run a program; no `except Exception` of its own catches this."""


class _ScriptObserver(ProgramObserver):
    """Keeps the programs of a script's main thread, and stops it where it runs one unless it may."""

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
    """A script that was run.

    Attributes:
        path: of its file.
        whole: its programs may run.
        compiled: its programs, in the order in which they were compiled.
        stopped: the line that would have run a program.
        error: what the script failed with.
    """

    path: Path
    whole: bool
    compiled: list[Compiled] = field(default_factory=list[Compiled])
    stopped: Origin | None = None
    error: Exception | None = None

    @classmethod
    def run(cls, path: Path, words: Sequence[str], *, whole: bool) -> Script:
        """Run a script as Python does, with its words.

        Args:
            whole: let its programs run; otherwise it is stopped where it runs the first one.

        Raises:
            ExecutionError: there is no such script, or it compiles no program.
        """
        if not path.is_file() or path.suffix == ".ipynb":
            what = "is a notebook" if path.is_file() else "is no file"
            raise ExecutionError(
                f"{path} {what}.",
                hint="give a Python script; `jupyter nbconvert --to script` makes one of a notebook.",
            )
        script = cls(path, whole)
        linecache.checkcache(str(path))  # of another file of that name, in this process
        # what it prints goes beside what is said of it
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
                hint="call ctx.compile({...}) in the script, or below `if __name__ == '__main__':`; "
                "words behind -- are the script's own.",
            )
        return script

    # --- telling -----------------------------------------------------------------------------

    def compile_under(self, given: argparse.Namespace) -> list[Compiled]:
        """The programs under the bounds that were given."""
        changed = merge_dicts(given.bounds)
        if not changed:
            return self.compiled
        return [Compiled(one.program.with_bounds(changed), one.origin) for one in self.compiled]

    def report_end(self) -> int:
        """Say how the script ended; returns the exit status.

        Raises:
            TimeRLError: what it failed with.
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
            print(f"\nstopped where it runs: {self.stopped}; --run lets the script run on")
        return 0


@contextmanager
def as_python_does(path: Path, words: Sequence[str]) -> Iterator[None]:
    """The arguments and the first place of imports that a script finds."""
    before = sys.argv, list(sys.path)
    sys.argv = [str(path), *words]
    sys.path.insert(0, str(path.resolve().parent))
    try:
        yield
    finally:
        sys.argv, sys.path[:] = before


def read_with_script(parser: Parser, words: Sequence[str]) -> tuple[argparse.Namespace, Script]:
    """The arguments of a command about a script, and the script, which has been run."""
    parser.add_argument("script", type=user_path, help="a Python file that compiles programs")
    parser.add_argument(
        "--run",
        action="store_true",
        help="let the script run its programs; without this it is stopped where it runs the first one",
    )
    parser.add_argument(
        "--bounds", type=bounds, action="append", metavar="T=1000", help="bounds to change"
    )
    cut = words.index("--") if "--" in words else len(words)
    given = parser.parse_words(words[:cut])
    return given, Script.run(given.script, words[cut + 1 :], whole=given.run)
