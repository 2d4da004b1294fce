"""`kill -9` at random moments of training runs in mode "exact": same final bits as uninterrupted runs."""

from __future__ import annotations

import json
from shutil import rmtree
from typing import Final

from tests.torture.kills import process
from tests.torture.progress import Progress

ABOUT: Final = "kills (SIGKILL) of training runs, and of their saving"
COUNT: Final = 100
MINUTES: Final = 20.0
EACH: Final = 10  # kills of a run


def run(progress: Progress) -> None:
    while progress.goes_on:
        number = progress.kept.setdefault("runs", 0)
        place = progress.folder / str(number)
        rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        given = [str(place), str(EACH), str(progress.seed + number), "400"]
        with process("tests.torture.trained", given, reads=True) as child:
            out, said = child.communicate()
        if child.returncode:
            raise RuntimeError(f"run {number} ended with {child.returncode}:\n{said.decode()}")
        found = json.loads(out)
        for what in found["fell"]:
            progress.add(f"while {what}")
        wrong = [f"run {number}: {found['wrong']}"] if found["wrong"] else []
        progress.tried(*wrong, tries=sum(what != "ended" for what in found["fell"]))
        progress.kept = {"runs": number + 1}
        progress.save()
        rmtree(place, ignore_errors=True)
