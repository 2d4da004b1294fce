"""Settings of PyTorch around a kernel: number of threads, precision of products, deterministic algorithms.

A thread has its own number of threads. The other settings belong to the process: they are changed only if the
user's differ, and restored when the last running kernel ends.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from typing import Final

import torch


class OneThread:
    """Context in which PyTorch's operators run on the calling thread; other threads are unaffected.

    `torch.set_num_threads` would also set the number for threads that start in the meantime, so the context calls
    the OpenMP library of PyTorch. Without OpenMP, the context has no effect.
    """

    def __init__(self) -> None:
        self._before = threading.local()  # a stack per thread, as kernels can be nested
        self._set = getattr(ctypes.CDLL(torch._C.__file__), "omp_set_num_threads", None)

    def __enter__(self) -> None:
        if self._set is None:
            return
        if not hasattr(self._before, "counts"):
            self._before.counts = []
        # PyTorch sets a new thread's number at the first question for it
        self._before.counts.append(torch.get_num_threads())
        self._set(1)

    def __exit__(self, *error: object) -> None:
        if self._set is not None:
            self._set(self._before.counts.pop())


class ProcessSettings:
    """Context with full precision of float32 products and, for a GPU, deterministic algorithms.

    Several threads may enter it at once. Other work of the process sees the settings until they leave it.

    Args:
        precision: The settings of CPU kernels, for those of GPU kernels; None otherwise.
    """

    def __init__(self, precision: ProcessSettings | None = None) -> None:
        self._precision = precision
        self._lock = threading.Lock()
        self._inside = 0
        self._restore: Callable[[], None] | None = None

    def __enter__(self) -> None:
        if self._precision is not None:
            self._precision.__enter__()
        with self._lock:
            if not self._inside:
                self._restore = self._change()
            self._inside += 1

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside and self._restore is not None:
                self._restore()
        if self._precision is not None:
            self._precision.__exit__()

    def _change(self) -> Callable[[], None] | None:
        """Change the settings that differ, and return a function that restores them."""
        if self._precision is None:
            found = torch.get_float32_matmul_precision()
            if found == "highest":
                return None
            torch.set_float32_matmul_precision("highest")
            return lambda: torch.set_float32_matmul_precision(found)
        cudnn = torch.backends.cudnn
        is_on = torch.are_deterministic_algorithms_enabled()
        warns = torch.is_deterministic_algorithms_warn_only_enabled()
        flags = cudnn.deterministic, cudnn.benchmark, cudnn.allow_tf32
        torch.use_deterministic_algorithms(True)
        cudnn.deterministic, cudnn.benchmark, cudnn.allow_tf32 = True, False, False

        def restore() -> None:
            torch.use_deterministic_algorithms(is_on, warn_only=warns)
            cudnn.deterministic, cudnn.benchmark, cudnn.allow_tf32 = flags

        return restore


ONE_THREAD: Final = OneThread()
ON_CPU: Final = ProcessSettings()
ON_GPU: Final = ProcessSettings(ON_CPU)
