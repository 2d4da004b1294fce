"""A real JupyterLab and a headless Chromium for browser tests."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, sync_playwright

from tests.workers import GIVEN, settings

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@dataclass(frozen=True)
class Lab:
    """A running server: its address, its token, the served folder, and the path of its notebooks."""

    url: str
    token: str
    root: Path
    path: str = "lab/tree"


def find_chromium() -> str | None:
    """The system's Chromium."""
    names = ("chromium", "chromium-browser", "google-chrome")
    return next(filter(None, map(shutil.which, names)), None)


@pytest.fixture(scope="package")
def chromium() -> str:
    """Return the system's Chromium; without one, skip the tests, or fail if it is required."""
    found = find_chromium()
    if found is None:
        message = "no Chromium found: `apt install chromium` to run the browser tests"
        if os.environ.get("TIMERL_REQUIRE_BROWSER") == "1":
            pytest.fail(message)
        pytest.skip(message)
    return found


@pytest.fixture(scope="package")
def browser(chromium: str) -> Iterator[Browser]:
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        yield launched
        launched.close()


@pytest.fixture(scope="package")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    folders = tmp_path_factory.mktemp("home"), tmp_path_factory.mktemp("notebooks")
    with serving(*folders, settings(1)) as served:
        yield served


@contextmanager
def serving(
    home: Path, root: Path, xla_flags: str = GIVEN, application: str = "jupyterlab"
) -> Iterator[Lab]:
    """Start JupyterLab or Notebook on the notebooks under `root`, with settings under `home`."""
    own = home / "settings/@jupyterlab/apputils-extension"
    own.mkdir(parents=True)
    quiet = {"fetchNews": "false", "checkForUpdates": False}
    (own / "notification.jupyterlab-settings").write_text(json.dumps(quiet))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    token = secrets.token_hex(16)
    environment = {
        **os.environ,
        "XLA_FLAGS": xla_flags,
        "JUPYTER_TOKEN": token,
        "JUPYTER_CONFIG_DIR": str(home / "config"),
        "JUPYTER_DATA_DIR": str(home / "data"),
        "JUPYTER_RUNTIME_DIR": str(home / "runtime"),
        "JUPYTERLAB_SETTINGS_DIR": str(home / "settings"),
        "JUPYTERLAB_WORKSPACES_DIR": str(home / "workspaces"),
        "IPYTHONDIR": str(home / "ipython"),
    }
    command = [sys.executable, "-m", application, "--no-browser", "--ip=127.0.0.1"]
    command += [f"--port={port}", "--ServerApp.port_retries=0", f"--ServerApp.root_dir={root}"]
    command += ["--allow-root", "--expose-app-in-browser"]
    log = (home / "lab.log").open("w")
    server = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    try:
        url = f"http://127.0.0.1:{port}"
        _wait_for(f"{url}/api?token={token}", server, home / "lab.log")
        yield Lab(url, token, root, "lab/tree" if application == "jupyterlab" else "notebooks")
    finally:
        server.terminate()
        server.wait(30)
        log.close()


def _wait_for(address: str, server: subprocess.Popen[bytes], log: Path) -> None:
    for _ in range(600):
        try:
            urllib.request.urlopen(address, timeout=2).close()
            return
        except (urllib.error.URLError, OSError):
            if server.poll() is not None:
                break
            time.sleep(0.1)
    raise RuntimeError(f"JupyterLab did not start:\n{log.read_text()[-3000:]}")


@dataclass
class Watched:
    """A page, with its console errors, its external requests, and all its console messages."""

    page: Any
    errors: list[str]
    outside: list[str]
    said: list[str]


@pytest.fixture
def watched(browser: Browser, lab: Lab) -> Iterator[Watched]:
    with watching(browser, lab) as seen:
        yield seen


@contextmanager
def watching(browser: Browser, lab: Lab) -> Iterator[Watched]:
    """Open a page for a server."""
    context = browser.new_context(viewport={"width": 1400, "height": 1000})
    page = context.new_page()
    seen = Watched(page, [], [], [])
    own = (lab.url, lab.url.replace("http", "ws"), "data:", "blob:")
    page.on("request", lambda r: None if r.url.startswith(own) else seen.outside.append(r.url))
    page.on("console", lambda m: seen.errors.append(m.text) if m.type == "error" else None)
    page.on("console", lambda m: seen.said.append(f"{m.type}: {m.text}"))
    page.on("pageerror", lambda error: seen.errors.append(str(error)))
    yield seen
    context.close()
