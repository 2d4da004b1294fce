"""Distributed programs in processes of Ray."""

from __future__ import annotations

import os
import signal
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

import timerl_nb as trl
from tests.reinforce import reinforce
from timerl_nb.base.errors import ExecutionError, OptionError


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    ray = pytest.importorskip("ray", reason="needs Ray: make peers-env")
    with warnings.catch_warnings():  # Ray forks, and JAX warns if another test has used it
        warnings.filterwarnings("ignore", ".*os\\.fork", RuntimeWarning)
        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    yield ray
    ray.shutdown()


def train() -> tuple[int, str, list[float]]:
    me = trl.distributed.initialize()
    options = trl.Options(executor="xla", devices="all")
    program = reinforce(hidden=(4,)).compile({"B": 4, "I": 3, "T": 5}, options)
    return me.index, program.executable.how, program.execute(3)["return"].tolist()


def die() -> None:
    if trl.distributed.initialize().index == 1:
        os.kill(os.getpid(), signal.SIGKILL)


def fail() -> None:
    raise ValueError("no")


def test_two_actors_run_one_program(cluster: Any) -> None:
    first, second = trl.distributed.run_on_ray(train, 2)
    assert (first[0], second[0]) == (0, 1) and first[1:] == second[1:]
    assert first[1].startswith("2 XLA programs on 2 devices of 2 processes")


def test_the_process_with_an_error_is_named(cluster: Any) -> None:
    with pytest.raises(ExecutionError, match="process 1 has died"):
        trl.distributed.run_on_ray(die, 2)
    with pytest.raises(ExecutionError, match="process 0 raised ValueError: no") as caught:
        trl.distributed.run_on_ray(fail, 1)
    assert "in fail" in str(caught.value.__cause__)  # the line of the user's function
    with pytest.raises(ExecutionError, match="the cluster has 2"):
        trl.distributed.run_on_ray(fail, 3)
    assert cluster.is_initialized()


@pytest.mark.parametrize("resources", [1, {"CPU": "x"}, {"CPU": -1}, {1: 1}])
def test_wrong_resources(resources: Any) -> None:
    with pytest.raises(OptionError, match="resources="):
        trl.distributed.run_on_ray(fail, 1, resources=resources)


@pytest.mark.parametrize(
    ("function", "processes", "said"),
    [(1, 2, "1 is not a function"), (fail, 0, "processes=0"), (fail, "2", "processes='2'")],
)
def test_wrong_arguments(function: Any, processes: Any, said: str) -> None:
    with pytest.raises(OptionError, match=said):
        trl.distributed.run_on_ray(function, processes)
