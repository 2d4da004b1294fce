"""Mapping of primitives to devices: published tables, brute force on random ones, and a manual FPGA case."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

import timerl_nb as trl
from timerl_nb.compose import (
    Bytes,
    Device,
    Fpga,
    Latency,
    Link,
    Links,
    Manager,
    Table,
    Words,
    choose,
    portability,
)
from timerl_nb.compose.fpga_model import balance_multipliers, stages
from timerl_nb.replay.training.training_run import _learner

INF = float("inf")


def manager(sample: float, insert: float, update: float) -> Manager:
    return Manager(Latency(sample), Latency(insert), Latency(update))


def published() -> Table:
    """Return the performance table of the paper's code, in milliseconds: sample, insert, update, learn."""
    alone = {
        "CPU": (0.03, 0.0013, 0.002, 0.6),
        "GPU1": (0.5, 0.0006, 0.001, 0.2),
        "GPU2": (0.4, 0.0008, 0.001, 0.3),
        "FPGA": (0.1, 0.00102, 0.0015, 0.5),
    }
    both = {
        "CPU": (0.3, 0.0001, 0.002, 0.6),
        "GPU1": (0.6, 0.0006, 0.002, 0.6),
        "GPU2": (0.53, 0.0012, 0.001, 0.53),
        "FPGA": (0.2, 0.0013, 0.0015, 0.5),
    }
    devices = {
        d: Device(
            manager(*(x / 1e3 for x in alone[d][:3])),
            Latency(alone[d][3] / 1e3),
            (manager(*(x / 1e3 for x in both[d][:3])), Latency(both[d][3] / 1e3)),
        )
        for d in alone
    }
    return Table(devices, batch=512, experience=4 * 2 + 2 + 2, inserted=256, host="CPU")


def links() -> Links:
    """Return links; the table has latencies in ms and bandwidths in GB per ms."""
    given = {
        ("CPU", "CPU"): (0.002, 0.032),
        ("CPU", "GPU1"): (1, 0.016),
        ("CPU", "GPU2"): (1, 0.008),
        ("CPU", "FPGA"): (1, 0.016),
        ("GPU1", "GPU1"): (0.0002, 0.61),
        ("GPU2", "GPU2"): (0.0002, 0.32),
        ("FPGA", "FPGA"): (1.6e-7, 0.064),
    }
    return Links({k: Link(l / 1e3, w * 1e12) for k, (l, w) in given.items()}, "CPU")


def test_the_published_tables() -> None:
    # the formulas of code and text, over free links, as in the paper
    free = Links({k: Link(0.0, INF) for k in links().known}, "CPU")
    code, text = choose(published(), free, "published"), choose(published(), free)
    assert (code.best.manager, code.best.learner) == (text.best.manager, text.best.learner)
    assert (code.best.manager, code.best.learner) == ("CPU", "GPU1")
    assert code.best.seconds == pytest.approx(0.23e-3)
    assert text.best.seconds == pytest.approx(0.232e-3)
    assert round(code.best.experiences(512)) == 2_226_087
    assert round(text.best.experiences(512)) == 2_206_897


def test_experience_is_placed_by_bytes() -> None:
    table = published()
    assert table.traffic == {
        "learner": Bytes(26_624),
        "actors": Bytes(12_288),
        "manager": Bytes(2048),
    }
    found = choose(table, links(), "published")
    assert (found.best.manager, found.best.learner, found.memory) == ("CPU", "GPU1", "CPU")
    milliseconds = {d: round(x * 1e3, 4) for d, x in found.traffic.items()}
    assert milliseconds == {"CPU": 1.0061, "GPU1": 2.0011, "GPU2": 4.0068, "FPGA": 4.0042}


def test_kinds_of_amounts_do_not_mix() -> None:
    assert Words(512).to_bytes(4) + Bytes(2) == Bytes(2050)
    with pytest.raises(TypeError):
        Words(512) + Bytes(2)  # type: ignore[operator]
    with pytest.raises(TypeError, match="a link transfers Bytes, not Words"):
        Link(0.0, 1.0).seconds(Words(512))  # type: ignore[arg-type]
    assert Link(1.0, 0.0).seconds(Bytes(1)) == INF and Link(1.0, 0.0).seconds(Bytes(0)) == 0.0


