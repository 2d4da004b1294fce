"""Training with actors on Ray against actors in processes of one machine: equal environments, interleaved.

`processes` steps Gymnasium's environments in processes with shared memory, and `ray` in actors of Ray on the same machine.
`ray, shards` also divides the buffer among two processes. A row of the table has the speed of acting and of learning, each
relative to `processes`. Mode "free" couples them only through the buffer.
"""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median
from time import perf_counter
from typing import Any

from timerl_nb.base.ray_session import import_ray, why_no_ray
from timerl_nb.replay import Dqn, train

SECONDS, ROUNDS, ACTORS = 4.0, 3, 2
WAYS: Mapping[str, Mapping[str, Any]] = {
    "processes": {"how": "processes", "actors": 1, "envs": 8 * ACTORS},
    "ray": {"cluster": "ray", "how": "loop", "actors": ACTORS, "envs": 8},
    "ray, shards": {"cluster": "ray", "how": "loop", "actors": ACTORS, "envs": 8, "shards": 2},
}


class Measured:
    """Training run that advances for a given time.

    Args:
        given: options of `train`.

    Attributes:
        start: the seconds of the first turns, without the start of Ray itself.
    """

    def __init__(self, given: Mapping[str, Any]) -> None:
        algorithm = Dqn("gym.CartPole-v1", (64, 64))
        begun = perf_counter()
        self.run = train(algorithm, batch=64, steps=16, learning_starts=256, paused=True, **given)
        self.run.step(50)  # starts the processes, and compiles
        self.run.wait()
        self.start = perf_counter() - begun

    def __call__(self) -> tuple[float, float]:
        """Return the environment steps and the turns per second."""
        steps, turns, begun = self.run.experience, self.run.turn, perf_counter()
        self.run.resume()
        while perf_counter() - begun < SECONDS:
            self.run.wait(timeout=SECONDS / 10)
        self.run.pause()
        self.run.wait()
        seconds = perf_counter() - begun
        return (self.run.experience - steps) / seconds, (self.run.turn - turns) / seconds


def main() -> None:
    """Print the table, or why Ray cannot be used."""
    missing = why_no_ray()
    if missing is not None:
        print(missing)
        return
    # the paused runs keep their CPUs
    import_ray().init(num_cpus=16, include_dashboard=False, log_to_driver=False)
    runs = {name: Measured(given) for name, given in WAYS.items()}
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in runs}
    for _ in range(ROUNDS):
        for name, run in runs.items():
            found[name].append(run())
    for one in runs.values():
        one.run.stop()
        one.run.result()
    print(
        "| actors | start, s | steps a second | of `processes` | turns a second | of `processes` |"
    )
    print("|---|---|---|---|---|---|")
    for name, pairs in found.items():
        cells = [name, f"{runs[name].start:.0f}"]
        for k in range(2):
            ratios = [a[k] / b[k] for a, b in zip(pairs, found["processes"], strict=True)]
            cells.append(f"{median(one[k] for one in pairs):,.0f}")
            cells.append(f"{median(ratios):.2f} × ({min(ratios):.2f} to {max(ratios):.2f})")
        print(f"| {' | '.join(cells)} |")
