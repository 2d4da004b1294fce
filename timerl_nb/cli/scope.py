"""`timerl scope`: records the time of any Python program, and analyses recordings."""

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
from timerl_nb.scope.recording.recorder import prepare_recording_folder
from timerl_nb.scope.storage.recording_reader import read
from timerl_nb.show.recording.recording_view import ScopeView

_EXAMPLES: Final = """  timerl scope run train.py --steps 1000           arguments after the script go to the script
  timerl scope run --folder runs/ppo -m my.module
  timerl scope run --exact train.py                record all time, without calibration blocks
  timerl scope show runs/ppo
  timerl scope compare runs/eager runs/compiled
  timerl scope add runs/ppo trace.json             a trace of the PyTorch or JAX profiler
  timerl scope check train.py --steps 1000
  timerl scope calibrate train.py --steps 1000     measure the overhead, for show --calibration
"""


def main(words: Sequence[str]) -> int:
    """Run `timerl scope`."""
    name = words[0] if words else ""
    if name in _COMMANDS:
        return _COMMANDS[name](words[1:])
    about = (
        "Record and analyse the time of any Python program.\n\n"
        "  run        run a program and record it\n"
        "  show       print the time breakdown of a recording\n"
        "  compare    print the operations of two recordings side by side\n"
        "  export     write a recording as one file\n"
        "  add        add a device trace to a recording\n"
        "  check      list the native functions that a recording would miss\n"
        "  calibrate  measure the overhead of recording"
    )
    parser = Parser("scope", about, _EXAMPLES)
    parser.add_argument("command", metavar="run|show|compare|export|add|check|calibrate")
    parser.parse_words(words[:1])
    parser.error(f"the command {name!r} is unknown: {one_of(name, list(_COMMANDS))}")


def _run(words: Sequence[str]) -> int:
    """Replace this process by the script, with recording enabled: exit status, signals and streams are the
    script's.
    """
    about = "Run an unchanged Python program, and record it and its Python subprocesses."
    parser = Parser("scope run", about, _EXAMPLES, usage="timerl scope run [options] script.py ...")
    parser.add_argument(
        "--folder",
        type=user_path,
        help="the folder of the recording (default: a new one in runs/, named by the time)",
    )
    parser.add_argument(
        "--devices",
        type=int,
        default=0,
        help="the number of steps, after the first one, in which to trace GPUs",
    )
    parser.add_argument(
        "--exact",
        action="store_true",
        help="record all time, without leaving out blocks for calibration",
    )
    given, script = _read_with_script(parser, words)
    Steps(given.devices)  # raises for a negative number
    folder = given.folder or _new_folder()
    prepare_recording_folder(folder)
    print(
        f"recording into {folder}; afterwards: timerl scope show {folder}",
        file=sys.stderr,
        flush=True,
    )
    joined = environment(folder, os.environ, devices=given.devices, calibrated=not given.exact)
    os.execve(sys.executable, [sys.executable, *script], joined)


def _new_folder() -> Path:
    """Create a folder in runs/, named by the time, with a suffix if it exists."""
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
    return first  # the recorder creates it, or reports the error


_VALUED: Final = ("--folder", "--devices", "--seconds", "--pairs", "--out", "--way")


def _read_with_script(
    parser: Parser, words: Sequence[str]
) -> tuple[argparse.Namespace, Sequence[str]]:
    """Parse the options of the command, and return the script with its own arguments."""
    at = 0
    while at < len(words) and words[at].startswith("-") and words[at] != "-m":
        at += 2 if words[at] in _VALUED else 1
    given, script = parser.parse_words(words[:at]), words[at:]
    if not script or script == ["-m"]:
        parser.error("the script is missing.")
    if script[0] != "-m" and not Path(script[0]).is_file():
        raise ExecutionError(
            f"{script[0]} is not a file.",
            hint="pass a Python script, or -m and a module. Options of the script follow it.",
        )
    return given, script


