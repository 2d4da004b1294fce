"""Script for two processes: prints results of distributed programs as JSON. Also runs alone with two devices."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import timerl_nb as trl
from tests.reinforce import reinforce

ALL = trl.Options(executor="xla", devices="all")
BOUNDS = {"B": 4, "I": 6, "T": 5}


def values(result: trl.Result) -> dict[str, Any]:
    """All numbers of a result, exactly."""
    arrays = {**result, **result.parameters}
    return {name: [one.hex() for one in x.astype(float).ravel()] for name, x in arrays.items()}


def refusal(make: Callable[[], object]) -> str:
    try:
        make()
    except trl.errors.TimeRLError as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"


def hosted() -> trl.Program:
    """A function on the host between two loops of XLA."""
    with trl.Context("b", "i", "t") as ctx:
        (b, B), (i, _), (t, T) = ctx.dims
        x = trl.tensor((3,), domain=(b, i, t))
        least = trl.udf(lambda x: x.min(axis=0), x[0:B, i, T - 1], out=x[0, i, 0], name="least")
        x[b, 0, 0] = trl.random.normal((3,), domain=(b,))
        x[b, i + 1, 0] = x[b, i, T - 1] - least
        x[b, i, t + 1] = x.tanh() + trl.random.normal((3,), domain=(b, i, t))
        ctx.output("x", x)
    return ctx.compile({"B": 4, "I": 3, "T": 5}, ALL)


def main(folder: Path) -> None:
    me = trl.distributed.initialize()
    program = reinforce(hidden=(4,)).compile(BOUNDS, ALL)
    if me.count == 1:  # continues the run of both processes
        found = {"whole": values(program.execute(3)), "resumed": values(program.resume(folder))}
        print(json.dumps(found))
        return
    half, state = program.with_bounds({"I": 3}), folder / "manifest.json"
    short = half.execute(3, checkpoint=folder, every=1, log=folder)
    finished = half.resume(folder)  # the final state is complete in every process
    several = reinforce(hidden=(4,)).compile(BOUNDS, ALL, seeds=2)
    seeds = several.execute(3)
    alone = reinforce(hidden=(4,)).compile(
        {**BOUNDS, "B": 2 + me.index}, trl.Options(executor="xla")
    )
    found: dict[str, Any] = {
        "me": [me.index, me.count, me == trl.distributed.initialize()],
        "how": [program.executable.how, several.executable.how, alone.executable.how],
        "whole": values(program.execute(3)),
        "short": values(short),
        "finished": values(finished),
        "saved": [state.exists(), json.loads(state.read_text())["turn"]],
        "seeds": values(seeds),
        "one seed": values(program.with_options(devices=1).execute(4)),
        "alone": values(alone.execute(3)),
        "communication": [
            str(program.executable.communication),
            str(several.executable.communication),
            str(program.with_options(fuse_iterations=4).executable.communication),
        ],
        "each": [repr(one) for one in each()],
        "local": local(me, folder),
        "local seeds": local_seeds(several, seeds),
        "start": refusal(lambda: program.start(3)),
        "turns": refusal(lambda: program.begin(3)),
        "time": refusal(lambda: program.execute(3, checkpoint=folder / "new", every="1min")),
        "host": refusal(hosted),
        "odd": refusal(lambda: program.with_bounds({"B": 5})),
        "some": refusal(lambda: program.with_options(devices=3)),
        "seed": refusal(lambda: program.execute(me.index)),
        "outputs": refusal(lambda: program.execute(3, outputs=["return"][me.index :])),
        "saved by one": refusal(
            lambda: program.execute(3, checkpoint=folder / "new" if me.is_first else None)
        ),
        "folder": refusal(lambda: program.execute(3, checkpoint=state / "file")),
        "log": refusal(lambda: program.execute(3, log=state / "file")),
        "tune": refusal(lambda: program.with_options(tune=True)),
    }
    trl.distributed.shutdown()
    print(json.dumps(found))


def each() -> list[float]:
    """An output with the divided dimension is complete in every process."""
    with trl.Context("b") as ctx:
        ((b, _),) = ctx.dims
        ctx.output("y", trl.value(b) * 2)
    return ctx.compile({"B": 4}, ALL).execute()["y"].tolist()


def local(me: trl.distributed.Processes, folder: Path) -> dict[str, Any]:
    """Outputs that the processes do not exchange."""
    with trl.Context("b", "i") as ctx:
        (b, B), (i, _) = ctx.dims
        x = trl.random.normal((2,), domain=(b, i))
        ctx.output("x", x)
        ctx.output("means", x[0:B, i].mean(axis=0))
        ctx.output("all", x[0:B, i])  # an axis, and not the dimension b
        ctx.output("every", x[i % 2 == 0])
    program = ctx.compile({"B": 4, "I": 3}, ALL)
    whole, apart = program.execute(3), program.execute(3, gather=False)
    points = range(2 * me.index, 2 * me.index + 2)
    assert whole.local.points == apart.local.points == points
    assert (whole.local.dim, sorted(apart)) == ("b", ["all", "means"])
    loaded = trl.Result.load(apart.save(folder / f"{me.index}.safetensors"))
    assert loaded.local.points == points
    for found in (whole, apart, loaded):
        assert (found.local["x"] == whole["x"][points.start : points.stop]).all()
        assert (found["all"] == whole["x"].swapaxes(0, 1)).all()
        assert (found.local["means"] == whole["means"]).all()
        at = found.local.coordinates["every"]
        assert (found.local["every"] == whole["x"][at["b"], at["i"]]).all()
        assert sorted(set(at["b"].tolist())) == list(points)
        assert found.local["every"].shape == (4, 2)
    return {"shape": apart.local["x"].shape, "refused": refusal(lambda: apart["x"])}


def local_seeds(program: trl.Program, whole: trl.Result) -> list[str]:
    """The rows of seeds, each in one process."""
    apart = program.execute(3, gather=False)
    (row,) = apart.local.points or ()
    assert values(apart.row(row)) == values(whole.row(row))
    return [
        refusal(lambda: apart.row(1 - row)),
        refusal(lambda: program.execute(3, gather=False, log=print)),
    ]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
