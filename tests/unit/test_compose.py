"""Which primitive runs where: the published tables, brute force on random ones, and an FPGA by hand."""

from __future__ import annotations

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
from timerl_nb.compose.fpga import balanced, stages

INF = float("inf")


def manager(sample: float, insert: float, update: float) -> Manager:
    return Manager(Latency(sample), Latency(insert), Latency(update))


def published() -> Table:
    """The performance table of the paper's code, in milliseconds: sample, insert, update, learn."""
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
    """Their bandwidths, in GB a second there by milliseconds; latencies in milliseconds."""
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
    # the code's form, and the text's, over links that cost nothing, as theirs
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
    assert Words(512).of(4) + Bytes(2) == Bytes(2050)
    with pytest.raises(TypeError):
        Words(512) + Bytes(2)  # type: ignore[operator]
    with pytest.raises(TypeError, match="a link brings bytes, not Words"):
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


def test_the_choice_is_the_best_of_all() -> None:
    rng, chosen = np.random.default_rng(0), 0
    for _ in range(300):
        table, by = any_table(rng)
        lengths = {}
        for i, j in product(table.devices, repeat=2):
            x, y = table.devices[i], table.devices[j]
            m, l = (x.both or (None, None)) if i == j else (x.manager, y.learner)
            if m is None or l is None:
                continue
            comm = 2 * seconds_by_hand(table, by, i, j, 4 * table.batch)
            whole = m.sample.seconds + max(l.seconds, m.insert.seconds) + m.update.seconds + comm
            if whole < INF:
                lengths[i, j] = whole
        if not lengths:
            with pytest.raises(trl.errors.OptionError, match="no device can have both"):
                choose(table, by)
            continue
        found, chosen = choose(table, by), chosen + 1
        assert found.best.seconds == min(lengths.values())
        assert lengths[found.best.manager, found.best.learner] == found.best.seconds
        assert {(x.manager, x.learner) for x in found.all if not x.why_not} == set(lengths)
        assert len(found.all) == len(table.devices) ** 2
        size = 4 * table.batch
        for d, seconds in found.traffic.items():
            to = seconds_by_hand(table, by, d, found.best.learner, size * 4)
            to += seconds_by_hand(table, by, d, "d0", 4 * 2 * 3)
            assert seconds == to + seconds_by_hand(table, by, d, found.best.manager, size)
        assert found.traffic[found.memory] == min(found.traffic.values())
    assert chosen > 100


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
    given = balanced(work, 5_760)
    slowest = max(n / u for n, u in zip(work, given, strict=True))
    assert one == pytest.approx(slowest * (64 + 8) / 250e6)
    assert two == pytest.approx(
        max(n / u for n, u in zip(work, balanced(work, 2_880), strict=True)) * (32 + 8) / 250e6
    )


@pytest.mark.parametrize("units", [3, 4, 7, 12])
def test_stages_are_balanced_as_well_as_can_be(units: int) -> None:
    work = [10, 3, 25]
    found = balanced(work, units)
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
    assert either.why_not == "both together are more than its memory"
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
    with pytest.raises(trl.errors.OptionError, match="'GPU' is no device"):
        Table(published().devices, 1, 1, 1, "GPU")
    with pytest.raises(trl.errors.OptionError, match="prose"):
        choose(published(), links(), "code")  # type: ignore[arg-type]
