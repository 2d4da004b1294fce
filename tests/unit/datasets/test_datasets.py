"""Data sets: names, checksums, published numbers, and where the files are found."""

from __future__ import annotations

import copy
import pickle
import re
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import pytest

import timerl_nb as trl
from benchmarks.datasets import remaking
from timerl_nb.base import data_folder
from timerl_nb.base.errors import CallError, MissingPartError, OptionError, ShapeError
from timerl_nb.datasets.table import Table, read_table

FOLDER = Path(__file__).parents[3] / "datasets"
PUBLISHED = [name for name in trl.datasets.names() if name.startswith("published/")]
COLUMNS = (
    *("section", "figure", "system", "workload", "condition"),
    *("quantity", "unit", "value", "relation", "location"),
)
RELATIONS = {"=", "about", "on average", "at least", "up to", "more than", "fewer than"}
LOCATION = r"sentence \d+|Table \w+, row \d|Alg\. \d, line \d+|caption of Fig\. \d|footnote \d"


def test_the_readme_lists_every_file_with_its_checksum() -> None:
    text = (FOLDER / "README.md").read_text()
    rows = remaking.rows(text)
    assert len(rows) == len(re.findall(r"`\w{64}`", text)), "a row has other columns"
    files = [path for path in FOLDER.rglob("*") if path.is_file() and path.name != "README.md"]
    found = {
        path.relative_to(FOLDER).as_posix(): sha256(path.read_bytes()).hexdigest() for path in files
    }
    assert {file: row["checksum"] for file, row in rows.items()} == found
    for row in rows.values():
        assert row["licence"] == "Apache-2.0" and len(row["origin"]) > 20
        assert row["command"] == "by hand" or re.fullmatch("`.*python .*`", row["command"])


def test_all_files_together_are_small() -> None:
    assert sum(path.stat().st_size for path in FOLDER.rglob("*") if path.is_file()) <= 5_000_000


@pytest.mark.parametrize("name", trl.datasets.names())
def test_each_name_loads(name: str) -> None:
    found = trl.datasets.load(name)
    kind = {
        **dict.fromkeys(("published", "curves", "paper"), Table),
        "trajectories": trl.datasets.Trajectories,
        "streams": trl.streams.Stream,
        "ours": trl.scope.Recording,
    }
    assert isinstance(found, kind.get(name.partition("/")[0], Path))
    if isinstance(found, Path):
        assert found.is_file()


def test_every_file_has_a_name() -> None:
    files = [path for path in FOLDER.rglob("*") if path.is_file() and path.name != "README.md"]
    assert len(trl.datasets.names()) == len(files)
    assert len(PUBLISHED) == 5


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_number_has_its_place_in_the_paper(name: str) -> None:
    table = trl.datasets.load(name)
    assert isinstance(table, Table) and table.columns == COLUMNS and len(table) > 20
    for row in table:
        for column in ("section", "system", "workload", "quantity", "unit", "relation"):
            assert str(row[column]).strip(), row
        assert row["value"] != "" and row["relation"] in RELATIONS, row
        assert re.fullmatch(LOCATION, str(row["location"])), row
        conditions = str(row["condition"]).split("; ")
        assert conditions == [""] or all(re.match(r"[^=]+=.", one) for one in conditions), row


@pytest.mark.parametrize("name", PUBLISHED)
def test_no_number_is_listed_twice(name: str) -> None:
    rows = (FOLDER / f"{name}.csv").read_text().splitlines()
    assert len(rows) == len(set(rows))


def test_the_evaluated_configurations_of_timerl() -> None:
    table = trl.datasets.load("published/timerl")
    assert isinstance(table, Table)
    default = table.where(section="8.2", condition="configuration=default")
    assert {row["quantity"]: row["value"] for row in default} == {
        "episode length": 250,
        "environments": 512,
        "parameters per layer": 64,
        "hidden layers": 2,
        "observation shape": "3x4x4",
    }
    assert table.where(section="8.4", quantity="n-step window").column("value") == (64, 8)
    assert table.where(quantity="version of CUDA").column("value") == ("12.1",)  # a text


