"""`make mutants`: do the tests detect injected mistakes of the compiler?

`python -m tests.mutants [COUNT] [--seed SEED] [--minutes MINUTES] [--only PREFIX]` injects the
mistakes of `behaviours`, and COUNT small random changes, one at a time in copies of the tree. It
then runs the tests that cover the change. `runs/mutants` stores the results, so an interrupted call
is resumed. Changed files, and survivors after a change of the tests, are tried again.
"""

from __future__ import annotations

import argparse
import fcntl
import inspect
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from queue import SimpleQueue
from threading import Lock
from typing import Any

from tests.mutants import behaviours
from tests.mutants.behaviours import BEHAVIOURS
from tests.mutants.covering import ASKED, STATE, Covering, hashed
from tests.mutants.edits import Mutant, drawn
from tests.mutants.plugin import BEHAVIOUR, LIMIT, MEASURED, WRITTEN
from tests.mutants.sources import FILES, OTHERS, ROOT

BUILT = ROOT / "build" / "mutants"  # cost of the tool: `coverage`, and copying the tree
KNOWN = STATE / "known.json"
EQUIVALENT = Path(__file__).with_name("equivalent.toml")
KILLED = Path(__file__).with_name("killed.toml")
AT_ONCE = 2
NOT_COPIED = (".*", "build", "runs", "dist", "node_modules", "screenshots", "*-pytest-*.pyc")
TOO_LONG = -signal.SIGXCPU
WAITING = -1000
# Killed from outside, not by the mistake: the next call tries again.
STOPPED = (WAITING, -signal.SIGTERM, -signal.SIGKILL)
HUNG = 1800.0  # for one test file, measured


@dataclass(frozen=True)
class Case:
    """One mistake: a change of a file's text, or the name of a behaviour."""

    group: str
    file: str
    text: str
    key: str
    mutant: Mutant | None = None
    behaviour: str = ""


class Trees:
    """Copies of the tree, one per parallel process."""

    def __init__(self) -> None:
        self._free: SimpleQueue[Path] = SimpleQueue()
        for k in range(AT_ONCE):
            tree = BUILT / f"tree-{k}"
            shutil.rmtree(tree, ignore_errors=True)
            shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns(*NOT_COPIED))
            self._free.put(tree)

    def each(self, run: Callable[[Path, Any], None], many: Iterable[Any], end: float) -> None:
        """Run a function on each item in a free tree, until the time limit."""

        def one(case: Any) -> None:
            if time.monotonic() < end:
                tree = self._free.get()
                try:
                    run(tree, case)
                finally:
                    self._free.put(tree)

        with ThreadPoolExecutor(AT_ONCE) as pool:
            try:
                for done in [pool.submit(one, case) for case in many]:
                    done.result()
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise


def pytest(tree: Path, tests: Sequence[str], seconds: float, **env: str) -> tuple[int, Any]:
    """Run tests; return the exit status and the plugin's output."""
    written, said = tree / "build.written.json", tree / "build.said.txt"
    written.unlink(missing_ok=True)
    status = WAITING
    flags = "-o addopts= -q -p no:cacheprovider -p tests.mutants.plugin"
    more = {
        "PYTEST_ADDOPTS": flags if MEASURED in env else f"{flags} -x",
        "PYTHONPATH": str(BUILT / "site"),
        # Python validates bytecode by size and second of the source, which mutants may share
        "PYTHONDONTWRITEBYTECODE": "1",
        # mutants must not share compiled programs
        "TIMERL_TESTS_CACHE": "0",
        "TIMERL_EXAMPLES": "10",
        WRITTEN: str(written),
        LIMIT: str(int(seconds)),
    }
    with said.open("wb") as out, suppress(subprocess.TimeoutExpired):
        status = subprocess.run(
            [sys.executable, "-m", "pytest", *tests],
            cwd=tree,
            env={**os.environ, **more, **env},
            stdout=out,
            stderr=out,
            timeout=2 * seconds,
        ).returncode
    text = said.read_text(errors="replace")
    if status == 4 and "ERROR: not found" in text:
        raise SystemExit(f"pytest does not know the tests any more: remove {STATE}\n{text}")
    return status, json.loads(written.read_text()) if written.exists() else {}


