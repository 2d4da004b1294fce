"""Device tracers: PyTorch's profiler, JAX's profiler and CUPTI.

Each returns a `Trace` in its own clock. A profiler is used only if the program has imported its
library; CUPTI is used if neither is imported.
"""

from __future__ import annotations

import importlib
import os
import shutil
import sys
import tempfile
import threading
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Protocol

from timerl_nb.base.errors import ExecutionError
from timerl_nb.scope.device_activity import cupti
from timerl_nb.scope.device_activity.kineto import TRACER as TORCH
from timerl_nb.scope.device_activity.kineto import kineto
from timerl_nb.scope.device_activity.trace_data import Trace
from timerl_nb.scope.device_activity.xplane import TRACER as JAX
from timerl_nb.scope.device_activity.xplane import xplane

# Environment variables set by NVIDIA's tools; these tools hold CUPTI during the whole run.
_INJECTED: Final = {
    "NSYS_PROFILING_SESSION_ID": "Nsight Systems",
    "NV_NSIGHT_INJECTION_TRANSPORT_TYPE": "Nsight Compute",
    "CUDA_INJECTION64_PATH": "the library of CUDA_INJECTION64_PATH",
}


class Tracer(Protocol):
    """Interface of device tracers."""

    name: str

    def start(self) -> str:
        """Start tracing.

        Returns:
            The reason why there is no device, or "".

        Raises:
            ExecutionError: another tracer is active.
        """
        ...

    def read_clock(self, number: int) -> int | None:
        """Return the tracer's clock, or None after writing a mark with this number into the trace."""
        ...

    def stop(self) -> Trace:
        """Wait for the devices, stop tracing and return the trace."""
        ...


def tracer_busy_error(by: str) -> ExecutionError:
    """Return the error for another active tracer."""
    return ExecutionError(
        f"devices cannot be traced: {by} traces them already.",
        hint="stop it, or record without devices and add its trace by trl.scope.add_trace.",
    )


def find_tracer() -> tuple[Tracer | None, str]:
    """Return a tracer for the available devices; or None, with the reason.

    Raises:
        ExecutionError: a tool of NVIDIA traces the devices already.
    """
    why: list[str] = []
    for module, look in (("torch", _torch), ("jax", _jax)):
        if module in sys.modules:
            tracer, absent = look(sys.modules[module])
            if tracer is not None:
                return _free(tracer), ""
            why.append(absent)
    if why:
        return None, "; ".join(why)
    return (
        (None, absent)
        if (absent := cupti.absent())
        else (_free(cupti.CuptiTracer(tracer_busy_error)), "")
    )


def _free(tracer: Tracer) -> Tracer:
    for variable, name in _INJECTED.items():
        if os.environ.get(variable):
            raise tracer_busy_error(name)
    return tracer


def _torch(torch: Any) -> tuple[Tracer | None, str]:
    if not torch.cuda.is_available():
        return None, "PyTorch sees no GPU"
    return TorchTracer(torch), ""


def _jax(jax: Any) -> tuple[Tracer | None, str]:
    if not any(device.platform in ("gpu", "cuda", "rocm") for device in jax.local_devices()):
        return None, "JAX sees no GPU"
    return JaxTracer(jax), ""


class TorchTracer:
    """PyTorch's profiler, limited to devices and CUDA calls.

    A traced operator would cost 1 to 7 µs. The profiler's clock is the wall clock; on a CPU, the
    difference was below 2 µs.
    """

    name = TORCH

    def __init__(self, torch: Any, activity: str = "CUDA") -> None:
        self._torch, self._activity = torch, activity
        self._profile: Any = None

    def start(self) -> str:
        # a second profiler would start without an error, but see nothing
        if self._torch.autograd._profiler_enabled():
            raise tracer_busy_error(self.name)
        module = self._torch.profiler
        which = [getattr(module.ProfilerActivity, self._activity)]
        self._profile = module.profile(activities=which, acc_events=True)
        self._profile.start()
        return ""

    def read_clock(self, number: int) -> int | None:
        return time.time_ns()

    def stop(self) -> Trace:
        if self._torch.cuda.is_available():
            self._torch.cuda.synchronize()
        self._profile.stop()
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "trace.json"
            self._profile.export_chrome_trace(str(path))
            return _by_native(kineto(path))


def _by_native(trace: Trace) -> Trace:
    """Return the trace with thread ids of the system.

    In a trace of devices alone, the profiler uses CUPTI's thread ids: the lower half of the pthread
    id, which is also Python's `Thread.ident`.
    """
    called = trace.called.copy()
    for one in threading.enumerate():
        if one.ident is not None and one.native_id is not None:
            called["thread"][trace.called["thread"] == one.ident & 0xFFFFFFFF] = one.native_id
    return replace(trace, called=called)


class JaxTracer:
    """JAX's profiler; its clock is read from marks in the trace."""

    name = JAX

    def __init__(self, jax: Any) -> None:
        self._jax = jax
        self._folder = ""

    def start(self) -> str:
        profiler = importlib.import_module("jax.profiler")
        options = profiler.ProfileOptions()
        options.python_tracer_level, options.host_tracer_level = 0, 1
        self._folder = tempfile.mkdtemp(prefix="timerl-trace-")
        try:
            profiler.start_trace(self._folder, profiler_options=options)
        except RuntimeError as error:
            os.rmdir(self._folder)
            raise tracer_busy_error(self.name) from error
        return ""

    def read_clock(self, number: int) -> int | None:
        thread = threading.get_native_id()
        with self._jax.profiler.TraceAnnotation(f"timerl mark {number} of thread {thread}"):
            return None

    def stop(self) -> Trace:
        for device in self._jax.local_devices():
            with suppress(AttributeError):  # devices without this method, such as CPUs
                device.synchronize_all_activity()
        self._jax.profiler.stop_trace()
        try:
            (path,) = Path(self._folder).rglob("*.xplane.pb")
            return xplane(path)
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)
