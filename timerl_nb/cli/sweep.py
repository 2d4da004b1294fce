"""`timerl sweep ALGORITHM`: trains over a grid of arguments and seeds, and writes one table of results.

The folder of a sweep contains its description and one folder per run, as written by `timerl train`. A
finished run leaves its result there, so resuming a sweep runs only the missing ones.
"""

from __future__ import annotations

import csv
import io
import itertools
import os
import re
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from timerl_nb.base.atomic_files import user_path, write_whole
from timerl_nb.base.errors import ExecutionError, OptionError
from timerl_nb.base.machine_model import cores
from timerl_nb.base.text_formatting import align_columns, format_count
from timerl_nb.cli.support.algorithm_arguments import Algorithm, algorithm, format_argument
from timerl_nb.cli.support.argument_parser import parse_assignment, positive
from timerl_nb.cli.support.exit_status import FAILED, FINE
from timerl_nb.cli.support.foreground_run import read_final_means
from timerl_nb.cli.support.run_request import ASKED, RunRequest, read_json, write_json
from timerl_nb.cli.support.sweep_workers import OUTPUT, Processes, Ray
from timerl_nb.cli.train import choose, make_request, parser_of
from timerl_nb.runtime.state.run_folder import LOCK, RunFolder, damaged_run_file_error

SWEEP: Final = "sweep.json"
TABLE: Final = "results.csv"
FORMAT: Final = "timerl sweep"
VERSION: Final = 1
_RETRIES: Final = 3

_EXAMPLES: Final = """  timerl sweep reinforce --seeds 8 --set lr=1e-2,3e-3 --workers 2 --folder runs/lr
  timerl sweep ppo --seeds 4 --set hidden=32,32 --set hidden=64,64 --folder runs/widths
  timerl sweep ppo --seeds 64 --ray auto --workers 16 --folder /shared/ppo

next:
  timerl resume runs/lr          runs the missing ones, after Ctrl-C or a power cut
  timerl resume runs/lr/000-...  prints the result of a run, and the code that loads its policy
"""


@dataclass(frozen=True)
class Sweep:
    """Runs that differ in some arguments and in the seed.

    Attributes:
        base: the common request; its seed is the first one.
        grid: the values of each varied argument.
        seeds: the number of seeds.
    """

    base: RunRequest
    grid: Mapping[str, Sequence[Any]]
    seeds: int

    def runs(self) -> list[tuple[str, dict[str, Any], RunRequest]]:
        """Return the folder name, the varied arguments and the request of each run."""
        found: list[tuple[str, dict[str, Any], RunRequest]] = []
        for values in itertools.product(*self.grid.values()):
            chosen = dict(zip(self.grid, values, strict=True))
            for seed in range(self.base.seed, self.base.seed + self.seeds):
                own = {**chosen, "seed": seed}
                words = [f"{name}={format_argument(value)}" for name, value in own.items()]
                name = re.sub(r"[^\w.,=-]+", "_", "-".join([f"{len(found):03}", *words]))
                arguments = {**self.base.arguments, **chosen}
                found.append((name, own, replace(self.base, arguments=arguments, seed=seed)))
        return found

    def write(self, folder: Path) -> None:
        """Write the description into a folder, or check that the folder has the same one.

        Raises:
            ExecutionError: the folder has other contents, or is not writable.
        """
        if (folder / SWEEP).exists():
            if Sweep.read_from(folder).to_json_data != self.to_json_data:
                raise ExecutionError(
                    f"{folder} contains another sweep.",
                    hint=f"continue it by `timerl resume {folder}`, or choose another --folder.",
                )
            return
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if [name for name in os.listdir(folder) if name != LOCK]:
                raise ExecutionError(f"{folder} is not empty.", hint="choose another --folder.")
            write_json(folder / SWEEP, FORMAT, VERSION, self.to_json_data)
        except OSError as error:
            raise _unwritable(folder, error) from None

    @property
    def to_json_data(self) -> dict[str, Any]:
        """The description as JSON values."""
        grid = {
            name: [format_argument(value) for value in values] for name, values in self.grid.items()
        }
        base = asdict(self.base)
        base["arguments"] = {n: format_argument(value) for n, value in self.base.arguments.items()}
        return {"base": base, "grid": grid, "seeds": self.seeds}

    @classmethod
    def read_from(cls, folder: Path) -> Sweep:
        """Read the sweep of a folder.

        Raises:
            ExecutionError: the description is damaged.
        """
        path = folder / SWEEP
        given = read_json(path, FORMAT, VERSION)
        try:
            base = RunRequest(**given["base"])
            about = algorithm(base.algorithm)
            arguments = {n: about.argument(n).validate(x) for n, x in base.arguments.items()}
            grid = {
                name: [about.argument(name).validate(text) for text in texts]
                for name, texts in given["grid"].items()
            }
            return cls(replace(base, arguments=arguments), grid, int(given["seeds"]))
        except OptionError as error:
            raise ExecutionError(
                f"{path} does not fit this version of TimeRL-nb: {error.what}",
                hint="use the version that started the sweep.",
            ) from error
        except (KeyError, TypeError, ValueError) as error:
            raise damaged_run_file_error(path, f"has fields of the wrong type: {error}") from None


