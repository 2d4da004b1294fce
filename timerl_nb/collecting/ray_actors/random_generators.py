"""Random generators of a worker. Each worker draws other numbers."""

from __future__ import annotations

import io
import pickle
import random
import sys
from importlib import import_module
from typing import Any

import numpy as np

_KINDS = (np.random.Generator, np.random.RandomState, random.Random)


def pickle_for_workers(x: Any) -> bytes:
    """Pickle an object; `load_in_worker` gives its random generators other states in each worker."""
    file = io.BytesIO()
    seen = dict[int, tuple[int, bytes]]()

    class Pickler(import_module("ray.cloudpickle").CloudPickler):  # type: ignore[misc]
        def persistent_id(self, one: Any) -> tuple[int, bytes] | None:
            if not isinstance(one, _KINDS):
                return None
            if id(one) not in seen:
                seen[id(one)] = len(seen), pickle.dumps(one)
            return seen[id(one)]

    Pickler(file).dump(x)
    return file.getvalue()


def load_in_worker(data: bytes, stream: tuple[int, ...] | None) -> Any:
    """Return an object of `pickle_for_workers`.

    Args:
        data: the bytes.
        stream: number of the random numbers of its generators; None for unchanged generators.
    """
    loaded = dict[int, Any]()

    class Unpickler(pickle.Unpickler):
        def persistent_load(self, found: tuple[int, bytes]) -> Any:
            number, one = found
            if number not in loaded:
                loaded[number] = _generator_of(pickle.loads(one), stream)
            return loaded[number]

    return Unpickler(io.BytesIO(data)).load()


def _generator_of(one: Any, stream: tuple[int, ...] | None) -> Any:
    """Return a generator whose numbers depend on the state of the given one, and on the stream."""
    if stream is None:
        return one
    if isinstance(one, random.Random):
        one.seed(f"{one.getrandbits(128)} {stream}")
        return one
    draw = one.integers if isinstance(one, np.random.Generator) else one.randint
    words = np.random.SeedSequence(draw(2**31, size=4).tolist(), spawn_key=stream)
    if isinstance(one, np.random.Generator):
        return np.random.Generator(type(one.bit_generator)(words))
    one.seed(words.generate_state(8))
    return one


def seed_global_generators(stream: tuple[int, ...]) -> None:
    """Seed the global generators of Python, NumPy, and of PyTorch if it is imported.

    Args:
        stream: number of the random numbers.
    """
    (word,) = map(int, np.random.SeedSequence(stream).generate_state(1))
    random.seed(word)
    np.random.seed(word)
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(word)
