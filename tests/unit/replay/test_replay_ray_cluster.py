"""Training on a cluster of two nodes, and on a Ray that is shut down. Needs Ray (`make peers-env`)."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from tests.unit.replay.test_replay_ray import ENVIRONMENT, SMALL, actors, shards, until
from timerl_nb.base.errors import ExecutionError, TimeRLWarning
from timerl_nb.replay import Dqn, Training, train

ray = pytest.importorskip("ray", reason="Ray is not installed: make peers-env")

# Ray's forked processes execute another program immediately, so forking with threads is safe
pytestmark = pytest.mark.filterwarnings(
    "ignore:os.fork:RuntimeWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)
DQN = Dqn("CartPole-v1", hidden=(8,))


@pytest.fixture(autouse=True)
def ended(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Separate these tests from other clusters of this machine, and end theirs."""
    with TemporaryDirectory(prefix="ray-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        monkeypatch.setenv("RAY_TMPDIR", folder)  # short, because it contains sockets
        monkeypatch.delenv("RAY_ADDRESS", raising=False)
        yield
        gc.collect()
        ray.shutdown()


def trained(**given: Any) -> Training:
    return train(DQN, **{**SMALL, "cluster": "ray", **given})


def nodes(run: Training) -> list[str]:
    """Return the node of each actor and shard."""
    found = [
        one.__ray_call__.remote(lambda self: ray.get_runtime_context().get_node_id())
        for one in (*actors(run), *shards(run))
    ]
    return ray.get(found)


def test_a_node_that_is_removed_loses_its_processes_only() -> None:
    from ray.cluster_utils import Cluster

    memory = 80 * 2**20
    cluster = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 2, "object_store_memory": memory}
    )
    try:
        other = cluster.add_node(num_cpus=2, object_store_memory=memory)
        ray.init(
            address=cluster.address, log_to_driver=False, runtime_env={"env_vars": ENVIRONMENT}
        )
        cluster.wait_for_nodes()
        run = trained(actors=2, shards=2, turns=None)
        until(lambda: run.turn > 20)
        places = nodes(run)
        assert other.node_id in places[2:] and len(set(places)) == 2
        sizes = run._training._buffer.shard_sizes  # type: ignore[union-attr]
        with pytest.warns(TimeRLWarning, match="lost with|has died"):
            cluster.remove_node(other)
            gone = {
                name
                for name, node in zip(
                    ("actor 0", "actor 1", "shard 0", "shard 1"), places, strict=True
                )
                if node == other.node_id
            }
            until(lambda: gone <= {one.what for one in run.losses})
            turn, seen = run.turn, run.experience
            until(lambda: run.turn > turn + 20 and run.experience > seen + 200)
            assert other.node_id not in nodes(run)
            run.stop()
            result = run.result()
        lost = {one.what: one.rows for one in run.losses}
        assert lost.keys() >= gone and result["lost"].sum() == sum(one.rows for one in run.losses)
        for k, size in enumerate(sizes):
            if f"shard {k}" in gone:
                assert lost[f"shard {k}"] >= size
    finally:
        ray.shutdown()
        cluster.shutdown()


def test_a_ray_that_the_user_shuts_down_ends_the_run() -> None:
    ray.init(
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        runtime_env={"env_vars": ENVIRONMENT},
    )
    run = trained(actors=1, shards=1, turns=None)
    until(lambda: run.turn > 3)
    ray.shutdown()
    with pytest.raises(ExecutionError, match="Ray was shut down while a training run used it"):
        run.result()
    assert not ray.is_initialized()


def test_a_ray_of_ours_ends_with_the_last_run() -> None:
    one, two = trained(actors=1, turns=5), trained(actors=1, turns=5, paused=True)
    assert ray.is_initialized()
    one.result()
    assert ray.is_initialized()
    two.stop()
    two.result()
    assert not ray.is_initialized()
