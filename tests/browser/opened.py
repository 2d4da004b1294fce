"""Notebooks written and run in a browser."""

from __future__ import annotations

import json
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import nbformat
from playwright.sync_api import Page

from tests.browser.conftest import Lab


def write(lab: Lab, name: str, *cells: str, own_kernel: bool = False) -> None:
    """Write a notebook for the shared kernel, or for a separate one.

    A new kernel takes seconds to start, to import and to compile.
    """
    if not own_kernel:
        shared = {"id": _shared_kernel(lab)}
        _ask(lab, "sessions", path=name, name=name, type="notebook", kernel=shared)
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    code = [nbformat.v4.new_code_cell(c.strip()) for c in cells]
    notebook = nbformat.v4.new_notebook(cells=code, metadata={"kernelspec": kernel})
    nbformat.write(notebook, lab.root / name)


def open_notebook(page: Page, lab: Lab, name: str) -> None:
    page.goto(f"{lab.url}/{lab.path}/{name}?token={lab.token}&reset")
    page.wait_for_selector(".jp-Notebook .jp-Cell", timeout=60_000)


def save_and_shut_down(page: Page) -> None:
    """Save the open notebook, and end its kernel."""
    page.evaluate(
        """async () => {
            await window.jupyterapp.commands.execute("docmanager:save");
            await window.jupyterapp.shell.currentWidget.sessionContext.shutdown();
        }"""
    )


def open_and_run(page: Page, lab: Lab, name: str) -> None:
    open_notebook(page, lab, name)
    page.wait_for_function(
        "() => window.jupyterapp?.shell.currentWidget?.sessionContext?.isReady", timeout=60_000
    )
    counts = page.evaluate(
        """async () => {
            const app = window.jupyterapp, panel = app.shell.currentWidget;
            await panel.context.ready;
            await panel.sessionContext.ready;
            await panel.sessionContext.session.kernel.info;
            await app.commands.execute("notebook:run-all-cells");
            return panel.content.widgets.map((cell) => cell.model.executionCount ?? null);
        }"""
    )
    assert None not in counts, counts


def run_cell(page: Page, source: str) -> None:
    """Run code in the open notebook's kernel, without waiting."""
    page.evaluate(
        """(code) => {
            const kernel = window.jupyterapp.shell.currentWidget.sessionContext.session.kernel;
            kernel.requestExecute({ code });
        }""",
        source,
    )


@contextmanager
def busy_kernel(page: Page, lab: Lab) -> Iterator[None]:
    """A cell runs in the open notebook's kernel from the first to the last line of the block."""
    with tempfile.TemporaryDirectory(dir=lab.root) as folder:
        began = Path(folder) / "began"
        run_cell(
            page,
            "import pathlib, time\n"
            f"pathlib.Path({str(began)!r}).touch()\n"
            f"while pathlib.Path({folder!r}).exists(): time.sleep(0.05)",
        )
        for _ in range(600):
            if began.exists():
                break
            page.wait_for_timeout(50)
        assert began.exists(), "the kernel has not begun the cell"
        yield


def ask(page: Page, source: str) -> str:
    """Run code in the open notebook's kernel, and return its printed text."""
    return page.evaluate(
        """async (code) => {
            const { kernel } = window.jupyterapp.shell.currentWidget.sessionContext.session;
            const future = kernel.requestExecute({ code });
            let text = "";
            future.onIOPub = ({ content }) => (text += content.text ?? "");
            const { content } = await future.done;
            if (content.status !== "ok") throw new Error(content.evalue);
            return text;
        }""",
        source,
    )


def change_theme(page: Page, name: str) -> None:
    """Set a theme; the server stores it for later pages."""
    page.evaluate(
        "(theme) => window.jupyterapp.commands.execute('apputils:change-theme', { theme })", name
    )
    is_light = str("Dark" not in name).lower()
    page.wait_for_selector(f'body[data-jp-theme-light="{is_light}"]', state="attached")
    # JupyterLab removes its splash twice if another theme is requested meanwhile, and raises an
    # error
    page.wait_for_selector("#jupyterlab-splash", state="detached")


@cache
def _shared_kernel(lab: Lab) -> str:
    return _ask(lab, "kernels", name="python3")["id"]


def _ask(lab: Lab, what: str, **given: Any) -> Any:
    """Return the server's answer to a request."""
    request = urllib.request.Request(
        f"{lab.url}/api/{what}",
        json.dumps(given).encode(),
        {"Authorization": f"token {lab.token}"},
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)
