"""Waiting times in the explorer, in a real JupyterLab and browser: `python -m benchmarks explorer [ROUNDS]`.

The page itself measures the time from a click to the redraw. `explorer_probe` measures Python's part in the
kernel. The clocks of both are the same. Times of a loaded machine are longer, so every row has minima, and
the CPU time of the kernel and of the page.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Any, Final

from playwright.sync_api import Browser, CDPSession, Page, sync_playwright

from tests.browser.conftest import FLAGS, Lab, find_chromium, serving
from tests.browser.opened import ask, open_and_run, write

ROOT: Final = Path(__file__).parents[2]
README: Final = ROOT / "README.md"
# 215 nodes in the stage `contract` with all clusters open
MANY_NODES: Final = """
import timerl_nb as trl

program = trl.algorithms.reinforce(hidden=()).compile({"B": 64, "I": 20, "T": 500})
"""
OPEN_ALL: Final = """
for box in explorer._drawing.view.unfold().boxes:
    explorer._receive(None, {"kind": "fold", "id": box.key, "folded": False}, [])
    explorer.wait()
"""
SHARES: Final = (0.9, 0.7, 0.5)  # budgets, as shares of the memory needed
COMPILED: Final = ".trl-settings .trl-status[data-left='0']"  # everything that one click changes
LONGEST: Final = 120_000  # time limit in milliseconds
# Logs the times since the epoch at which a change's views arrive, and at which they are drawn.
WATCH: Final = """() => {
    const now = () => performance.timeOrigin + performance.now();
    const log = (window.waits = { received: 0, drawn: 0 });
    const { kernel } = window.jupyterapp.shell.currentWidget.sessionContext.session;
    kernel.anyMessage.connect((_, { msg, direction }) => {
        if (direction === "recv" && msg.content?.data?.state?.status?.state === "ready")
            log.received = now();
    });
    const box = document.querySelector(".trl-settings .trl-status");
    log.begin = () => {
        delete box.dataset.drawn;
        log.done = new Promise((resolve) => (log.resolve = resolve));
    };
    new MutationObserver(() => {
        if (!box.dataset.drawn) return;
        log.drawn = now();
        const { drawn, received } = log;
        log.resolve({ drawn, received, waited: Number(box.dataset.drawn) });
    }).observe(box, { attributeFilter: ["data-drawn"] });
}"""


@dataclass(frozen=True)
class Wait:
    """Parts of one change, in milliseconds, and the bytes of its messages.

    Attributes:
        drawn: from the click to the redraw.
        compiled, views, packed: Python's compilation, its views, and their serialisation.
        transfer: from Python's last message to its arrival in the page, decoded.
        browser: from there to the redraw.
        kernel_cpu, page_cpu: CPU time of the kernel, and of the page's main thread.
        kib: KiB sent to the page.
    """

    drawn: float
    compiled: float
    views: float
    packed: float
    transfer: float
    browser: float
    kernel_cpu: float
    page_cpu: float
    kib: float

    @classmethod
    def best(cls, waits: Sequence[Wait]) -> Wait:
        """Return the minimum of each part."""
        return cls(*map(min, zip(*map(astuple, waits), strict=True)))

    def __str__(self) -> str:
        return " | ".join(f"{part:.0f}" for part in astuple(self))


class Opened:
    """A page with the explorer of a program; changes it, and measures the waits."""

    def __init__(
        self, browser: Browser, lab: Lab, name: str, program: str, *, ahead: bool, own_kernel: bool
    ) -> None:
        self.page: Page = browser.new_page(viewport={"width": 1440, "height": 900})
        probe = (
            f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
            "from benchmarks.compiler.explorer_probe import Probe\n"
            f"explorer = program.explore(ahead={ahead})\n"
            "probe = Probe(explorer)\n"
            "explorer"
        )
        write(lab, name, program, probe, own_kernel=own_kernel)
        open_and_run(self.page, lab, name)
        self.page.wait_for_selector(".trl-explorer .trl-graph g.node", timeout=LONGEST)
        self.page.evaluate(WATCH)
        self._metrics: CDPSession = self.page.context.new_cdp_session(self.page)
        self._metrics.send("Performance.enable")

    def switches(self) -> list[str]:
        """Return the keys of the passes' switches."""
        found = self.page.locator('[data-key^="switch-"]:not(:disabled)')
        return [found.nth(k).get_attribute("data-key") or "" for k in range(found.count())]

    def click(self, key: str) -> Wait:
        """Change a switch."""
        return self._measure(lambda: self.page.locator(f'[data-key="{key}"]').first.click())

    def enter(self, key: str, value: object) -> Wait:
        """Enter a value into a field."""
        field = self.page.locator(f'[data-key="{key}"]').first
        enter = """(field, value) => {
            field.value = value;
            field.dispatchEvent(new Event("input", { bubbles: true }));
            field.dispatchEvent(new Event("change", { bubbles: true }));
        }"""
        return self._measure(lambda: field.evaluate(enter, str(value)))

    def wait_for_all(self) -> None:
        """Wait until everything that one click changes is compiled."""
        self.page.wait_for_selector(COMPILED, state="attached", timeout=LONGEST)

    def run(self, code: str) -> str:
        """Run code in the kernel, and return its printed text."""
        return ask(self.page, code)

    def _measure(self, act: Callable[[], Any]) -> Wait:
        self.page.evaluate("() => window.waits.begin()")
        before = self._page_seconds()
        act()
        log = self.page.evaluate("() => window.waits.done")  # without polling, which takes CPU time
        page_cpu = self._page_seconds() - before
        part = json.loads(self.run("import json; print(json.dumps(probe.changes[-1]))"))
        return Wait(
            log["waited"],
            *(part[name] * 1e3 for name in ("compiled", "views", "packed")),
            log["received"] - part["sent"] * 1e3,
            log["drawn"] - log["received"],
            part["cpu"] * 1e3,
            page_cpu * 1e3,
            part["bytes"] / 1024,
        )

    def _page_seconds(self) -> float:
        found = self._metrics.send("Performance.getMetrics")["metrics"]
        return next(one["value"] for one in found if one["name"] == "TaskDuration")


