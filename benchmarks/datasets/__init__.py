"""Files of `datasets` that this project's programs make again: `python -m benchmarks datasets [NAME …]`."""

from benchmarks.datasets.remaking import main

__all__ = ["main"]
