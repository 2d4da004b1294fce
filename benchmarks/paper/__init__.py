"""The figures of the TimeRL paper (§8): `python -m benchmarks paper [fig9 fig10 fig11 tables | all]`.

Rows are measured here, predicted, or published; they go to `datasets/paper`, the page and its pictures to `docs`.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import jax

from benchmarks.datasets.remaking import update_checksum
from benchmarks.paper import fig9, fig10, fig11, page, tables
from benchmarks.paper.rows import FOLDER, Row, published, write
from benchmarks.paper.settings import Settings

FIGURES: Final[Mapping[str, Callable[[Settings], Iterator[Row]]]] = {
    "fig9": fig9.run,
    "fig10": fig10.run,
    "fig11": fig11.run,
    "tables": tables.run,
}


def main(*words: str) -> None:
    """Run the figures of the command line, and store their rows.

    Raises:
        SystemExit: An argument is invalid, or no GPU exists.
    """
    asked = _parse(words)
    settings = Settings(asked.device, asked.scale, asked.predict, asked.rounds)
    _select_device(asked.device)
    for name in _chosen(asked.figures):
        if name == "page":
            continue
        rows: list[Row] = []
        for row in FIGURES[name](settings):
            rows.append(row)
            if row.axis != "time":
                print(row, flush=True)
        path = FOLDER / f"{name}-{asked.device}.csv"
        if not asked.predict:
            write(path, [*rows, *published(name)])
            update_checksum(path)
            print(f"{len(rows)} rows: {path}", file=sys.stderr)
    if not asked.predict and asked.device == "cpu":
        page.write()
    elif not asked.predict:
        print(page.findings_table(page.load(asked.device)))


def _parse(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m benchmarks paper", description=__doc__)
    parser.add_argument(
        "figures",
        nargs="*",
        default=["all"],
        metavar="FIGURE",
        help=f"{', '.join(FIGURES)}, all (default), or page: only write the page from stored rows",
    )
    parser.add_argument("--device", choices=("cpu", "gpu"), default="cpu")
    parser.add_argument(
        "--scale",
        type=float,
        help="environment steps of measured programs, relative to the paper's; the default depends on the figure",
    )
    parser.add_argument(
        "--predict", action="store_true", help="print predictions; measure and store nothing"
    )
    parser.add_argument("--rounds", type=int, default=3, help="measured iterations (3)")
    asked = parser.parse_args(words)
    if unknown := set(asked.figures) - {*FIGURES, "all", "page"}:
        parser.error(f"unknown figures: {', '.join(sorted(unknown))}")
    if asked.rounds < 1:
        parser.error("--rounds must be at least 1")
    if asked.scale is not None and not 0 < asked.scale <= 1:
        parser.error("--scale must be above 0 and at most 1")
    return asked


def _chosen(figures: Sequence[str]) -> tuple[str, ...]:
    return tuple(FIGURES) if "all" in figures else tuple(figures)


def _select_device(device: str) -> None:
    """Select the device of this process and of the workers, which share a GPU's memory.

    Raises:
        SystemExit: No GPU exists.
    """
    platform = "cuda" if device == "gpu" else "cpu"
    os.environ |= {"JAX_PLATFORMS": platform, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    jax.config.update("jax_platforms", platform)
    try:
        jax.devices()
    except RuntimeError as error:
        sys.exit(f"no device was found: {error}. Use --device cpu, or --predict.")
