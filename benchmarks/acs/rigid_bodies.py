"""Small rigid-body engine with state-dependent kernels: one kernel per pair of nearby shapes.

Simulates many worlds in parallel, as in reinforcement learning. A pair gets a kernel if it is near
in any world. Contacts are springs with dampers. The arithmetic runs on NumPy; `COSTS` estimates the
GPU resources of each kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from benchmarks.acs.shapes import CONTACTS, Shape, cross
from timerl_nb.streams.kernel_declaration import THREADS, Kernel, KernelFunction, kernel
from timerl_nb.streams.kernel_stream import Stream
from timerl_nb.streams.recorders.kernel_calls import record_calls

ORDER: Final = ("sphere", "capsule", "box", "ground")
STEP: Final = 0.005  # s
STIFF: Final = 2000.0  # N/m, for a body of 1 kg
DAMPED: Final = 20.0  # N s/m
GRAVITY: Final = 9.81
# Estimated operations and registers per thread; one thread simulates one world.
COSTS: Final = {
    "sphere_sphere": (60, 32),
    "sphere_capsule": (100, 40),
    "capsule_capsule": (160, 56),
    "sphere_box": (140, 48),
    "capsule_box": (500, 80),
    "box_box": (1500, 128),
    "sphere_ground": (40, 32),
    "capsule_ground": (80, 32),
    "box_ground": (200, 48),
    "move": (150, 40),
}
GROUND: Final = Shape("ground")


def _between(name: str) -> KernelFunction[Any, Any]:
    contact = CONTACTS[name]

    def touch(a: Shape, b: Shape, p: np.ndarray, q: np.ndarray, out: np.ndarray) -> None:
        depth, normal, point = contact(a, b, p, q)
        speed = _velocity(p, point) - (0.0 if b.kind == "ground" else _velocity(q, point))
        closing = -(speed * normal).sum(1)
        force = np.maximum(STIFF * depth + DAMPED * closing, 0.0) * (depth > 0)
        out[:, :3] = force[:, None] * normal
        out[:, 3:] = point

    touch.__name__ = name
    blocks = _blocks_of(2)
    if name.endswith("ground"):
        return kernel(reads=lambda a, b, p, q, out: [p], writes=_last, blocks=blocks)(touch)
    return kernel(reads=lambda a, b, p, q, out: [p, q], writes=_last, blocks=blocks)(touch)


def _last(*args: Any) -> Any:
    return [args[-1]]


def _blocks_of(which: int) -> Any:
    return lambda *args: -(-len(args[which]) // THREADS)


def _velocity(body: np.ndarray, point: np.ndarray) -> np.ndarray:
    return body[:, 7:10] + cross(body[:, 10:13], point - body[:, :3])


KERNELS: Final = {name: _between(name) for name in CONTACTS}


@kernel(
    reads=lambda body, touched: [body, *(row for row, _ in touched)],
    writes=lambda body, touched: [body],
    blocks=_blocks_of(0),
)
def move(body: np.ndarray, touched: Sequence[tuple[np.ndarray, float]]) -> None:
    """Sum the contact forces of a body and advance it by `STEP`.

    Its mass is 1 and its inertia 0.1.
    """
    force = np.zeros((len(body), 3))
    force[:, 2] = -GRAVITY
    torque = np.zeros((len(body), 3))
    for row, sign in touched:
        force += sign * row[:, :3]
        torque += sign * cross(row[:, 3:] - body[:, :3], row[:, :3])
    body[:, 7:10] += STEP * force
    body[:, 10:13] = 0.999 * body[:, 10:13] + STEP * 10.0 * torque
    body[:, :3] += STEP * body[:, 7:10]
    spin = np.zeros((len(body), 4))
    spin[:, 1:] = body[:, 10:13]
    q = body[:, 3:7]
    scalar = -(spin[:, 1:] * q[:, 1:]).sum(1)
    vector = q[:, :1] * spin[:, 1:] + cross(spin[:, 1:], q[:, 1:])
    q += STEP / 2 * np.concatenate([scalar[:, None], vector], 1)
    q /= np.linalg.norm(q, axis=1, keepdims=True)


class RigidBodies:
    """Bodies that fall into a heap, in many worlds.

    Attributes:
        state: `(bodies, worlds, 13)`.
    """

    def __init__(self, bodies: int = 24, worlds: int = 256, seed: int = 0) -> None:
        r = np.random.default_rng(seed)
        kinds = [
            Shape("sphere", 0.3),
            Shape("capsule", 0.2, (0.0, 0.0, 0.4)),
            Shape("box", half=(0.3, 0.25, 0.2)),
        ]
        self.shapes = [kinds[k % 3] for k in range(bodies)]
        self.state = np.zeros((bodies, worlds, 13))
        across = int(np.ceil(bodies ** (1 / 3)))
        for k in range(bodies):
            place = np.array([k % across, k // across % across, k // across**2], float)
            self.state[k, :, :3] = place * 0.8 + (0, 0, 0.6)
            self.state[k, :, :2] += r.normal(scale=0.02, size=(worlds, 2))
        quaternions = r.normal(size=(bodies, worlds, 4))
        self.state[:, :, 3:7] = quaternions / np.linalg.norm(quaternions, axis=2, keepdims=True)
        self._touching = np.zeros((bodies, bodies + 1, worlds, 6))

    def pairs(self) -> list[tuple[int, int]]:
        """Return the pairs that are near each other in any world; the ground counts as a body.

        Reads the state.
        """
        reach = np.array([shape.reach for shape in self.shapes])
        centre = self.state[:, :, :3]
        found: list[tuple[int, int]] = []
        for a in range(len(reach)):
            apart = np.linalg.norm(centre[a + 1 :] - centre[a], axis=2).min(1)
            near = np.flatnonzero(apart < reach[a] + reach[a + 1 :]) + a + 1
            found += [(a, int(b)) for b in near]
            if centre[a, :, 2].min() < reach[a]:
                found.append((a, len(reach)))
        return found

    def step(self, pairs: Sequence[tuple[int, int]] | None = None) -> None:
        """Launch a step: the contacts of all pairs, then the motion of each body."""
        pairs = self.pairs() if pairs is None else pairs
        touched: list[list[tuple[np.ndarray, float]]] = [[] for _ in self.shapes]
        for pair in pairs:
            a, b, row = self._touch(pair)
            touched[a].append((row, 1.0))
            if b < len(touched):
                touched[b].append((row, -1.0))
        for body, rows in zip(self.state, touched, strict=True):
            move(body, rows)

    def contacts(self) -> None:
        """Launch only the contacts of all pairs."""
        for pair in self.pairs():
            self._touch(pair)

    def _touch(self, pair: tuple[int, int]) -> tuple[int, int, np.ndarray]:
        shapes = [*self.shapes, GROUND]
        a, b = sorted(pair, key=lambda body: ORDER.index(shapes[body].kind))
        row = self._touching[a, b]
        q = self.state[b] if b < len(self.shapes) else self.state[a]
        name = f"{shapes[a].kind}_{shapes[b].kind}"
        KERNELS[name](shapes[a], shapes[b], self.state[a], q, row)
        return a, b, row


def heap() -> Stream:
    """Return the contacts of a heap in which some bodies touch."""
    bodies = RigidBodies()
    for _ in range(10):
        bodies.step()
    return launched(bodies.contacts)


def launched(launch: Callable[[], object]) -> Stream:
    """Execute a function and record its launches, with the costs of our kernels."""

    def costed(one: Kernel) -> Kernel:
        operations, registers = COSTS[one.name]
        return replace(
            one, operations=float(operations * one.blocks * THREADS), registers=registers
        )

    found = record_calls(launch)
    return replace(found, name="rigid bodies", kernels=tuple(map(costed, found.kernels)))
