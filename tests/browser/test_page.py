"""The exported page in a browser: no requests, and one visible section at a time."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.reinforce import reinforce

pytestmark = pytest.mark.browser


def test_a_page_works_offline_with_and_without_its_script(browser: Browser, tmp_path: Path) -> None:
    program = reinforce(5, hidden=(4,)).compile({"B": 3, "I": 4, "T": 12})
    path = program.export_html(tmp_path / "program.html")
    asked: list[str] = []
    said: list[str] = []
    context = browser.new_context(offline=True)
    view = context.new_page()
    view.on("request", lambda request: asked.append(request.url))
    view.on("console", lambda message: said.append(message.text))
    view.on("pageerror", lambda error: said.append(str(error)))
    view.goto(path.as_uri())
    shown = view.locator("section:visible")
    expect(shown).to_have_id("overview")

    view.click("nav a >> text=fuse")
    expect(shown).to_have_id("stage-fuse")
    assert view.locator("nav a[aria-current]").inner_text() == "fuse"
    kernel = next(op.id for op in program.fused if op.label == "acting")
    view.click(f"#fuse-op{kernel}")  # a node of the picture
    expect(shown).to_have_id("operations")
    assert view.evaluate("location.hash") == f"#kernel-{kernel}"

    view.fill(".asks input", "tanh")
    rows = view.locator("#operations tbody tr:visible")
    assert 0 < rows.count() < len(program.pdg)
    assert all("tanh" in text for text in rows.all_inner_texts())
    assert asked == [path.as_uri()] and not said

    plain = browser.new_context(java_script_enabled=False).new_page()
    plain.goto(path.as_uri())
    count = len([*program.stages]) + 5
    assert plain.locator("section:visible").count() == count
