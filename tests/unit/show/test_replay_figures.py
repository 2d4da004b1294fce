"""Figures of a draw, and of the mapping of primitives to devices."""

from __future__ import annotations

import numpy as np
import pytest

import timerl_nb as trl
from tests.unit.compose.test_compose import links, published
from timerl_nb.replay import Proportional, Replay, SumTree


@pytest.mark.parametrize("fanout", [2, 8])
@pytest.mark.parametrize("share", [0.0, 0.3, 0.999999, 1.0])
def test_a_draw_is_shown_as_it_is_made(fanout: int, share: float) -> None:
    tree = SumTree(100, fanout)
    tree.insert(0, np.random.default_rng(3).random(100) * (np.arange(100) % 3 > 0))
    (entry,) = tree.entries_at([share]).tolist()
    path = tree.path(share)
    assert len(path) == len(tree.levels.widths) - 1
    assert path[0][0] == 0 and sum(path[0][1]) == pytest.approx(tree.total)
    for (first, sums, chosen, left), (below, parts, *_) in zip(path, path[1:], strict=False):
        assert below == (first + chosen) * fanout and sum(parts) == pytest.approx(sums[chosen])
        assert sum(sums[:chosen]) <= left + 1e-9
    first, sums, chosen, _ = path[-1]
    assert first + chosen == entry and sums[chosen] == tree.priorities[entry] > 0
    figure = trl.show.tree(tree, share)
    assert f"entry {entry}" in figure.layout.title.text
    assert len(figure.data) == 2 * len(path)


def test_a_mapping_has_a_cell_for_each_assignment() -> None:
    figure = trl.show.mapping(published(), links())
    cells, modelled, chosen, not_there = figure.data
    choice = trl.compose.choose(published(), links())
    at = {name: k for k, name in enumerate(cells.x)}
    for one in choice.all:
        i, j = at[one.learner], at[one.manager]
        assert cells.z[i][j] == pytest.approx(512 / one.seconds)
        for name, seconds in one.terms.items():
            assert f"{name}: {seconds * 1e3:.4g} ms" in cells.text[i][j]
    assert (chosen.x, chosen.y) == ((choice.best.manager,), (choice.best.learner,))
    assert modelled.x == not_there.x == ()


def test_what_is_no_tree_is_refused() -> None:
    with pytest.raises(trl.errors.OptionError, match="no priorities"):
        trl.show.tree(Replay(8, {"x": ((), "f32")}))
    with pytest.raises(trl.errors.OptionError, match="all priorities are zero"):
        trl.show.tree(Replay(8, {"x": ((), "f32")}, priority=Proportional()))
    with pytest.raises(trl.errors.TimeRLError, match="measure"):
        trl.show.mapping(trl, links())
