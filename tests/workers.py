"""How many devices JAX sees in each process of a session of tests: one and two by turns."""

from __future__ import annotations

import os

COUNT = "--xla_force_host_platform_device_count"


def devices_of(worker: str) -> int:
    """The devices of a worker of pytest-xdist such as `gw3`; without workers there is one.

    `TIMERL_TEST_SEED` = 1 gives one device to those that had two, and the other way round.
    """
    seed = int(os.environ.get("TIMERL_TEST_SEED", "0"))
    number = int(worker.removeprefix("gw")) if worker else 1
    return 1 + (number + seed + 1) % 2
