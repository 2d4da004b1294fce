"""Runs in the foreground: progress, handling of Ctrl-C, results, and a suggestion for the next step."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
from tqdm import tqdm

from timerl_nb.base.options import progress_by_default
from timerl_nb.base.text_formatting import format_count
from timerl_nb.cli.support.exit_status import INTERRUPTED
from timerl_nb.cli.support.run_request import RunRequest, read_json, write_json
from timerl_nb.driver.program import Program
from timerl_nb.execution.control.background_run import Running
from timerl_nb.execution.logging.jsonl_csv_log import CSV, JSONL
from timerl_nb.execution.results.final_means import final_means, last_tenth
from timerl_nb.execution.results.run_result import Result
from timerl_nb.execution.telemetry.live_view_frames import Frame, compiling_text
from timerl_nb.runtime.state.run_folder import RunFolder

RESULT: Final = "result.json"
FORMAT: Final = "timerl result"
VERSION: Final = 1
_LINES: Final = 10.0  # seconds between two lines of progress


def attend(asked: RunRequest, program: Program, folder: Path, *, quiet: bool = False) -> int:
    """Start or continue a run in its folder, wait for its end or Ctrl-C, and return the exit status.

    After Ctrl-C the current turn completes and the state is saved; after a second Ctrl-C the process ends
    immediately.

    Args:
        asked: the request.
        program: the compiled program of the request.
        folder: the folder of the run.
        quiet: print only the end of the run.
    """
    log = folder if asked.log else None
    if RunFolder(folder).is_empty:
        clear_logs(folder)
        run = program.start(asked.seed, checkpoint=folder, every=asked.every, log=log)
    else:
        run = program.start(resume=folder, log=log)
        asked.overwrite(folder)
        if not quiet:
            done = run.turn == run.turns
            print(
                "the run has already finished"
                if done
                else f"continuing after turn {run.turn} of {run.turns}"
            )
    try:
        _show(run, shown=not quiet and progress_by_default())
        run.wait()
        result = run.result()
    except KeyboardInterrupt:
        return _stop_after_interrupt(run, folder)
    report_result(asked, folder, result, run.turn, quiet=quiet)
    return 0


def clear_logs(folder: Path) -> None:
    """Remove the logs of a run that has saved no state."""
    for name in (JSONL, CSV):
        (folder / name).unlink(missing_ok=True)


def report_result(
    asked: RunRequest, folder: Path, result: Result, turns: int, *, quiet: bool
) -> None:
    """Write the final means into the folder of a run, and print the result."""
    final = final_means(result)
    written = {name: str(value) for name, value in final.items()}  # JSON has no NaN
    write_json(folder / RESULT, FORMAT, VERSION, {"outputs": written})
    print(f"finished: {format_count(turns, 'turn')}, {result.seconds:.1f} s; folder {folder}")
    for name, x in result.items():
        print(f"  {name:10} {_summarize_output(x, len(result.seeds))}")
    if not quiet:
        print(_next(asked, folder, result))


def go_on(
    folder: Path, *, quiet: bool = False, iterations: int | None = None, more: int | None = None
) -> int:
    """Continue a run in its folder, and return the exit status.

    Args:
        folder: the folder of the run.
        quiet: print only the end of the run.
        iterations: the new total number of iterations; by default that of the request.
        more: a number of iterations in addition to that of the request.

    Raises:
        ExecutionError: the folder contains no run, or its description is damaged.
    """
    asked = extended_request(folder, iterations, more)
    if not quiet:
        print(asked)
        sys.stdout.flush()
    return attend(asked, asked.program(), folder, quiet=quiet)


def extended_request(folder: Path, iterations: int | None, more: int | None) -> RunRequest:
    """Return the request in a folder, with another number of iterations; the arguments are those of `go_on`."""
    asked = RunRequest.read_from(folder)
    if iterations is not None:
        asked = asked.with_iterations(iterations)
    return asked if more is None else asked.with_more_iterations(more)


def read_final_means(folder: Path) -> Mapping[str, float] | None:
    """Return the `final_means` that a finished run has stored in its folder; None for an unfinished run.

    Raises:
        ExecutionError: the file is damaged.
    """
    path = folder / RESULT
    if not path.exists():
        return None
    outputs = read_json(path, FORMAT, VERSION)["outputs"]
    return {name: float(text) for name, text in outputs.items()}


def _show(run: Running, *, shown: bool) -> None:
    """Show a progress bar until the end of the run; without a terminal, print a line from time to time."""
    if not shown:
        return
    drawn = sys.stderr.isatty()
    said = time.monotonic()
    with tqdm(total=run.turns, initial=run.turn, leave=False, disable=not drawn) as bar:
        for frame in run.frames():
            if drawn:
                bar.set_description_str(_waits(frame), refresh=False)
                bar.set_postfix_str(_latest(frame), refresh=False)
                bar.update(frame.turn - bar.n)
                bar.refresh()
            elif time.monotonic() - said > _LINES:
                said = time.monotonic()
                known = [_waits(frame), _latest(frame)]
                print(f"turn {frame.turn} of {run.turns}", *filter(None, known), flush=True)


def _waits(frame: Frame) -> str:
    return "" if frame.compiling is None else compiling_text(frame.compiling, frame.compiling_part)


def _latest(frame: Frame) -> str:
    known = {name: curve for name, curve in frame.curves.items() if len(curve)}
    return ", ".join(f"{name} {curve.values[-1]:.4g}" for name, curve in known.items())


def _stop_after_interrupt(run: Running, folder: Path) -> int:
    again = f"`timerl resume {folder}`"
    print("\nstopping after this turn (Ctrl-C again: immediately) ...", file=sys.stderr)
    run.stop()
    try:
        run.wait()
    except KeyboardInterrupt:
        print(f"\nstopped in the middle of a turn; {again} continues from the last save.")
        return INTERRUPTED
    run.result()
    if run.state == "finished":
        print(f"the run has just finished; {again} prints its result.")
    elif RunFolder(folder).is_empty:
        print(f"stopped before the first turn; {again} starts it.")
    else:
        print(f"stopped and saved after turn {run.turn} of {run.turns}; {again} continues.")
    return INTERRUPTED


def _summarize_output(x: Any, seeds: int) -> str:
    """Summarise an output in a few words."""
    if x.ndim == 1 + bool(seeds) and x.shape[-1] > 1:
        count = last_tenth(x)
        late = f"the last {count}" if count > 1 else "the last"
        of = f", means over {seeds} seeds" if seeds else ""
        return f"{np.mean(x[..., 0]):.6g} in the first turn, {np.mean(x[..., -count:]):.6g} over {late}{of}"
    return f"{x.item():.6g}" if math.prod(x.shape) == 1 else f"of shape {x.shape}"


def _next(asked: RunRequest, folder: Path, result: Result) -> str:
    lines = [*asked.in_python(), f"result = program.resume({str(folder)!r})"]
    if result.parameters:
        lines += [f"policy = result{'.row(0)' if result.seeds else ''}.policy()"]
        if "env" in asked.arguments:
            env = asked.arguments["env"]
            lines += [f"policy.evaluate({env!r}, episodes=10).returns.mean()"]
    return "\n".join(["next, in a notebook:", *(f"  {line}" for line in lines)])
