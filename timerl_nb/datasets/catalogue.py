"""Names of the data sets, and the function that opens each kind of file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, TypeAlias

from timerl_nb.base.data_folder import data_folder
from timerl_nb.base.errors import MissingPartError, OptionError, one_of
from timerl_nb.compiler.language.foreign_names import expect_type, explain_call_errors
from timerl_nb.datasets.table import Table, read_table
from timerl_nb.datasets.trajectories import Trajectories, read_trajectories
from timerl_nb.scope.analysis.recording_queries import Recording
from timerl_nb.scope.storage.recording_reader import read as read_recording
from timerl_nb.streams.kernel_stream import Stream
from timerl_nb.streams.stream_file import load as load_stream

DataSet: TypeAlias = "Table | Trajectories | Stream | Recording | Path"

_READERS: Final[Mapping[str, Callable[[Path], DataSet]]] = {
    ".csv": read_table,
    ".npz": read_trajectories,
    ".stream.gz": load_stream,
    ".scope.zip": read_recording,
    ".xplane.pb": Path,
    ".json": Path,
}


@explain_call_errors
def names() -> tuple[str, ...]:
    """Return the names of all data sets, sorted.

    Raises:
        MissingPartError: the data files are not installed.

    Example:
        >>> [name for name in trl.datasets.names() if name.startswith("published/")][:2]
        ['published/acs', 'published/data_collection']
    """
    return tuple(sorted(_files()))


@explain_call_errors
def load(name: str) -> DataSet:
    """Open a data set by its name.

    Args:
        name: one of `names()`: the path in the folder `datasets`, without suffixes.

    Returns:
        A `Table` for published numbers and learning curves, `Trajectories` for episodes, a `trl.streams.Stream` for
        kernel streams, a `trl.scope.Recording`, or the path of a trace, which `trl.scope.add_trace` reads.

    Raises:
        OptionError: the data set does not exist; the message lists the names.
        MissingPartError: the data files are not installed.

    Example:
        >>> table = trl.datasets.load("published/timerl")
        >>> [row["value"] for row in table.where(quantity="speed-up", section="8.2")]
        [47, 2.18]
        >>> len(trl.datasets.load("streams/ant"))
        2576
        >>> trl.datasets.load("trajectories/cartpole").env
        'CartPole-v1'
    """
    expect_type(name, str, "the name of a data set", 'trl.datasets.load("published/timerl").')
    files = _files()
    if name not in files:
        raise OptionError(f"the data set {name!r} does not exist.", hint=one_of(name, names()))
    path, suffix = files[name]
    return _READERS[suffix](path)


def _files() -> dict[str, tuple[Path, str]]:
    """Return path and suffix of each file by its name."""
    folder = data_folder()
    found = {
        path.relative_to(folder).as_posix().removesuffix(suffix): (path, suffix)
        for suffix in _READERS
        for path in folder.rglob(f"*{suffix}")
    }
    if not found:
        raise MissingPartError(
            f"the data files are missing: {folder}",
            hint="install the project again, or clone the repository.",
        )
    return found
