"""Limits of main memory, and refusal of larger programs before the first step."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import timerl_nb as trl
from tests.unit.checks import leaving
from timerl_nb.base.errors import BudgetError
from timerl_nb.driver.program_runs.main_memory_check import main_memory
from timerl_nb.runtime.host_memory import AvailableMemory, available_main_memory

ROOT = Path(__file__).parents[3]
V2 = "30 23 0:26 {at} /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw,nsdelegate"
V1 = "35 31 0:32 {at} /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory"
CPU = "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu"
ENDLESS = 9223372036854771712  # version 1's value for no limit


def fake(
    root: Path,
    ours: str,
    mounts: str,
    groups: dict[str, dict[str, object]],
    available: int = 1 << 30,
) -> AvailableMemory | None:
    """Return the free memory under these files; the groups are folders below `sys/fs/cgroup`."""
    files: dict[str, object] = {
        "proc/meminfo": f"MemTotal: 99999999 kB\nMemAvailable: {available >> 10} kB\n",
        "proc/self/cgroup": ours,
        "proc/self/mountinfo": mounts,
    }
    for folder, inside in groups.items():
        files |= {f"sys/fs/cgroup{folder}/{name}": text for name, text in inside.items()}
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"{text}\n")
    return available_main_memory(root)


def test_the_machine_says_what_is_available(tmp_path: Path) -> None:
    assert fake(tmp_path, "", "", {}, 5 << 20) == AvailableMemory(
        5 << 20, "the machine has no more available memory"
    )
    assert available_main_memory(tmp_path / "nothing") is not None  # systems without these files
    here = available_main_memory()
    assert here is not None and here.nbytes > 0


def test_groups_of_version_2_allow_less_from_within(tmp_path: Path) -> None:
    groups: dict[str, dict[str, object]] = {
        "": {},  # the root group has no limit
        "/a": {
            "memory.max": 1000,
            "memory.current": 900,
            "memory.stat": "anon 1\ninactive_file 300",
        },
        "/a/b": {"memory.max": "max", "memory.current": 850},
        "/a/b/c": {"memory.max": 2000, "memory.current": 500},
    }
    left = fake(tmp_path, "0::/a/b/c", V2.format(at="/"), groups)
    assert left == AvailableMemory(
        400, "the control group /sys/fs/cgroup/a has a limit of 1,000 bytes and uses 900"
    )
    (tmp_path / "sys/fs/cgroup/a/memory.max").write_text("max\n")
    left = available_main_memory(tmp_path)
    assert left is not None and left.nbytes == 1500
    (tmp_path / "sys/fs/cgroup/a/b/c/memory.current").write_text("2100\n")
    left = available_main_memory(tmp_path)
    assert left is not None and left.nbytes == 0


def test_groups_of_version_1_allow_less_from_within(tmp_path: Path) -> None:
    def files(limit: int, used: int) -> dict[str, object]:
        return {"memory.limit_in_bytes": limit, "memory.usage_in_bytes": used}

    groups = {
        "/memory": files(ENDLESS, 5),
        "/memory/x": {
            **files(3000, 1000),
            "memory.stat": "inactive_file 7\ntotal_inactive_file 500",
        },
        "/memory/x/y": files(ENDLESS, 800),
        "/cpu/x/y": files(10, 10),
    }
    ours = "4:memory:/x/y\n1:cpu,cpuacct:/x/y\n0::/"
    left = fake(tmp_path, ours, "\n".join([CPU, V1.format(at="/")]), groups)
    assert left == AvailableMemory(
        2500, "the control group /sys/fs/cgroup/memory/x has a limit of 3,000 bytes and uses 1,000"
    )


@pytest.mark.parametrize("ours", ["/docker/123", "/docker/123/sub", "/../elsewhere", "/other"])
def test_containers_see_their_own_group_alone(tmp_path: Path, ours: str) -> None:
    groups: dict[str, dict[str, object]] = {"": {"memory.max": 700, "memory.current": 100}}
    left = fake(tmp_path, f"0::{ours}", V2.format(at="/docker/123"), groups)
    assert left == AvailableMemory(
        600, "the control group /sys/fs/cgroup has a limit of 700 bytes and uses 100"
    )


def test_files_that_say_nothing_change_nothing(tmp_path: Path) -> None:
    groups: dict[str, dict[str, object]] = {"": {"memory.max": "what", "memory.current": ""}}
    left = fake(tmp_path, "0::/a", V2.format(at="/"), groups)
    assert left is not None and left.nbytes == 1 << 30


LIMITED = """
import resource, sys
import numpy as np
import timerl_nb as trl
from timerl_nb.base.errors import BudgetError
from tests.unit.runtime.test_main_memory import backwards
kind, column = {"AS": (resource.RLIMIT_AS, 0), "DATA": (resource.RLIMIT_DATA, 5)}[sys.argv[1]]
small = backwards(16).compile({"T": 4}, trl.Options(executor="interpret"))
large = backwards(1 << 20).compile({"T": 4096}, trl.Options(executor="interpret"))
small.execute()
held = int(open("/proc/self/statm").read().split()[column]) * resource.getpagesize()
resource.setrlimit(kind, (held + (4 << 30), -1))
assert small.execute()["y"].shape == (4, 16)
try:
    large.execute()
