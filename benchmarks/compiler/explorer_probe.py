"""Times of an explorer's changes inside the kernel; `explorer_waits` reads them."""

from __future__ import annotations

import json
import time
from typing import Any

from timerl_widgets.explorer import Explorer


class Probe:
    """Measures every change of an explorer: compilation, views, serialisation, bytes, and CPU time.

    Attributes:
        changes: one record per completed change, the last one last. `sent` is a time since the epoch; the other
            times are seconds.
    """

    def __init__(self, explorer: Explorer) -> None:
        self.changes: list[dict[str, float]] = []
        self._explorer: Any = explorer
        self._sends: list[tuple[float, float]] = []  # the beginning of each, and its seconds
        self._sent = 0.0
        self._messages: list[tuple[dict[str, Any], list[Any]]] = []
        self._recompile, self._send_state = explorer._recompile, explorer.send_state
        self._send = explorer._send
        explorer._recompile = self._on_recompile
        explorer.send_state = self._on_send_state
        explorer._send = self._on_send

    def _on_recompile(self) -> None:
        self._sends, self._messages = [], []
        begun, cpu = time.perf_counter(), time.process_time()
        self._recompile()
        whole = time.perf_counter() - begun
        status = self._explorer.status
        if status["state"] != "ready":
            return
        # messages about the progress are part of the compilation
        packed = sum(seconds for at, seconds in self._sends if at >= begun + status["seconds"])
        sizes = [(len(json.dumps(message)), sum(map(len, b))) for message, b in self._messages]
        self.changes.append(
            {
                "compiled": status["seconds"],
                "views": whole - status["seconds"] - packed,
                "packed": packed,
                "cpu": time.process_time() - cpu,
                "bytes": sum(a + b for a, b in sizes),
                "sent": self._sent,
            }
        )

    def _on_send_state(self, key: Any = None) -> None:
        begun = time.perf_counter()
        self._send_state(key)
        self._sends.append((begun, time.perf_counter() - begun))
        if not isinstance(key, str) and "status" in (key or ()):
            self._sent = time.time()

    def _on_send(self, message: dict[str, Any], buffers: Any = None) -> None:
        self._send(message, buffers)
        self._messages.append((message, [memoryview(one).cast("B") for one in buffers or ()]))
