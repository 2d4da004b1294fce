"""Latency of a pass switch in the explorer, in a real JupyterLab and browser.

The page itself measures the time from the click to the redraw.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from playwright.sync_api import Browser, Page, sync_playwright

from tests.browser.conftest import FLAGS, Lab, find_chromium, serving
from tests.browser.opened import open_and_run, write

PROGRAM = """
import timerl_nb as trl
program = trl.algorithms.reinforce(hidden=(32, 32)).compile({"B": 64, "I": 20, "T": 500})
"""
SWITCHES = (
    "simplify",
    "lift",
    "accumulate",
    "contract",
    "rematerialize",
    "incrementalize",
    "vectorize",
    "fuse",
)
COMPILED = ".trl-settings .trl-status[data-left='0']"  # everything that one click changes
LONGEST = 120_000  # time limit in milliseconds


@dataclass(frozen=True)
class Row:
    """Milliseconds until a switch is drawn, off and on again.

    Attributes:
        first, ahead: First time off; and first time off if compiled in advance.
        again, back: Medians of off again, and on again.
    """

    switch: str
    first: float
    ahead: float
    again: float
    back: float

    def __str__(self) -> str:
        cells = (self.first, self.ahead, self.again, self.back)
        return f"| `{self.switch}` | {' | '.join(f'{ms:.0f}' for ms in cells)} |"


def main(repeats: int = 5) -> None:
    """Print a table of all switches."""
    chromium = find_chromium()
    if chromium is None:
        sys.exit("no Chromium found: `apt install chromium`")
    print("| switched off, drawn after ms | at first | made ahead | again | on again |")
    print("|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        home, root = Path(folder, "home"), Path(folder, "notebooks")
        root.mkdir()
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        with serving(home, root) as lab:
            for row in measure(browser, lab, PROGRAM, SWITCHES, repeats):
                print(row, flush=True)
        browser.close()


def measure(
    browser: Browser,
    lab: Lab,
    program: str,
    switches: Sequence[str],
    repeats: int,
    own_kernels: bool = True,
) -> Iterator[Row]:
    """Click the switches of the program of a cell, one after another.

    With both explorers in one kernel, `first` may hit the other explorer's cache.
    """
    plain = _opened(browser, lab, program, own_kernels, ahead=False)
    foreseen = _opened(browser, lab, program, own_kernels, ahead=True)
    for name in switches:
        first, back, again = _click(plain, name), list[float](), list[float]()
        for _ in range(repeats):
            back.append(_click(plain, name))
            again.append(_click(plain, name))
        _click(plain, name)
        foreseen.wait_for_selector(COMPILED, state="attached", timeout=LONGEST)
        ahead = _click(foreseen, name)
        _click(foreseen, name)
        yield Row(name, first, ahead, median(again), median(back))
    for page in (plain, foreseen):
        page.close()


def _opened(browser: Browser, lab: Lab, program: str, own_kernel: bool, *, ahead: bool) -> Page:
    page = browser.new_page(viewport={"width": 1400, "height": 1000})
    cells = program, f"program.explore(ahead={ahead})"
    write(lab, f"ahead_{ahead}.ipynb", *cells, own_kernel=own_kernel)
    open_and_run(page, lab, f"ahead_{ahead}.ipynb")
    page.wait_for_selector(".trl-explorer .trl-graph g.node", timeout=LONGEST)
    return page


def _click(page: Page, name: str) -> float:
    """Switch a pass, and return the time until the redraw."""
    page.locator(".trl-settings .trl-status").evaluate("(box) => delete box.dataset.drawn")
    page.locator(f'[data-key="switch-{name}"]').click()
    page.wait_for_selector(".trl-settings .trl-status[data-drawn]", timeout=LONGEST)
    return float(page.locator(".trl-settings .trl-status").get_attribute("data-drawn") or "nan")
