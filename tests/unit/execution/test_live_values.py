"""Values of a run between two iterations, and their heat maps."""

from __future__ import annotations

import numpy as np
import pytest

import timerl_nb as trl
from timerl_nb.base.errors import CallError, ExecutionError, OptionError
from timerl_nb.execution.results.live_values import LiveValues
from timerl_nb.runtime.interpreter.interpreter import Instruction
from timerl_nb.show import ValuesView
from timerl_nb.show.memory.value_view import MOST


def compiled(executor: str) -> trl.Program:
    """x[i] is a matrix of multiples of 3 ** i, and an output contains all of them. b and c have one bound."""
    with trl.Context("b", "i", "t") as ctx:
        (b, B), (i, I), (t, T) = ctx.dims
        x = trl.tensor((2,), domain=(b, i, t)).named("x")
        x[b, 0, 0] = trl.constant(np.array([1.0, 2.0], np.float32)) + trl.value(b).floating()
        x[b, i + 1, 0] = x[b, i, T - 1]
        x[b, i, t + 1] = x * 3.0
        ctx.output("last", x[b, i, T - 1].sum(over=b))
    return ctx.compile({B: 3, I: 6, T: 2}, trl.Options(executor=executor))


@pytest.mark.parametrize("executor", ["interpret", "xla"])
def test_live_values_are_those_of_the_recurrence(executor: str) -> None:
    program = compiled(executor)
    start = np.array([1.0, 2.0], np.float32) + np.arange(3, dtype=np.float32)[:, None]
    with program.start(paused=True) as run:
        assert run.wait()
        for turn in range(1, 6):
            run.step()
            assert run.wait()
            live = run.live_values()
            last = live["last"]
            assert last.dims == ("i",) and last.points.ravel().tolist() == list(range(turn))
            expected = [(start * 3.0 ** (k + 1)).sum(axis=0) for k in range(turn)]
            np.testing.assert_array_equal(last.values, expected)
            carried = [one for n, one in live.items() if n.startswith("x")]
            assert any(
                np.array_equal(one.values[-1], start * np.float32(3.0**turn))
                and one.axes == ("b", "")
                for one in carried
            ), live
            last.values[...] = np.nan  # a copy: the run must not see it
        run.resume()
        assert np.isfinite(run.result()["last"]).all()
        with pytest.raises(ExecutionError, match="the run has ended"):
            run.live_values()


def test_values_before_the_first_iteration_are_those_computed_before_it() -> None:
    with compiled("interpret").start(paused=True) as run:
        assert run.wait()
        assert "last" not in run.live_values()


def test_a_run_without_iterations_has_no_values_between_them() -> None:
    with trl.Context("t") as ctx:
        ((t, T),) = ctx.dims
        ctx.output("y", trl.value(t).floating().sum(over=t))
    with ctx.compile({T: 3}).start(paused=True) as run:
        assert run.wait()
        with pytest.raises(ExecutionError, match="unknown: no outermost loop"):
            run.live_values()


def live(
    dims: tuple[str, ...], points: list[list[int]], axes: tuple[str, ...], values: object
) -> LiveValues:
    table = np.array(points, np.int64).reshape(len(points), len(dims))
    return LiveValues((7, 0), dims, table, axes, np.array(values, np.float32))


def test_a_heat_map_names_its_axes_and_marks_nans() -> None:
    values = [[[1.0, np.nan], [-2.0, np.inf]]]
    view = ValuesView.from_values(
        {"w": live(("i",), [[4]], ("b", ""), values)}, "after 4 iterations"
    )
    (one,) = view.maps
    assert (one.rows.name, one.rows.labels) == ("i, b", ("4, 0", "4, 1"))
    assert (one.columns.name, one.columns.labels) == ("axis 1", ("0", "1"))
    assert one.cells.tolist() == [1.0, 0.0, -2.0, 0.0]
    assert one.marks.tolist() == [0, 1, 0, 2]
    assert (one.least, one.most, one.nans, one.infinities) == (-2.0, 1.0, 1, 1)
    assert (
        str(view).splitlines()[1]
        == "w: float32, 2 along i, b × 2 along axis 1: -2 to 1, 1 NaN, 1 infinite"
    )
    assert view.to_svg().count('data-mark="NaN"') == 1


