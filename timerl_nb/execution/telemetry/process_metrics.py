"""CPU time and memory of the process, and the load of NVIDIA devices."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from typing import Any, Final

from timerl_nb.base.machine_model import cores
from timerl_nb.execution.telemetry.live_view_frames import Device, Process

_PERIOD: Final = 1.0  # seconds between two questions to the driver, each of which takes a while


class ProcessMetrics:
    """Metrics of the process by `psutil`, and of devices if `nvidia-ml-py` is installed.

    Args:
        on_device: says how many bytes arrays take on the run's device.
    """

    def __init__(self, on_device: Callable[[], int | None]) -> None:
        self._on_device = on_device
        self._cpu, self._wall = time.process_time(), time.perf_counter()
        self._cores = cores()
        self._memory_info: Any = importlib.import_module("psutil").Process().memory_info
        self._nvml = _nvml()
        self._devices: tuple[Device, ...] = ()
        self._asked = 0.0

    def process(self) -> Process:
        """This process, since it was asked for last."""
        cpu, wall = time.process_time(), time.perf_counter()
        rate = (cpu - self._cpu) / max(wall - self._wall, 1e-6)
        self._cpu, self._wall = cpu, wall
        return Process(rate, self._cores, self._memory_info().rss, self._on_device())

    def devices(self) -> tuple[Device, ...]:
        """The devices, at most a second ago."""
        now = time.perf_counter()
        if self._nvml is not None and now - self._asked > _PERIOD:
            self._asked = now
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
        except nvml.NVMLError:  # the driver went away, or does not say: not the run's business
            self._nvml = None
        return found


def _nvml() -> Any:
    """The driver's interface; None where it is not installed, or there is no device."""
    try:
        nvml = importlib.import_module("pynvml")
        nvml.nvmlInit()
    except ImportError:
        return None
    except Exception:  # its errors are of its own kind: no driver, no permission
        return None
    return nvml


def _watts(nvml: Any, handle: Any) -> float | None:
    try:
        return nvml.nvmlDeviceGetPowerUsage(handle) / 1000
    except nvml.NVMLError:
        return None


def _text(name: str | bytes) -> str:
    return name.decode() if isinstance(name, bytes) else name
