"""Every page, package and notebook is written in plain English, by the limits of `tests/prose.py`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.prose import Figures, message_sentences, read_path

ROOT = Path(__file__).parents[1]
GROUPS = [ROOT / "timerl_nb" / name for name in ("compiler", "runtime", "scope")]


def packages() -> list[Path]:
    """Return the packages, those of the three largest groups one by one."""
    found = [path for path in (ROOT / "timerl_nb").iterdir() if (path / "__init__.py").exists()]
    inner = [
        path for group in GROUPS for path in group.iterdir() if (path / "__init__.py").exists()
    ]
    return sorted({*found, *inner})


def pages() -> list[Path]:
    """Return the pages and notebooks, without generated ones."""
    docs = [
        page
        for page in (ROOT / "docs").rglob("*.md")
        if page.parent.name not in ("api", "tutorials")
    ]
    top = [path for path in ROOT.glob("*.md") if path.name != "CHANGELOG.md"]
    return sorted([*docs, *top, *(ROOT / "notebooks").glob("*.ipynb")])


OTHERS = [ROOT / name for name in ("timerl_command", "widgets", "tests", "benchmarks")]


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", [*packages(), *pages(), *OTHERS], ids=name)
def test_text_is_plain(path: Path) -> None:
    excesses = Figures.of_sentences(one for _, _, one in read_path(path)).excesses()
    assert not excesses, (
        f"{name(path)}: {', '.join(excesses)}; see: python -m tests.prose --worst 40 {name(path)}"
    )


@pytest.mark.parametrize("path", [p for p in packages() if p.parent.name == "timerl_nb"], ids=name)
def test_messages_are_plain(path: Path) -> None:
    rows = read_path(path, message_sentences)
    excesses = Figures.of_sentences(one for _, _, one in rows).excesses()
    assert not excesses, (
        f"messages of {name(path)}: {', '.join(excesses)}; see: "
        f"python -m tests.prose --messages --worst 40 {name(path)}"
    )
