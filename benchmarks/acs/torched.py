"""Dynamic networks of the ACS paper (§V) in PyTorch, with random weights.

The launched kernels depend on the image.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

MOBILE = ((16, 1, 1), (24, 2, 1), (32, 3, 2), (64, 4, 2), (96, 3, 1), (160, 3, 2), (320, 1, 1))
CANDIDATES = ((3, 3), (3, 5), (6, 3), (6, 5), (1, 3))  # expansion, size
# EfficientNet-B4: expansion, channels, blocks, stride, size. The weights of the last blocks are
# mixtures of experts.
EFFICIENT = (
    (1, 24, 2, 1, 3),
    (6, 32, 4, 2, 3),
    (6, 56, 4, 2, 5),
    (6, 112, 6, 2, 3),
    (6, 160, 6, 1, 5),
    (6, 272, 8, 2, 5),
    (6, 448, 2, 1, 3),
)
MIXED, EXPERTS = 4, 4


def conv(
    inputs: int, outputs: int, size: int = 1, stride: int = 1, groups: int = 1, relu: bool = True
) -> nn.Sequential:
    layers = [
        nn.Conv2d(inputs, outputs, size, stride, size // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs),
    ]
    return nn.Sequential(*layers, *([nn.ReLU6(inplace=True)] if relu else []))


def gates(inputs: int, count: int) -> nn.Sequential:
    """Gating network: the signs of its outputs open or close gates."""
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, count))


def opened(values: Tensor) -> list[bool]:
    """Return the open gates of one image; the gate with the largest output if all are closed."""
    found = values[0] >= values[0].max().clamp(max=0)
    return [bool(x) for x in found.tolist()]


class InstaNas(nn.Module):
    """InstaNas:

    17 cells of five candidates each. A policy network selects the candidates for each image.
    """

    def __init__(self) -> None:
        super().__init__()
        self.stem = conv(3, 32, 3)
        self.policy = nn.Sequential(conv(3, 16, 3, 2), conv(16, 32, 3, 2), gates(32, 17 * 5))
        self.cells, inputs = nn.ModuleList(), 32
        for channels, count, stride in MOBILE:
            for k in range(count):
                step = stride if k == 0 else 1
                self.cells.append(
                    nn.ModuleList(
                        self._candidate(inputs, channels, e, size, step) for e, size in CANDIDATES
                    )
                )
                inputs = channels
        self.head = nn.Linear(inputs, 10)

    @staticmethod
    def _candidate(i: int, o: int, expansion: int, size: int, stride: int) -> nn.Module:
        wide = i * expansion
        first = [conv(i, wide)] if expansion > 1 else []
        return nn.Sequential(
            *first, conv(wide, wide, size, stride, wide), conv(wide, o, relu=False)
        )

    def forward(self, image: Tensor) -> Tensor:
        chosen = self.policy(image).view(17, 5)
        x = self.stem(image)
        for cell, values in zip(self.cells, chosen, strict=True):
            made = [f(x) for f, run in zip(cell, opened(values[None]), strict=True) if run]
            y = made[0]
            for other in made[1:]:
                y = y + other
            x = y + x if y.shape == x.shape else y
        return self.head(x.mean((2, 3)))


class Routing(nn.Module):
    """Grid of 16 layers and 4 scales; gates at each node open the paths up, straight on and down."""

    def __init__(self, channels: int = 64) -> None:
        super().__init__()
        self.stem = nn.Sequential(conv(3, channels, 3, 2), conv(channels, channels, 3, 2))
        self.nodes = nn.ModuleList(
            nn.ModuleList(self._node(channels) for _ in range(4)) for _ in range(16)
        )
        self.head = nn.Conv2d(channels, 19, 1)

    @staticmethod
    def _node(c: int) -> nn.ModuleDict:
        twice = nn.Sequential(
            conv(c, c, 3, groups=c), conv(c, c), conv(c, c, 3, groups=c), conv(c, c)
        )
        return nn.ModuleDict(
            {"cell": twice, "gates": gates(c, 3), "up": conv(c, c), "down": conv(c, c, 1, 2)}
        )

    def forward(self, image: Tensor) -> Tensor:
        at: list[Tensor | None] = [self.stem(image), None, None, None]
        for layer in self.nodes:
            after: list[Tensor | None] = [None] * 4
            for scale, (node, x) in enumerate(zip(layer, at, strict=True)):
                if x is None:
                    continue
                ways = opened(node["gates"](x))
                y = node["cell"](x) + x
                for way, run in zip((-1, 0, 1), ways, strict=True):
                    to = min(max(scale + way, 0), 3)
                    if not run:
                        continue
                    if to == scale:
                        z = y
                    else:
                        z = (
                            node["down"](y)
                            if to > scale
                            else F.interpolate(node["up"](y), scale_factor=2)
                        )
                    held = after[to]
                    after[to] = z if held is None else held + z
            at = after
        return self.head(next(x for x in at if x is not None))


class Mixture(nn.Module):
    """Convolution with image-dependent weights: a mixture of experts."""

    def __init__(
        self, inputs: int, outputs: int, size: int = 1, stride: int = 1, groups: int = 1
    ) -> None:
        super().__init__()
        shape = EXPERTS, outputs, inputs // groups, size, size
        self.experts = nn.Parameter(torch.randn(shape) / (shape[2] * size * size) ** 0.5)
        self.norm = nn.BatchNorm2d(outputs)
        self.stride, self.groups, self.padding = stride, groups, size // 2

    def forward(self, x: Tensor, share: Tensor) -> Tensor:
        weight = (share.view(EXPERTS, 1, 1, 1, 1) * self.experts).sum(0)
        return self.norm(F.conv2d(x, weight, None, self.stride, self.padding, 1, self.groups))


class CondConv(nn.Module):
    """EfficientNet-B4's blocks with squeeze and excitation; the last blocks mix their weights."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.blocks, inputs = conv(3, 48, 3, 2), nn.ModuleList(), 48
        for number, (expansion, channels, count, stride, size) in enumerate(EFFICIENT):
            for k in range(count):
                step = stride if k == 0 else 1
                self.blocks.append(
                    self._block(inputs, channels, expansion, size, step, number >= MIXED)
                )
                inputs = channels
        self.last, self.head = conv(inputs, 1792), nn.Linear(1792, 1000)

    @staticmethod
    def _block(
        i: int, o: int, expansion: int, size: int, stride: int, mixed: bool
    ) -> nn.ModuleDict:
        wide, squeezed = i * expansion, max(1, i // 4)
        one = Mixture if mixed else conv
        parts: dict[str, nn.Module] = {
            "deep": one(wide, wide, size, stride, wide),
            "squeeze": nn.Linear(wide, squeezed),
            "excite": nn.Linear(squeezed, wide),
            "out": Mixture(wide, o) if mixed else conv(wide, o, relu=False),
        }
        if expansion > 1:
            parts["widen"] = one(i, wide)
        if mixed:
            parts["route"] = nn.Linear(i, EXPERTS)
        return nn.ModuleDict(parts)

    def forward(self, image: Tensor) -> Tensor:
        x = self.stem(image)
        for block in self.blocks:
            share: Sequence[Tensor] = ()
            if "route" in block:
                share = (torch.sigmoid(block["route"](x.mean((2, 3)))),)
            y = F.silu(block["widen"](x, *share)) if "widen" in block else x
            y = F.silu(block["deep"](y, *share))
            scale = torch.sigmoid(block["excite"](F.silu(block["squeeze"](y.mean((2, 3))))))
            y = block["out"](y * scale[:, :, None, None], *share)
            x = y + x if y.shape == x.shape else y
        return self.head(self.last(x).mean((2, 3)))


# A module, and the size of its image.
MODULES = {
    "instanas": (InstaNas, (32, 32)),
    "routing": (Routing, (256, 512)),
    "condconv": (CondConv, (96, 96)),
}


def drawn(name: str, image: int) -> tuple[nn.Module, Tensor]:
    """Return a network with fixed random weights, and a random image of a few colours."""
    torch.manual_seed(0)
    module, size = MODULES[name]
    network = module().eval()
    torch.manual_seed(1000 + image)
    # Large patches of colour: images of noise would all have the same averages.
    patches = 3 * torch.randn(1, 3, 2, 4)
    return network, F.interpolate(patches, size=size, mode="bilinear")
