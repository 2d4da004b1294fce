"""A compilation as a self-contained HTML file; names are never markup."""

from __future__ import annotations

import base64
import hashlib
import os
import re
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

import timerl_nb as trl
from tests.reinforce import reinforce
from timerl_nb.base.errors import ExecutionError, OptionError
from timerl_nb.show import html_page as pages
from timerl_nb.show.html_markup import element, join_parts

EVIL = "</script></title><img src=x onerror=alert(1)>\"'<svg onload=alert(2)>"
HTML = (
    "html head meta title style body header h1 h2 h3 p nav ul li a main section table thead tbody"
)
MORE = "tr th td span div pre details summary input script"
SVG = "svg g rect circle path line text polygon ellipse polyline tspan"
TAGS = {*HTML.split(), *MORE.split(), *SVG.split()}


class Elements(HTMLParser):
    """The elements of a page as a browser parses them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag not in ("meta", "input", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def program() -> trl.Program:
    return reinforce(5, hidden=(4,)).compile({"B": 3, "I": 4, "T": 12})


@pytest.fixture(scope="module")
def text(program: trl.Program) -> str:
    return pages.page(program)


def test_the_page_has_every_stage(program: trl.Program, text: str) -> None:
    plain = unescape(text)
    for stage in program.stages.values():
        assert f'href="#stage-{stage.name}"' in text and f'id="stage-{stage.name}"' in text
        if stage.rewritten is None or stage.diff().changes:
            assert str(stage.artifact) in plain, stage.name
    for reason in set(program.stages["vectorize"].rewritten.refused.values()):
        assert reason in plain
    for op in program.pdg:
        assert f'id="operation-{op.id}"' in text
    for line in str(program.ast).splitlines():
        assert line in re.sub(r"</?span[^>]*>", "", plain)
    for store in program.memory.stores.values():
        assert store.why in plain


def test_the_page_is_well_formed_and_asks_for_nothing(text: str) -> None:
    found = Elements(text)
    assert not found.open and set(found.tags) <= TAGS, set(found.tags) - TAGS
    assert found.tags.count("script") == 1 and found.tags.count("svg") > 8
    for name, value in found.attributes:
        assert not name.startswith("on"), (name, value)
        if name.endswith(("href", "src")):
            assert value.startswith("#"), (name, value)
        elif not name.startswith("xmlns"):
            assert "://" not in value, (name, value)
    style = text[text.index("<style>") : text.index("</style>")]
    assert "url(" not in style and "@import" not in style
    ids = [value for name, value in found.attributes if name == "id"]
    assert len(ids) == len(set(ids))
    assert {v[1:] for n, v in found.attributes if n == "href"} <= set(ids)


def test_the_page_names_no_folder_of_the_machine(text: str) -> None:
    assert "reinforce.py:" in text
    assert str(Path(__file__).parents[3]) not in text and str(Path.home()) + "/" not in text


def test_names_are_never_markup() -> None:
    with trl.Context("t") as ctx:
        ((t, _),) = ctx.dims
        with ctx.region(EVIL):
            x = trl.data(np.arange(4.0), domain=(t,)).named(EVIL)
            y = (x * 2).named(EVIL)
        ctx.output(EVIL, y[t] + x[0])
    program = ctx.compile({"T": 4})
    found = Elements(pages.page(program, EVIL))
    assert set(found.tags) <= TAGS and found.tags.count("script") == 1
    assert not [name for name, _ in found.attributes if name.startswith("on")]
    assert EVIL in unescape(pages.page(program, EVIL))


def test_the_script_is_the_only_one_that_may_run(text: str) -> None:
    """The policy allows the script by its hash: an injected one would not run."""
    script = text[text.index("<script>") + len("<script>") : text.rindex("</script>")]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    (policy,) = (v for n, v in Elements(text).attributes if n == "content" and "default" in v)
    assert policy.split("; ") == [
        "default-src 'none'",
        "style-src 'unsafe-inline'",
        f"script-src 'sha256-{digest}'",
    ]


def test_a_page_is_written_whole_or_not_at_all(
    program: trl.Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = program.export_html(tmp_path / "runs/program", "a title")
    assert path == tmp_path / "runs/program.html"
    before = path.read_text()
    assert "<h1>a title</h1>" in before and len(before) < 1_000_000

    def fail(*_: object) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(ExecutionError, match="disk is full"):
        program.export_html(path, "another")
    assert path.read_text() == before and [p.name for p in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("name", ["", "program.svg"])
def test_what_is_no_html_file_is_refused(program: trl.Program, tmp_path: Path, name: str) -> None:
    with pytest.raises(OptionError, match="is not the path of an HTML file"):
        program.export_html(tmp_path / name)


def test_what_cannot_be_drawn_leaves_its_text(
    program: trl.Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: object) -> str:
        raise RuntimeError("<no> ink")

    monkeypatch.setattr(type(program.ast), "to_svg", fail)
    section = pages.page(program).split('<section id="stage-ast"')[1].split("</section>")[0]
    assert "No picture (&lt;no&gt; ink)" in section and "for i in range" in section


def test_elements_escape_text_and_attributes() -> None:
    made = element("a", "<b>", element("i", "&"), None, href='"#x', hidden=False, open=True)
    assert made == '<a href="&quot;#x" open>&lt;b&gt;<i>&amp;</i></a>'
    assert join_parts(["<", [made]]) == f"&lt;{made}"
