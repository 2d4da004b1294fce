"""Summary of a training run: the mean of each curve near its end."""

from __future__ import annotations

from typing import Any

import numpy as np

from timerl_nb.execution.results.run_result import Result


def final_means(result: Result) -> dict[str, float]:
    """Return the mean of each scalar output over the last tenth of the turns and all seeds."""
    axes = 2 if result.seeds else 1
    return {
        name: float(np.mean(x[..., -last_tenth(x) :], dtype=np.float64))
        for name, x in result.items()
        if x.ndim == axes and x.size and np.issubdtype(x.dtype, np.number)
    }


def last_tenth(x: Any) -> int:
    """Return the number of turns in the last tenth, at least one."""
    return max(1, x.shape[-1] // 10)
