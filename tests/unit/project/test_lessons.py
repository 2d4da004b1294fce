"""Lessons assert their claims, have a common form, link to existing files, and are listed in an index."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.claims import FOLDER, claims

LESSONS = sorted(FOLDER.glob("*.ipynb"))
ROOT = FOLDER.parent
INDEX = FOLDER / "README.md"
SOLUTIONS = 3
HIDDEN = {
    "jupyter": {"source_hidden": True, "outputs_hidden": True},
    "tags": ["solution", "hide-cell"],
}
ROW = re.compile(r"^\| \d\d \[(.+?)\]\(([^)]+)\) \| (.+?) \|", re.MULTILINE)


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_an_assertion_beside_each_claim_repeats_its_words(path: Path) -> None:
    found = claims(path)
    assert len(found) >= 2
    assert [str(claim) for claim in found if not claim.is_asserted] == []


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("Blocks are faster. They need 5 MiB.", 2),
        ("In the paper blocks are 7 times as fast.", 0),
        ("Is it twice as fast?", 0),
        ("`x[b, 3]` is a read.", 0),
        ("## 5 steps\n\nThe star moves.\n\n## Try\n\n100 steps.", 1),
    ],
)
def test_claims_are_sentences_with_numbers_or_comparisons(
    tmp_path: Path, text: str, count: int
) -> None:
    assert len(claims(_written(tmp_path, text, "x = 1"))) == count


@pytest.mark.parametrize(
    ("code", "is_asserted"),
    [
        ("assert a < b, 'Blocks are faster'", True),
        ("assert a < b, 'are slower'", False),
        ("assert a < b, 'faster'", False),  # one common word is not a repetition
        ("assert a < b", False),
        ("print('Blocks are faster')", False),
    ],
)
def test_a_claim_wants_an_assertion_whose_message_repeats_it(
    tmp_path: Path, code: str, is_asserted: bool
) -> None:
    (claim,) = claims(_written(tmp_path, "**Blocks** are faster than rows.", code))
    assert claim.is_asserted is is_asserted


def test_links_of_lessons_lead_to_files_below_the_root_of_make_lab() -> None:
    makefile = (ROOT / "Makefile").read_text()
    assert "--ServerApp.root_dir=$(CURDIR)" in makefile
    links = [
        (path.parent / link).resolve()
        for path in LESSONS
        for link in re.findall(r"\]\((?!http)([^)#]+)", path.read_text())
    ]
    assert len(links) >= 2
    assert [link for link in links if not (link.is_file() and ROOT in link.parents)] == []


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_a_lesson_has_the_common_form(path: Path) -> None:
    assert list(_faults(_cells(path))) == []


def test_faults_of_a_lesson_are_named() -> None:
    exercises = "## Exercises\n\n1. One.\n2. Two.\n3. Three."
    good = [
        _cell("# Title\n\n*Why is that?*\n\nText."),
        _cell(exercises),
        *(_cell(f"# Solution {k}\nassert x == {k}", HIDDEN) for k in (1, 2, 3)),
    ]
    assert list(_faults(good)) == []
    (fault,) = _faults([_cell("# Title\n\n*A statement.*"), *good[1:]])
    assert "a question in italics" in fault
    (fault,) = _faults([good[0], _cell(exercises.replace("3. Three.", "")), *good[2:]])
    assert "has the items 1, 2 instead of 1, 2, 3" in fault
    (fault,) = _faults([*good[:1], _cell("## Try"), *good[2:]])
    assert "the last heading is '## Try'" in fault
    (fault,) = _faults([*good[:3], _cell("# Solution 2\nx = 2", HIDDEN), good[4]])
    assert "solution 2 asserts nothing" in fault
    (fault,) = _faults(
        [*good[:3], _cell("# Solution 2\nassert x", {"tags": ["solution"]}), good[4]]
    )
    assert "solution 2 has the metadata" in fault
    (fault,) = _faults(good[:4])
    assert "cell 3 after the exercises is missing" in fault
    (fault,) = _faults([*good, _cell("print(1)", {"tags": []})])
    assert "4 cells after the exercises" in fault
    (fault,) = _faults([*good[:4], good[4] | {"execution_count": 1, "outputs": [{}]}])
    assert "cell 4 has an output or an execution count" in fault


def test_the_index_has_one_row_with_title_and_question_for_each_lesson() -> None:
    rows = {name: (title, question) for title, name, question in ROW.findall(INDEX.read_text())}
    assert len(rows) == len(ROW.findall(INDEX.read_text())), "a lesson has several rows"
    lessons = {path.name: _title_and_question(_cells(path)) for path in LESSONS}
    assert sorted(rows) == sorted(lessons), f"rows and lessons differ: see {INDEX}"
    assert {name: row for name, row in rows.items() if row != lessons[name]} == {}, (
        f"lessons have another title or question: "
        f"{ {name: lessons[name] for name, row in rows.items() if row != lessons[name]} }"
    )


def _cells(path: Path) -> list[dict[str, Any]]:
    cells: list[dict[str, Any]] = json.loads(path.read_text())["cells"]
    return cells


def _title_and_question(cells: list[dict[str, Any]]) -> tuple[str, str] | None:
    """Return the title and the question of the first cell, without marks."""
    match = re.match(r"# (.+)\n\n\*([^*]+\?)\*(?:\n|$)", "".join(cells[0]["source"]))
    return match and (match[1], " ".join(match[2].split()))


def _faults(cells: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the deviations of a lesson from the common form."""
    if _title_and_question(cells) is None:
        yield 'the first cell needs a title "# …", an empty line and a question in italics, "*…?*"'
    for k, cell in enumerate(cells):
        if cell.get("outputs") or cell.get("execution_count") is not None:
            yield f"cell {k} has an output or an execution count: clear all outputs"

    last = max(k for k, cell in enumerate(cells) if cell["cell_type"] == "markdown")
    text = "".join(cells[last]["source"])
    headings = re.findall(r"^#+ .+$", text, flags=re.MULTILINE)
    if headings[-1:] != ["## Exercises"]:
        yield f"the last heading is {''.join(headings[-1:])!r} instead of '## Exercises'"
    else:
        numbers = re.findall(r"^(\d+)\. ", text.split("## Exercises")[1], flags=re.MULTILINE)
        wanted = [str(k) for k in range(1, SOLUTIONS + 1)]
        if numbers != wanted:
            yield f"the exercises cell has the items {', '.join(numbers)} instead of {', '.join(wanted)}"

    after = cells[last + 1 :]
    if len(after) > SOLUTIONS:
        yield f"{len(after)} cells after the exercises instead of {SOLUTIONS} solutions"
    for k in range(1, SOLUTIONS + 1):
        if k > len(after):
            yield f"cell {k} after the exercises is missing: it contains solution {k}"
            continue
        source = "".join(after[k - 1]["source"])
        if not source.startswith(f"# Solution {k}\n"):
            yield f"cell {k} after the exercises does not begin with '# Solution {k}'"
        elif after[k - 1]["metadata"] != HIDDEN:
            yield f"solution {k} has the metadata {after[k - 1]['metadata']} instead of {HIDDEN}"
        elif not any(_is_assertion(node) for node in ast.walk(ast.parse(source))):
            yield f"solution {k} asserts nothing"


def _is_assertion(node: ast.AST) -> bool:
    """Whether a node is an assertion or a call such as `np.testing.assert_allclose(…)`."""
    if isinstance(node, ast.Call):
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        return name.startswith("assert_")
    return isinstance(node, ast.Assert)


def _cell(source: str, metadata: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return a markdown cell, or a code cell with metadata."""
    kind = {"cell_type": "markdown"} if metadata is None else {"cell_type": "code", "outputs": []}
    return {**kind, "metadata": metadata or {}, "source": [source]}


def _written(folder: Path, text: str, code: str) -> Path:
    cells = [{"cell_type": "markdown", "source": [text]}, {"cell_type": "code", "source": [code]}]
    path = folder / "lesson.ipynb"
    path.write_text(json.dumps({"cells": cells}))
    return path
