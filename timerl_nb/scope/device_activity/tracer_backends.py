"""What looks at devices in this process: PyTorch's profiler, JAX's, or CUPTI; each gives a `Trace` by its own clock.

Only what the program has imported itself is asked, but for CUPTI, which `cupti-python` reaches where neither is there.
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

# What NVIDIA's own tools set in the environment of what they look at: they hold CUPTI all along.
_INJECTED: Final = {
    "NSYS_PROFILING_SESSION_ID": "Nsight Systems",
    "NV_NSIGHT_INJECTION_TRANSPORT_TYPE": "Nsight Compute",
    "CUDA_INJECTION64_PATH": "the library of CUDA_INJECTION64_PATH",
}


class Tracer(Protocol):
    """Looks at devices from `start` to `stop`."""

    name: str

    def start(self) -> str:
        """Begin; returns why there is no device after all, or "".

        Raises:
            ExecutionError: somebody else looks at them, who is named.
        """
        ...

    def read_clock(self, number: int) -> int | None:
        """Its clock, or None where the mark of that number tells, which it sets now."""
        ...

    def stop(self) -> Trace:
        """End, when devices have done what they were given; what was seen."""
        ...


def tracer_busy_error(by: str) -> ExecutionError:
    """The error of a tracer that cannot begin."""
    return ExecutionError(
        f"devices cannot be traced: {by} looks at them already, and one alone can.",
        hint="end that, or record without devices; its trace can be added: trl.scope.add_trace.",
    )


def find_tracer() -> tuple[Tracer | None, str]:
    """What can look at the devices that there are; or why there is nothing to look at.

    Raises:
        ExecutionError: one of NVIDIA's tools looks at them already.
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
    """PyTorch's profiler, of devices and calls of CUDA alone: of operators it would take 1 to 7 µs each.

    Its clock is the wall clock; on a CPU it was found within 2 µs of that.
    """

    name = TORCH

    def __init__(self, torch: Any, activity: str = "CUDA") -> None:
        self._torch, self._activity = torch, activity
        self._profile: Any = None

    def start(self) -> str:
        if self._torch.autograd._profiler_enabled():  # it would begin all the same, and see nothing
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
    """With threads as the system counts them.

    Where it looks at devices alone PyTorch's profiler counts them as CUPTI does: by the lower half of what pthreads
    calls them, which is Python's name for them, too.
    """
    called = trace.called.copy()
    for one in threading.enumerate():
        if one.ident is not None and one.native_id is not None:
            called["thread"][trace.called["thread"] == one.ident & 0xFFFFFFFF] = one.native_id
    return replace(trace, called=called)


class JaxTracer:
    """JAX's profiler; its clock is told by marks, of the thread that sets them."""

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
            with suppress(AttributeError):  # of devices that cannot be waited for, such as CPUs
                device.synchronize_all_activity()
        self._jax.profiler.stop_trace()
        try:
            (path,) = Path(self._folder).rglob("*.xplane.pb")
            return xplane(path)
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)
