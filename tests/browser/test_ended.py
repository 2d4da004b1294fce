"""Views after their kernel is killed or restarted."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Lab, Watched
from tests.browser.opened import busy_kernel, open_and_run, write

pytestmark = pytest.mark.browser

CELL = """
import os, time
from pathlib import Path
import timerl_nb as trl
from timerl_widgets import LoopView, RunMonitor

def returns(steps):
    with trl.Context("i", "t") as ctx:
        (i, I), (t, T) = ctx.dims
        r = trl.random.uniform((), domain=(i, t)).named("r")
        g = r[i, t : T if steps is None else trl.min(t + steps, T)].sum(axis=0)
        ctx.output("g", g.mean(over=t))
    return ctx

program = returns(None).compile({"I": 100_000, "T": 3}, trl.Options(executor="interpret", vectorize=False))
Path("kernel.pid").write_text(str(os.getpid()))
display(RunMonitor(program), LoopView(program), trl.explore(returns, {"I": 2, "T": 3}, steps=[1, 2, None]))
"""


def test_views_of_an_ended_kernel_say_so_and_take_no_input(watched: Watched, lab: Lab) -> None:
    page = watched.page
    write(lab, "ended.ipynb", CELL, own_kernel=True)
    open_and_run(page, lab, "ended.ipynb")
    # killed from outside, as by the system when memory is exhausted
    with busy_kernel_with_pause(page, lab):
        os.kill(int((lab.root / "kernel.pid").read_text()), signal.SIGKILL)
    expect_ended(page)
    page.locator(
        ".jp-Dialog button.jp-mod-accept"
    ).click()  # JupyterLab reports the restart of the kernel
    # run again, and restarted from the menu
    page.evaluate("() => window.jupyterapp.commands.execute('notebook:run-all-cells')")
    with busy_kernel_with_pause(page, lab):
        page.evaluate(
            "() => window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.restart()"
        )
    expect_ended(page)


@contextmanager
def busy_kernel_with_pause(page: Page, lab: Lab) -> Iterator[None]:
    """The kernel is busy, and a run has a pending pause, until the block ends."""
    monitor = page.locator(".trl-run").first
    state = monitor.locator(".trl-state")
    expect(page.locator(".trl-ended")).to_have_count(0, timeout=30_000)
    expect(page.locator(".trl-explorer .trl-graph g.node").first).to_be_visible(timeout=20_000)
    monitor.locator('[data-command="start"]').click()
    expect(state).to_have_text("running", timeout=20_000)
    with busy_kernel(page, lab):
        monitor.locator('[data-command="pause"]').click()
        expect(state).to_have_text("pending: pause", timeout=20_000)
        yield


def expect_ended(page: Page) -> None:
    notices = page.locator(".trl-ended")
    expect(notices).to_have_count(3, timeout=30_000)
    expect(notices.first).to_contain_text("has ended or restarted")
    expect(page.locator(".trl-run .trl-state").first).to_have_text("kernel ended")
    panes = page.locator(".trl-pane")
    inert = panes.evaluate_all("(all) => all.map((e) => e.closest('[inert]') !== null)")
    assert len(inert) > 10 and all(inert)
    focus = "(e) => { e.focus(); return document.activeElement === e; }"
    assert not page.locator(".trl-sliders input").evaluate(focus)
