"""The machine that is there: what was measured of it, or nominal figures."""

from __future__ import annotations

import json
from dataclasses import asdict

from timerl_nb.machine import Machine
from timerl_nb.runtime.backends.jax import device_name
from timerl_nb.runtime.disk_cache import disk_cache, key_of

_known: dict[tuple[object, str], Machine] = {}  # by cache and device


def machine_here() -> Machine:
    """What programs run on."""
    disk, name = disk_cache(), device_name()
    place = None if disk is None else disk.folder, name
    if place not in _known:
        payload = None if disk is None else disk.read(key_of("machine", name))
        _known[place] = Machine() if payload is None else Machine(**json.loads(payload))
    return _known[place]


def keep(machine: Machine) -> None:
    """Let later compilations choose by a machine's figures, here and in processes to come."""
    disk, name = disk_cache(), device_name()
    _known[None if disk is None else disk.folder, name] = machine
    if disk is not None:
        disk.write(key_of("machine", name), json.dumps(asdict(machine)).encode())
