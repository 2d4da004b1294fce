"""A widget in a browser page without Jupyter: its module draws a model of this process."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page
from timerl_widgets.widget import Widget

# The interface that anywidget passes to a module, and a page with focusable elements around it.
DRAW = """async ([source, state, dark]) => {
    document.body.innerHTML = "<button id=before>before</button><div id=host></div>"
        + "<button id=behind>behind</button>";
    document.body.dataset.jpThemeLight = String(!dark);
    document.body.style.background = dark ? "#111" : "#fff";
    window.said = [];
    addEventListener("error", (event) => window.said.push(event.message));
    const whole = (value) => {
        if (Array.isArray(value)) return value.map(whole);
        if (value === null || typeof value !== "object") return value;
        if ("base64" in value) {
            const text = atob(value.base64), bytes = new Uint8Array(text.length);
            for (let k = 0; k < text.length; k++) bytes[k] = text.charCodeAt(k);
            return new DataView(bytes.buffer);
        }
        return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, whole(one)]));
    };
    const values = whole(state), listeners = {}, written = new Set();
    const fire = (event, ...values) => [...(listeners[event] ?? [])].forEach((act) => act(...values));
    window.take = ({ changed, told }) => {
        for (const [name, value] of Object.entries(whole(changed))) {
            values[name] = value;
            fire(`change:${name}`);
        }
        told.forEach((message) => fire("msg:custom", message));
    };
    window.asked = 0;
    const ask = async (request) => {
        window.asked += 1;
        take(await window.toPython(request));
        window.asked -= 1;
    };
    const model = {
        get: (name) => values[name],
        set: (name, value) => {
            values[name] = value;
            written.add(name);
            fire(`change:${name}`);
        },
        save_changes: () => {
            const state = Object.fromEntries([...written].map((name) => [name, values[name]]));
            written.clear();
            ask({ state });
        },
        send: (message) => ask({ message }),
        on: (event, act) => (listeners[event] ??= []).push(act),
        off: (event, act) => (listeners[event] = (listeners[event] ?? []).filter((a) => a !== act)),
    };
    const url = URL.createObjectURL(new Blob([source], { type: "text/javascript" }));
    const { default: module } = await import(url);
    module.render({ model, el: document.querySelector("#host") });
}"""


class Alone:
    """A widget drawn in a page without Jupyter.

    Attributes:
        page: The page.
        said: Console messages and uncaught errors.
    """

    def __init__(
        self, browser: Browser, widget: Widget, *, width: int = 1400, dark: bool = False
    ) -> None:
        self.page: Page = browser.new_page(viewport={"width": width, "height": 1000})
        self.widget, self._console = widget, list[str]()
        self.page.on("console", lambda message: self._console.append(message.text))
        self.page.on("pageerror", lambda error: self._console.append(str(error)))
        self._told: list[Any] = []
        widget.send = lambda content, buffers=None: self._told.append(content)  # there is no kernel
        self._known = widget.get_state()
        self.page.expose_function("toPython", self._receive)
        source = str(self._known.pop("_esm"))  # the module's text
        self.page.evaluate(DRAW, [source, _plain(self._known), dark])
        self.settle()

    @property
    def said(self) -> list[str]:
        return [*self._console, *self.page.evaluate("() => window.said")]

    def settle(self) -> None:
        """Send pending changes to the page, and wait until it is idle."""
        self.page.evaluate("(news) => window.take(news)", self._news())
        frames = "() => new Promise((go) => requestAnimationFrame(() => requestAnimationFrame(go)))"
        for _ in range(3):  # the inspector delays its requests
            self.page.evaluate(frames)
            self.page.wait_for_timeout(25)
            self.page.wait_for_function("() => window.asked === 0")

    def save(self, label: str) -> str:
        """Return the text of the file that a button saves."""
        with self.page.expect_download() as saved:
            self.page.get_by_label(label, exact=True).click()
        return Path(saved.value.path()).read_text()

    def stops(self) -> int:
        """Return the number of Tab stops in the widget."""
        self.page.locator("#before").focus()
        count = 0
        while True:
            self.page.keyboard.press("Tab")
            if self.page.evaluate("document.activeElement.id") == "behind":
                return count
            count += 1
            assert count < 50

    def _receive(self, request: dict[str, Any]) -> dict[str, Any]:
        if "state" in request:
            self.widget.set_state(request["state"])
        else:
            self.widget._handle_custom_msg(request["message"], [])
        return self._news()

    def _news(self) -> dict[str, Any]:
        wait = getattr(self.widget, "wait", None)
        if wait is not None:
            assert wait(60)
        now, before = self.widget.get_state(), self._known
        del now["_esm"]
        self._known = now
        told, self._told = self._told, []
        changed = {name: now[name] for name in now if now[name] != before.get(name)}
        return {"changed": _plain(changed), "told": told}


def _plain(value: Any) -> Any:
    if isinstance(value, memoryview | bytes):
        return {"base64": base64.b64encode(bytes(value)).decode()}
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return value