def any_table(rng: np.random.Generator) -> tuple[Table, Links]:
    names = [f"d{k}" for k in range(rng.integers(1, 5))]

    def some(make: Any) -> Any:
        return make() if rng.random() > 0.25 else None

    def one() -> Manager:
        return manager(*rng.integers(1, 9, 3).astype(float))

    def step() -> Latency:
        return Latency(float(rng.integers(1, 9)), is_modelled=bool(rng.random() > 0.5))

    devices = {d: Device(some(one), some(step), some(lambda: (one(), step()))) for d in names}
    known = {
        (a, b): Link(float(rng.integers(0, 4)), float(rng.choice([0.0, 100.0, 1e9])))
        for a, b in product(names, names)
        if a <= b and rng.random() > 0.3
    }
    return Table(devices, int(rng.integers(1, 50)), 3, 2, "d0"), Links(known, "d0")


@pytest.mark.parametrize("form", ["prose", "published"])
def test_the_choice_is_the_best_of_all(form: Any) -> None:
    rng, chosen = np.random.default_rng(0), 0
    for _ in range(300):
        table, by = any_table(rng)
        indices, lengths = 4 * table.batch, dict[tuple[str, str], dict[str, float]]()

        def through(a: str, b: str, count: int, by: Links = by, table: Table = table) -> float:
            return seconds_by_hand(table, by, a, b, count)

        for i, j in product(table.devices, repeat=2):
            x, y = table.devices[i], table.devices[j]
            m, l = (x.both or (None, None)) if i == j else (x.manager, y.learner)
            if m is None or l is None or through("d0", j, 1) == INF:
                continue
            s, n, u, step = m.sample.seconds, m.insert.seconds, m.update.seconds, l.seconds
            comm = 2 * through(i, j, indices) + through("d0", i, 4 * 2)
            found = {}
            for d in table.devices:
                memory = through(d, j, indices * 4) + through(d, "d0", 4 * 2 * 3)
                moved = comm + memory + through(d, i, indices)
                if moved < INF:
                    long = s + max(step, n) + u + moved
                    found[d] = long if form == "prose" else s + max(step, u + n)
            if found:
                lengths[i, j] = found
        if not lengths:
            with pytest.raises(
                trl.errors.OptionError, match="no assignment of replay manager and learner"
            ):
                choose(table, by, form)
            continue
        choice, chosen = choose(table, by, form), chosen + 1
        best = choice.best
        least = min(x for found in lengths.values() for x in found.values())
        assert best.seconds == pytest.approx(least, rel=1e-11)
        assert lengths[best.manager, best.learner][choice.memory] == pytest.approx(least)
        assert {(x.manager, x.learner) for x in choice.all if not x.why_not} == set(lengths)
        assert len(choice.all) == len(table.devices) ** 2
        for d, seconds in choice.traffic.items():
            to = through(d, best.learner, indices * 4) + through(d, "d0", 4 * 2 * 3)
            assert seconds == pytest.approx(to + through(d, best.manager, indices))
        assert choice.traffic[choice.memory] == pytest.approx(min(choice.traffic.values()))
        if form == "prose":
            t = best.terms
            moved = t["comm"] + t["actors"] + t["memory"]
            assert best.traffic == pytest.approx(moved) and moved < INF
            whole = t["sample"] + max(t["learn"], t["insert"]) + t["update"] + moved
            assert whole == pytest.approx(best.seconds)
    assert chosen > 50


FORMS: list[Any] = ["prose", "published"]


