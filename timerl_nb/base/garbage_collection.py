"""Suspension of Python's cyclic garbage collector during compilations.

Compilation frees almost all of its objects by reference counts. Searching all imported libraries for the
few cycles would take a tenth of the compile time.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def disable_gc() -> Iterator[None]:
    """Suspend the cyclic garbage collector within the block; a collector that is already off stays off."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
