"""All benchmarks, as tables in Markdown: `python -m benchmarks [full]`.

The race against hand-written programs also writes its figures to `runs/bench.csv`. One work alone:
`python -m benchmarks race S jitted ours …`; thirty rounds against another checkout:
`python -m benchmarks race S 30 ours "ours @ ../before"`. Stock PPO until it has learnt: `python -m benchmarks learning`.
DQN and DDPG, until they have: `python -m benchmarks off-policy [cartpole …]`.
From a click in the explorer until all is drawn, in a browser: `python -m benchmarks toggles`.
Every statement a call of its own, against the interpreter: `python -m benchmarks grain`.
What kernels take for temporaries, estimated against what XLA states: `python -m benchmarks temporaries`.
Within budgets, what is predicted, stated and measured: `python -m benchmarks budgets [s …]`.
One program of eight seeds against eight runs: `python -m benchmarks seeds`.
Environments in blocks that stay in the cache, and all at once: `python -m benchmarks tiles`.
Where the time of long recordings went, and what it takes to say so: `python -m benchmarks overlap`.
What it takes to answer a page that zooms into ten million edges: `python -m benchmarks zoom`.
What a tapped call costs: `python -m benchmarks taps`.
Times corrected of what recording adds, beside uninstrumented: `python -m benchmarks accuracy [--works a,b] [--rounds 40]`.
What RL-Scope found, and what recording costs and sees: `.venv-torch/bin/python -m benchmarks scope [F.10 inside …]`.
Paper 004's figures, simulated, into `docs/acs.md`: `python -m benchmarks acs [FIGURE …]`; on a GPU's streams: `… acs gpu`.
How steps of environments are collected, by us and others: `python -m benchmarks collect [--full] [throughput complexity …]`;
what `trl.collect` chooses beside what is fastest: `… collect choices`; figures beside what is asked: `… collect targets`;
the cost model fitted to this machine: `… collect fit`;
a learner in PyTorch on such batches: `.venv-torch/bin/python -m benchmarks collect learner`.
Replay buffers, ours and others', and training beside acting: `.venv-peers/bin/python -m benchmarks replay [buffers trees protocol moves]`.
Iterations as `trl.compose` predicts them, and as they are: `python -m benchmarks compose`.
What a window of kernels costs and gains: `python -m benchmarks streams [costs empty …]`.
Lines of code by package, beside another checkout's if given: `python -m benchmarks lines [folder]`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks import (
    budgets,
    collecting,
    compiling,
    composing,
    depth,
    grain,
    interpreter,
    learning,
    lines,
    off_policy,
    overlap,
    peaks,
    race,
    replay,
    report,
    scope,
    seeds,
    streams,
    taps,
    temporaries,
    tiles,
)
from benchmarks.acs import on_gpu, page
from benchmarks.scope import accuracy


def raced(rows: Sequence[race.Row]) -> None:
    print("\n".join([report.table(rows), *race.compared(rows)]) + "\n")
    path = Path("runs/bench.csv")
    path.parent.mkdir(exist_ok=True)
    report.write(path, rows)


def _known(names: Sequence[str]) -> bool:
    """Whether these are systems, the number of rounds ahead of them or not."""
    first, rest = names[:1], names[1:]
    counted = bool(first) and first[0].isdigit()
    return {race.parted(name)[0] for name in (rest if counted else names)} <= {*race.SYSTEMS}


def main(*words: str) -> None:
    """Run what the words say.

    Raises:
        SystemExit: they say nothing that there is.
    """
    os.environ.setdefault("TIMERL_CACHE", "0")  # whoever compiles, does it for the first time
    if words[:1] == ("resident",):
        _, work, system = words
        return race.measure_resident(work, system)
    if words[:1] == ("held",):
        return budgets.measure(*words[1:])
    if words[:1] == ("overlapping",):
        return overlap.measure(*words[1:])
    if words[:1] == ("recorded",):
        return scope.overhead.measure(*words[1:])
    if words[:1] == ("accuracy",):  # whose processes are forked, ahead of JAX's threads
        return accuracy.main(*words[1:])
    if words[:1] == ("streams",):
        return streams.main(*words[1:])
    if words[:1] == ("lines",):
        return lines.main(*words[1:])
    print(", ".join(f"{name} {value}" for name, value in report.machine().items()) + "\n")
    match words:
        case () | ("full",):
            raced(race.main(full=bool(words)))
            compiling.main()
            print()
            if words:
                depth.main()
                peaks.main()
                print()
                interpreter.main()
                print()
                grain.main()
                print()
                learning.main()
        case ("learning",):
            learning.main()
        case ("off-policy", *names) if set(names) <= {*off_policy.TASKS}:
            off_policy.main(names)
        case ("budgets", *names) if set(names) <= {*budgets.PROGRAMS}:
            budgets.main(names or budgets.NAMES)
        case ("temporaries",):
            temporaries.main()
        case ("tiles",):
            tiles.main()
        case ("overlap",):
            overlap.main()
        case ("scope", *names) if set(names) <= {*scope.PARTS}:
            scope.main(names)
        case ("acs", "gpu", *rounds):
            on_gpu.main(*rounds)
        case ("acs", *names):
            page.main(*names)
        case ("collect", *names):
            collecting.main(names)
        case ("replay", *names) if set(names) <= {*replay.PARTS}:
            replay.main(names)
        case ("compose",):
            composing.main()
        case ("taps",):
            taps.main()
        case ("seeds",):
            seeds.main()
        case ("grain",):
            grain.main()
        case ("toggles",):
            from benchmarks import toggles  # whose browser is no part of what others measure

            toggles.main()
        case ("zoom",):
            from benchmarks import zoom  # whose widgets are not, either

            zoom.main()
        case ("race", work, *names) if work in race.WORKS and _known(names):
            rounds = int(names.pop(0)) if names[:1] and names[0].isdigit() else 10
            chosen = names or list(race.entrants(work, full=True))
            raced(race.race(work, chosen, rounds, resident=True))
        case _:
            names = ", ".join(f"{name!r}" for name in race.SYSTEMS)
            sys.exit(f"{__doc__}\nworks: {', '.join(race.WORKS)}; systems: {names}")


if __name__ == "__main__":
    main(*sys.argv[1:])
