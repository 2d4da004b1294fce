"""Pages of docs/: Python blocks print the text below them; links and names exist.

All `python` blocks of a page run in one namespace. A following `text` block is the expected output;
`pytest --update-golden` rewrites it.
"""

from __future__ import annotations

import contextlib
import io
import linecache
import re
from pathlib import Path
from typing import Any

import pytest

import timerl_nb as trl
from timerl_nb.base.options import Options
from timerl_nb.driver.compiling.pass_selection import pipeline

ROOT = Path(__file__).parents[3]
PAGES = sorted((ROOT / "docs").rglob("*.md"))
BLOCK = re.compile(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.M | re.S)


def printed(code: str, name: str, namespace: dict[str, Any]) -> str:
    """Return the output of a block; errors name the page and line."""
    linecache.cache[name] = (len(code), None, code.splitlines(True), name)
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(code, name, "exec"), namespace)
    return "".join(line.rstrip() + "\n" for line in out.getvalue().splitlines())


def is_with_code(page: Path) -> bool:
    return "```python" in page.read_text()


@pytest.mark.parametrize("page", [*filter(is_with_code, PAGES)], ids=lambda p: p.stem)
def test_code_prints_what_the_page_says(
    page: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("TIMERL_EXECUTOR")  # as for a user
    monkeypatch.chdir(tmp_path)  # in a scratch folder
    text = page.read_text()
    namespace: dict[str, Any] = {}
    wrong: list[str] = []

    def run(block: re.Match[str]) -> str:
        code, said = block[1], block[2] or ""
        found = printed(code, f"{page.stem}.md", namespace)
        if found != said:
            wrong.append(found)
        shown = f"\n```text\n{found}```\n" if found else ""
        return f"```python\n{code}```\n{shown}"

    written = BLOCK.sub(run, text)
    if request.config.getoption("--update-golden"):
        page.write_text(written)
    else:
        assert not wrong, f"{page.name} says otherwise than the code:\n{wrong[0]}"


@pytest.mark.parametrize("page", [*PAGES, ROOT / "README.md"], ids=lambda p: p.stem)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


ALL = (ROOT / "README.md", *PAGES)
FENCED = re.compile(r"^```.*?^```$", re.M | re.S)
CODE = re.compile(r"`([^`\n]+)`")
MADE = ("build/", "runs/")  # folders of results
# Paths are relative to the root, to a source folder, or to another file of the package.
FROM = [
    ROOT / part for part in ("", "timerl_nb", "timerl_nb/runtime", "tests", "widgets", "benchmarks")
]


def is_there(path: str) -> bool:
    """Return whether a file, folder, module, or a name in a module exists."""
    for start in FROM:
        if any((start / f"{path}{end}").exists() for end in ("", ".py", ".ts")):
            return True
        stem, _, name = path.partition(".")
        module = start / f"{stem}.py"
        if name and module.exists():
            return (
                re.search(rf"\b{re.escape(name.split('.')[0])}\b", module.read_text()) is not None
            )
    return False


@pytest.mark.parametrize("page", ALL, ids=lambda p: p.stem)
def test_named_files_functions_and_targets_exist(page: Path) -> None:
    text = FENCED.sub("", page.read_text())
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.M)
    packages = {path.name for start in FROM for path in start.iterdir() if path.is_dir()}
    wrong = []
    for code in CODE.findall(text):
        for attributes in re.findall(r"(?<![\w.])trl((?:\.[A-Za-z_]\w*)+)", code):
            found: Any = trl
            for name in attributes[1:].split("."):
                found = getattr(found, name, None)
            wrong += [] if found is not None else [f"trl{attributes}"]
        if re.fullmatch(r"[\w.-]+(/[\w.-]+)+/?", code) and code.split("/")[0] in packages:
            wrong += [] if code.startswith(MADE) or is_there(code.rstrip("/")) else [code]
        if (target := re.fullmatch(r"make ([\w-]+)", code)) and target[1] not in targets:
            wrong.append(code)
    assert not wrong, f"{page.name} names {wrong}"


def test_each_pass_has_a_page_with_its_option() -> None:
    every = Options(incrementalize=1, rematerialize=True)
    for one in pipeline(every, {"T": 2}):
        page = (ROOT / "docs" / "passes" / f"{one.name}.md").read_text()
        assert page.startswith(f"# {one.name}\n")
        assert "TimeRL §" in page or "No section" in page
        assert "**Option**" in page and "**Refuses**" in page


def test_each_cited_paper_is_among_the_references() -> None:
    page = (ROOT / "docs" / "references.md").read_text()
    sources = [path.read_text() for path in (ROOT / "timerl_nb").rglob("*.py")]
    cited = {one for text in sources for one in re.findall(r"\bSource: ([A-Z][\w-]+)", text)}
    assert {"TimeRL", "RL-Scope", "PEARL", "ACS"} <= cited
    assert all(f"| {one}" in page for one in cited), cited
