"""Contact points of two shapes (sphere, capsule, box, ground), vectorised over worlds.

A body is a row `(worlds, 13)`: position, quaternion, velocity, angular velocity. A contact has a
depth (positive if the shapes overlap), the normal from the second shape to the first, and a point.
Of several contacts, the deepest is returned.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Final, TypeAlias

import numpy as np

Array: TypeAlias = "np.ndarray"
Contact: TypeAlias = "tuple[Array, Array, Array]"

_SIGNS: Final = np.array(list(product((-1.0, 1.0), repeat=3)))
_ALONG: Final = np.linspace(-1.0, 1.0, 5)


@dataclass(frozen=True)
class Shape:
    """A `kind` and a size: radius of spheres and capsules, half the length of a capsule along z, half the edges of a box."""

    kind: str
    radius: float = 0.0
    half: tuple[float, float, float] = (0.0, 0.0, 0.0)

    @property
    def reach(self) -> float:
        """Return the radius of the bounding sphere."""
        return np.inf if self.kind == "ground" else self.radius + float(np.linalg.norm(self.half))


def cross(a: Array, b: Array) -> Array:
    """Return the cross product of vectors `(…, 3)`; faster than NumPy's general one."""
    out = np.empty(np.broadcast_shapes(a.shape, b.shape))
    for k in range(3):
        i, j = (k + 1) % 3, (k + 2) % 3
        out[..., k] = a[..., i] * b[..., j] - a[..., j] * b[..., i]
    return out


def _turns(body: Array) -> Array:
    """Return rotation matrices `(worlds, 3, 3)`: a row vector of the body frame times the matrix is in world coordinates."""
    w, x, y, z = body[:, 3:7].T
    out = np.empty((len(body), 3, 3))
    out[:, 0, 0], out[:, 1, 1], out[:, 2, 2] = 1, 1, 1
    out[:, 0, 0] -= 2 * (y * y + z * z)
    out[:, 1, 1] -= 2 * (x * x + z * z)
    out[:, 2, 2] -= 2 * (x * x + y * y)
    out[:, 0, 1], out[:, 1, 0] = 2 * (x * y + w * z), 2 * (x * y - w * z)
    out[:, 0, 2], out[:, 2, 0] = 2 * (x * z - w * y), 2 * (x * z + w * y)
    out[:, 1, 2], out[:, 2, 1] = 2 * (y * z + w * x), 2 * (y * z - w * x)
    return out


def _of_body(body: Array, local: Array) -> Array:
    """Transform points `(points, 3)` of the body frame to world coordinates `(worlds, points, 3)`."""
    return body[:, None, :3] + local @ _turns(body)


def _length(v: Array) -> Array:
    return np.sqrt((v * v).sum(-1))


def _round(p: Array, q: Array, radii: float) -> Contact:
    """Return the contact of two points with radii."""
    apart = p - q
    distance = _length(apart)
    normal = apart / np.maximum(distance, 1e-9)[:, None]
    return radii - distance, normal, (p + q) / 2


def _deepest(depth: Array, normal: Array, point: Array) -> Contact:
    """Select the deepest of `(worlds, points)` contacts per world."""
    best = depth.argmax(1)[:, None]
    chosen = best[..., None]
    return (
        np.take_along_axis(depth, best, 1)[:, 0],
        np.take_along_axis(normal, chosen, 1)[:, 0],
        np.take_along_axis(point, chosen, 1)[:, 0],
    )


def _axis(shape: Shape, body: Array) -> Array:
    """Return the vector from a capsule's centre to one end."""
    return shape.half[2] * _turns(body)[:, 2]


def _sphere_sphere(a: Shape, b: Shape, p: Array, q: Array) -> Contact:
    return _round(p[:, :3], q[:, :3], a.radius + b.radius)


def _sphere_capsule(a: Shape, b: Shape, p: Array, q: Array) -> Contact:
    axis = _axis(b, q)
    along = ((p[:, :3] - q[:, :3]) * axis).sum(1) / np.maximum((axis * axis).sum(1), 1e-12)
    nearest = q[:, :3] + np.clip(along, -1, 1)[:, None] * axis
    return _round(p[:, :3], nearest, a.radius + b.radius)


