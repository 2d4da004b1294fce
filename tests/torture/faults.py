"""Disk failures at every call: clear errors, an intact last save, and resumable runs.

Python's system calls fail by injection (`disk`). A full disk is also simulated by the system's
limit on file sizes. A read-only folder is tested as well; root does so in a script.
"""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryDirectory
from typing import Final

import numpy as np

import timerl_nb as trl
from tests.torture.disk import CODES, REMOVING, Disk, full
from tests.torture.progress import Progress
from tests.torture.subjects import WAYS, differs, given_by
from timerl_nb.base.errors import ExecutionError, TimeRLError
from timerl_nb.runtime.state.run_folder import MANIFEST, RunFolder

ABOUT: Final = "faults of the disk, at every call"
COUNT: Final = 0  # the number of calls decides
MINUTES: Final = 30.0
SEED: Final = 3
NOBODY: Final = 65534  # a user without special rights
REFUSED: Final = 77  # exit status if rights cannot be dropped
TURNS: Final = 4
# File-size limits: too small for any file, for the header, for a part of it.
FULL: Final = {"state": (0, 1, 100, 5000, 16_384, 30_000), "value": (0, 1, 100, 5000, 16_384)}
STALE: Final = ".state-1-00ff.safetensors.fedcba9876543210"  # of a killed process


@cache
def learning(way: str) -> trl.Program:
    """Small program with a state larger than a file buffer."""
    with trl.Context("i", "t") as ctx:
        (i, I), (t, T) = ctx.dims
        w = trl.parameter(np.ones(4096, np.float32), domain=(i,), name="w")
        x = trl.random.normal((4096,), domain=(i, t))
        loss = ((x * w - 0.3) ** 2).mean(axis=0)[i, 0:T].mean(axis=0)
        loss.backward()
        trl.optim.SGD([w], lr=1e-2).step()
        ctx.output("loss", loss)
    return ctx.compile({I: TURNS, T: 3}, trl.Options(**WAYS[way], vectorize=False))


@cache
def keeping(way: str, folder: str) -> trl.Program:
    """Writes a value every other iteration."""
    with trl.Context("i") as ctx:
        ((i, I),) = ctx.dims
        x = trl.tensor((4096,), domain=(i,))
        x[0] = trl.random.normal((4096,), domain=())
        x[i + 1] = x * 0.5 + trl.random.normal((4096,), domain=(i,))
        x.named("x")[(i + 1) % 2 == 0].checkpoint(folder)
        ctx.output("x", x[i].mean(axis=0))
    return ctx.compile({I: TURNS}, trl.Options(**WAYS[way], vectorize=False))


@dataclass(frozen=True)
class Fault:
    """A failing call, in one run.

    Attributes:
        of: "state" of a run, or the file of a "value".
        way: How the program runs.
        at: Index of the call.
        call: Description of the call.
        onward: All later calls fail, too.
    """

    of: str
    way: str
    at: int
    call: str
    code: str
    onward: bool = False

    def __str__(self) -> str:
        more = " and all after it" if self.onward else ""
        return f"{self.code} at call {self.at} ({self.call}){more}, {self.of}, {self.way}"


def run(progress: Progress) -> None:
    """Fail every call of the runs in turn; then use a full disk and a read-only folder."""
    folder = progress.folder / "disk"
    faults = [
        fault
        for of in ("state", "value")
        for way in ("interpret", "xla", "fused")
        for fault in every_fault(of, way, folder)
    ]
    rest: list[tuple[str, Callable[[], str]]] = [
        (
            f"full after {most:,} bytes, {of}",
            lambda of=of, most=most: full_disk(of, "interpret", folder, most),
        )
        for of, sizes in FULL.items()
        for most in sizes
    ]
    rest.append(
        ("a folder that is read-only", lambda: read_only_to_us(folder) or "")
    )  # skipped if rights cannot be dropped
    progress.count = len(faults) + len(rest)
    while progress.goes_on:
        rmtree(folder, ignore_errors=True)
        if progress.done < len(faults):
            fault = faults[progress.done]
            name, wrong = str(fault), tried(fault, folder)
            progress.add(fault.code)
            progress.add(f"at {fault.call.split()[0]}")
        else:
            name, act = rest[progress.done - len(faults)]
            wrong = act()
            progress.add("full or read-only")
        progress.tried(*([f"{name}: {wrong}"] if wrong else []))
    rmtree(folder, ignore_errors=True)