def is_sweep(folder: Path) -> bool:
    """Return whether a folder contains a sweep."""
    return (folder / SWEEP).exists()


def first_run(folder: Path) -> Path:
    """Return the folder of a sweep's first run."""
    return folder / Sweep.read_from(folder).runs()[0][0]


def main(words: Sequence[str]) -> int:
    """Run `timerl sweep`."""
    about = "Train a built-in algorithm over a grid of arguments and seeds, in several processes."
    chosen = choose("sweep", about, _EXAMPLES, words)
    if isinstance(chosen, int):
        return chosen
    parser = parser_of("sweep", chosen, _EXAMPLES)
    parser.add_argument(
        "--set",
        dest="grid",
        type=parse_assignment,
        action="append",
        default=[],
        metavar="NAME=VALUE,VALUE",
        help="the values of an argument; repeat --set for other arguments to run all combinations. For an "
        "argument with commas in its value, repeat --set with one value each",
    )
    parser.add_argument(
        "--seeds", type=positive, default=1, help="the number of seeds per combination (default: 1)"
    )
    parser.add_argument("--seed", type=int, default=0, help="the first seed (default: 0)")
    parser.add_argument("--folder", type=user_path, required=True, help="the folder of the sweep")
    _add_launching(parser)
    given = parser.parse_words(words[1:])
    grid = _grid(chosen, given.grid)
    first = {name: values[0] for name, values in grid.items()}
    for name, value in first.items():
        if name in given:
            raise OptionError(
                f"the argument {name} has a value from --{name.replace('_', '-')} and from --set.",
                hint="remove one of them.",
            )
        setattr(given, name, value)  # the values that the check below uses
    base = make_request(chosen, given, given.seed)
    base, _ = base.prepared()  # reports wrong arguments before the first run
    sweep = Sweep(base, grid, given.seeds)
    with _alone(given.folder):
        sweep.write(given.folder)
        return _run_missing(sweep, given.folder, given.workers, given.retries, given.ray)


def go_on(folder: Path, workers: int | None = None) -> int:
    """Run the missing runs of a sweep, in processes of this machine, and return the exit status."""
    sweep = Sweep.read_from(folder)
    with _alone(folder):
        return _run_missing(sweep, folder, workers or cores(), _RETRIES, None)


def _add_launching(parser: Any) -> None:
    parser.add_argument(
        "--workers",
        type=positive,
        default=cores(),
        help="the number of simultaneous runs (default: the number of cores)",
    )
    parser.add_argument(
        "--retries",
        type=int,
        default=_RETRIES,
        help=f"the number of restarts of a run whose process dies (default: {_RETRIES})",
    )
    parser.add_argument(
        "--ray",
        nargs="?",
        const="",
        metavar="ADDRESS",
        help="use Ray: on this machine, or in the cluster at ADDRESS (or auto), whose machines must share "
        "the folder",
    )


