"""Workloads: contacts against geometry, a heap that falls and rests, input-dependent streams."""

from __future__ import annotations

import numpy as np
import pytest

import timerl_nb as trl
from benchmarks.acs.rigid_bodies import GRAVITY, STEP, RigidBodies, heap, launched
from benchmarks.acs.shapes import CONTACTS, Shape
from timerl_nb.streams.workloads import workload

BALL, CAN, BOX = (
    Shape("sphere", 0.5),
    Shape("capsule", 0.25, (0, 0, 1)),
    Shape("box", half=(1, 2, 3)),
)
GROUND = Shape("ground")
UP = (1.0, 0.0, 0.0, 0.0)
LYING = (np.sqrt(0.5), 0.0, np.sqrt(0.5), 0.0)  # z turned to x


def at(x: float, y: float, z: float, q: tuple[float, ...] = UP) -> np.ndarray:
    return np.array([[x, y, z, *q, 0, 0, 0, 0, 0, 0]], float)


@pytest.mark.parametrize(
    "a, b, p, q, depth, normal",
    [
        (BALL, BALL, at(0.8, 0, 0), at(0, 0, 0), 0.2, (1, 0, 0)),
        (BALL, CAN, at(0.6, 0, 0.9), at(0, 0, 0), 0.15, (1, 0, 0)),
        (BALL, CAN, at(0, 0, 1.7), at(0, 0, 0), 0.05, (0, 0, 1)),
        (BALL, CAN, at(1.7, 0, 0), at(0, 0, 0, LYING), 0.05, (1, 0, 0)),
        (CAN, CAN, at(0, 0.4, 0, LYING), at(0, 0, 0), 0.1, (0, 1, 0)),
        (BALL, BOX, at(1.4, 0, 0), at(0, 0, 0), 0.1, (1, 0, 0)),
        (BALL, BOX, at(0.9, 0, 0), at(0, 0, 0), 0.6, (1, 0, 0)),  # its centre is inside
        (CAN, BOX, at(0, 0, 4.1), at(0, 0, 0), 0.15, (0, 0, 1)),
        (BOX, BOX, at(1.8, 0.5, 0.5), at(0, 0, 0), 0.2, (1, 0, 0)),
        (BALL, GROUND, at(0, 0, 0.4), at(0, 0, 0), 0.1, (0, 0, 1)),
        (CAN, GROUND, at(0, 0, 0.2, LYING), at(0, 0, 0), 0.05, (0, 0, 1)),
        (BOX, GROUND, at(0, 0, 0.9, LYING), at(0, 0, 0), 0.1, (0, 0, 1)),
    ],
)
def test_contacts(
    a: Shape, b: Shape, p: np.ndarray, q: np.ndarray, depth: float, normal: tuple[float, ...]
) -> None:
    found, direction, _ = CONTACTS[f"{a.kind}_{b.kind}"](a, b, p, q)
    assert found[0] == pytest.approx(depth)
    assert direction[0] == pytest.approx(normal, abs=1e-9)


def test_what_is_apart_does_not_touch() -> None:
    for name, contact in CONTACTS.items():
        a, b = (next(s for s in (BALL, CAN, BOX, GROUND) if s.kind == k) for k in name.split("_"))
        depth, _, _ = contact(a, b, at(0, 0, 20), at(0, 0, 0))
        assert depth[0] < 0, name


def test_contacts_are_of_each_world() -> None:
    p = np.concatenate([at(0.8, 0, 0), at(5, 0, 0), at(0, 0.9, 0)])
    depth, _, _ = CONTACTS["sphere_sphere"](BALL, BALL, p, np.concatenate([at(0, 0, 0)] * 3))
    assert depth == pytest.approx([0.2, -4.0, 0.1])


def test_a_heap_falls_and_rests_on_the_ground() -> None:
    bodies = RigidBodies(4, worlds=2)
    before = bodies.state[:, :, 2].mean()
    for _ in range(150):
        bodies.step()
    assert np.isfinite(bodies.state).all()
    assert np.linalg.norm(bodies.state[:, :, 3:7], axis=2) == pytest.approx(1.0)
    assert bodies.state[:, :, 2].min() > 0.1 and bodies.state[:, :, 2].mean() < before
    assert np.abs(bodies.state[:, :, 9]).mean() < 0.3


def test_bodies_push_each_other_alike() -> None:
    """In the air, gravity is the only source of momentum."""
    bodies = RigidBodies(12, worlds=4)
    bodies.state[:, :, 2] += 10.0
    bodies.state[1, :, :3] = bodies.state[0, :, :3] + (0.1, 0.2, 0.3)
    start = bodies.state[:, :, 7:10].sum(0)
    for _ in range(5):
        bodies.step()
    end = bodies.state[:, :, 7:10].sum(0)
    assert np.abs(bodies.state[:, :, 7]).max() > 0.01
    assert end - start == pytest.approx(
        np.broadcast_to((0.0, 0.0, -5 * STEP * GRAVITY * 12), (4, 3)), abs=1e-6
    )


def test_its_stream_depends_on_its_state() -> None:
    bodies = RigidBodies(12, worlds=4)
    lengths: list[int] = []
    for _ in range(3):
        for _ in range(10):
            bodies.step()
        pairs = bodies.pairs()
        stream = launched(bodies.step)
        assert len(stream) == len(pairs) + 12
        lengths.append(len(stream))
    assert len(set(lengths)) > 1
    # a body moves after its contacts, and pairs are independent
    assert set(stream.edges[: len(pairs)]) == {()}
    for body in range(12):
        near = sorted(k for k, pair in enumerate(pairs) if body in pair)
        assert sorted(stream.edges[len(pairs) + body]) == near
    assert len({k.registers for k in stream.kernels}) > 3


def test_a_heap_is_stored_as_it_is_launched() -> None:
    stored, made = workload("rigid_bodies"), heap()
    assert stored.edges == made.edges and stored.name == made.name
    for a, b in zip(stored.kernels, made.kernels, strict=True):
        for field in ("name", "blocks", "operations", "registers"):
            assert getattr(a, field) == getattr(b, field)


def test_two_steps_overlap_where_nothing_is_near() -> None:
    bodies = RigidBodies(6, worlds=2)
    pairs = bodies.pairs()

    def two() -> None:
        bodies.step(pairs)
        bodies.step(pairs)

    stream = launched(two)
    assert len(stream) == 2 * (len(pairs) + 6)
    assert stream.width > 2
    assert max(stream.depths) == 4


def test_a_window_moves_a_heap_to_the_same_bits() -> None:
    alone, windowed = RigidBodies(12, worlds=2), RigidBodies(12, worlds=2)
    for _ in range(8):
        alone.step()
    with trl.streams.window(size=16, streams=3) as w:
        for _ in range(8):
            w.wait()  # nearby pairs depend on positions
            windowed.step()
    assert np.array_equal(alone.state, windowed.state)
    assert w.report.count > 8 * 12 and w.report.edges > 0
