"""Measurement of the English in documentation, docstrings, comments and messages.

Four figures, each with a limit that well-read projects stay below:

- clause: free relative clauses in place of a noun ("what runs", "who waits for whom"), per 1,000 words;
- opening: percentage of sentences that begin with What, Where, Who, Whose or Whatever, questions excepted;
- relative: what, where, whose, who, which, that and those, per 1,000 words;
- length: words per sentence.

`python -m tests.prose PATH ...` prints the figures; `--worst 40` lists the sentences with the most marks.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import re
import tokenize
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

SUBJECTS = """is are was were has have had it they he one a an the there its their this that these those nobody nothing
    somebody others all each both no any some comes? runs? reads? writes? lives? waits? stays? takes? makes? needs? does do
    can could may might must would should will becomes? goes holds? keeps? differs? varies remains? costs? asks? says?
    stands? follows? passes users? you we isl XLA JAX CODE"""
CLAUSE = re.compile(rf"\b(what|whatever|whoever)\s+({'|'.join(SUBJECTS.split())})\b", re.I)
OPENING = re.compile(r"^(what|whatever|where|who|whose|whom|whoever)\b(?![^.]*\?)", re.I)
RELATIVE = {"what", "whatever", "where", "whose", "who", "whom", "which", "that", "those"}
BULLET = re.compile(r"\s*([-*+]|\d+\.|#+)\s")
# Shorter texts are not measured: one word would decide.
FEWEST_WORDS = 150

Sentence = tuple[int, str]


def paragraphs(text: str) -> Iterator[Sentence]:
    """Yield each paragraph and its first line, without code blocks, tables and directives."""
    is_code, start, part = False, 1, list[str]()
    for number, line in enumerate([*text.splitlines(), ""], 1):
        if line.lstrip().startswith("```"):
            is_code, line = not is_code, ""
        elif is_code or line.lstrip().startswith(("|", ".. ", ">>>", ":::")):
            line = ""
        if part and (not line.strip() or BULLET.match(line)):
            yield start, " ".join(part)
            part = []
        if line.strip():
            start = start if part else number
            part.append(line.strip())


def sentences(text: str) -> Iterator[Sentence]:
    """Yield the sentences of Markdown or of a docstring, of three words or more."""
    for line, paragraph in paragraphs(text):
        plain = re.sub(r"!\[[^\]]*\]\([^)]*\)", " ", paragraph)
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", plain)
        plain = re.sub(r"`+[^`]*`+", "CODE", plain)
        plain = re.sub(r"^[\s*_#>+-]+|[*_]{1,3}", " ", plain).strip()
        for one in re.split(r"(?<=[.!?:;])\s+", plain):
            if len(one.split()) >= 3:
                yield line, one


def python_sentences(text: str) -> Iterator[Sentence]:
    """Yield the sentences of docstrings and comments."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            docstring = ast.get_docstring(node, clean=True)
            first = node.body[0].lineno if node.body else 1
            yield from ((first + line - 1, one) for line, one in sentences(docstring or ""))
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield from ((token.start[0], one) for _, one in sentences(token.string.lstrip("#: ")))


def message_sentences(text: str) -> Iterator[Sentence]:
    """Yield the sentences of string literals that are no docstrings, with `CODE` for inserted values."""
    tree = ast.parse(text)
    inner = {id(v) for n in ast.walk(tree) if isinstance(n, ast.JoinedStr) for v in n.values}
    docstrings = {id(n.value) for n in ast.walk(tree) if isinstance(n, ast.Expr)}
    for node in ast.walk(tree):
        if id(node) in inner | docstrings:
            continue
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            words = node.value
        elif isinstance(node, ast.JoinedStr):
            words = "".join(v.value if isinstance(v, ast.Constant) else "`x`" for v in node.values)
        else:
            continue
        if len(re.findall(r"\b[a-z]{2,}\b", words)) >= 4 and not re.search(r"[{}=<>]|__", words):
            yield from ((node.lineno, one) for _, one in sentences(words))


