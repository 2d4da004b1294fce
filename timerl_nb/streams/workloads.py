"""Streams of the kinds that paper 004 evaluates (section V), recorded; docs/explanation/acs-figures.md says what each could not take from the paper."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from timerl_nb.base.errors import MissingPartError, OptionError, one_of
from timerl_nb.compiler.language.argument_checks import integer
from timerl_nb.compiler.language.foreign_names import expect_type
from timerl_nb.streams.kernel_stream import Stream
from timerl_nb.streams.stream_file import load

_STORED: Final = Path(__file__).parents[2] / "datasets" / "streams"
_SUFFIX: Final = ".stream.gz"


def workload(name: str, image: int = 0) -> Stream:
    """A stream of the paper's kind: a step of an environment, an inference, or the contacts of a heap of bodies.

    Args:
        name: "ant", "ant_positional", "halfcheetah", "walker2d", "humanoid"; "instanas", "routing", "condconv";
            "nasnet", "amoebanet", "squeezenet", "randomwire"; "rigid_bodies".
        image: of three random ones, which one a network with gates ("instanas", "routing") is given.

    Raises:
        OptionError: there is none of that name, or no such image.
        MissingPartError: none is here.
    """
    expect_type(name, str, "the name of a workload", 'trl.streams.workload("ant").')
    image = integer("image", image, least=0)
    there = {path.name.removesuffix(_SUFFIX): path for path in _STORED.glob(f"*{_SUFFIX}")}
    if not there:
        raise MissingPartError(
            f"there are no recorded workloads here: {_STORED}",
            hint="they lie in a checkout of the project (datasets/streams), no package has them.",
        )
    path = there.get(f"{name}-{image}") or (there.get(name) if image == 0 else None)
    if path is None:
        names = sorted({one.partition("-")[0] for one in there})
        what = f"image {image} of {name!r}" if name in names else f"workload {name!r}"
        raise OptionError(f"there is no {what}.", hint=one_of(name, names))
    return load(path)
