"""Evaluation of the ACS paper: networks as kernels, stored streams, figures and their page."""

from __future__ import annotations

import gzip
import re
from dataclasses import fields
from hashlib import sha256
from pathlib import Path

import pytest

from benchmarks.acs import figures, page
from benchmarks.acs.kinds import DYNAMIC, IMAGES, LACKS, SIMULATIONS, STATIC
from benchmarks.acs.networks import NETWORKS, network
from benchmarks.acs.recorded import streams
from timerl_nb.base.errors import OptionError
from timerl_nb.streams.simulator.gpu_constants import GPUS, RTX3060, Gpu
from timerl_nb.streams.stream_file import save
from timerl_nb.streams.workloads import workload

DATASETS = Path(__file__).parents[3] / "datasets"


@pytest.mark.parametrize("name", NETWORKS)
def test_networks(name: str) -> None:
    one, again = network(name), network(name)
    assert one == again
    assert len(one) > 80 and one.width >= 1.0
    written = [s.buffer for k in one.kernels for s in k.writes]
    assert len(set(written)) < len(one) <= len(written)  # activations are in place
    assert all(k.blocks >= 1 and k.operations > 0 for k in one.kernels)


def test_dynamic_networks_depend_on_the_image() -> None:
    for name, count in IMAGES.items():
        names = [tuple(k.name for k in workload(name, k).kernels) for k in range(count)]
        assert len(set(names)) == count


def test_most_kernels_of_instanas_are_small() -> None:
    """Figure 8: a large fraction has fewer than 200 blocks."""
    kernels = workload("instanas").kernels
    assert sum(k.blocks < 200 for k in kernels) > 0.8 * len(kernels)


@pytest.mark.parametrize("name", NETWORKS)
def test_static_networks_are_stored_as_they_are_made(name: str, tmp_path: Path) -> None:
    """A change of the generator requires storing them again."""
    save(network(name), tmp_path / "made")
    stored = (DATASETS / "streams" / f"{name}.stream.gz").read_bytes()
    assert gzip.decompress((tmp_path / "made").read_bytes()) == gzip.decompress(stored)
    assert workload(name).edges == network(name).edges


@pytest.mark.torch
@pytest.mark.parametrize("name", DYNAMIC)
def test_dynamic_networks_are_stored_as_they_are_recorded(name: str) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed (make torch-env)")
    for (_, made), image in zip(streams([name]), range(3), strict=False):
        stored = workload(name, image)
        assert [k.name for k in made.kernels] == [k.name for k in stored.kernels]
        assert [k.blocks for k in made.kernels] == [k.blocks for k in stored.kernels]
        assert made.edges == stored.edges


def test_stored_streams_are_what_the_list_says() -> None:
    listed = dict(
        re.findall(
            r"\| `(streams/[^`]+)` \|.*\| `(\w{64})` \|", (DATASETS / "README.md").read_text()
        )
    )
    there = sorted((DATASETS / "streams").iterdir())
    assert {f"streams/{p.name}": sha256(p.read_bytes()).hexdigest() for p in there} == listed
    assert sum(p.stat().st_size for p in there) < 2**20


def test_every_workload_is_one_of_a_kind() -> None:
    assert sorted((*SIMULATIONS, *DYNAMIC, *STATIC, "rigid_bodies")) == sorted(LACKS)
    with pytest.raises(OptionError, match="grasp"):
        workload("grasp")
    with pytest.raises(OptionError, match="image 3"):
        workload("instanas", image=3)
    with pytest.raises(OptionError, match="image 1"):
        workload("ant", image=1)


def test_steps_of_environments_are_large_and_irregular() -> None:
    for name in SIMULATIONS:
        stream = workload(name)
        assert len(stream) > 1000
        assert 2 < stream.width < 50


def test_the_page_has_a_place_for_each_figure() -> None:
    assert page.places() == list(dict.fromkeys(page.places()))
    assert sorted(page.places()) == sorted(figures.FIGURES)
    with pytest.raises(SystemExit, match="figure 22"):
        page.main("figure 23")


@pytest.mark.parametrize(
    "name", ["constants", "figures 3 and 4", "figure 5", "figure 8", "table I"]
)
def test_the_page_has_what_would_be_written(name: str) -> None:
    assert f"<!-- {name} -->\n\n{figures.FIGURES[name]()}\n\n<!-- / -->" in page.PAGE.read_text()


def test_the_page_has_what_is_simulated() -> None:
    """Checks one stream: a change of the simulator requires `make acs`."""
    for names, operation in ((("walker2d",), figures.STEP), (("instanas",), figures.NETWORK)):
        row = figures.each(names, operation).splitlines()[-1]
        assert row in page.PAGE.read_text().splitlines()


def test_what_the_paper_claims_is_there_where_it_is_said_to_be() -> None:
    """At 1 µs per operation, for a step of walker2d:

    ACS-HW, ACS-SW, one queue, and graph construction.
    """
    found = figures.compared("walker2d", figures.STEP)
    assert 1.0 < found["acs-sw"].device < found["acs-hw"].device < 2.3
    assert found["graph"].device < found["acs-sw"].device < found["graph, built before"].device
    assert found["acs-hw"].occupancy > 2 * found["serial"].occupancy
    assert all(row.accel_sim > row.device for row in found.rows)
    assert len(str(found).splitlines()) == 2 + len(found.rows) == 10
    short = figures.compared("instanas", figures.NETWORK)
    assert short["acs-sw"].device < 1.0 < short["acs-hw"].device


def test_every_constant_has_a_source() -> None:
    for gpu in GPUS.values():
        assert [name for name, _, _ in figures.sources(gpu)] == [f.name for f in fields(Gpu)][1:]
        assert all(source for _, _, source in figures.sources(gpu))
    assert {n: s for n, _, s in figures.sources(RTX3060)}["processors"] == "paper, Table IV"