def fast_and_slow(fast: str) -> dict[str, Device]:
    """Return a host, and a device a hundred times as fast."""
    quick, slow = manager(1e-5, 1e-6, 1e-6), manager(1e-3, 1e-3, 1e-3)
    return {
        "CPU": Device(slow, Latency(1e-2), (slow, Latency(1e-2))),
        fast: Device(quick, Latency(1e-5), (quick, Latency(1e-5))),
    }


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "known", [{}, {("CPU", "FPGA"): Link(1e-6, 0.0)}, {("A", "FPGA"): Link(0.0, INF)}]
)
@pytest.mark.parametrize("inserted", [0, 8])
def test_devices_that_nothing_reaches_are_refused(form: Any, known: Any, inserted: int) -> None:
    table = Table(fast_and_slow("FPGA"), 32, 11, inserted, "CPU")
    found = choose(table, Links(known, "CPU"), form)
    assert (found.best.manager, found.best.learner, found.memory) == ("CPU",) * 3
    assert {one.why_not for one in found.all[1:]} == {"no link connects CPU and FPGA"}
    assert found.traffic["FPGA"] == INF and not found.not_executed
    alone = Table({**fast_and_slow("FPGA"), "CPU": Device(None, None, None)}, 32, 11, 8, "CPU")
    with pytest.raises(trl.errors.OptionError, match="no assignment of replay manager and learner"):
        choose(alone, Links(known, "CPU"), form)


def test_rows_of_images_are_priced() -> None:
    images, both = 2 * 84 * 84 * 4 // 4 + 3, manager(50e-6, 10e-6, 20e-6)
    devices = {
        "CPU": Device(both, Latency(9e-3), (both, Latency(9e-3))),
        "GPU": Device(None, Latency(2e-3), None),
    }
    for bandwidth, inserted, wanted in (
        (16e9, 8, ("GPU", "GPU")),  # the actors' few rows are sent, not the batch
        (16e9, 2000, ("GPU", "CPU")),  # fewer rows are drawn than come
        (0.1e9, 2000, ("CPU", "CPU")),
    ):
        table = Table(devices, 512, images, inserted, "CPU")
        by = Links({("CPU", "GPU"): Link(1e-6, bandwidth)}, "CPU")
        found = choose(table, by)
        assert (found.best.learner, found.memory) == wanted
        rows = {"GPU": 4 * inserted * images, "CPU": 4 * 512 * (images + 1)}
        if found.best.learner == "GPU":
            sent = rows[found.memory] / bandwidth
            assert found.best.terms["memory"] == pytest.approx(sent, rel=0.1)
            assert found.best.seconds == pytest.approx(2.07e-3 + sent, rel=0.01)
    assert choose(table, by, "published").best.learner == "GPU"  # its formula has no such term


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("names", [("CPU", "G"), ("G", "CPU"), ("G", "F", "CPU")])
def test_of_equal_assignments_that_with_the_least_traffic_is_chosen(
    form: Any, names: tuple[str, ...]
) -> None:
    m = manager(1e-4, 1e-5, 1e-5)
    one = Device(m, Latency(1e-3), (m, Latency(1e-3)))
    table = Table(dict.fromkeys(names, one), 32, 11, 8, "CPU")
    by = Links({("CPU", "G"): Link(0.0, 16e9), ("CPU", "F"): Link(0.0, 1e9)}, "CPU")
    found = choose(table, by, form)
    assert (found.best.manager, found.best.learner, found.memory) == ("CPU",) * 3
    free = Links({pair: Link(0.0, INF) for pair in by.known}, "CPU")
    found = choose(table, free, form)  # all devices are equal: the host
    assert (found.best.manager, found.best.learner, found.memory) == ("CPU",) * 3


def test_a_choice_says_what_a_training_cannot_execute() -> None:
    table = Table(fast_and_slow("FPGA"), 32, 11, 8, "CPU")
    found = choose(table, Links({("CPU", "FPGA"): Link(1e-6, 16e9)}, "CPU"))
    assert (found.best.manager, found.memory) == ("FPGA", "FPGA")
    assert found.not_executed == (
        "trl.replay.train cannot execute this: it stores the replay manager on CPU, not on FPGA.",
        "trl.replay.train cannot execute this: it stores experience on CPU, not on FPGA.",
    )
    assert str(found).endswith("\n".join(found.not_executed))
    rows = replace(
        found, best=replace(found.best, manager="CPU"), not_executed=found.not_executed[1:]
    )
    with pytest.warns(trl.errors.TimeRLWarning, match="stores experience on CPU, not on FPGA"):
        assert _learner(rows) == "FPGA"
    twice = Table(fast_and_slow("CPU x2"), 32, 11, 8, "CPU")
    found = choose(twice, Links({("CPU", "CPU x2"): Link(0.0, INF)}, "CPU"))
    assert found.best.manager == "CPU x2" and found.not_executed == ()


