"""Strategy "sharded": like "blocks" or "scan", with environments divided among devices."""

from __future__ import annotations

from typing import ClassVar

from timerl_nb.base.options import Options
from timerl_nb.base.text_formatting import format_count
from timerl_nb.collecting.collection_task import Task
from timerl_nb.collecting.strategies.xla_scan import Scan
from timerl_nb.runtime.jax_backend.arrays_and_devices import own_device_count


class Sharded(Scan):
    name = "sharded"
    what = "one XLA call per batch, with the environments divided among devices"
    required_speedup: ClassVar[float] = 1.1
    options = Options(executor="xla", tile="auto")

    def why_not(self, task: Task) -> str | None:
        why, count = super().why_not(task), own_device_count()
        if why is None and count == 1:
            more = "XLA_FLAGS=--xla_force_host_platform_device_count=2 splits a CPU"
            why = f"JAX sees only one device; {more}"
        if why is None and task.envs % count:
            why = f"{format_count(task.envs, 'environment')} cannot be divided equally among {count} devices"
        return why

    def _options(self, task: Task) -> Options:
        return self.options.with_(devices=own_device_count())
