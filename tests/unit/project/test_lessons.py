"""Lessons assert their claims, and link to existing files."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.claims import FOLDER, claims

LESSONS = sorted(FOLDER.glob("*.ipynb"))
ROOT = FOLDER.parent


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


def _written(folder: Path, text: str, code: str) -> Path:
    cells = [{"cell_type": "markdown", "source": [text]}, {"cell_type": "code", "source": [code]}]
    path = folder / "lesson.ipynb"
    path.write_text(json.dumps({"cells": cells}))
    return path
