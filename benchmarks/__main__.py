"""All benchmarks, as tables in Markdown: `python -m benchmarks [full]`.

The race against hand-written programs also writes its figures to `runs/bench.csv`. One work alone:
`python -m benchmarks race S jitted ours …`. Stock PPO until it has learnt: `python -m benchmarks learning`.
From a click in the explorer until all is drawn, in a browser: `python -m benchmarks toggles`.
Every statement a call of its own, against the interpreter: `python -m benchmarks grain`.
Lines of code by package, beside another checkout's if given: `python -m benchmarks lines [folder]`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks import compiling, depth, grain, interpreter, learning, lines, peaks, race, report


def raced(rows: Sequence[race.Row]) -> None:
    print(report.table(rows) + "\n")
    path = Path("runs/bench.csv")
    path.parent.mkdir(exist_ok=True)
    report.write(path, rows)


def main(*words: str) -> None:
    """Run what the words say.

    Raises:
        SystemExit: they say nothing that there is.
    """
    os.environ["TIMERL_CACHE"] = "0"  # whoever compiles, does it for the first time
    if words[:1] == ("resident",):
        return race.measure_resident(*words[1:])
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
        case ("grain",):
            grain.main()
        case ("toggles",):
            from benchmarks import toggles  # whose browser is no part of what others measure

            toggles.main()
        case ("race", work, *systems) if work in race.WORKS and not {*systems} - {*race.SYSTEMS}:
            chosen = systems or list(race.entrants(work, full=True))
            raced(race.race(work, chosen, resident=True))
        case _:
            names = ", ".join(f"{name!r}" for name in race.SYSTEMS)
            sys.exit(f"{__doc__}\nworks: {', '.join(race.WORKS)}; systems: {names}")


if __name__ == "__main__":
    main(*sys.argv[1:])
