"""From a click on a switch of the explorer until all is drawn, in a real JupyterLab and browser.

The page itself measures: from the click until the browser has drawn what came of it.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from statistics import median

from playwright.sync_api import Page, sync_playwright

from tests.browser.conftest import FLAGS, find_chromium, serving
from tests.browser.opened import open_and_run, write

PROGRAM = """
import timerl_nb as trl
from tests.reinforce import reinforce
program = reinforce(hidden=(32, 32)).compile({"B": 64, "I": 20, "T": 500})
explorer = program.explore(ahead=AHEAD)
explorer
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
LONGEST = 120_000  # milliseconds that are waited for anything


def main(repeats: int = 5) -> None:
    """Print the milliseconds of each switch, off and on again: at first, known, and made ahead."""
    chromium = find_chromium()
    if chromium is None:
        sys.exit("no Chromium found: `apt install chromium`")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        home, root = Path(folder, "home"), Path(folder, "notebooks")
        root.mkdir()
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        with serving(home, root) as lab:
            pages: dict[bool, Page] = {}
            for ahead in (False, True):
                page = browser.new_page(viewport={"width": 1400, "height": 1000})
                write(lab, f"ahead_{ahead}.ipynb", PROGRAM.replace("AHEAD", str(ahead)))
                open_and_run(page, lab, f"ahead_{ahead}.ipynb")
                page.wait_for_selector(".trl-explorer .trl-graph g.node", timeout=LONGEST)
                pages[ahead] = page
            pages[True].wait_for_selector(
                ".trl-status[data-left='0']", state="attached", timeout=LONGEST
            )
            print("| switch off, drawn after ms | at first | made ahead | known | on again |")
            print("|---|---|---|---|---|")
            for name in SWITCHES:
                first = _click(pages[False], name)
                back = [_click(pages[False], name)]
                ahead = _click(pages[True], name)
                again: list[float] = []
                for _ in range(repeats):
                    again.append(_click(pages[False], name))
                    back.append(_click(pages[False], name))
                _click(pages[True], name)
                cells = (first, ahead, median(again), median(back))
                print(f"| `{name}` | {' | '.join(f'{ms:.0f}' for ms in cells)} |", flush=True)
        browser.close()


def _click(page: Page, name: str) -> float:
    status = page.locator(".trl-settings .trl-status")
    status.evaluate("(box) => delete box.dataset.drawn")
    names = (name, "separate") if name == "fuse" else (name,)
    page.locator(", ".join(f'[data-key="switch-{one}"]' for one in names)).click()
    page.wait_for_selector(".trl-status[data-drawn]", timeout=LONGEST)
    return float(status.get_attribute("data-drawn") or "nan")


if __name__ == "__main__":
    main()