NAN = float("nan")
ANY = manager(1.0, 1.0, 1.0)
ONE = Device(ANY, Latency(1.0), (ANY, Latency(1.0)))


def tabled(**changed: Any) -> Table:
    return Table(
        **{"devices": {"CPU": ONE}, "batch": 1, "experience": 1, "inserted": 1, "host": "CPU"}
        | changed
    )


def sized(**changed: Any) -> Fpga:
    return Fpga(**{"frequency": 1e6, "sram": 1, "dsps": 1, "source": ""} | changed)


@pytest.mark.parametrize(
    "make",
    [
        *(lambda x=x: Latency(x) for x in (-1.0, NAN, INF, "1", None, True)),
        lambda: Latency(1.0, spread=-1.0),
        lambda: Manager(1.0, Latency(1.0), Latency(1.0)),  # type: ignore[arg-type]
        lambda: Device(Latency(1.0), None, None),  # type: ignore[arg-type]
        lambda: Device(ANY, 1.0, None),  # type: ignore[arg-type]
        lambda: Device(ANY, Latency(1.0), (ANY,)),  # type: ignore[arg-type]
        lambda: Device(ANY, Latency(1.0), (ANY, ANY)),  # type: ignore[arg-type]
        *(lambda x=x: Link(x, 1.0) for x in (-1.0, NAN, INF, "1")),
        *(lambda x=x: Link(0.0, x) for x in (-1.0, NAN, -INF, None)),
        lambda: Links({("CPU", "G"): 1.0}, "CPU"),  # type: ignore[dict-item]
        lambda: Links({("CPU",): Link(0.0, 1.0)}, "CPU"),  # type: ignore[dict-item]
        *(lambda x=x: tabled(batch=x) for x in (0, -5, 2.5, NAN, "8", True)),
        *(lambda x=x: tabled(experience=x) for x in (-1, 0.5, NAN)),
        *(lambda x=x: tabled(inserted=x) for x in (-1, 0.5, "8")),
        lambda: tabled(devices={"CPU": ANY}),
        *(lambda x=x: sized(frequency=x) for x in (0, -1.0, NAN, INF)),
        *(lambda x=x: sized(sram=x) for x in (-1, 0.5, NAN)),
        *(lambda x=x: sized(dsps=x) for x in (-1, 0.5)),
        lambda: sized().manager(0, 2, 1, 1),
        lambda: sized().manager(16, 3, 1, 1),
        lambda: sized().manager(16, 2, 0.5, 1),  # type: ignore[arg-type]
        lambda: sized(dsps=100).learner([(4, 2)], 0, 1),
        lambda: sized(dsps=100).learner([(4, 2)], 8, 0),
        lambda: sized(dsps=1).learner([(4, 2)], 8, 1),
        lambda: sized(dsps=100).learner([(4, -2)], 8, 1),
        lambda: sized(dsps=100).learner([], 8, 1),
        *(lambda x=x: portability({"a": 1.0, "b": x}) for x in (-1.0, NAN, INF, "1")),
        *(lambda x=x: Bytes(x) for x in (-1, NAN)),
        *(lambda x=x: Words(x) for x in (-1, NAN)),
    ],
)
def test_figures_that_are_none_are_refused_where_they_are_made(make: Any) -> None:
    with pytest.raises((trl.errors.ShapeError, trl.errors.CallError)):
        make()


def test_what_a_table_was_made_of_may_change() -> None:
    devices, known = {"CPU": ONE}, {("CPU", "CPU"): Link(0.0, 1e9)}
    table, by = tabled(devices=devices), Links(known, "CPU")
    devices.clear()
    known.clear()
    assert list(table.devices) == ["CPU"] and list(by.known) == [("CPU", "CPU")]


def seconds_by_hand(table: Table, by: Links, a: str, b: str, count: int) -> float:
    def direct(x: str, y: str) -> float | None:
        link = by.known.get((min(x, y), max(x, y)))
        if link is None:
            return None
        return link.latency + (count / link.bandwidth if link.bandwidth else INF)

    found = direct(a, b)
    if found is not None:
        return found
    if a == b:
        return 0.0
    if "d0" in (a, b):
        return INF
    ways = direct(a, "d0"), direct("d0", b)
    return INF if None in ways else ways[0] + ways[1]  # type: ignore[operator]


