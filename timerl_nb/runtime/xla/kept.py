"""Calls to XLA that later processes load, neither traced nor lowered nor compiled again."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
from jax.experimental.serialize_executable import deserialize_and_load, serialize

from timerl_nb.config import xla_flags
from timerl_nb.runtime.shelf import Shelf, key_of


@dataclass(frozen=True)
class KeptCalls:
    """Where the compiled calls of a program are kept.

    Attributes:
        shelf: the place.
        key: says which program it is, and how it was compiled up to here.
    """

    shelf: Shelf
    key: str

    def call(
        self, name: str, function: Any, arguments: Callable[[], Sequence[Any]]
    ) -> Callable[..., Any]:
        """A call as it was compiled once, or else is compiled when it is made first.

        Args:
            name: says which call of the program it is.
            function: the jitted function.
            arguments: gives the types of what it takes.
        """
        return _Call(self, name, function, arguments)


class _Call:
    def __init__(
        self, kept: KeptCalls, name: str, function: Any, arguments: Callable[[], Sequence[Any]]
    ) -> None:
        self._kept, self._name = kept, name
        self._function, self._arguments = function, arguments

    def __call__(self, *args: Any) -> Any:
        return self._compiled(*args)

    @cached_property
    def _compiled(self) -> Callable[..., Any]:
        settings = _settings()
        if settings["jax_disable_jit"] or settings["jax_debug_nans"]:  # nothing runs as compiled
            return self._function
        shelf, key = self._kept.shelf, key_of("call", self._kept.key, self._name, _engine())
        known = shelf.read(key)
        if known is not None:
            # whatever is wrong with it, it can be made anew
            with suppress(Exception):
                return deserialize_and_load(*pickle.loads(known))
        lowered = self._function.lower(*self._arguments())
        made = lowered.compile()
        if "custom_call" not in lowered.as_text():  # whose targets are there once they are lowered
            with suppress(Exception):  # not every engine's programs can be kept
                shelf.write(key, pickle.dumps(serialize(made)))
        return made


def _engine() -> str:
    """What JAX's compilations depend on: its settings as they are here and now, and the devices."""
    devices = [(d.id, d.platform, d.device_kind) for d in jax.devices()]
    return repr((_settings(), xla_flags(), devices, jax.devices()[0].client.platform_version))


def _settings() -> dict[str, Any]:
    values = jax.config.values
    return {name: getattr(jax.config, name, values[name]) for name in sorted(values)}
