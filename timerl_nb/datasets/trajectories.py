"""Immutable episodes of an environment, read from an archive of NumPy arrays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from timerl_nb.base.array_conversion import Array, convert_array, numbers_of
from timerl_nb.base.errors import OptionError, ShapeError, one_of
from timerl_nb.compiler.language.foreign_names import expect_type
from timerl_nb.datasets.table import Table, text_tuple
from timerl_nb.show.html_markup import element

FIELDS: Final = (
    "observations",
    "actions",
    "rewards",
    "terminated",
    "truncated",
    "next_observations",
)
_FLAGS: Final = ("terminated", "truncated")
_COLUMNS: Final = ("episode", "policy", "steps", "return", "end")


@dataclass(frozen=True, repr=False, eq=False)
class Trajectories(Mapping[str, Array]):
    """Steps of episodes: a mapping from field names to read-only arrays with one row per step.

    Episodes follow each other along the first axis. The fields are `observations`, `actions`, `rewards`, `terminated`,
    `truncated` and `next_observations`, the observations after the steps. `str` returns a row per episode.

    Attributes:
        env: the name of the environment.
        seed: the seed of the program that recorded the episodes.
        policies: the name of the policy, by episode.
        arrays: the arrays, by field name.

    Raises:
        CallError: `policies` is not a tuple or list of texts, or `arrays` is not a mapping.
        ShapeError: a field is missing or no array of numbers, `terminated` or `truncated` are not booleans, fields
            differ in length, or the ends of episodes do not match `policies`.

    Example:
        >>> trajectories = trl.datasets.load("trajectories/pendulum")
        >>> trajectories["observations"].shape
        (1200, 3)
        >>> [len(episode["rewards"]) for episode in trajectories.episodes("random")]
        [200, 200]
    """

    env: str
    seed: int
    policies: tuple[str, ...]
    arrays: Mapping[str, Array]

    def __post_init__(self) -> None:
        expect_type(self.arrays, Mapping, "a mapping of arrays by field", "pass a dictionary.")
        if set(self.arrays) != set(FIELDS):
            raise ShapeError(
                f"the fields of these trajectories are {', '.join(map(repr, self.arrays))}.",
                hint=f"give an array for each of {', '.join(map(repr, FIELDS))}.",
            )
        object.__setattr__(self, "policies", text_tuple("policies", self.policies))
        arrays = {name: _copy_field(name, self.arrays[name]) for name in FIELDS}
        object.__setattr__(self, "arrays", MappingProxyType(arrays))
        steps = {name: len(array) for name, array in arrays.items()}
        if len(set(steps.values())) > 1:
            raise ShapeError(
                f"the fields of these trajectories have different numbers of steps: {steps}.",
                hint="give one row per step in each field.",
            )
        ends = self._ends()
        if len(ends) != len(self.policies) or steps["rewards"] != (ends[-1] if ends else 0):
            raise ShapeError(
                f"{len(ends)} episodes end within {steps['rewards']} steps, but {len(self.policies)} have a policy.",
                hint="mark the last step of each episode as terminated or truncated, and name its policy.",
            )

    def __getitem__(self, name: str) -> Array:
        if name not in self.arrays:
            raise OptionError(f"trajectories have no field {name!r}.", hint=one_of(name, FIELDS))
        return self.arrays[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.arrays)

    def __len__(self) -> int:
        return len(self.arrays)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Trajectories):
            return NotImplemented
        return self._described() == other._described() and all(
            np.array_equal(self[name], other[name]) for name in FIELDS
        )

    def __hash__(self) -> int:
        # Equal arrays may differ in their bytes: float32 and float64, or 0.0 and -0.0.
        return hash((self._described(), len(self["rewards"])))

    def __reduce__(self) -> tuple[object, ...]:
        return Trajectories, (*self._described(), dict(self.arrays))

    def episodes(self, policy: str | None = None) -> tuple[Trajectories, ...]:
        """Return each episode as trajectories of one episode.

        Args:
            policy: the name of a policy, to return its episodes only.

        Raises:
            OptionError: no episode has this policy.
        """
        if policy is not None and policy not in self.policies:
            known = tuple(dict.fromkeys(self.policies))
            raise OptionError(f"no episode has the policy {policy!r}.", hint=one_of(policy, known))
        ends = self._ends()
        return tuple(
            Trajectories(
                self.env, self.seed, (name,), {field: self[field][start:end] for field in FIELDS}
            )
            for name, start, end in zip(self.policies, (0, *ends), ends, strict=False)
            if policy in (None, name)
        )

    def _ends(self) -> list[int]:
        """Return the number of steps up to the end of each episode."""
        over = self.arrays["terminated"] | self.arrays["truncated"]
        return [int(step) + 1 for step in np.flatnonzero(over)]

    def _described(self) -> tuple[str, int, tuple[str, ...]]:
        return self.env, self.seed, self.policies

    def _summary(self) -> Table:
        """Return a table with a row per episode."""
        rows = (
            (
                number,
                one.policies[0],
                len(one["rewards"]),
                round(float(one["rewards"].sum(dtype=np.float64)), 1),
                "terminated" if one["terminated"][-1] else "truncated",
            )
            for number, one in enumerate(self.episodes())
        )
        return Table(_COLUMNS, tuple(dict(zip(_COLUMNS, row, strict=True)) for row in rows))

    def _title(self) -> str:
        return f"{self.env}, seed {self.seed}"

    def __str__(self) -> str:
        return f"{self._title()}\n{self._summary()}"

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return element("p", self._title()) + self._summary()._repr_html_()


def _copy_field(name: str, values: Any) -> Array:
    """Return a copy of a field in immutable memory, so that `setflags` cannot allow writing."""
    what = f"the field {name!r}"
    is_flag = name in _FLAGS
    array = convert_array(what, values, np.dtype(bool)) if is_flag else numbers_of(what, values)
    if not array.ndim or (is_flag and array.ndim > 1):
        raise ShapeError(
            f"{what} has the shape {array.shape}.",
            hint="give one row per step, and one boolean per step in terminated and truncated.",
        )
    return np.ndarray(array.shape, array.dtype, array.tobytes())


def read_trajectories(path: Path) -> Trajectories:
    """Read an archive that `save_trajectories` wrote."""
    with np.load(path, allow_pickle=False) as archive:
        return Trajectories(
            env=str(archive["env"]),
            seed=int(archive["seed"]),
            policies=tuple(map(str, archive["policies"])),
            arrays={name: archive[name] for name in FIELDS},
        )


def save_trajectories(trajectories: Trajectories, path: Path) -> None:
    """Write trajectories into a compressed archive (`.npz`)."""
    arrays: dict[str, Any] = {
        "env": np.array(trajectories.env),
        "seed": np.array(trajectories.seed),
        "policies": np.array(trajectories.policies),
        **trajectories,
    }
    np.savez_compressed(path, **arrays)
