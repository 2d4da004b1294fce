"""Recorded streams of the workloads in the ACS paper's evaluation. `docs/explanation/concurrent-kernels.md` lists the differences from the
paper. Source: ACS §V.
"""

from __future__ import annotations

from typing import Final

from timerl_nb.base.data_folder import data_folder
from timerl_nb.base.errors import MissingPartError, OptionError, one_of
from timerl_nb.compiler.language.argument_checks import integer
from timerl_nb.compiler.language.foreign_names import expect_type, explain_call_errors
from timerl_nb.streams.kernel_stream import Stream
from timerl_nb.streams.stream_file import load

_SUFFIX: Final = ".stream.gz"


@explain_call_errors
def workload(name: str, image: int = 0) -> Stream:
    """Return a recorded stream: a simulation step, an inference of a network, or contacts between rigid bodies.

    Args:
        name: "ant", "ant_positional", "halfcheetah", "walker2d", "humanoid"; "instanas", "routing",
            "condconv"; "nasnet", "amoebanet", "squeezenet", "randomwire"; "rigid_bodies".
        image: the number of the input image, 0 to 2, for networks with input-dependent branches ("instanas",
            "routing").

    Raises:
        OptionError: the workload or the image is unknown.
        MissingPartError: the recordings are not installed.

    Example:
        >>> stream = trl.streams.workload("ant")
        >>> len(stream) > 100
        True
    """
    expect_type(name, str, "the name of a workload", 'trl.streams.workload("ant").')
    image = integer("image", image, least=0)
    folder = data_folder() / "streams"
    there = {path.name.removesuffix(_SUFFIX): path for path in folder.glob(f"*{_SUFFIX}")}
    if not there:
        raise MissingPartError(
            f"the recorded workloads are missing: {folder}",
            hint="install the project again, or clone the repository.",
        )
    path = there.get(f"{name}-{image}") or (there.get(name) if image == 0 else None)
    if path is None:
        names = sorted({one.partition("-")[0] for one in there})
        what = f"image {image} of {name!r}" if name in names else f"workload {name!r}"
        raise OptionError(f"{what} does not exist.", hint=one_of(name, names))
    return load(path)
