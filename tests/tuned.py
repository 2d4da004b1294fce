"""Programs to tune, and searches with Ray Tune in a process without pytest.

As a script: the folder of the results. It prints one JSON line per search.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import timerl_nb as trl

TURNS = 12


def descent(
    lr: float, turns: int = TURNS, *, live: bool = True, seeds: int | None = None, **options: Any
) -> trl.Program:
    """Return a gradient descent on (w - 3)**2, with its loss as a metric; it diverges for lr > 1."""
    with trl.Context("i") as ctx:
        ((i, _),) = ctx.dims
        start = trl.random.normal((), domain=(i,))  # drawn by the seed
        w = trl.parameter((), domain=(i,), init=1.0, name="w")
        loss = (w - 3.0) ** 2
        loss.backward()
        trl.optim.SGD([w], lr=lr).step()
        ctx.output("loss", loss)
        ctx.output("gain", -loss)
        ctx.output("third", loss[(i + 1) % 3 == 0])
        ctx.output("noisy", loss + 0.01 * start)
        ctx.output("pair", trl.stack([loss, loss]))
    if live:
        options = {"lift": False, "vectorize": (), **options}
    return ctx.compile({"I": turns}, trl.Options(**options), seeds=seeds)


def main(folder: str) -> None:
    import ray
    from ray import tune
    from ray.tune.schedulers import ASHAScheduler

    # Functions inside this one are pickled by value, so that workers need not import this module.
    make, marker = descent, Path(folder) / "was_killed"

    def program(config: dict[str, Any]) -> trl.Program:
        if config["lr"] == "wrong":
            with trl.Context("t") as ctx:
                ctx.output("x", trl.value(ctx.dims[0][0]) + 1)
            return ctx.compile({"Q": 3})
        return make(config["lr"])

    def killing(config: dict[str, Any]) -> trl.Program:
        def watch(x: Any) -> Any:
            if float(x) < 0.05 and not marker.exists():
                marker.write_text("")
                os.kill(os.getpid(), signal.SIGKILL)
            return x

        with trl.Context("i") as ctx:
            ((i, _),) = ctx.dims
            w = trl.parameter((), domain=(i,), init=1.0, name="w")
            loss = (w - 3.0) ** 2
            loss.backward()
            trl.optim.SGD([w], lr=config["lr"]).step()
            ctx.output("loss", trl.udf(watch, loss, out=loss))
        return ctx.compile({"I": 12}, trl.Options(executor="interpret", lift=False, vectorize=()))

    def search(name: str, function: Any, rates: list[Any], **run: Any) -> None:
        scheduler = run.pop("scheduler", None)
        found = tune.Tuner(
            trl.tune.trainable(function, "loss"),
            param_space={"lr": tune.grid_search(rates)},
            tune_config=tune.TuneConfig(
                metric="loss", mode="min", scheduler=scheduler, max_concurrent_trials=1
            ),
            run_config=tune.RunConfig(name=name, storage_path=folder, verbose=0, **run),
        ).fit()
        trials = []
        for k in range(len(found)):
            one = found[k]
            table = one.metrics_dataframe
            reported = table is not None and "loss" in table
            rows = table[["training_iteration", "i", "loss"]].values if reported else []
            error = "" if one.error is None else str(one.error)
            trials.append({"rows": [list(row) for row in rows], "error": error})
        if name == "nan":
            assert found.get_best_result().config == {"lr": 0.3}
        print("RESULT " + json.dumps({"search": name, "trials": trials}), flush=True)

    ray.init(
        "local",  # and no cluster of another program
        num_cpus=1,
        include_dashboard=False,
        log_to_driver=False,
        configure_logging=False,
    )
    try:
        asha = ASHAScheduler(grace_period=3, max_t=TURNS, reduction_factor=2)
        search("asha", program, [0.3, 0.01], scheduler=asha)
        nans = ASHAScheduler(grace_period=1, max_t=TURNS, reduction_factor=2)
        search("nan", program, [1e30, 0.3], scheduler=nans)
        search("wrong", program, ["wrong"])
        search(
            "killed",
            killing,
            [0.2],
            checkpoint_config=tune.CheckpointConfig(checkpoint_frequency=2),
            failure_config=tune.FailureConfig(max_failures=1),
        )
    finally:
        ray.shutdown()


if __name__ == "__main__":
    main(sys.argv[1])