def measure(trees: Trees, covering: Covering, end: float) -> None:
    """Measure unknown coverage."""

    def run(tree: Path, tests: str) -> None:
        begun = time.monotonic()
        status, written = pytest(tree, [tests], HUNG, **{MEASURED: "1"})
        word = f"ends with {status}"
        if written:
            path = covering.known(tests)
            path.parent.mkdir(parents=True, exist_ok=True)
            for old in path.parent.glob(f"{path.name.rsplit('.', 2)[0]}.*"):
                old.unlink()
            path.write_text(json.dumps(written))
            failed = written["failed"]
            word = f"{len(written['passed'])} tests" + (f", without {failed}" if failed else "")
        print(f"measured {tests} in {time.monotonic() - begun:.0f} s: {word}", flush=True)

    trees.each(run, covering.missing(), end)


class Trials:
    """Tried mutants and their results."""

    def __init__(self, covering: Covering) -> None:
        self.covering = covering
        self.known: dict[str, dict[str, Any]] = {"mutants": {}, "alone": {}}
        if KNOWN.exists():
            self.known = json.loads(KNOWN.read_text())
        self._named = {_key(one): one["by"] for one in listed(KILLED)}
        self._lock = Lock()

    def verdict(self, case: Case) -> dict[str, Any] | None:
        """Return the stored result of a case, if nothing has changed."""
        found = self.known["mutants"].get(case.key)
        if found is None or found["hash"] != hashed(case.text):
            return None
        is_open = found["verdict"] in ("survived", "not covered")
        return None if is_open and found["asked"] != self._asked(self.tests(case)) else found

    def tests(self, case: Case) -> list[str]:
        """Return the tests to run, except those that fail alone."""
        if case.mutant is None:
            found = self.covering.of_function(case.file, BEHAVIOURS[case.behaviour].function)
        else:
            found = self.covering.of(case.file, case.mutant.place, case.mutant.begins)
            named = self._named.get(case.key)
            if named is not None and self.covering.knows(named) and named not in found:
                found = [named, *found]
        return [test for test in found if self.known["alone"].get(self._asked([test]), True)]

    def run(self, tree: Path, case: Case) -> None:
        """Try one mutant."""
        begun, by, changed = time.monotonic(), "", tree / case.file
        tests, verdict = self.tests(case), "not covered"
        while tests:
            if case.mutant:
                changed.write_text(case.mutant.of(case.text))
            try:
                limit = 120 + 4 * self.covering.seconds(tests)
                status, written = pytest(tree, tests, limit, **{BEHAVIOUR: case.behaviour})
            finally:
                if case.mutant:
                    changed.write_text(case.text)
            if status in STOPPED:
                print(f"stopped from outside: {case.key}", flush=True)
                return
            verdict = {0: "survived", TOO_LONG: "timed out"}.get(status, "killed")
            if verdict != "killed":
                break
            failed = written.get("failed")
            by = failed[0] if failed else f"all, as pytest ends with {status}"
            alone = self._passes_alone(tree, by) if failed else True
            if alone is None:
                return
            if alone:
                break
            tests = self.tests(case)
        entry = {"verdict": verdict, "by": by, "seconds": round(time.monotonic() - begun)}
        with self._lock:
            stamps = {"hash": hashed(case.text), "asked": self._asked(tests)}
            self.known["mutants"][case.key] = {**entry, **stamps}
            KNOWN.write_text(json.dumps(self.known, indent=1))
        print(f"{verdict} ({by or len(tests)}, {entry['seconds']} s): {case.key}", flush=True)

    def _passes_alone(self, tree: Path, test: str) -> bool | None:
        """Return whether a test passes alone without a mistake; None if interrupted."""
        alone, key = self.known["alone"], self._asked([test])
        if key not in alone:
            status = pytest(tree, [test], HUNG)[0]
            if status in STOPPED:
                return None
            with self._lock:
                alone[key] = status == 0
        return alone[key]

    def _asked(self, tests: Iterable[str]) -> str:
        files = sorted({test.partition("::")[0] for test in tests})
        return hashed(*tests, *((ROOT / file).read_text() for file in files))


