"""Streams of the kinds that paper 004 evaluates (section V), by name; `LACKS` says what each could not take from it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import timerl_nb.errors
from timerl_nb.errors import MissingPartError, OptionError, one_of
from timerl_nb.streams.stored import load
from timerl_nb.streams.stream import Stream

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
_STORED: Final = Path(timerl_nb.errors.__file__).parents[1] / "datasets" / "streams"


def workload(name: str, image: int = 0) -> Stream:
    """A stream of the paper's kind: a step of an environment, an inference, or the contacts of a heap of bodies.

    Args:
        name: of `LACKS`.
        image: of `IMAGES` random ones, which one a network with gates is given.

    Raises:
        OptionError: there is none of that name, or no such image.
        MissingPartError: its file is not here.
    """
    if name not in LACKS:
        raise OptionError(f"there is no workload {name!r}", hint=one_of(name, tuple(LACKS)))
    if not 0 <= image < IMAGES.get(name, 1):
        raise OptionError(
            f"{name!r} was given no image {image!r}", hint=f"0 to {IMAGES.get(name, 1) - 1}"
        )
    of = f"-{image}" if name in IMAGES else ""
    path = _STORED / f"{name}{of}.stream.gz"
    if not path.is_file():
        raise MissingPartError(
            f"the workload {name!r} is not here: {path}",
            hint="recorded streams lie in a checkout of the project (datasets/streams), no package has them.",
        )
    return load(path)
