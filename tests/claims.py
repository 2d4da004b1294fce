"""Claims of lessons: sentences with a number or a comparison, and assertions with their words."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

FOLDER: Final = Path(__file__).parents[1] / "notebooks"
WORDS: Final = 3  # of a sentence, at least, that an assertion's message repeats

_NUMBER = r"\d|\b(?:two|three|four|five|six|seven|eight|nine|ten|twelve|dozen|hundred|twice|half)\b"
_COMPARISON = (
    r"\b(?:more|less|fewer|faster|slower|greater|larger|smaller|longer|shorter|later|earlier|better|worse)\b"
    r"|\b(?:grows?|gains|moves|rises?|falls?|doubles?|halves|pays off|the same|as often|as many|as much)\b"
)
_CLAIM: Final = re.compile(f"{_NUMBER}|{_COMPARISON}", re.IGNORECASE)
# Numbers in names, code, links and publications are no results.
_NAMES: Final = re.compile(
    r"`[^`]*`|\]\([^)]*\)|\(\d{4}\)|\(\w+ et al\., \d{4}\)|\w+_[0-9a-f]{16}|Eq\. \d"
)
_SENTENCE: Final = re.compile(r"(?<=[.!?])[*_)]*\s+(?=[*_(`]*[A-Z`])")
# Sentences about a publication, questions, and requests to the reader report no observation of a lesson.
_NO_RESULT: Final = re.compile(
    r"\bpaper\b|\?[*_]*$|^[*_]*(?:Try|Click|Press|Drag|Move|Change|Let)\b"
)


@dataclass(frozen=True)
class Claim:
    """A sentence of a lesson, to be asserted by a cell beside it."""

    lesson: str
    cell: int
    sentence: str
    is_asserted: bool

    def __str__(self) -> str:
        return f"{self.lesson}, cell {self.cell}: {self.sentence}"


def claims(path: Path) -> list[Claim]:
    """Return the claims of a lesson, with whether an assertion beside each repeats its words."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    found = []
    for k, cell in enumerate(cells):
        if cell["cell_type"] != "markdown":
            continue
        beside = [_plain(message) for message in _messages(cells, k)]
        for sentence in _sentences("".join(cell["source"])):
            is_asserted = any(one in _plain(sentence) for one in beside)
            found.append(Claim(path.stem, k, sentence, is_asserted))
    return found


def _plain(text: str) -> str:
    """Return a text's words alone, in lower case."""
    return " ".join(re.findall(r"[\w.,%-]*\w%?", text.lower()))


def _sentences(markdown: str) -> Iterator[str]:
    """Yield all sentences with a result."""
    results = re.split(r"^## (?:Try|Exercises)", markdown, flags=re.MULTILINE)[0]
    blocks = re.split(
        r"\n\s*\n|\n(?=[-|#])", re.sub(r"^\*\*\d\. ", "", results, flags=re.MULTILINE)
    )
    for block in blocks:
        if re.match(
            r"#|\||\*[^*]", block
        ):  # headings, tables, and the lesson's question in italics
            continue
        for sentence in _SENTENCE.split(" ".join(block.split())):
            if _CLAIM.search(_NAMES.sub("", sentence)) and not _NO_RESULT.search(sentence):
                yield sentence


def _messages(cells: list[dict[str, Any]], k: int) -> list[str]:
    """Return the messages of assertions in the code around a text, to the next text on either side."""
    found = []
    for step in (-1, 1):
        j = k + step
        while 0 <= j < len(cells) and cells[j]["cell_type"] == "code":
            found += _asserted("".join(cells[j]["source"]))
            j += step
    return found


def _asserted(source: str) -> list[str]:
    """Return the messages of a cell's assertions."""
    code = "\n".join("pass" if line.startswith("%") else line for line in source.splitlines())
    return [
        node.msg.value
        for node in ast.walk(ast.parse(code))
        if isinstance(node, ast.Assert)
        and isinstance(node.msg, ast.Constant)
        and isinstance(node.msg.value, str)
        and len(_plain(node.msg.value).split()) >= WORDS
    ]
