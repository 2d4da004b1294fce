"""Immutable table of a CSV file, without pandas."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from timerl_nb.base.errors import CallError, OptionError, ShapeError, one_of
from timerl_nb.base.text_formatting import align_columns, format_count
from timerl_nb.compiler.language.foreign_names import expect_type
from timerl_nb.show.html_markup import table as html_table

Cell: TypeAlias = "str | int | float"

_TEXTS: Final = frozenset(["section"])  # 8.10 is a section
_MIXED: Final = "value"  # the unit of a row decides
_TEXT_UNITS: Final = frozenset(["hash", "name", "shape", "version"])
_SHOWN: Final = 20


@dataclass(frozen=True, repr=False)
class Table:
    """Rows of cells by column; `str` returns the first rows, and iteration yields all.

    `pandas.DataFrame(map(dict, table))` converts a table.

    Attributes:
        columns: names of the columns.
        rows: the rows; each maps columns to cells. Columns of numbers have `int` and `float` cells; all other cells,
            such as sections, are texts. The column `value` of published numbers also contains versions, names, shapes,
            lists and fractions as texts.

    Raises:
        CallError: `columns` is not a tuple or list of texts, or `rows` not one of mappings.
        ShapeError: a row has other columns.

    Example:
        >>> table = trl.datasets.load("published/acs")
        >>> table.columns[-3:]
        ('value', 'relation', 'location')
        >>> table.where(quantity="end-to-end speed-up").column("value")
        (1.42, 1.3)
    """

    columns: tuple[str, ...]
    rows: tuple[Mapping[str, Cell], ...]

    def __post_init__(self) -> None:
        columns = text_tuple("columns", self.columns)
        how = "pass a tuple of dictionaries."
        for number, row in enumerate(expect_type(self.rows, (tuple, list), "a tuple of rows", how)):
            if set(expect_type(row, Mapping, "a row: a mapping from columns to cells", how)) != set(
                columns
            ):
                raise ShapeError(
                    f"row {number} has the columns {tuple(row)}, but the table has {columns}.",
                    hint="give one cell for each column in each row.",
                )
        # Equal rows have the same order, so that their hashes are equal.
        rows = tuple(MappingProxyType({name: row[name] for name in columns}) for row in self.rows)
        object.__setattr__(self, "columns", columns)
        object.__setattr__(self, "rows", rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Mapping[str, Cell]]:
        return iter(self.rows)

    def __hash__(self) -> int:
        return hash((self.columns, tuple(tuple(row.values()) for row in self.rows)))

    def __reduce__(self) -> tuple[object, ...]:
        return Table, (self.columns, tuple(map(dict, self.rows)))

    def column(self, name: str) -> tuple[Cell, ...]:
        """Return the cells of one column.

        Raises:
            OptionError: the table has no such column.
        """
        self._expect_column(name)
        return tuple(row[name] for row in self.rows)

    def where(self, /, **cells: Cell) -> Table:
        """Return the rows with these cells, as in `table.where(system="XLA", unit="ratio")`.

        Raises:
            OptionError: the table has no such column.
        """
        for name in cells:
            self._expect_column(name)
        kept = (row for row in self.rows if all(row[name] == cells[name] for name in cells))
        return Table(self.columns, tuple(kept))

    def _expect_column(self, name: str) -> None:
        if name not in self.columns:
            raise OptionError(f"the table has no column {name!r}.", hint=one_of(name, self.columns))

    def __str__(self) -> str:
        lines = align_columns(
            [self.columns, *map(self._texts, self.rows[:_SHOWN])], left=range(len(self.columns))
        )
        more = len(self) - _SHOWN
        return "\n".join([*lines, f"… and {format_count(more, 'more row')}"] if more > 0 else lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return html_table(self.columns, map(self._texts, self.rows))

    def _texts(self, row: Mapping[str, Cell]) -> list[str]:
        return [str(row[name]) for name in self.columns]


def text_tuple(what: str, texts: Any) -> tuple[str, ...]:
    """Return a tuple or list of texts as a tuple.

    Raises:
        CallError: it is another value, such as one text.
    """
    if isinstance(texts, tuple | list) and all(isinstance(one, str) for one in texts):
        return tuple(texts)
    raise CallError(
        f"the {what} must be a tuple of texts, not {texts!r}.", hint='write them as ("a", "b").'
    )


def read_table(path: Path) -> Table:
    """Read a CSV file with a header line."""
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        columns, rows = tuple(reader.fieldnames or ()), list(reader)
    numbers = frozenset(
        name
        for name in columns
        if name not in _TEXTS and not any(isinstance(_number(row[name]), str) for row in rows)
    )
    return Table(columns, tuple(_with_numbers(row, numbers) for row in rows))


def _with_numbers(row: Mapping[str, str], numbers: frozenset[str]) -> dict[str, Cell]:
    if "unit" in row and row["unit"] not in _TEXT_UNITS:
        numbers = numbers | {_MIXED}
    return {name: _number(cell) if name in numbers else cell for name, cell in row.items()}


def _number(text: str) -> Cell:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
