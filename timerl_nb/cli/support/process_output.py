"""Copies of the output of several processes, line by line with the number of the process."""

from __future__ import annotations

import re
from threading import Event, Lock, Thread
from typing import IO, Final, TextIO

_LONGEST: Final = 1 << 16  # bytes of a line; a longer one is divided
_LAST: Final = 300  # characters of a quoted line
# lines of JAX and Gloo about the connection, which do not state why a process ended
_NO_REASON: Final = re.compile(
    r"\[Gloo\]|[EFIW]\d{4} |\s*@ |\*\*\*|\s|Fatal Python error|Current thread|Thread 0x"
)
_writing = Lock()


class ProcessOutput:
    """Copies one stream of a process in a thread.

    Args:
        stream: the output of the process.
        target: receives the lines.
        number: the number of the process.
        lost: set if nobody reads the target.

    Attributes:
        last_line: the last line that may state the reason of an error.
    """

    def __init__(self, stream: IO[bytes], target: TextIO, number: int, lost: Event) -> None:
        self.last_line = ""
        self._stream, self._target, self._number, self._lost = stream, target, number, lost
        self._thread = Thread(target=self._copy, daemon=True)
        self._thread.start()

    def join(self, seconds: float) -> None:
        """Wait for the end of the stream; a child of the process may keep it open."""
        self._thread.join(seconds)

    def _copy(self) -> None:
        encoding = self._target.encoding or "utf-8"
        with self._stream as stream:
            while line := stream.readline(_LONGEST):
                text = line.decode("utf-8", "replace").rstrip("\r\n")
                # a progress bar returns to the beginning of its line
                text = text.rpartition("\r")[2].encode(encoding, "replace").decode(encoding)
                if text.strip() and not _NO_REASON.match(text):
                    self.last_line = text.strip()[:_LAST]
                try:
                    with _writing:
                        self._target.write(f"[{self._number}] {text}\n")
                        self._target.flush()
                except (OSError, ValueError):
                    self._lost.set()
                    return
