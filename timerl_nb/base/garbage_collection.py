"""No garbage is looked for while a program is compiled.

What compiling makes is freed by reference counts, but for some hundred objects, in a search within a budget some
thousand; to look for these among the objects of all imported libraries takes a tenth of its time.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def disable_gc() -> Iterator[None]:
    """Let Python's collector of cycles rest, unless it does already."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