def test_numbers_at_points_form_a_table_in_the_order_of_the_points() -> None:
    points = [[1, 0], [0, 1], [0, 0], [1, 1], [0, 2], [1, 2]]
    numbers = [10 * i + t for i, t in points]
    (one,) = ValuesView.from_values({"r": live(("i", "t"), points, (), numbers)}).maps
    assert (one.rows.labels, one.columns.labels) == (("0", "1"), ("0", "1", "2"))
    assert one.cells.tolist() == [0, 1, 2, 10, 11, 12]
    triangle = live(("i", "t"), [[0, 0], [1, 0], [1, 1]], (), [1, 2, 3])
    (one,) = ValuesView.from_values({"r": triangle}).maps
    assert (one.columns.name, one.columns.labels) == ("i, t", ("0, 0", "1, 0", "1, 1"))


def test_a_large_tensor_becomes_means_and_none_of_its_nans_is_lost() -> None:
    values = np.arange(2 * 100 * 130, dtype=np.float32).reshape(2, 100, 130)
    values[1, 99, 129] = np.nan
    (one,) = ValuesView.from_values({"w": live(("i",), [[0], [1]], ("", ""), values)}).maps
    assert len(one.cells) == MOST * MOST and one.rows.size == 200 and one.columns.size == 130
    assert one.marks.sum() == one.marks[-1] == 1
    table = values.reshape(200, 130)
    assert one.cells[0] == pytest.approx(table[:4, :2].mean())
    assert one.rows.labels[1] == "0, 4" and one.columns.labels[1] == "2"


def test_labels_are_the_indices_of_the_first_value_of_each_cell() -> None:
    values = np.zeros((2, 5, 7, 3, 4), np.float32)
    (one,) = ValuesView.from_values({"w": live(("i",), [[4], [6]], ("", "", "", ""), values)}).maps
    places = [(i, *rest) for i in (4, 6) for rest in np.ndindex(5, 7, 3)]
    firsts = sorted({int(k * len(places) / MOST) for k in range(MOST)})
    assert one.rows.size == len(places)
    assert one.rows.labels == tuple(", ".join(map(str, places[k])) for k in firsts)


def test_tensors_without_a_value_are_named() -> None:
    view = ValuesView.from_values({}, tensors={(3, 0): "g"})
    assert view.maps == () and view.missing == ("g",)
    assert "g: no value is stored at this instant" in view.to_svg()


@pytest.mark.parametrize("executor", ["interpret", "xla"])
def test_values_within_an_iteration_are_those_of_a_stepped_run(executor: str) -> None:
    program = compiled(executor)
    stepped = compiled("interpret")
    launches, expected = 0, list[dict[str, dict[object, np.ndarray]]]()
    while (done := stepped.step()) is not None:
        if done.kind == "execute":
            held = {
                name: {point: np.array(value) for point, value in at.items()}
                for name, at in stepped.stores.items()
            }
            expected.append(held)
            launches += 1
    before, turns = _launches_before(stepped), 3
    with program.start(paused=True) as run:
        run.step(turns)
        assert run.wait()
        for k in range(1, 4):
            values = program.values_after(run, k)
            held = expected[before[turns] + k - 1]
            assert values, "something is stored"
            for name, one in values.items():
                for point, value in zip(one.points.tolist(), one.values, strict=True):
                    key = point[0] if len(point) == 1 else tuple(point)
                    np.testing.assert_array_equal(value, held[name][key])
        assert run.turn == turns
        run.resume()
        result = run.result()
    np.testing.assert_array_equal(result["last"], program.execute()["last"])


def _launches_before(program: trl.Program) -> list[int]:
    """Return the number of launches before each iteration of the outermost loop."""
    counts, done = [0], 0
    outer = None
    while (one := program.step()) is not None:
        if one.kind != "execute":
            continue
        if one.point and outer is not None and one.point[0] > outer:
            counts.append(done)
        if one.point:
            outer = one.point[0]
        done += 1
    return counts