def typescript_sentences(text: str) -> Iterator[Sentence]:
    """Yield the sentences of comments."""
    for match in re.finditer(r"/\*\*?(.*?)\*/|//(.*)$", text, re.S | re.M):
        line = text.count("\n", 0, match.start()) + 1
        comment = re.sub(r"^\s*\*", "", match[1] or match[2] or "", flags=re.M)
        yield from ((line, one) for _, one in sentences(comment))


def notebook_sentences(text: str) -> Iterator[Sentence]:
    """Yield the sentences of Markdown cells."""
    for cell in json.loads(text).get("cells", []):
        if cell["cell_type"] == "markdown":
            yield from sentences("".join(cell["source"]))


READERS: dict[str, Callable[[str], Iterator[Sentence]]] = {
    ".md": sentences,
    ".py": python_sentences,
    ".ts": typescript_sentences,
    ".ipynb": notebook_sentences,
}


@dataclass(frozen=True)
class Figures:
    """Figures of a text; `str` prints them."""

    words: int
    clause: float
    opening: float
    relative: float
    length: float

    @classmethod
    def of_sentences(cls, texts: Iterable[str]) -> Figures:
        """Return the figures of sentences."""
        texts = list(texts)
        words = [word.strip(".,:;()").lower() for text in texts for word in text.split()]
        thousand = max(len(words), 1) / 1000
        return cls(
            words=len(words),
            clause=sum(len(CLAUSE.findall(text)) for text in texts) / thousand,
            opening=100 * sum(bool(OPENING.match(text)) for text in texts) / max(len(texts), 1),
            relative=sum(word in RELATIVE for word in words) / thousand,
            length=len(words) / max(len(texts), 1),
        )

    def excesses(self) -> list[str]:
        """Return the figures above their limits, in words; none for a text of fewer than 150 words."""
        limits = {"clause": 1.0, "opening": 0.5, "relative": 20.0, "length": 13.0}
        above = [
            f"{name} {getattr(self, name):.1f} > {most}"
            for name, most in limits.items()
            if getattr(self, name) > most
        ]
        return above if self.words >= FEWEST_WORDS else []

    def __str__(self) -> str:
        return (
            f"{self.words:7,} words  {self.length:4.1f} a sentence  clause {self.clause:4.1f}  "
            f"opening {self.opening:4.1f} %  relative {self.relative:3.0f}"
        )


def read_path(
    path: Path, reader: Callable[[str], Iterator[Sentence]] | None = None
) -> list[tuple[Path, int, str]]:
    """Return file, line and text of the sentences in a file, or in all files below a folder."""
    skipped = {"node_modules", "static", "build", ".venv", "api", "tutorials"}
    files = [path] if path.is_file() else sorted(path.rglob("*"))
    return [
        (file, line, one)
        for file in files
        if file.suffix in READERS and file.is_file() and not skipped & set(file.parts)
        if reader is None or file.suffix == ".py"
        for line, one in (reader or READERS[file.suffix])(file.read_text())
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("paths", nargs="+", type=Path)
    parser.add_argument("--worst", type=int, default=0, help="number of sentences to list")
    parser.add_argument(
        "--messages", action="store_true", help="measure string literals of Python files instead"
    )
    options = parser.parse_args()
    rows = []
    for path in options.paths:
        found = read_path(path, message_sentences if options.messages else None)
        print(f"{path!s:44} {Figures.of_sentences(one for _, _, one in found)}")
        rows += found

    def weight(row: tuple[Path, int, str]) -> int:
        relatives = sum(word.strip(".,:;()").lower() in RELATIVE for word in row[2].split())
        return (
            2 * len(CLAUSE.findall(row[2]))
            + 2 * bool(OPENING.match(row[2]))
            + max(0, relatives - 1)
        )

    for file, line, one in sorted(rows, key=weight, reverse=True)[: options.worst]:
        print(f"{file}:{line}  [{weight((file, line, one))}]  {one[:200]}")


if __name__ == "__main__":
    main()