def test_columns_of_numbers_are_numbers(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("section,n,x,name\n8.10,1,2.5,a\n9,2,3,4\n")
    assert list(map(dict, read_table(path))) == [
        {"section": "8.10", "n": 1, "x": 2.5, "name": "a"},
        {"section": "9", "n": 2, "x": 3, "name": "4"},
    ]


def test_a_table_is_immutable() -> None:
    table = trl.datasets.load("published/acs")
    assert isinstance(table, Table)
    with pytest.raises(AttributeError):
        table.columns = ()  # type: ignore[misc]
    with pytest.raises(TypeError):
        table.rows[0]["value"] = 0  # type: ignore[index]
    for copied in (pickle.loads(pickle.dumps(table)), copy.deepcopy(table)):
        assert copied == table and hash(copied) == hash(table)
        with pytest.raises(TypeError):
            copied.rows[0]["value"] = 0


def test_given_rows_are_copied() -> None:
    row = {"b": 2, "a": 1}
    table = Table(["a", "b"], [row])  # type: ignore[arg-type]
    same = Table(("a", "b"), ({"a": 1, "b": 2.0},))
    assert table == same and hash(table) == hash(same)
    row["a"] = 3
    assert table.column("a") == (1,)
    with pytest.raises(TypeError):
        table.rows[0]["a"] = 3  # type: ignore[index]


def test_wrong_columns_and_rows_are_errors() -> None:
    for columns in ("ab", (1, 2), None):
        with pytest.raises(CallError, match="must be a tuple of texts"):
            Table(columns, ())  # type: ignore[arg-type]
    for row in ({"a": 1}, {"a": 1, "b": 2, "c": 3}, {}):
        with pytest.raises(ShapeError, match="row 1 has the columns"):
            Table(("a", "b"), ({"a": 1, "b": 2}, row))


def test_a_table_shows_its_rows() -> None:
    table = trl.datasets.load("published/acs")
    assert isinstance(table, Table)
    assert str(table).splitlines()[-1] == "… and 87 more rows"
    some = table.where(quantity="end-to-end speed-up")
    assert len(str(some).splitlines()) == 3 and repr(some) == str(some)
    assert some._repr_html_().count("<tr>") == 3
    small = Table(("a",), ({"a": "<b>"},))
    assert "&lt;b&gt;" in small._repr_html_()


def test_wrong_names_are_errors_that_list_the_names() -> None:
    with pytest.raises(OptionError, match="published/timerl") as caught:
        trl.datasets.load("timerl")
    assert all(repr(name) in str(caught.value) for name in trl.datasets.names())
    with pytest.raises(CallError):
        trl.datasets.load(3)  # type: ignore[arg-type]
    table = trl.datasets.load("published/acs")
    assert isinstance(table, Table)
    for wrong in (lambda: table.column("values"), lambda: table.where(values=1)):
        with pytest.raises(OptionError, match="did you mean 'value'"):
            wrong()


def test_an_installed_package_uses_its_own_files(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A wheel has them in `timerl_nb/datasets/files`. Another package may be named `datasets`."""
    package = tmp_path / "timerl_nb"
    monkeypatch.setattr(data_folder, "_PACKAGE", package)
    with pytest.raises(MissingPartError, match="install the project again"):
        trl.datasets.names()
    (package / "datasets").mkdir(parents=True)
    (package / "datasets" / "files").symlink_to(FOLDER)
    (tmp_path / "datasets").mkdir()
    (tmp_path / "datasets" / "other.csv").write_text("a\n1\n")
    assert "other" not in trl.datasets.names()
    assert isinstance(trl.datasets.load("published/pearl"), Table)
    assert len(trl.streams.workload("ant")) == 2576


def test_import_of_the_library_does_not_import_data_sets() -> None:
    code = "import sys, timerl_nb; assert 'timerl_nb.datasets' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