def every_fault(of: str, way: str, folder: Path) -> Iterator[Fault]:
    """Yield each call of a saving run with each error."""
    for onward in (False, True):
        for at, call in enumerate(calls(of, way, folder)):
            for code in CODES:
                yield Fault(of, way, at, call, code, onward)


def calls(of: str, way: str, folder: Path) -> list[str]:
    """Return the file-system calls of a run."""
    rmtree(folder, ignore_errors=True)
    disk = Disk(folder)
    prepared(of, folder)
    with disk.spinning():
        begun(of, way, folder)
    rmtree(folder, ignore_errors=True)
    return disk.calls


def prepared(of: str, folder: Path) -> None:
    """Create a folder left by a killed, saving run; empty for values."""
    if of == "state":
        folder.mkdir(parents=True)
        (folder / STALE).write_bytes(b"half of it")


def begun(of: str, way: str, folder: Path) -> dict[str, np.ndarray]:
    """Start a run."""
    if of == "state":
        return given_by(learning(way).execute(seed=SEED, checkpoint=folder, every=1))
    return given_by(keeping(way, str(folder)).execute(seed=SEED))


@cache
def wanted(of: str, way: str, folder: Path) -> dict[str, np.ndarray]:
    """Return the results of an undisturbed run."""
    if of == "state":
        return given_by(learning(way).execute(seed=SEED))
    return begun(of, way, folder)


def tried(fault: Fault, folder: Path) -> str:
    """Return the failures of a run with a failing call; empty if all is right."""
    want = wanted(fault.of, fault.way, folder)
    rmtree(folder, ignore_errors=True)
    prepared(fault.of, folder)
    disk, ended = Disk(folder, fault.at, fault.code, onward=fault.onward), False
    try:
        with disk.spinning():
            have = begun(fault.of, fault.way, folder)
    except TimeRLError as error:
        if not disk.has_failed:
            return f"fails although no call did: {error}"
        if other := _unclear(error, folder, fault.code):
            return other
    except BaseException as error:
        return f"a bare {type(error).__name__} from inside: {error}"
    else:
        if not disk.has_failed:
            return "the call was not made"
        if not fault.call.startswith(REMOVING):
            return "the run ends as if nothing had failed"
        if other := differs(want, have):
            return f"ends otherwise: {other}"
        ended = True
    if fault.of == "state" and not ended:
        saves = sum(call.startswith(f"rename .{MANIFEST}") for call in disk.calls[: fault.at])
        try:
            turn = _saved(folder)
        except TimeRLError as error:
            return f"what was saved is lost: {error}"
        if turn != (_turn(fault.way, saves) if saves else None):
            return f"keeps turn {turn} after {saves} saves"
    return _left(fault, folder, want)


def _unclear(error: TimeRLError, folder: Path, code: str) -> str:
    """Return the reason that an error message is not clear enough."""
    text = str(error)
    if not isinstance(error, ExecutionError) or error.__cause__ is not None:
        return f"is a {type(error).__name__} of {error.__cause__!r}"
    if str(folder) not in text or not error.hint:
        return f"does not name the file and what to do: {text}"
    said = os.strerror(getattr(errno, code))
    return "" if said in text else f"does not say {said!r}: {text}"


def _turn(way: str, saves: int) -> int:
    """Return the iteration of the n-th save."""
    return min(saves * int(WAYS[way].get("fuse_iterations", 1)), TURNS)


