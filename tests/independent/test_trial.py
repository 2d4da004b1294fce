"""Self-test of the trial: it detects mistakes, minimises them, and resumes."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.independent.__main__ import main
from tests.independent.draw import make
from tests.independent.programs import Branch, Data, Gradient, Let, Merge, Node, Program
from tests.independent.shrink import shrunk
from tests.independent.verdict import tried

T = frozenset({"t"})
X = frozenset({"x"})


def program(code: str, plain: str, *more: Merge | Gradient, name: str = "y") -> Program:
    """Return a tensor of x in two forms that may differ."""
    node = Node(code, plain, T, (), "f", reads=X, smooth=X)
    statements = (Data("x", ("t",), (), "f", 7), Let("y", ("t",), (), "f", node), *more)
    return Program(("t",), {"t": 6}, statements, ()).returning([name])


@pytest.fixture(autouse=True)
def as_users_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIMERL_EXECUTOR", "xla")


def test_what_differs_is_told() -> None:
    assert tried(program("x * 2.0", "x[t] * 2.0")).kind == "agreed"
    assert tried(program("x * 2.0", "x[t] * 2.001")).kind == "values"
    assert tried(program("x[T - 1 - t]", "x[t]")).kind == "values"


def test_a_wrong_derivative_is_told() -> None:
    gradient = Gradient("g", ("t",), (), "f", "y", "x")
    right = program("x.sin()", "np.sin(x[t])", gradient, name="g")
    assert tried(right).gradients == 2
    held = program("x.detach() * x", "x[t] * x[t]", gradient, name="g")
    assert tried(held).kind == "gradient"
    flat = "np.abs(x[t] - loops.detached('d', (t,), x[t]))"
    kink = program("(x - x.detach()).abs()", flat, gradient, name="g")
    assert tried(kink).skipped == ("a kink",)


def test_refusals_are_foreseen() -> None:
    outside = program("x[t + 1]", "x[t + 1]")
    assert tried(outside).kind == "refused"
    assert tried(program("x", "x[t + 1]")).kind == "accepted"
    assert tried(program("x[t + 1]", "x[t]")).kind == "refusal"

    def merged(*branches: tuple[str, str, str]) -> Program:
        made = [
            Branch((left,), ("t",), Node(code, plain, T, (), "f", reads=frozenset({"x", "m"})))
            for left, code, plain in branches
        ]
        return program("x", "x[t]", Merge("m", ("t",), (), "f", tuple(made)), name="m")

    uncovered = merged(("t + 1", "x", "x[t]"))
    assert tried(uncovered).kind == "refused"
    twice = merged(("t", "x", "x[t]"), ("t", "x", "x[t]"))
    assert tried(twice).kind == "refused"
    circle = merged(("t", "m + x", "m[t] + x[t]"))
    assert tried(circle).kind == "refused"


def test_a_disagreement_is_made_small() -> None:
    node = Node("(y.sin() + x * y)", "(np.sin(y[t]) + 1.5 * x[t] * y[t])", T, (), "f")
    part = Node("(x * y)", "(1.5 * x[t] * y[t])", T, (), "f", reads=frozenset({"x", "y"}))
    node = replace(node, parts=(part,), reads=part.reads)
    large = program("x * 2.0", "x[t] * 2.0")
    statements = (*large.statements, Let("wrong", ("t",), (), "f", node))
    large = replace(large, statements=statements, options={"lift": False, "fuse": False})
    small = shrunk(large.returning(["y", "wrong"]), "values")
    assert not small.options
    assert small.outputs == ("wrong",)
    assert small.names["wrong"] == Let("wrong", ("t",), (), "f", part)
    assert set(small.bounds.values()) == {1}
    compile(small.code(), "code", "exec")
    compile(small.plain(), "plain", "exec")


def test_a_seed_is_one_program() -> None:
    for seed in range(20):
        assert make(seed) == make(seed)
        assert make(seed).code() == make(seed).code()


def test_fuzzing_goes_on_where_it_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent.parent.parent))

    def fuzz(*arguments: str) -> str:
        monkeypatch.setattr(sys, "argv", ["tests.independent", *arguments, "--seed", "3"])
        assert main() == 0
        return capsys.readouterr().out

    assert "up to seed 3:" in fuzz("1", "--minutes", "0")
    assert "up to seed 4: 1 " in fuzz("1")
    state = Path("runs/independent.json")
    assert json.loads(state.read_text()) == {"next": {"3": 4}, "wrong": []}
    assert "none was left to try" in fuzz("1")