def cases(count: int, seed: int, only: str) -> list[Case]:
    """Return the selected mistakes."""
    paths = {file: ROOT / file for file in (*FILES, *OTHERS)}
    texts = {file: path.read_text() for file, path in paths.items() if path.exists()}
    found = [
        Case(
            "behaviours",
            b.file,
            texts.get(b.file, "") + inspect.getsource(behaviours),
            f"behaviour {name}: {b.says}",
            behaviour=name,
        )
        for name, b in BEHAVIOURS.items()
        if f"behaviours/{name}".startswith(only) or name.startswith(only)
    ]
    groups = {
        file: group
        for file, group in FILES.items()
        if any(x.startswith(only) for x in (group, file, file.removeprefix("timerl_nb/")))
    }
    some = drawn({file: texts[file] for file in groups}, groups, seed)
    found += [Case(groups[m.file], m.file, texts[m.file], m.key, m) for m in islice(some, count)]
    return found


def report(trials: Trials, asked: Sequence[Case]) -> bool:
    """Print the results and each survivor; return whether no survivor is unexplained."""
    argued = listed(EQUIVALENT)
    keys = set(map(_key, argued))
    words = ("killed", "timed out", "survived", "equivalent", "not covered", "not tried")
    table: dict[str, Counter[str]] = {}
    survivors: list[Case] = []
    for case in asked:
        verdict = (trials.verdict(case) or {"verdict": "not tried"})["verdict"]
        if verdict == "survived" and case.key in keys:
            verdict = "equivalent"
        table.setdefault(case.group, Counter())[verdict] += 1
        survivors += [case] if verdict == "survived" else []
    gone = [name for name, b in BEHAVIOURS.items() if not b.is_there(ROOT)]
    print("\n" + " ".join(f"{word:>11}" for word in ("", *words)))
    total = sum(table.values(), Counter[str]())
    for group, counts in {**table, "all": total}.items():
        print(" ".join([f"{group:>11}", *(f"{counts[word]:11}" for word in words)]))
    if survivors:
        print("\nSurvivors, to be killed by a test, or argued in tests/mutants/equivalent.toml:")
    for case in survivors:
        print(f"\n{described(case)}")
    for one in (*argued, *listed(KILLED)):
        texts = ROOT / one["file"]
        if not texts.exists() or one["place"].partition(": ")[2] not in texts.read_text():
            print(f"\nno longer there, but listed: {one['file']} | {one['place']}")
        if "by" in one and not trials.covering.knows(one["by"]):
            print(f"\nno test that is asked, but listed: {one['by']}")
    if gone:
        print(f"\nno longer apply, as their functions are gone: {', '.join(gone)}")
    return not survivors and not gone


def listed(path: Path) -> list[dict[str, str]]:
    """Return the mutants mentioned in a file."""
    return tomllib.loads(path.read_text()).get("mutant", [])


def _key(one: Mapping[str, str]) -> str:
    if "behaviour" in one:
        return f"behaviour {one['behaviour']}: {BEHAVIOURS[one['behaviour']].says}"
    return f"{one['file']} | {one['place']} | {one['what']}"


def described(case: Case) -> str:
    """Describe a mistake, with the line to copy into the list of explained survivors."""
    if case.mutant is None:
        return case.key
    lines, after = case.text.splitlines(), case.mutant.of(case.text).splitlines()
    at = next((k for k, (a, b) in enumerate(zip(lines, after, strict=False)) if a != b), 0)
    copied = "\n".join(
        f"{name} = {json.dumps(getattr(case.mutant, name), ensure_ascii=False)}"
        for name in ("file", "place", "what")
    )
    return f"{case.file}:{at + 1}\n- {lines[at]}\n+ {after[at]}\n[[mutant]]\n{copied}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.mutants", description=__doc__)
    parser.add_argument("count", type=int, nargs="?", default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=None)
    parser.add_argument("--only", default="", help="a group, a file, or a behaviour, as it begins")
    given = parser.parse_args()
    begun = time.monotonic()
    end = begun + (60 * given.minutes if given.minutes else float("inf"))
    STATE.mkdir(parents=True, exist_ok=True)
    lock = (STATE / "lock").open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise SystemExit("another call is at work in these trees") from None
    asked = cases(given.count, given.seed, given.only)
    trees = Trees()
    measure(trees, Covering(), (begun + end) / 2)  # with little time, half of it is for trials
    trials = Trials(Covering())
    left = trials.covering.missing()
    if left:
        print(f"{len(left)} of {len(ASKED)} test files are not measured yet")
    trees.each(trials.run, [case for case in asked if trials.verdict(case) is None], end)
    return 0 if report(trials, asked) else 1


if __name__ == "__main__":
    raise SystemExit(main())
