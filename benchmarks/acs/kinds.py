"""Kernel streams of the ACS paper (§V) by kind; `LACKS` lists details that the paper leaves open."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_STEP: Final = (
    "XLA's kernels for a CPU, of a step of 1,024 environments; memory is never used twice"
)
LACKS: Final[Mapping[str, str]] = {
    "ant": _STEP,
    "ant_positional": f"in place of grasp, which Brax has no more: another pipeline of ant; {_STEP}",
    "halfcheetah": _STEP,
    "walker2d": _STEP,
    "humanoid": _STEP,
    "instanas": "random weights and images; candidates and widths of MobileNetV2's cells, not InstaNAS-A's own",
    "routing": "random weights and images; a grid of 16 layers and 4 scales with 64 channels, of 256 × 512 pixels, not 1,024 × 2,048",
    "condconv": "random weights; EfficientNet-B4's blocks by its table, at 96 × 96 pixels, not 380 × 380",
    "nasnet": "NASNet-A's cells, 2 of 6 repetitions in each stage",
    "amoebanet": "AmoebaNet-A's cells, 2 of 6 repetitions in each stage",
    "squeezenet": "strides for 32 × 32 pixels, since ImageNet's would leave one",
    "randomwire": "a Watts-Strogatz graph of a seed of ours: the paper's are not published",
    "rigid_bodies": "an engine of ours; the paper's routine is not named. Costs and registers are estimates",
}
SIMULATIONS: Final = ("ant", "ant_positional", "halfcheetah", "walker2d", "humanoid")
DYNAMIC: Final = ("instanas", "routing", "condconv")
IMAGES: Final = {
    "instanas": 3,
    "routing": 3,
}  # condconv's weights depend on the image, its kernels do not
STATIC: Final = ("nasnet", "amoebanet", "squeezenet", "randomwire")