def _saved(folder: Path) -> int | None:
    """Return the saved iteration after a full read; None without a save."""
    kept = RunFolder(folder)
    return None if kept.is_empty else kept.read()[0].turn


def _left(fault: Fault, folder: Path, want: dict[str, np.ndarray]) -> str:
    """Return defects of the folder of a failed run."""
    drafts = [p.name for p in folder.glob(".*")] if folder.exists() else []
    may_stay = fault.onward or fault.call.startswith(REMOVING) or fault.call.endswith(STALE)
    if [name for name in drafts if name != STALE] and not may_stay:
        return f"leaves {drafts}"
    try:
        if fault.of == "value":
            for path in folder.glob("*.safetensors"):
                trl.load(path)
            have = begun(fault.of, fault.way, folder)
        elif _saved(folder) is None:
            have = begun(fault.of, fault.way, folder)
        else:
            have = given_by(learning(fault.way).resume(folder))
    except TimeRLError as error:
        return f"cannot be gone on with: {error}"
    if other := differs(want, have):
        return f"goes on otherwise: {other}"
    left = sorted(path.name for path in folder.iterdir())
    if fault.of == "state":
        states = [n for n in left if n not in ("lock", MANIFEST)]
        # the end and the state before it; if a deletion failed, its state stays until a run opens the folder
        if len(states) > 2 + fault.call.startswith(REMOVING) or any(n[0] == "." for n in states):
            return f"leaves {left} in the end"
    elif len([n for n in left if n.endswith(".safetensors") and n[0] != "."]) != TURNS // 2:
        return f"leaves {left} in the end"
    return ""


def full_disk(of: str, way: str, folder: Path, most: int) -> str:
    """Return the failures under limits of file sizes."""
    want = wanted(of, way, folder)
    rmtree(folder, ignore_errors=True)
    try:
        with full(most):
            begun(of, way, folder)
    except TimeRLError as error:
        if other := _unclear(error, folder, "EFBIG"):
            return other
    except BaseException as error:
        return f"a bare {type(error).__name__} from inside: {error}"
    else:
        return "the run ends as if there were space"
    return _left(Fault(of, way, 0, "write", "EFBIG"), folder, want)


def read_only(folder: Path) -> str:
    """Return the failures in a read-only folder."""
    folder.mkdir(parents=True)
    folder.chmod(0o555)
    try:
        with suppress(TimeRLError):
            begun("state", "interpret", folder)
            return "the run ends as if it could write"
    finally:
        folder.chmod(0o755)
    return _left(
        Fault("state", "interpret", 0, "open", "EACCES"),
        folder,
        wanted("state", "interpret", folder),
    )


def read_only_to_us(folder: Path) -> str | None:
    """Run `read_only` in a process without root's rights; None if impossible."""
    if os.geteuid():
        return read_only(folder)
    with TemporaryDirectory() as place:  # accessible without root's rights
        try:
            os.chown(place, NOBODY, NOBODY)
        except OSError:
            return None
        done = subprocess.run(
            [sys.executable, "-m", "tests.torture.faults", place],
            cwd=Path(__file__).parents[2],
            env={**os.environ, "TIMERL_CACHE": "0", "JAX_PLATFORMS": "cpu"},
            capture_output=True,
            text=True,
        )
    if done.returncode == REFUSED:
        return None
    return f"ends with {done.returncode}: {done.stderr}" if done.returncode else done.stdout


def main(place: str) -> None:
    """Drop root's rights, and test a read-only folder."""
    folder = Path(place, "disk")
    wanted("state", "interpret", folder)  # files readable only by root are loaded by then
    try:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    except OSError:
        sys.exit(REFUSED)
    if not os.access(place, os.W_OK):
        sys.exit(REFUSED)
    print(read_only(folder), end="")


if __name__ == "__main__":
    main(*sys.argv[1:])