FPGA = Fpga(250e6, sram=7_110 * 20 * 1024, dsps=5_760, source="made up for this test")


def test_an_fpga_by_its_equations() -> None:
    # 2 F (B + D) / f: five levels of sixteen, twenty of two
    found = FPGA.manager(2**20, 16, 256, inserted=8)
    assert found.sample.seconds == pytest.approx(2 * 16 * (256 + 5) / 250e6)
    assert found.update.seconds == pytest.approx(2 * (256 + 5) / 250e6)
    assert found.insert.seconds == pytest.approx(2 * (8 + 5) / 250e6)
    binary = FPGA.manager(2**20, 2, 256, inserted=8).sample
    assert binary.seconds == pytest.approx(4.416e-6) and binary.is_modelled
    layers = [(4, 64), (64, 64), (64, 2)]
    assert stages(layers) == [256, 4096, 128, 256, 4096, 128, 4096, 128]
    one, two = (FPGA.learner(layers, 64, k).seconds for k in (1, 2))
    work = stages(layers)
    given = balance_multipliers(work, 5_760)
    slowest = max(n / u for n, u in zip(work, given, strict=True))
    assert one == pytest.approx(slowest * (64 + 8) / 250e6)
    assert two == pytest.approx(
        max(n / u for n, u in zip(work, balance_multipliers(work, 2_880), strict=True))
        * (32 + 8)
        / 250e6
    )


@pytest.mark.parametrize("units", [3, 4, 7, 12])
def test_stages_are_balanced_as_well_as_can_be(units: int) -> None:
    work = [10, 3, 25]
    found = balance_multipliers(work, units)
    assert sum(found) == units

    def slowest(given: Any) -> float:
        return max(n / u for n, u in zip(work, given, strict=True))

    ways = [w for w in product(range(1, units), repeat=3) if sum(w) == units]
    assert slowest(found) == min(map(slowest, ways))


def test_an_fpga_that_is_too_small_says_what_does_not_fit() -> None:
    layers = [(4, 64), (64, 2)]
    whole = FPGA.device(2**16, 16, layers, 64, 8)
    assert whole.manager and whole.learner and whole.both and not whole.why_not
    no_tree = FPGA.device(2**24, 16, layers, 64, 8)
    assert no_tree.manager is None and no_tree.learner and no_tree.both is None
    assert no_tree.why_not.startswith("the tree takes 572,662,")
    tight = Fpga(250e6, sram=32 * 1100, dsps=10, source="made up")
    either = tight.device(1000, 16, layers, 64, 8)
    assert either.manager and either.learner and either.both is None
    assert either.why_not == "both together exceed its memory"
    nothing = Fpga(250e6, sram=100, dsps=10, source="made up").device(1000, 16, layers, 64, 8)
    assert nothing.manager is nothing.learner is nothing.both is None
    table = Table({"CPU": nothing}, 64, 12, 8, "CPU")
    with pytest.raises(trl.errors.OptionError) as caught:
        choose(table, Links({}, "CPU"))
    assert "the tree takes" in str(caught.value) and "the network takes" in str(caught.value)


def test_one_device_needs_no_link() -> None:
    table = Table({"CPU": published().devices["CPU"]}, 512, 12, 256, "CPU")
    found = choose(table, Links({}, "CPU"))
    assert found.best.terms["comm"] == 0.0 and found.memory == "CPU"
    assert str(found).splitlines()[0].endswith("rows a second  *")


def test_portability_is_the_harmonic_mean() -> None:
    assert portability({"a": 1, "b": 4, "c": 4}) == 2.0
    assert portability({"a": 1, "b": 4, "c": 0}) == 0.0
    with pytest.raises(trl.errors.OptionError):
        portability({})


def test_arguments_are_checked() -> None:
    with pytest.raises(trl.errors.OptionError, match="'GPU' is not a device"):
        Table(published().devices, 1, 1, 1, "GPU")
    with pytest.raises(trl.errors.OptionError, match="prose"):
        choose(published(), links(), "code")  # type: ignore[arg-type]
