"""Machine model of this machine: measured figures if `trl.tune_machine()` has run, nominal ones otherwise."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Final

from timerl_nb.base.machine_model import Machine
from timerl_nb.runtime.jax_backend.arrays_and_devices import device_name
from timerl_nb.runtime.jax_backend.process_connection import combine
from timerl_nb.runtime.state.disk_cache import CacheEntry, disk_cache, key_of

_HERE: Final = "machine"
_known: dict[tuple[object, str, str], Machine] = {}  # by cache, device and purpose


def machine_here(purpose: str = _HERE) -> Machine:
    """Return the figures of this machine for a purpose, or else the general ones."""
    disk, name = disk_cache(), device_name()
    place = None if disk is None else disk.folder, name, purpose
    if place not in _known:
        figures = CacheEntry(disk, lambda: key_of(purpose, name)).load()
        if figures is None:
            return _known.setdefault(place, Machine()) if purpose == _HERE else machine_here()
        _known[place] = Machine(**figures)
    return _known[place]


def keep(machine: Machine, purpose: str = _HERE) -> None:
    """Store a machine's figures for later compilations, in this process and others."""
    disk, name = disk_cache(), device_name()
    _known[None if disk is None else disk.folder, name, purpose] = machine
    CacheEntry(disk, lambda: key_of(purpose, name)).write(asdict(machine))


def use_machine_of_process_0() -> None:
    """Use the figures of process 0, so that all processes make the same choices. All must call it."""
    disk, name = disk_cache(), device_name()
    figures, _ = combine("machine", json.dumps(asdict(machine_here())))
    _known[None if disk is None else disk.folder, name, _HERE] = Machine(**json.loads(figures))
