"""Instances of Ray: started and shut down by collectors, interrupted, and with a node that is removed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.dangerous import calm, dangerous
from timerl_nb.base.errors import ExecutionError, TimeRLWarning

ray: Any = pytest.importorskip("ray", reason="Ray is not installed: make peers-env")

ROOT = Path(__file__).parents[3]
# of the cluster in one process; the forked processes execute another program
pytestmark = pytest.mark.filterwarnings("ignore:os.fork")


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_worker_niceness", "0")  # the machine has other programs
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))  # of the workers
    monkeypatch.delenv("RAY_ADDRESS", raising=False)


def wait_at_step_4(obs: Any) -> Any:
    """Return actions that wait in the first step of the second batch."""
    return np.where(obs[:, 0] >= 4, 3, 0)


def test_the_environments_of_a_removed_node_begin_again_on_another(tmp_path: Path) -> None:
    cluster_utils = pytest.importorskip("ray.cluster_utils")
    gate = tmp_path / "gate"
    cluster = cluster_utils.Cluster(
        initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False}
    )
    try:
        node = cluster.add_node(num_cpus=1)
        ray.init(address=cluster.address, log_to_driver=False, configure_logging=False)
        with (
            pytest.warns(TimeRLWarning, match="died and is replaced"),
            dangerous(wait_at_step_4, gate=str(gate), ahead=1) as c,
        ):
            first = c.next()  # the second batch waits in all environments
            cluster.remove_node(node, allow_graceful=False)
            cluster.add_node(num_cpus=1)
            gate.touch()
            second = c.next()
            third = c.next()
        assert ray.is_initialized()  # the user's instance
    finally:
        ray.shutdown()
        cluster.shutdown()
    assert not first.restarts and not third.restarts
    (restart,) = second.restarts
    (begun,) = ({0, 2} & {restart.envs.start},)
    lost = np.isin(np.arange(4), restart.envs)
    assert begun and len(restart.envs) == 2 and restart.lost_steps == 2 * 4
    np.testing.assert_array_equal(second.obs[0, :, 0], np.where(lost, 0, 4))
    np.testing.assert_array_equal(first.obs[0, :, 2] != second.obs[0, :, 2], lost)
    np.testing.assert_array_equal(second.last_obs, third.obs[0])


def test_a_shutdown_in_the_middle_of_a_batch_is_an_error(tmp_path: Path) -> None:
    """An instance that a collector started ends with its last collector."""
    gate, refused = tmp_path / "gate", list[bool]()

    def shut_down() -> None:
        until = time.monotonic() + 120
        while not (tmp_path / "gate.waiting").exists() and time.monotonic() < until:
            time.sleep(0.01)
        ray.shutdown()

    with dangerous(calm, envs=1, workers=1) as first:
        first.next()
        assert ray.is_initialized()
        with dangerous(wait_at_step_4, envs=1, workers=1, gate=str(gate)) as second:
            second.next()
            refused.append(ray.is_initialized())
            stopping = threading.Thread(target=shut_down)
            stopping.start()
            with pytest.raises(
                ExecutionError, match="Ray was shut down while a collector"
            ) as caught:
                second.next()
            stopping.join()
            assert "create a new collector" in caught.value.hint
        with pytest.raises(ExecutionError, match="Ray was shut down"):
            first.next()
    assert refused == [True] and not ray.is_initialized()


SCRIPT = """
import sys
from tests.dangerous import calm, dangerous

def main():
    c = dangerous(calm, workers=1)
    if sys.argv[1] == "with":
        with c:
            run(c)
    run(c)

def run(c):
    print(int(c.next().obs[0, 0, 2]), flush=True)
    while True:
        c.next()

if __name__ == "__main__":
    main()
"""


def processes_of(mark: str) -> list[int]:
    """Return the processes with a mark in their environment."""
    found: list[int] = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (path / "environ").read_bytes():
                found.append(int(path.name))
        except OSError:
            continue
    return found


@pytest.mark.parametrize("how", ["with", "without"])
def test_an_interrupt_leaves_no_actors(how: str, tmp_path: Path) -> None:
    """Also in a script that does not close its collector."""
    (tmp_path / "script.py").write_text(SCRIPT)
    mark = f"TIMERL_TEST={os.getpid()}-{how}"
    environment = {**os.environ, "TIMERL_TEST": mark.partition("=")[2]}
    with subprocess.Popen(
        [sys.executable, str(tmp_path / "script.py"), how],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as running:
        assert running.stdout is not None
        actor = running.stdout.readline()
        assert actor, running.communicate()
        assert int(actor) in processes_of(mark)
        os.killpg(running.pid, signal.SIGINT)  # as a terminal does
        _, said = running.communicate(timeout=120)
    assert running.returncode != 0 and "KeyboardInterrupt" in said
    until = time.monotonic() + 60
    while processes_of(mark) and time.monotonic() < until:
        time.sleep(0.1)
    assert not processes_of(mark)