except BudgetError as error:
    print(error)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits of Linux")
@pytest.mark.parametrize("limit", ["AS", "DATA"])
def test_limits_of_the_process_count(limit: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, limit],
        cwd=ROOT,
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert f"the process limit RLIMIT_{limit} is" in done.stdout
    found = re.search(
        r"needs ([\d,]+) bytes of main memory, but only ([\d,]+) are available", done.stdout
    )
    assert found is not None
    needed, left = (int(text.replace(",", "")) for text in found.groups())
    assert needed > 4096 << 22 and 0 < left <= 4 << 30
    assert "test_main_memory.py:" in done.stdout and "T = 512 would do" in done.stdout


def backwards(size: int) -> trl.Context:
    """Return draws that all exist when the first is needed, so that nothing is small."""
    with trl.Context("t") as ctx:
        ((t, T),) = ctx.dims
        x = trl.tensor((size,), domain=(t,))
        x[0] = trl.random.normal((size,))
        x[t + 1] = (x + 1.0).sin()
        y = trl.tensor((size,), domain=(t,))
        y[0] = x[T - 1]
        y[t + 1] = (y * x[T - 2 - t]).sin()
        ctx.output("y", y)
    return ctx


@pytest.fixture
def plenty(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Set the free bytes of main memory."""
    left = [1 << 40]
    monkeypatch.setattr(
        "timerl_nb.driver.program_runs.main_memory_check.available_main_memory",
        lambda: AvailableMemory(left[0], "the test allows no more"),
    )
    yield left


def test_what_waits_on_the_host_counts_beside_the_device(plenty: list[int]) -> None:
    """One byte less than the sum of both is refused before the run."""
    program = backwards(1000).compile({"T": 40}, trl.Options(executor="interpret"))
    swapped = program.with_options(device_memory=leaving(program, 0.5))
    line = swapped.memory.timeline()
    both = int((line.bytes + line.host).max()) + swapped.memory.overhead_bytes
    assert both > program.memory.needed > swapped.memory.needed and line.host_peak > 0
    want = swapped.execute(seed=1)
    ran: list[object] = []
    plenty[0] = both - 1
    for run in (
        lambda: swapped.execute(seed=1, on_event=ran.append),
        lambda: swapped.start(seed=1, on_event=ran.append),
        lambda: swapped.step(seed=1),
    ):
        with pytest.raises(BudgetError) as caught:
            run()
        error = caught.value
        assert error.needed == both and not ran
        assert (
            f"needs {both:,} bytes of main memory, but only {both - 1:,} are available"
            in error.what
        )
        assert "the test allows no more" in error.evidence
        assert any("wait on the host" in line for line in error.evidence)
        assert any("the device is the CPU" in line for line in error.evidence)
        assert any(o.file == __file__ and "sin()" in o.text for o in error.others.values())
        assert "device_memory=None would do" in error.hint
    plenty[0] = both
    np.testing.assert_array_equal(swapped.execute(seed=1)["y"], want["y"])


def test_what_would_fit_does(plenty: list[int]) -> None:
    program = backwards(1000).compile({"T": 40}, trl.Options(executor="xla"))
    plenty[0] = leaving(program, 1 / 3)
    with pytest.raises(BudgetError) as caught:
        program.execute()
    bound = re.search(r"T = (\d+) would do", caught.value.hint)
    assert bound is not None and int(bound[1]) in (5, 10)
    program.with_bounds({"T": int(bound[1])}).execute()
    with pytest.raises(BudgetError):
        program.with_bounds({"T": 2 * int(bound[1])}).execute()
    plenty[0] = 1
    with pytest.raises(BudgetError, match="reduce bounds, or give the process more memory"):
        program.execute()


def test_an_accelerator_leaves_main_memory_to_what_waits(
    plenty: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    program = backwards(1000).compile({"T": 40}, trl.Options(executor="interpret"))
    swapped = program.with_options(device_memory=leaving(program, 0.5))
    monkeypatch.setattr(
        "timerl_nb.driver.program_runs.main_memory_check.is_accelerated", lambda: True
    )
    host = swapped.memory.timeline().host_peak
    plenty[0] = host
    swapped.execute()
    plenty[0] = host - 1
    with pytest.raises(BudgetError, match=f"needs {host:,} bytes of main memory") as caught:
        swapped.execute()
    assert not any("the device is the CPU" in line for line in caught.value.evidence)
    assert "device_memory=None would do" in caught.value.hint
    plenty[0] = 0
    program.execute()


def test_the_copy_that_is_saved_counts(plenty: list[int], tmp_path: Path) -> None:
    program = backwards(1024).compile({"T": 8}, trl.Options(executor="interpret"))
    plenty[0] = needed = main_memory(program._compiled)
    program.execute()
    with pytest.raises(BudgetError) as found:
        program.execute(checkpoint=tmp_path, every=1)
    # all of x, or of y, when its loop ends
    assert found.value.needed == needed + 8 * 4096
    plenty[0] = needed + 8 * 4096
    program.execute(checkpoint=tmp_path, every=1)
