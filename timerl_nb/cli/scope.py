"""`timerl scope`: record any Python program, and look at what was recorded."""

from __future__ import annotations

import argparse
import itertools
import os
import runpy
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout, suppress
from functools import partial
from pathlib import Path
from typing import Final

from timerl_nb.base.atomic_files import user_path
from timerl_nb.base.errors import ExecutionError, one_of
from timerl_nb.cli.support.argument_parser import Parser
from timerl_nb.cli.support.script_runner import as_python_does
from timerl_nb.scope.analysis.coverage_audit import audit
from timerl_nb.scope.analysis.library_transitions import transitions_text
from timerl_nb.scope.analysis.process_tree import processes
from timerl_nb.scope.analysis.time_breakdown import overlap_of
from timerl_nb.scope.calibration.calibration import Calibration
from timerl_nb.scope.calibration.difference_of_averages import averages
from timerl_nb.scope.calibration.whole_run_delta import whole_delta
from timerl_nb.scope.device_activity.trace_import import add_trace
from timerl_nb.scope.device_activity.tracing_session import Steps
from timerl_nb.scope.recording.process_joining import environment
from timerl_nb.scope.recording.recorder import make_fresh
from timerl_nb.scope.storage.recording_reader import read
from timerl_nb.show.recording.recording_view import ScopeView

_EXAMPLES: Final = """  timerl scope run train.py --steps 1000           what follows the script is its own
  timerl scope run --folder runs/ppo -m my.module
  timerl scope run --exact train.py                all time, without blocks that calibrate
  timerl scope show runs/ppo
  timerl scope compare runs/eager runs/compiled
  timerl scope add runs/ppo trace.json             of PyTorch's or JAX's own profiler
  timerl scope check train.py --steps 1000
  timerl scope calibrate train.py --steps 1000     what recording costs it, for show --calibration
"""


def main(words: Sequence[str]) -> int:
    """Scope: see the module."""
    name = words[0] if words else ""
    if name in _COMMANDS:
        return _COMMANDS[name](words[1:])
    about = (
        "Where the time of any Python program goes: run records one, show looks at a recording, compare at two, "
        "add adds a trace, export writes one file, check lists what is not tapped, "
        "calibrate says what recording costs."
    )
    parser = Parser("scope", about, _EXAMPLES)
    parser.add_argument("command", metavar="run|show|compare|export|add|check|calibrate")
    parser.parse_words(words[:1])
    parser.error(f"there is no command {name!r}: {one_of(name, list(_COMMANDS))}")


def _run(words: Sequence[str]) -> int:
    """Become the script, recorded: its exit status, signals and streams are its own."""
    about = "Run a Python program unchanged, and record it and the Python processes that it starts."
    parser = Parser("scope run", about, _EXAMPLES, usage="timerl scope run [options] script.py ...")
    parser.add_argument(
        "--folder", type=user_path, help="where to (default: a new one in runs/, named by the time)"
    )
    parser.add_argument(
        "--devices", type=int, default=0, help="trace GPUs in so many steps behind the first one"
    )
    parser.add_argument(
        "--exact", action="store_true", help="record all time: no blocks are left out to calibrate"
    )
    given, script = _read_with_script(parser, words)
    Steps(given.devices)  # refuses what is no number of them
    folder = given.folder or _new_folder()
    make_fresh(folder)
    print(f"recorded into {folder}: timerl scope show {folder}", file=sys.stderr, flush=True)
    joined = environment(folder, os.environ, devices=given.devices, calibrated=not given.exact)
    os.execve(sys.executable, [sys.executable, *script], joined)


def _new_folder() -> Path:
    """Make a folder in runs/, named by the time. Two commands of one second get two folders."""
    first = Path("runs") / f"scope-{time.strftime('%Y%m%d-%H%M%S')}"
    for number in itertools.count(1):
        folder = first if number == 1 else first.with_name(f"{first.name}-{number}")
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            continue
        except OSError:
            break
        return folder
    return first  # the recorder makes it, and says why that fails


_VALUED: Final = ("--folder", "--devices", "--seconds", "--pairs", "--out", "--way")


def _read_with_script(
    parser: Parser, words: Sequence[str]
) -> tuple[argparse.Namespace, Sequence[str]]:
    """Options of ours, and the script with its own."""
    at = 0
    while at < len(words) and words[at].startswith("-") and words[at] != "-m":
        at += 2 if words[at] in _VALUED else 1
    given, script = parser.parse_words(words[:at]), words[at:]
    if not script or script == ["-m"]:
        parser.error("no script is given.")
    if script[0] != "-m" and not Path(script[0]).is_file():
        raise ExecutionError(
            f"{script[0]} is no file.",
            hint="give a Python script, or -m and a module; options of the script stand behind it.",
        )
    return given, script


def _check(words: Sequence[str]) -> int:
    """Run a script for some seconds, and print which native functions ran untapped."""
    about = (
        "Run a Python script, at most for some seconds, and print the native functions that are not tapped. "
        "What it prints goes to stderr."
    )
    usage = "timerl scope check [--seconds 10] script.py ..."
    parser = Parser("scope check", about, "  timerl scope check train.py\n", usage=usage)
    parser.add_argument("--seconds", type=float, default=10.0, help="how long (default: 10)")
    given, script = _read_with_script(parser, words)
    if script[0] == "-m":
        parser.error("a module cannot be checked: give a script.")
    path = Path(script[0])
    with (
        audit(given.seconds) as found,
        redirect_stdout(sys.stderr),
        as_python_does(path, script[1:]),
        suppress(SystemExit),
    ):
        runpy.run_path(str(path), run_name="__main__")
    print(found)
    return 0


