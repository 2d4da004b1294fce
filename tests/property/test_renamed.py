"""Renamed dimensions, tensors and outputs change no bit of the results, under both executors.

Random programs are renamed in `tests.independent.test_rewritings`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from random import Random
from typing import Any
from zlib import crc32

import numpy as np
import pytest

import timerl_nb as trl
from tests.frozen import EXECUTORS, PROGRAMS, SEED, Frozen
from tests.renaming import Renaming
from tests.words import WORDS, are_legal

DIMS = ("b", "i", "t", "s", "u")
TRIES = 4 if "TIMERL_FUZZ" in os.environ else 1
# Programs with bounds named in their source, or with contexts created elsewhere.
BY_NAME = ("clipped ppo", "episodes", "episodes, n-step")


def other_names(random: Random) -> Renaming:
    """Give words to dimensions, or permute their names; give a word to every tensor and output."""
    words: Iterable[str] = WORDS if random.random() < 0.8 else DIMS
    dims = random.sample([*words], len(DIMS))
    while not are_legal(*dims):
        dims = random.sample([*words], len(DIMS))
    rest, known = iter(random.sample(WORDS, len(WORDS))), dict[str, str]()

    def word(name: str) -> str:
        if name not in known:
            known[name] = next(rest, name)
        return known[name]

    return Renaming(dict(zip(DIMS, dims, strict=True)), word)


def observed(program: Frozen, executor: str) -> dict[str, Any] | str:
    """Return the results and the peak of a program, or the kind of its refusal."""
    try:
        compiled = program.compile(executor)
    except trl.errors.TimeRLError as error:
        return type(error).__name__
    result = compiled.execute(seed=SEED, progress=False)
    return {
        " peak": np.array(compiled.memory.peak),
        **{k: np.asarray(v) for k, v in result.items()},
    }


@pytest.mark.filterwarnings("ignore::timerl_nb.base.errors.TimeRLWarning")
@pytest.mark.some_of("name", 3)
@pytest.mark.parametrize("name", [name for name in PROGRAMS if name not in BY_NAME])
def test_a_frozen_program_does_the_same_by_other_names(name: str) -> None:
    program = PROGRAMS[name]
    for executor in EXECUTORS:
        want = observed(program, executor)
        for k in range(TRIES):
            names = other_names(Random(crc32(f"{name} {k}".encode())))
            bounds, options = names.bounds(program.bounds), names.options(program.options)
            with names.applied():
                have = observed(Frozen(program.write, bounds, options), executor)
            if isinstance(want, str) or isinstance(have, str):
                assert want == have, names.dims
                continue
            assert len(have) == len(want)
            for key, value in want.items():
                found = have[key if key == " peak" else names.word(key)]
                assert (found.dtype, found.shape) == (value.dtype, value.shape), (key, names.dims)
                assert found.tobytes() == value.tobytes(), (key, names.dims)