def _grid(chosen: Algorithm, given: Sequence[tuple[str, str]]) -> dict[str, list[Any]]:
    """Return the values of each varied argument.

    Raises:
        OptionError: an argument is unknown, or a value is invalid or repeated.
    """
    found = dict[str, list[Any]]()
    for name, text in given:
        argument = chosen.argument(name)
        for part in [text] if argument.several else text.split(","):
            value = argument.validate(part.strip())
            if value in found.setdefault(name, []):
                raise OptionError(f"{name} = {part} occurs twice.", hint="remove one of them.")
            found[name].append(value)
    return found


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Lock a folder against a second sweep."""
    lock = RunFolder(folder)
    lock.enter()
    try:
        yield
    finally:
        lock.release()


def _run_missing(sweep: Sweep, folder: Path, workers: int, retries: int, ray: str | None) -> int:
    """Run the missing runs, write the table, and return the exit status."""
    runs = sweep.runs()
    missing: list[Path] = []
    for name, _, asked in runs:
        path = folder / name
        if not (path / ASKED).exists():
            asked.write(path)
        if read_final_means(path) is None:
            missing.append(path)
    done = len(runs) - len(missing)
    print(f"{format_count(len(runs), 'run')} in {folder}, {done} finished; {workers} at a time")
    sys.stdout.flush()
    launcher = (
        Processes(workers, retries, _say)
        if ray is None
        else Ray(workers, retries, _say, ray or None)
    )
    failed: list[Path] = []
    try:
        for path, status in launcher.run(missing):
            finals = read_final_means(path)
            if finals is None:
                failed.append(path)
                _say(f"{path.name} ended with status {status}: {_last_words(path)}")
            else:
                done += 1
                ends = ", ".join(f"{name} {value:.6g}" for name, value in finals.items())
                _say(f"[{done}/{len(runs)}] {path.name}: {ends}")
    except KeyboardInterrupt:
        print(f"\nstopped and saved; `timerl resume {folder}` continues.", flush=True)
        raise
    finally:
        rows = _rows(runs, folder)
        _write_table(folder / TABLE, rows)
    print(_table(sweep, rows))
    print(
        f"values are means over the last tenth of each run's turns; {folder / TABLE} has one row per run"
    )
    if failed:
        print(
            f"{format_count(len(failed), 'run')} failed; the reason is in {OUTPUT} of each folder. "
            f"`timerl resume {folder}` retries them.",
            file=sys.stderr,
        )
    return FAILED if failed else FINE


def _say(text: str) -> None:
    print(text, flush=True)


def _last_words(folder: Path) -> str:
    """Return the last error line that a run has printed."""
    path = folder / OUTPUT
    lines = path.read_text(errors="replace").splitlines() if path.exists() else []
    errors = [line for line in lines if line.startswith("timerl")]
    return (errors or lines or ["no output"])[-1]


# --- the table -----------------------------------------------------------------------------------


def _rows(
    runs: Sequence[tuple[str, dict[str, Any], RunRequest]], folder: Path
) -> list[dict[str, Any]]:
    """Return one row per run: its arguments, its outputs over the last tenth of the turns, and its folder."""
    found: list[dict[str, Any]] = []
    for name, own, _ in runs:
        given = {key: format_argument(value) for key, value in own.items()}
        finals = read_final_means(folder / name)
        state = "missing" if finals is None else "finished"
        found.append({**given, **(finals or {}), "state": state, "folder": name})
    return found


def _write_table(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    names = list(dict.fromkeys(name for row in rows for name in row))
    names = [*(n for n in names if n not in ("state", "folder")), "state", "folder"]
    text = io.StringIO()
    writer = csv.DictWriter(text, names, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    try:
        write_whole(path, text.getvalue().encode())
    except OSError as error:
        raise _unwritable(path, error) from None


def _table(sweep: Sweep, rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the printed table: per combination of arguments, mean, minimum and maximum of each output over the
    seeds.
    """
    grid = list(sweep.grid)
    done = [row for row in rows if row["state"] == "finished"]
    outputs = [n for n in (done[0] if done else {}) if n not in (*grid, "seed", "state", "folder")]
    lines = [[*grid, "runs", *(f"{name} (min, max)" for name in outputs)]]
    for key, group in itertools.groupby(done, lambda row: [row[name] for name in grid]):
        some = list(group)
        cells = [*key, str(len(some))]
        for name in outputs:
            values = [row[name] for row in some]
            cells.append(f"{statistics.fmean(values):.6g} ({min(values):.6g}, {max(values):.6g})")
        lines.append(cells)
    return "\n".join(align_columns(lines))


def _unwritable(path: Path, error: OSError) -> ExecutionError:
    return ExecutionError(
        f"{path} cannot be written: {error.strerror}.", hint="choose another --folder."
    )