def readme_program() -> str:
    """Return the code of the README's program, up to its compilation."""
    text = README.read_text(encoding="utf-8")
    return text.split("```python\n")[1].split("result =")[0]


def main(rounds: str = "3") -> None:
    """Print a table of all changes, each the minimum of some rounds."""
    chromium = find_chromium()
    if chromium is None:
        sys.exit("no Chromium found: `apt install chromium`")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        home, root = Path(folder, "home"), Path(folder, "notebooks")
        root.mkdir()
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        with serving(home, root) as lab:
            measure(browser, lab, int(rounds), readme_program(), MANY_NODES)
        browser.close()


def measure(
    browser: Browser,
    lab: Lab,
    rounds: int,
    program: str,
    many_nodes: str,
    own_kernel: bool = True,
) -> None:
    """Measure and print the waits of a program, and of the open graph of another one."""
    print(f"| ms, load {os.getloadavg()[0]:.1f} | {' | '.join(f.name for f in fields(Wait))} |")
    print("|---|" + "--:|" * len(fields(Wait)))

    def show(what: str, waits: Sequence[Wait]) -> None:
        print(f"| {what} | {Wait.best(waits)} |", flush=True)

    def opened(name: str, code: str, *, ahead: bool) -> Opened:
        return Opened(browser, lab, f"{name}.ipynb", code, ahead=ahead, own_kernel=own_kernel)

    first: dict[str, list[Wait]] = {}
    for k in range(rounds):
        plain = opened(f"plain_{k}", program, ahead=False)
        for key in plain.switches():
            first.setdefault(f"`{key[7:]}`, first time", []).append(plain.click(key))
            plain.click(key)
        needed = int(plain.run("print(program.memory.needed)"))
        for share in SHARES:
            wait = plain.enter("option-device_memory", int(share * needed))
            first.setdefault(f"a budget of {share} of the memory", []).append(wait)
        plain.enter("option-device_memory", "")
        first.setdefault("T = 100,000", []).append(plain.enter("bound-T", 100_000))
        plain.page.close()
    for what, waits in first.items():
        show(what, waits)
    foreseen = opened("foreseen", program, ahead=True)
    for key in foreseen.switches():
        waits = list[Wait]()
        for _ in range(rounds):
            foreseen.wait_for_all()
            waits.append(foreseen.click(key))
            foreseen.click(key)
        show(f"`{key[7:]}`, made ahead", waits)
    foreseen.page.close()
    nodes = opened("nodes", many_nodes, ahead=False)
    nodes.run('explorer.stage = "contract"\nexplorer.wait()\n' + OPEN_ALL)
    count = nodes.page.locator(".trl-graph g.node").count()
    for name, change in (("lift", "the same graph"), ("simplify", "another graph")):
        waits = [nodes.click(f"switch-{name}") for _ in range(2 + 2 * rounds)]
        show(f"`{name}`, {count} nodes, {change}", waits[2:])
    nodes.page.close()
    print(f"\nload at the end: {os.getloadavg()[0]:.1f}")