def _capsule_capsule(a: Shape, b: Shape, p: Array, q: Array) -> Contact:
    """Find the nearest points of two segments: clamp the solution for lines, then repeat for the other segment."""
    u, v, r = _axis(a, p), _axis(b, q), p[:, :3] - q[:, :3]
    uu, vv, uv = (u * u).sum(1), (v * v).sum(1), (u * v).sum(1)
    ur, vr = (u * r).sum(1), (v * r).sum(1)
    s = np.clip((uv * vr - vv * ur) / np.maximum(uu * vv - uv * uv, 1e-12), -1, 1)
    t = np.clip((uv * s + vr) / np.maximum(vv, 1e-12), -1, 1)
    s = np.clip((uv * t - ur) / np.maximum(uu, 1e-12), -1, 1)
    return _round(p[:, :3] + s[:, None] * u, q[:, :3] + t[:, None] * v, a.radius + b.radius)


def _points_box(points: Array, radius: float, box: Shape, q: Array) -> Contact:
    """Return contacts of a box and points `(worlds, points, 3)` with a radius."""
    turns = _turns(q)
    local = (points - q[:, None, :3]) @ turns.swapaxes(1, 2)
    half = np.array(box.half)
    inside = np.clip(local, -half, half)
    apart = local - inside
    distance = _length(apart)
    # a point inside the box leaves through the nearest face
    room = half - np.abs(local)
    face = room.argmin(-1)[..., None]
    out = np.zeros_like(local)
    np.put_along_axis(out, face, np.sign(np.take_along_axis(local, face, -1)) + 0.0, -1)
    within = distance < 1e-9
    depth = np.where(within, room.min(-1), -distance) + radius
    normal = np.where(within[..., None], out, apart / np.maximum(distance, 1e-9)[..., None])
    return _deepest(depth, normal @ turns, points)


def _sphere_box(a: Shape, b: Shape, p: Array, q: Array) -> Contact:
    return _points_box(p[:, None, :3], a.radius, b, q)


def _capsule_box(a: Shape, b: Shape, p: Array, q: Array) -> Contact:
    points = _of_body(p, np.multiply.outer(_ALONG, (0.0, 0.0, a.half[2])))
    return _points_box(points, a.radius, b, q)


def _box_box(a: Shape, b: Shape, p: Array, q: Array) -> Contact:
    """Return contacts of each box's corners inside the other box."""
    first = _points_box(_of_body(p, _SIGNS * a.half), 0.0, b, q)
    depth, normal, point = _points_box(_of_body(q, _SIGNS * b.half), 0.0, a, p)
    own = first[0] >= depth
    return (
        np.where(own, first[0], depth),
        np.where(own[:, None], first[1], -normal),
        np.where(own[:, None], first[2], point),
    )


def _ground(local: Array, radius: float, p: Array) -> Contact:
    points = _of_body(p, local)
    up = np.broadcast_to((0.0, 0.0, 1.0), points.shape)
    return _deepest(radius - points[..., 2], up, points)


def _sphere_ground(a: Shape, b: Shape, p: Array, q: Array) -> Contact:
    return _ground(np.zeros((1, 3)), a.radius, p)


def _capsule_ground(a: Shape, b: Shape, p: Array, q: Array) -> Contact:
    return _ground(np.multiply.outer((-1.0, 1.0), (0.0, 0.0, a.half[2])), a.radius, p)


def _box_ground(a: Shape, b: Shape, p: Array, q: Array) -> Contact:
    return _ground(_SIGNS * a.half, 0.0, p)


CONTACTS: Final[Mapping[str, Callable[[Shape, Shape, Array, Array], Contact]]] = {
    "sphere_sphere": _sphere_sphere,
    "sphere_capsule": _sphere_capsule,
    "capsule_capsule": _capsule_capsule,
    "sphere_box": _sphere_box,
    "capsule_box": _capsule_box,
    "box_box": _box_box,
    "sphere_ground": _sphere_ground,
    "capsule_ground": _capsule_ground,
    "box_ground": _box_ground,
}
