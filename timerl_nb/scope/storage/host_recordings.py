"""Recordings of other hosts: a subfolder per host, with the clocks of both hosts compared."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from importlib.resources.abc import Traversable
from typing import Any, Final

import numpy as np

from timerl_nb.base.atomic_files import LONGEST_TEXT, parse_json
from timerl_nb.base.errors import ExecutionError
from timerl_nb.compiler.language.argument_checks import printable
from timerl_nb.scope.analysis.recording_queries import Recording
from timerl_nb.scope.analysis.thread_timelines import Lane, Process
from timerl_nb.scope.device_activity.clock_alignment import Anchor, HostClock, Joint
from timerl_nb.scope.device_activity.device_operations import Devices
from timerl_nb.scope.storage.event_format import NAME_BITS, NAME_MASK, NAMELESS, PER_HOST
from timerl_nb.scope.storage.host_clock_files import HOST, Join
from timerl_nb.scope.storage.json_validation import cause, content_of, fits
from timerl_nb.scope.storage.recording_writer import MANIFEST
from timerl_nb.scope.storage.thread_files import HOW

_JOIN: Final = re.compile(r"(\d+)\.host")
_LATEST: Final = 1 << 61  # nanoseconds: 73 years
_ABOUT: Final = {
    "host": str,
    "parent": int,
    "parent_host": str,
    "anchors": [{"theirs": int, "ours": int, "width": int}],
}


@dataclass(frozen=True, eq=False)
class Host:
    """Recording of another host, in its own clock, and the joins of its processes."""

    recording: Recording
    joins: Mapping[int, Join]


def host_folders(folder: Traversable) -> list[Traversable]:
    """Return the subfolders with recordings of other hosts."""
    found = [one for one in folder.iterdir() if one.name.startswith(HOST) and one.is_dir()]
    return sorted(
        (one for one in found if any(MANIFEST.fullmatch(path.name) for path in one.iterdir())),
        key=lambda one: one.name,
    )


def read_joins(folder: Traversable) -> dict[int, Join]:
    """Read the joins of a host's processes.

    Raises:
        ExecutionError: a file is damaged.
    """
    found: dict[int, Join] = {}
    for path in folder.iterdir():
        if not (named := _JOIN.fullmatch(path.name)):
            continue
        try:
            about: Any = parse_json(content_of(path, LONGEST_TEXT))
            if not fits(about, _ABOUT):
                raise ValueError("it has an unknown format")
            if any(abs(ns) > _LATEST for one in about["anchors"] for ns in one.values()):
                raise ValueError("a time is too large")
        except (OSError, ValueError) as error:
            raise ExecutionError(
                f"{path} is not a valid file of another host: {cause(error)}.", hint=HOW
            ) from None
        anchors = tuple(Anchor(**one) for one in about["anchors"])
        host, parent_host = printable(about["host"]), printable(about["parent_host"])
        found[int(named[1])] = Join(host, about["parent"], parent_host, anchors)
    return found


def clock_of(own: Sequence[Process], host: Host) -> HostClock:
    """Return the conversion of a host's clock.

    Raises:
        ExecutionError: no process of the host has joined the recording, so its clock is unknown.
    """
    joins = [*host.joins.values()]
    if not joins:
        raise ExecutionError(
            f"no process in the subfolder of {host.recording.processes[0].label} has joined this recording, so the "
            "offset of its clock is unknown.",
            hint="start the processes on this host with the variables of trl.scope.worker_environment().",
        )
    anchors = [anchor for join in joins for anchor in join.anchors]
    if anchors:
        return HostClock.from_anchors(joins[0].host, anchors)
    (here, *_), (there, *_) = own, host.recording.processes
    passed = (there.wall or 0) - (here.wall or 0)
    anchor = Anchor(there.begin, here.begin + passed, 0)
    return HostClock(joins[0].host, Joint(anchor), is_exchanged=False)


def merge_hosts(own: Recording, hosts: Sequence[Host]) -> Recording:
    """Return one recording with the processes of all hosts, in the clock of the first.

    Args:
        own: the recording of the first host.
        hosts: recordings of the other hosts.
    """
    clocks = [clock_of(own.processes, host) for host in hosts]
    added = {"": 0, **{clock.host: k * PER_HOST for k, clock in enumerate(clocks, 1)}}
    table = {name: k for k, name in enumerate(own.names)}
    lanes, processes = [*own.lanes], [*own.processes]
    op_ids, devices = dict(own.op_ids), [own.devices]
    for k, (host, clock) in enumerate(zip(hosts, clocks, strict=True), 1):
        one, plus = host.recording, k * PER_HOST
        names = np.array([table.setdefault(name, len(table)) for name in one.names], np.int64)
        op_ids |= one.op_ids
        devices.append(_moved_devices(one.devices, clock, plus, names, devices, len(lanes)))
        lanes += [_moved_lane(lane, clock, plus, names) for lane in one.lanes]
        for process in one.processes:
            join = host.joins.get(process.number)
            parent = process.parent + plus
            if join is not None:
                parent = join.parent + added.get(join.parent_host, plus)
            end = None if process.end is None else _moment(clock, process.end)
            processes.append(
                replace(
                    process,
                    number=process.number + plus,
                    parent=parent,
                    begin=_moment(clock, process.begin),
                    end=end,
                    host=clock.host,
                )
            )
    return replace(
        own,
        lanes=tuple(lanes),
        names=tuple(table),
        op_ids=op_ids,
        processes=tuple(sorted(processes, key=lambda one: one.begin)),
        devices=_joined_devices(devices),
        hosts=tuple(clocks),
    )


def _moment(clock: HostClock, moment: int) -> int:
    return int(clock.joint.to_our_clock(np.array([moment]))[0])


def _moved_lane(lane: Lane, clock: HostClock, plus: int, names: np.ndarray) -> Lane:
    """Return a timeline with converted times, and numbers of the common tables."""
    edges = lane.edges.copy()
    edges["ts"] = clock.joint.to_our_clock(lane.edges["ts"])
    top = edges["top"]
    renamed = top >> NAME_BITS << NAME_BITS | names[top & NAME_MASK].astype(np.uint32)
    edges["top"] = np.where(np.isin(edges["kind"], NAMELESS), top, renamed)
    missed = {(int(names[of]), left, to): n for (of, left, to), n in lane.missed.items()}
    return replace(
        lane,
        process=lane.process + plus,
        edges=edges,
        end=_moment(clock, lane.end),
        missed=missed,
        blocked=clock.joint.to_our_clock(lane.blocked),
    )


def _moved_devices(
    devices: Devices,
    clock: HostClock,
    plus: int,
    names: np.ndarray,
    before: Sequence[Devices],
    lanes: int,
) -> Devices:
    """Return device operations with converted times, and numbers of the common tables."""
    to_ours = clock.joint.to_our_clock
    return replace(
        devices,
        begin=to_ours(devices.begin),
        end=to_ours(devices.end),
        name=names[devices.name],
        process=devices.process + plus,
        window=devices.window + sum(len(one.windows) for one in before),
        lane=np.where(devices.lane < 0, -1, devices.lane + lanes),
        launched=np.where(devices.launched < 0, -1, to_ours(devices.launched)),
        windows=tuple(
            replace(
                one,
                process=one.process + plus,
                begin=_moment(clock, one.begin),
                end=_moment(clock, one.end),
            )
            for one in devices.windows
        ),
    )


def _joined_devices(parts: Sequence[Devices]) -> Devices:
    """Return the device operations of all hosts in order of their begin."""
    order = np.argsort(np.concatenate([one.begin for one in parts]), kind="stable")
    columns = {
        column.name: np.concatenate([getattr(one, column.name) for one in parts])[order]
        for column in fields(Devices)
        if column.name != "windows"
    }
    return Devices(**columns, windows=tuple(window for one in parts for window in one.windows))
