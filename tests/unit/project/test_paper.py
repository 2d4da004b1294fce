"""The command that runs the figures of the TimeRL paper."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest

from benchmarks import line_chart, paper
from benchmarks.paper import fig9, fig10, fig11, model, page, tables
from benchmarks.paper.findings import faster_than_cleanrl, findings
from benchmarks.paper.pytorch_ppo import PytorchPpo
from benchmarks.paper.rows import FOLDER, Results, Row, published, read, write
from benchmarks.paper.settings import Settings, fewer_envs, smaller
from benchmarks.training.peers import jitted, parts
from benchmarks.works import Work

SMALL = Work("ppo", 4, 6, layers=1, width=8, obs_shape=(3, 2, 2))


def test_rows_survive_a_file(tmp_path: Path) -> None:
    rows = [
        Row("fig9", "envs", 128, "ours", "iteration time", "s", 0.125, "measured", 0.1, 0.25),
        Row(
            "fig9", "envs", 0.5, "a, b", "peak memory", "bytes", 2**40, "predicted", condition="x=1"
        ),
    ]
    write(tmp_path / "some" / "rows.csv", rows)
    assert read(tmp_path / "some" / "rows.csv") == tuple(rows)
    assert read(tmp_path / "absent.csv") == ()


def test_stored_rows_state_their_source_and_machine() -> None:
    files = sorted(FOLDER.glob("*.csv"))
    assert {path.name for path in files} >= {"fig9-cpu.csv", "fig10-cpu.csv", "fig11-cpu.csv"}
    for row in (row for path in files for row in read(path)):
        assert row.source in ("measured", "predicted", "published"), row
        assert bool(row.machine) == (row.source == "measured"), row
        assert np.isfinite(row.value), row
        assert row.least is None or row.least <= row.value <= (row.greatest or 0), row


def test_the_page_and_its_pictures_show_the_stored_rows() -> None:
    rows = page.load("cpu")
    text = page.PAGE.read_text(encoding="utf-8")
    assert page.filled(text, rows) == text, "run `python -m benchmarks paper page`"
    for name, picture in page.pictures(rows).items():
        assert (page.PICTURES / name).read_text(encoding="utf-8") == picture, name


def test_every_finding_has_a_verdict_without_any_rows_too() -> None:
    stored = {row for figure in ("fig9", "fig10", "fig11") for row in published(figure)}
    assert {("TimeRL", 2.18), ("TimeRL", 47)} <= {(row.system, row.value) for row in stored}
    predicted = Results(row for row in page.load("cpu") if row.source != "measured")
    without, whole = findings(predicted), findings(page.load("cpu"))
    assert [one.number for one in without] == [one.number for one in whole]
    assert all(one.because for one in whole if one.verdict in ("does not hold", "not measured"))
    assert next(one for one in without if one.number == "9.2").verdict == "not measured"


def test_findings_without_rows_are_not_measured() -> None:
    assert {one.verdict for one in findings(Results([]))} == {"not measured", "undecided"}
    assert all(page.SECTIONS[name](Results([])) for name in page.SECTIONS)


def test_a_finding_follows_its_rows() -> None:
    def times(system: str, seconds: float) -> list[Row]:
        return [
            Row("fig9", "envs", x, system, "iteration time", "s", x * seconds, "measured")
            for x in (1, 2)
        ]

    def verdict(seconds: float) -> str:
        return faster_than_cleanrl(
            Results([*times("ours", 1.0), *times("PyTorch", seconds)])
        ).verdict

    assert verdict(3.0) == "holds"
    assert verdict(2.0) == "does not hold"


def test_cells_cover_all_axes_and_contain_the_default() -> None:
    cells = list(fig9.cells())
    assert {axis for axis, _, _ in cells} == {"steps", "width", "layers", "envs"}
    assert sum(work == fig9.DEFAULT for _, _, work in cells) == 4
    assert [width for width, _ in fig10.works()][-1] == 256


def test_scaled_works_keep_their_shape() -> None:
    small = smaller(fig10.PAPER, 1 / 256)
    assert (small.envs, small.steps) == (16, 62)
    assert fewer_envs(fig9.DEFAULT, 1 / 1024).envs == 1
    budget = model.scaled_budget(fig10.PAPER, 48 * 2**30, small)
    fixed = model.BYTES * model.UPDATE * model.parameters(small)
    share = small.points / fig10.PAPER.points
    assert budget - fixed == pytest.approx((48 * 2**30 - fixed) * share, abs=1)


def test_the_number_of_parameters_is_that_of_the_programs() -> None:
    for work in (SMALL, replace(SMALL, algorithm="reinforce")):
        found = work.compile(2).execute(progress=False).parameters
        assert sum(value.size for value in found.values()) == model.parameters(work)


def test_curves_over_time_contain_all_of_the_second_iteration() -> None:
    program, found = model.plan(SMALL, executor="interpret")
    times, busy, device, host = model.utilisation(program, parts=5)
    assert len(times) == len(busy) == len(device) == len(host) == 5
    assert (np.diff(times) > 0).all() and ((busy >= 0) & (busy <= 1)).all()
    assert np.nanmax(device) <= program.memory.peak and not np.nansum(host)
    assert found.device >= program.memory.peak and found.launches > SMALL.steps


def test_acting_overlaps_learning_for_few_steps_only() -> None:
    work = Work("reinforce", 4, 20, layers=1, width=8, obs_shape=(3, 2, 2))
    shares = {n: fig11.overlap(model.plan(replace(work, window=n))[0]) for n in (2, 8, None)}
    assert shares[None] == 0 < shares[8] < shares[2] < 1


def test_tables_predict_each_pass() -> None:
    rows = Results(tables._passes(Settings(predict=True, scale=1 / 512)))
    assert rows.distinct("system") == tuple(tables.OFF)
    launches = {row.system: row.value for row in rows.where(quantity="launches")}
    assert min(launches["no vectorisation"], launches["no fusion"]) > 3 * launches[tables.ALL]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["fig12"], "unknown figures: fig12"),
        (["--rounds", "0"], "--rounds must be at least 1"),
        (["--scale", "2"], "--scale must be above 0"),
        (["--device", "tpu"], "invalid choice"),
    ],
)
def test_wrong_arguments_are_named(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        paper.main(*words)
    assert message in capsys.readouterr().err


def test_charts_tell_sources_apart() -> None:
    curves = [
        line_chart.Curve("a<b", [(1, 1.0), (10, 100.0)], source) for source in line_chart.DASHES
    ]
    panel = line_chart.Panel("title", "x", "y", curves, {"limit": 50.0})
    drawn = line_chart.draw([panel] * 4)
    assert all(f'stroke-dasharray="{dash}"' in drawn for dash in line_chart.DASHES.values())
    assert "a&lt;b" in drawn and drawn.count("limit") == 4 and "nan" not in drawn
    flat = line_chart.Panel("", "", "", [line_chart.Curve("c", [(1, 0.0)])], is_log_y=False)
    assert "nan" not in line_chart.draw([flat])


@pytest.mark.torch
@pytest.mark.parametrize("cached", [False, True])
def test_the_pytorch_script_has_the_loss_of_hand_written_jax(cached: bool) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed: make torch-env")
    script = PytorchPpo(SMALL, cached=cached)
    params = _parameters(script)
    torch.manual_seed(3)
    with torch.set_grad_enabled(cached):
        observations, actions, rewards, _, values = script._act()

    def stacked(columns: list[object]) -> np.ndarray:
        return np.stack([column.detach().numpy() for column in columns])  # type: ignore[attr-defined]

    o, a, r, v = map(stacked, (observations, actions, rewards, values))
    want, _ = jitted.learn(SMALL, params, (o, a, r, v))
    torch.manual_seed(3)
    script.advance()
    np.testing.assert_allclose(script.loss, float(want), rtol=1e-4)


def _parameters(script: PytorchPpo) -> parts.Params:
    named = {f"layer.{k}": layer for k, layer in enumerate(script._layers)}
    named |= {"mean": script._mean, "value": script._value}
    params = {"log_std": jax.numpy.zeros((1,))}
    for name, layer in named.items():
        params[f"{name}.weight"] = jax.numpy.asarray(layer.weight.detach().numpy().T)
        params[f"{name}.bias"] = jax.numpy.asarray(layer.bias.detach().numpy())
    return params
