"""`timerl resume FOLDER`: continues a run of `timerl train`, or a sweep of `timerl sweep`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from timerl_nb.base.atomic_files import user_path
from timerl_nb.base.errors import ExecutionError, OptionError
from timerl_nb.base.options import environment
from timerl_nb.cli import sweep
from timerl_nb.cli.support.argument_parser import Parser
from timerl_nb.cli.support.distributed_run import connect_launched, execute_together, on_all_devices
from timerl_nb.cli.support.foreground_run import extended_request, go_on
from timerl_nb.distributed.initialization import COORDINATOR

_EXAMPLES: Final = """  timerl resume runs/reinforce-CartPole-v1-1

For a finished run the command prints the result. --more 100 trains it for 100 more iterations. The
folder contains the algorithm with its arguments, bounds, options and seed.
"""


def main(words: Sequence[str]) -> int:
    """Run `timerl resume`."""
    parser = Parser("resume", "Continue an interrupted run or sweep.", _EXAMPLES)
    parser.add_argument("folder", type=user_path, help="the folder of a run or sweep")
    parser.add_argument("--quiet", action="store_true", help="print neither progress nor advice")
    parser.add_argument(
        "--iterations",
        type=int,
        help="the new total number of iterations (default: that of the original run)",
    )
    parser.add_argument(
        "--more", type=int, help="iterations in addition to those of the original run"
    )
    given = parser.parse_words(words)
    folder: Path = given.folder
    if not folder.is_dir():
        raise ExecutionError(
            f"the folder {folder} does not exist.",
            hint="pass the folder that `timerl train` printed.",
        )
    if sweep.is_sweep(folder):
        if given.iterations is not None or given.more is not None:
            raise OptionError(
                f"--iterations or --more applies to a run, but {folder} contains a sweep.",
                hint=f"pass the folder of one of its runs, such as {sweep.first_run(folder)}.",
            )
        if COORDINATOR in environment():
            raise OptionError(
                f"{folder} contains a sweep, the runs of which need no connection.",
                hint=f"call `timerl resume {folder}` without `timerl launch`.",
            )
        return sweep.go_on(folder)
    if given.iterations is not None and given.more is not None:
        raise OptionError(
            "--iterations and --more both set the number of iterations.",
            hint="leave out one of them.",
        )
    me = connect_launched()
    if me.count > 1:
        asked = on_all_devices(extended_request(folder, given.iterations, given.more))
        return execute_together(asked, asked.program(), folder, me, quiet=given.quiet)
    return go_on(folder, quiet=given.quiet, iterations=given.iterations, more=given.more)
