"""CPU time and memory of the process, and the load of NVIDIA devices."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from typing import Any, Final

from timerl_nb.base.machine_model import cores
from timerl_nb.execution.telemetry.live_view_frames import Device, Process

_PERIOD: Final = 1.0  # seconds between two queries of the driver, as a query is slow


class ProcessMetrics:
    """Metrics of the process (by `psutil`) and of NVIDIA devices (by `nvidia-ml-py`, if installed).

    Args:
        on_device: Returns the bytes of arrays on the run's device.
    """

    def __init__(self, on_device: Callable[[], int | None]) -> None:
        self._on_device = on_device
        self._cpu, self._wall = time.process_time(), time.perf_counter()
        self._cores = cores()
        self._memory_info: Any = importlib.import_module("psutil").Process().memory_info
        self._nvml = _nvml()
        self._devices: tuple[Device, ...] = ()
        self._sampled_at = 0.0

    def process(self) -> Process:
        """Return the metrics of the process since the last call."""
        cpu, wall = time.process_time(), time.perf_counter()
        rate = (cpu - self._cpu) / max(wall - self._wall, 1e-6)
        self._cpu, self._wall = cpu, wall
        return Process(rate, self._cores, self._memory_info().rss, self._on_device())

    def devices(self) -> tuple[Device, ...]:
        """Return the state of the devices, at most one second old."""
        now = time.perf_counter()
        if self._nvml is not None and now - self._sampled_at > _PERIOD:
            self._sampled_at = now
            self._devices = tuple(self._read_devices(self._nvml))
        return self._devices

    def _read_devices(self, nvml: Any) -> list[Device]:
        found: list[Device] = []
        try:
            for k in range(nvml.nvmlDeviceGetCount()):
                handle = nvml.nvmlDeviceGetHandleByIndex(k)
                name, memory = nvml.nvmlDeviceGetName(handle), nvml.nvmlDeviceGetMemoryInfo(handle)
                busy = nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100
                found.append(
                    Device(
                        _text(name), busy, int(memory.used), int(memory.total), _watts(nvml, handle)
                    )
                )
        except nvml.NVMLError:  # without metrics, the run goes on
            self._nvml = None
        return found


def _nvml() -> Any:
    """Return the interface of the driver; None if it is not installed or finds no device."""
    try:
        nvml = importlib.import_module("pynvml")
        nvml.nvmlInit()
    except ImportError:
        return None
    except Exception:  # NVMLError without an importable base class: no driver, no permission
        return None
    return nvml


def _watts(nvml: Any, handle: Any) -> float | None:
    try:
        return nvml.nvmlDeviceGetPowerUsage(handle) / 1000
    except nvml.NVMLError:
        return None


def _text(name: str | bytes) -> str:
    return name.decode() if isinstance(name, bytes) else name
