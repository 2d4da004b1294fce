"""`make fuzz`: try many random programs, starting after the last call's.

`python -m tests.independent COUNT [--seed SEED] [--minutes MINUTES]` tries the untried seeds from
SEED to SEED + COUNT - 1. `runs/independent.json` stores the progress. The command prints minimised
disagreements, and the counts at the end.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from tests.independent.draw import make
from tests.independent.shrink import shrunk
from tests.independent.verdict import Verdict, tried

STATE = Path("runs/independent.json")
AT_ONCE = 20  # programs per process; its end frees the memory
SECONDS = 300  # time limit of one program


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.independent", description=__doc__)
    parser.add_argument("count", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=None)
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.here:
        return _here(asked.seed, asked.count)
    end = None if asked.minutes is None else time.monotonic() + 60 * asked.minutes
    known = json.loads(STATE.read_text()) if STATE.exists() else {"next": {}, "wrong": []}
    start = known["next"].get(str(asked.seed), asked.seed)
    counts: Counter[str] = Counter()
    wrong: list[int] = []
    while start < asked.seed + asked.count and (end is None or time.monotonic() < end):
        count = min(AT_ONCE, asked.seed + asked.count - start)
        start += _apart(start, count, counts, wrong)
        known["next"][str(asked.seed)] = start
        known["wrong"] = sorted({*known["wrong"], *wrong})
        STATE.parent.mkdir(exist_ok=True)
        STATE.write_text(json.dumps(known))
    said = ", ".join(f"{n} {kind}" for kind, n in sorted(counts.items()))
    print(f"programs up to seed {start}: {said or 'none was left to try'}")
    return bool(wrong)


def _apart(seed: int, count: int, counts: Counter[str], wrong: list[int]) -> int:
    """Try programs in a separate process, which may hang or crash; return the number of tried ones."""
    command = [sys.executable, "-m", "tests.independent", str(count), "--seed", str(seed), "--here"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, env={**os.environ, "TIMERL_CACHE": "0"}
    )
    assert process.stdout is not None
    pipe = process.stdout.fileno()
    done, text, word = 0, b"", ""
    while done < count and not word:
        ready = select.select([pipe], [], [], SECONDS)[0]
        chunk = os.read(pipe, 1 << 16) if ready else b""
        if not chunk:
            word = "ends its process" if ready else "hangs"
        text += chunk
        while b"\n" in text:
            line, text = text.split(b"\n", 1)
            found = json.loads(line)
            done += 1
            counts[found["kind"]] += 1
            if found["gradients"]:
                counts["derivatives compared"] += found["gradients"]
            for why in found["skipped"]:
                counts[f"not compared: {why}"] += 1
            if found["what"]:
                wrong.append(seed + done - 1)
                print(found["what"], flush=True)
    if word:
        print(f"\n--- seed {seed + done} {word}:\n{make(seed + done).code()}", flush=True)
        counts[word] += 1
        wrong.append(seed + done)
        done += 1
    process.kill()
    process.communicate()
    return done


def _here(seed: int, count: int) -> int:
    for one in range(seed, seed + count):
        verdict = tried(make(one))
        what = "" if verdict.fine else described(one, verdict)
        kind = f"{verdict.kind}: {verdict.what}" if verdict.kind == "limit" else verdict.kind
        skipped = sorted(set(verdict.skipped))
        found = {"kind": kind, "what": what, "skipped": skipped, "gradients": verdict.gradients}
        print(json.dumps(found), flush=True)
    return 0


def described(seed: int, verdict: Verdict) -> str:
    """Return a minimised disagreement in both forms."""
    program = make(seed)
    if verdict.kind != "crash" or "the loops" not in verdict.what:
        program = shrunk(program, verdict.kind)
        verdict = tried(program)
    return (
        f"\n--- seed {seed} disagrees: {verdict.kind}\n{verdict.what}\n\n"
        f"{program.code()}\n# as loops:\n{program.plain()}"
    )


if __name__ == "__main__":
    sys.setrecursionlimit(20_000)
    raise SystemExit(main())