def two_loops() -> trl.Program:
    """z doubles in a first loop; x starts with the last z, and grows in a second loop."""
    with trl.Context("j", "i", "t") as ctx:
        (j, J), (i, I), (t, T) = ctx.dims
        z = trl.tensor((2,), domain=(j,)).named("z")
        z[0] = trl.constant(np.array([1.0, 2.0], np.float32))
        z[j + 1] = z * 1.5
        x = trl.tensor((2,), domain=(i, t)).named("x")
        x[0, 0] = z[J - 1]
        x[i + 1, 0] = x[i, T - 1] + 1.0
        x[i, t + 1] = x * 1.25
        ctx.output("last", x[i, T - 1])
    return ctx.compile({J: 4, I: 5, T: 3}, trl.Options(executor="xla"))


def test_values_of_a_program_with_two_outermost_loops() -> None:
    """XLA runs the first loop as one call, and the interpreter iteration by iteration."""
    program = two_loops()
    cuts = program.executable.cuts
    assert cuts().cut_after(2) != cuts(recorded=True).cut_after(2)
    expected = np.array([1.0, 2.0]) * 1.5**3
    with program.start(paused=True) as run:
        for _ in range(2):
            run.step()
            assert run.wait()
            expected = expected * 1.25**2 + 1.0
        within = program.values_after(run, 1)
        assert any(np.allclose(one.values[-1], expected * 1.25) for one in within.values()), within


def test_a_function_chooses_the_last_launch_of_the_iteration() -> None:
    program, seen = compiled("interpret"), list[tuple[int, ...]]()
    with program.start(paused=True) as run:
        run.step(2)
        assert run.wait()

        def is_last(done: Instruction) -> bool:
            seen.append(done.point)
            return len(done.point) == 2 and done.point[-1] == 1

        values = program.values_after(run, is_last)
        assert seen[-1] == (2, 1) and "last" in values
        whole = program.values_after(run, 10**9)  # only to the end of the iteration
        assert whole["last"].points.ravel().tolist() == [0, 1, 2]
        with pytest.raises(ExecutionError, match="has no such launch"):
            program.values_after(run, lambda _: False)


@pytest.mark.parametrize("executor", ["interpret", "xla"])
def test_a_run_that_has_not_begun_has_no_values(executor: str) -> None:
    """The buffers of XLA exist before the first iteration, without values of the program."""
    program = compiled(executor)
    with program.start(paused=True) as run:
        assert run.wait()
        assert run.live_values() == {}
        with pytest.raises(ExecutionError, match="the run has not begun"):
            program.values_after(run, 1)


def test_a_run_does_not_wait_for_itself() -> None:
    program, found = compiled("interpret"), list[Exception]()

    def on_event(_: object) -> None:
        if not found:
            with pytest.raises(ExecutionError, match="cannot wait for its own end") as caught:
                run.live_values()
            found.append(caught.value)

    with program.start(paused=True, on_event=on_event) as run:
        run.resume()
        assert run.wait(60.0) and run.state == "finished"
    assert found


@pytest.mark.parametrize("launches", [-1, 2.5, "1", None, True])
def test_the_number_of_launches_is_checked(launches: object) -> None:
    program = compiled("interpret")
    with program.start(paused=True) as run:
        run.step()
        with pytest.raises(OptionError, match=r"launches=.* is not possible"):
            program.values_after(run, launches)  # type: ignore[arg-type]


def test_values_of_a_run_of_another_program_are_refused() -> None:
    program = compiled("interpret")
    with pytest.raises(CallError, match="is not a run"):
        program.values_after(program, 1)  # type: ignore[arg-type]
    for executor in ("interpret", "xla"):
        with compiled(executor).start(paused=True) as run:
            run.step()
            with pytest.raises(ExecutionError, match="belongs to another program"):
                program.values_after(run, 1)


def test_an_iteration_with_effects_on_the_host_is_not_repeated() -> None:
    with trl.Context("i", "t") as ctx:
        (i, I), (t, T) = ctx.dims
        env = trl.env.make("gym.CartPole-v1")
        o = trl.like(env.obs_space, domain=(i, t))
        o[i, 0] = env.reset(domain=(i,))
        o[i, t + 1], reward, _ = env.step(trl.random.randint(2, domain=(i, t)))
        ctx.output("reward", reward.sum(over=t))
    program = ctx.compile({I: 3, T: 2})
    with program.start(paused=True) as run:
        run.step()
        assert run.wait()
        with pytest.raises(ExecutionError, match="has effects on the host"):
            program.values_after(run, 1)