def _check(words: Sequence[str]) -> int:
    """Run a script for some seconds, and print the native functions without a wrapper."""
    about = (
        "Run a Python script for a limited time, and list the native functions that a recording would miss. "
        "The output of the script goes to stderr."
    )
    usage = "timerl scope check [--seconds 10] script.py ..."
    parser = Parser("scope check", about, "  timerl scope check train.py\n", usage=usage)
    parser.add_argument(
        "--seconds", type=float, default=10.0, help="the time limit in seconds (default: 10)"
    )
    given, script = _read_with_script(parser, words)
    if script[0] == "-m":
        parser.error("a module cannot be checked: pass a script.")
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
    """Run a script repeatedly with and without recording, and save the overhead of recording."""
    about = (
        "Measure the overhead of recording (or of device tracing): run a program several times with and without it. "
        "Every run should do the same work; the output of the program is not shown."
    )
    usage = "timerl scope calibrate [--way averages] [--pairs 5] [--out FILE] script.py ..."
    examples = "  timerl scope calibrate train.py\n  timerl scope show runs/ppo --calibration calibration.json\n"
    parser = Parser("scope calibrate", about, examples, usage=usage)
    parser.add_argument(
        "--way",
        choices=("whole", "averages"),
        default="whole",
        help="whole: overhead of wrappers and annotations; averages: overhead of device tracing per call",
    )
    parser.add_argument(
        "--devices",
        type=int,
        default=10,
        help="the number of steps to trace, for averages (default: 10)",
    )
    parser.add_argument(
        "--pairs", type=int, default=5, help="the maximal number of pairs of runs (default: 5)"
    )
    parser.add_argument(
        "--out",
        type=user_path,
        default=Path("calibration.json"),
        help="the file to write (default: calibration.json)",
    )
    given, script = _read_with_script(parser, words)
    if not given.out.absolute().parent.is_dir():  # checked before the runs, which take long
        raise ExecutionError(
            f"the folder {given.out.parent} does not exist.",
            hint="pass --out with a file in an existing folder.",
        )
    told = partial(print, file=sys.stderr, flush=True)
    if given.way == "whole":
        found = whole_delta(script, given.pairs, told=told)
    else:
        Steps(given.devices)  # raises for a negative number
        found = averages(script, given.pairs, given.devices, told=told)
    print(f"{found}\nwritten: {found.save(given.out)}")
    return 0


def _show(words: Sequence[str]) -> int:
    """Run `timerl scope show`."""
    about = "Print the time breakdown of a recorded program."
    parser = Parser("scope show", about, "  timerl scope show runs/ppo\n")
    parser.add_argument("folder", type=user_path, help="the folder of a recording")
    parser.add_argument(
        "--calibration",
        type=user_path,
        action="append",
        help="a file of `calibrate`; its overheads are subtracted. May be repeated",
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
    print(f"\n{times}\n\ncalls from one library to another:\n{transitions_text(recording)}")
    return 0


def _compare(words: Sequence[str]) -> int:
    """Run `timerl scope compare`."""
    about = (
        "Print the operations of two recordings side by side, with the differences of their times."
    )
    parser = Parser("scope compare", about, "  timerl scope compare runs/eager runs/compiled\n")
    parser.add_argument("first", type=user_path, help="the folder of a recording")
    parser.add_argument("second", type=user_path, help="the folder of another recording")
    given = parser.parse_words(words)
    print(read(given.first).compare(read(given.second)))
    return 0


def _add(words: Sequence[str]) -> int:
    """Run `timerl scope add`."""
    about = "Add a device trace of the PyTorch or JAX profiler to the recording of the same run."
    parser = Parser("scope add", about, "  timerl scope add runs/ppo trace.json\n")
    parser.add_argument("folder", type=user_path, help="the folder of a recording")
    parser.add_argument(
        "trace", type=user_path, help="the trace: a .json, .json.gz or .xplane.pb file"
    )
    parser.add_argument(
        "--process", type=int, help="the id of the traced process (default: the id in the trace)"
    )
    given = parser.parse_words(words)
    print(add_trace(given.folder, given.trace, given.process))
    return 0


def _export(words: Sequence[str]) -> int:
    """Run `timerl scope export`."""
    about = (
        "Write a recording as one file: a zip that show can read, an SVG picture, a trace for Perfetto, "
        "or a Parquet table (needs pyarrow)."
    )
    parser = Parser("scope export", about, "  timerl scope export runs/ppo ppo.scope.zip\n")
    parser.add_argument("folder", type=user_path, help="the folder of a recording")
    parser.add_argument(
        "path",
        type=user_path,
        help="the file; its ending is .zip, .svg, .json, .json.gz or .parquet",
    )
    parser.add_argument(
        "--begin", type=float, help="the start of a trace in seconds (default: all)"
    )
    parser.add_argument("--end", type=float, help="the end of a trace in seconds (default: all)")
    given = parser.parse_words(words)
    name = given.path.name.lower()
    is_trace = name.endswith((".json", ".json.gz"))
    if not is_trace and not name.endswith((".zip", ".svg", ".parquet")):
        parser.error(
            f"{given.path} has an unknown ending: choose .zip, .svg, .json, .json.gz or .parquet."
        )
    if not is_trace and (given.begin, given.end) != (None, None):
        parser.error(
            "--begin and --end apply only to a trace: choose a file that ends in .json or .json.gz."
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
