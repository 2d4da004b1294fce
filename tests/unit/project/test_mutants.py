"""`make mutants`: mutated and excluded code, and existence of all named functions."""

from __future__ import annotations

from itertools import islice

import pytest

from tests.mutants.__main__ import KILLED, listed
from tests.mutants.behaviours import BEHAVIOURS
from tests.mutants.covering import ASKED
from tests.mutants.edits import drawn, is_one, mutants
from tests.mutants.sources import FILES, ROOT, places

SNIPPET = '''
def size(a: int = 1, *, ways: "dict[str, int] | None" = None) -> int:
    """At least 1, if a < 2."""
    found = []
    for k in range(a):
        if not k or k in (a, a) and a < k <= a:
            continue
        found.append(k)
    if (n := len(found)) > 2:
        raise ValueError(f"more than {n + 1}" if n > 3 else "2 < 3")
    assert a != 1, f"{a - 1}"
    return max(size(a, n), (a - n) - a)  # 1 < 2

def text(a): return a + 1
'''


def changes(text: str) -> set[str]:
    return {one.what for one in mutants("x.py", text)}


def test_mutations_of_a_snippet() -> None:
    found = changes(SNIPPET)
    assert {
        "a < k <= a becomes a <= k <= a",
        "a < k <= a becomes a < k < a",
        "k in (a, a) becomes k not in (a, a)",
        "k in (a, a) and a < k <= a becomes (k in (a, a) or a < k <= a)",
        "not k becomes k",
        "continue becomes pass",
        "found.append(k) becomes pass",
        "(n := len(found)) > 2 becomes (n := len(found)) >= 2",
        "2 becomes 3",
        "2 becomes 1",
        "max becomes min",
        "size(a, n) becomes size(n, a)",
        "(a - n) - a becomes (a - (a - n))",
        "a - n becomes (n - a)",
        "a - n becomes a",
        "1 becomes 0",
    } <= found
    assert len(found) == 21, "\n".join(sorted(found))


def test_each_changes_its_own_part_of_the_text() -> None:
    for one in mutants("x.py", SNIPPET):
        after = one.of(SNIPPET)
        assert after.startswith(SNIPPET[: one.start])
        assert after.endswith(SNIPPET[one.end :])
        assert is_one(one, SNIPPET)


@pytest.mark.parametrize(
    "text",
    [
        'def f():\n    """1 < 2"""',
        "x: tuple[Literal[1, 2], int | None]",
        'def f(a):\n    raise E(a + 1, f"{a < 2}")',
        "assert a < 1, a - 1",
        'x = f"{a - 1} of {min(a, b)}"',
        "def to_json(a): return a - 1",
        "class A:\n    def __str__(self): return self.a - 1",
        "def f(a) -> str: return a[1]",
        "x = SomeError(a - 1)",
        "edit.steps.append(1 + 2)",
        "x = True",
    ],
)
def test_what_is_said_is_left_alone(text: str) -> None:
    assert not changes(text)


def test_lines_have_names_that_outlive_what_stands_before_them() -> None:
    assert places(SNIPPET)[7] == "size: continue"
    assert places(f"# more\n{SNIPPET}")[8] == "size: continue"


def test_a_seed_draws_the_same_and_more_of_them_begin_alike() -> None:
    texts = {file: (ROOT / file).read_text() for file in list(FILES)[:4] + list(FILES)[-2:]}

    def keys(count: int, seed: int) -> list[str]:
        return [one.key for one in islice(drawn(texts, FILES, seed), count)]

    few = keys(6, 1)
    assert few == keys(12, 1)[:6] and len({*few}) == 6
    assert few != keys(6, 2)


@pytest.mark.parametrize("name", BEHAVIOURS)
def test_a_behaviour_is_of_a_function_that_is_there(name: str) -> None:
    assert BEHAVIOURS[name].found() and BEHAVIOURS[name].is_there(ROOT)


def test_tests_that_are_asked_are_there() -> None:
    assert all((ROOT / tests).exists() for tests in ASKED)


def test_tests_that_are_named_can_be_asked() -> None:
    for one in listed(KILLED):
        file, _, name = one["by"].partition("::")
        assert file in ASKED and f"def {name.partition('[')[0]}(" in (ROOT / file).read_text()
