"""Environment of an off-policy algorithm: its spaces, and equality of algorithms with the same environment."""

from __future__ import annotations

from dataclasses import fields
from functools import cached_property
from typing import TYPE_CHECKING, Any

from timerl_nb.collecting.collection_task import Registration, resolve_environment, spaces


class WithEnvironment:
    """Base of algorithms written as frozen dataclasses with the field `env`.

    `jax.jit` and `trl.replay.train` share compiled code between equal algorithms. Two algorithms are equal if their
    fields are, and if the environment's name means the same in both: a name can be registered again.
    """

    if TYPE_CHECKING:

        @property
        def env(self) -> Any: ...

    @cached_property
    def _resolved(self) -> tuple[Registration, tuple[Any, Any]]:
        registration = Registration(self.env)
        _, sim, vector = resolve_environment(self.env)
        return registration, spaces(sim, vector)

    @property
    def _spaces(self) -> tuple[Any, Any]:
        """The spaces of observations and actions."""
        return self._resolved[1]

    def _values_of_fields(self) -> dict[str, Any]:
        return {one.name: getattr(self, one.name) for one in fields(self)}  # type: ignore[arg-type]

    def _keep_as_tuples(self, *names: str) -> None:
        """Convert lists among the fields to tuples, since jax.jit needs hashable objects."""
        for name in names:
            object.__setattr__(self, name, tuple(getattr(self, name)))

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        same = self._resolved[0] == other._resolved[0]
        return same and self._values_of_fields() == other._values_of_fields()

    def __hash__(self) -> int:
        return hash((type(self), *self._values_of_fields().values()))

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields only: the environment may consist of functions that cannot be pickled."""
        return self._values_of_fields()