def _calibrate(words: Sequence[str]) -> int:
    """Run a script in pairs, recorded and not, and save what recording costs it."""
    about = (
        "Run a Python program several times, recorded and not (or traced and not), and write what that costs it. "
        "It should do the same each time; what it prints is not shown."
    )
    usage = "timerl scope calibrate [--way averages] [--pairs 5] [--out FILE] script.py ..."
    examples = "  timerl scope calibrate train.py\n  timerl scope show runs/ppo --calibration calibration.json\n"
    parser = Parser("scope calibrate", about, examples, usage=usage)
    parser.add_argument(
        "--way",
        choices=("whole", "averages"),
        default="whole",
        help="whole: what taps and annotations cost; averages: what tracing costs calls of devices",
    )
    parser.add_argument(
        "--devices", type=int, default=10, help="steps to trace, for averages (default: 10)"
    )
    parser.add_argument("--pairs", type=int, default=5, help="the most pairs of runs (default: 5)")
    parser.add_argument(
        "--out",
        type=user_path,
        default=Path("calibration.json"),
        help="(default: calibration.json)",
    )
    given, script = _read_with_script(parser, words)
    if not given.out.absolute().parent.is_dir():  # not behind all runs
        raise ExecutionError(f"there is no folder {given.out.parent}.", hint="name another file.")
    told = partial(print, file=sys.stderr, flush=True)
    if given.way == "whole":
        found = whole_delta(script, given.pairs, told=told)
    else:
        Steps(given.devices)  # refuses what is no number of them
        found = averages(script, given.pairs, given.devices, told=told)
    print(f"{found}\nwritten: {found.save(given.out)}")
    return 0


def _show(words: Sequence[str]) -> int:
    """Print what a recording holds."""
    about = "Print where the time of a recorded program went."
    parser = Parser("scope show", about, "  timerl scope show runs/ppo\n")
    parser.add_argument("folder", type=user_path, help="a recorded folder")
    parser.add_argument(
        "--calibration",
        type=user_path,
        action="append",
        help="a file of what recording costs, which is taken off; may be given twice",
    )
    given = parser.parse_words(words)
    recording = read(given.folder)
    measured = overlap_of(recording)
    times = str(measured)
    if given.calibration is not None:
        first, *more = map(Calibration.load, given.calibration)
        times = f"{recording.corrected(sum(more, first))}\n\n{measured.threads_text()}"
    print(processes(recording))
    print(f"\n{recording.devices}")
    print(f"\n{times}\n\n{transitions_text(recording)}")
    return 0


def _compare(words: Sequence[str]) -> int:
    """Print two recordings beside each other."""
    about = "Print the operations of two recordings beside each other, and by how much they take longer in the second."
    parser = Parser("scope compare", about, "  timerl scope compare runs/eager runs/compiled\n")
    parser.add_argument("first", type=user_path, help="a recorded folder")
    parser.add_argument("second", type=user_path, help="another")
    given = parser.parse_words(words)
    print(read(given.first).compare(read(given.second)))
    return 0


def _add(words: Sequence[str]) -> int:
    """Add a trace of devices to a recording."""
    about = (
        "Add what PyTorch's or JAX's profiler wrote of devices to the recording of the same run."
    )
    parser = Parser("scope add", about, "  timerl scope add runs/ppo trace.json\n")
    parser.add_argument("folder", type=user_path, help="a recorded folder")
    parser.add_argument("trace", type=user_path, help="a .json, .json.gz, or .xplane.pb")
    parser.add_argument("--process", type=int, help="whose it is (default: as the trace says)")
    given = parser.parse_words(words)
    print(add_trace(given.folder, given.trace, given.process))
    return 0


def _export(words: Sequence[str]) -> int:
    """Write a recording as one file."""
    about = (
        "Write a recording as one file: a zip to share, which show reads, a picture, a trace for Perfetto, "
        "or (where pyarrow is) a Parquet table."
    )
    parser = Parser("scope export", about, "  timerl scope export runs/ppo ppo.scope.zip\n")
    parser.add_argument("folder", type=user_path, help="a recorded folder")
    parser.add_argument(
        "path", type=user_path, help="ends in .zip, .svg, .json, .json.gz or .parquet"
    )
    parser.add_argument("--begin", type=float, help="of a trace, in seconds (default: all)")
    parser.add_argument("--end", type=float, help="of a trace, in seconds")
    given = parser.parse_words(words)
    name = given.path.name.lower()
    is_trace = name.endswith((".json", ".json.gz"))
    if not is_trace and not name.endswith((".zip", ".svg", ".parquet")):
        parser.error(f"{given.path} ends in none of .zip, .svg, .json, .json.gz, .parquet.")
    if not is_trace and (given.begin, given.end) != (None, None):
        parser.error(
            "--begin and --end are of a trace: name a file that ends in .json or .json.gz."
        )
    recording = read(given.folder)
    if is_trace:
        recording.perfetto(given.path, given.begin, given.end)
    elif name.endswith(".svg"):
        ScopeView.from_recording(recording).save(given.path)
    else:
        recording.save(given.path)
    print(f"written: {given.path}")
    return 0


_COMMANDS: Final[Mapping[str, Callable[[Sequence[str]], int]]] = {
    "run": _run,
    "show": _show,
    "compare": _compare,
    "export": _export,
    "add": _add,
    "check": _check,
    "calibrate": _calibrate,
}
