"""Export of a recording to one file: a zip archive, or a Parquet table with `pyarrow`."""

from __future__ import annotations

import importlib
import os
import re
import tempfile
import zipfile
from pathlib import Path
from typing import IO, Any, Final

import numpy as np

from timerl_nb.base.atomic_files import user_path, write_whole
from timerl_nb.base.errors import ExecutionError, MissingPartError, OptionError, explain_os_errors
from timerl_nb.scope.analysis.thread_timelines import Lanes
from timerl_nb.scope.calibration.enabled_disabled_blocks import cpu_of
from timerl_nb.scope.storage.event_format import NAME_BITS, NAME_MASK, NAMELESS, Kind, Library
from timerl_nb.scope.storage.host_clock_files import HOST

_OURS: Final = re.compile(r"\d+[.-].*")  # names of recording files begin with a process number


def save(recording: Lanes, source: Path | None, path: str | os.PathLike[str]) -> Path:
    """Write a recording to one file; see `Recorded.save`.

    Args:
        recording: the recording.
        source: folder or zip file of the recording; None if it was not read from a file.
        path: file to write.
    """
    path = user_path(path)
    ending = path.suffix.lower()
    if ending not in (".zip", ".parquet"):
        raise OptionError(
            f"{path.name!r} does not end in .zip or .parquet.",
            hint=f"save as {path.with_suffix('.scope.zip').name!r}; .perfetto(path) writes a trace.",
        )
    if ending == ".zip" and (source is None or not source.exists()):
        gone = "has no folder" if source is None else f"was in {source}, but the folder is missing"
        raise ExecutionError(
            f"this recording {gone}.",
            hint="record into a named folder, and save before you delete it.",
        )
    with explain_os_errors(
        f"{path} cannot be written", hint="choose a folder that exists, with space left."
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile() as file:
            if ending == ".parquet":
                _parquet(recording, file)
            elif source is not None and source.is_file():
                file.write(source.read_bytes())
            elif source is not None:
                _zip(source, file)
            file.seek(0)
            write_whole(path, iter(lambda: file.read(1 << 20), b""))
    return path


def _zip(folder: Path, into: IO[bytes]) -> None:
    hosts = (path for path in folder.iterdir() if path.name.startswith(HOST) and path.is_dir())
    with zipfile.ZipFile(into, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for place in (folder, *sorted(hosts)):
            for file in sorted(place.iterdir()):
                if _OURS.fullmatch(file.name):
                    archive.write(file, file.relative_to(folder))


def _parquet(recording: Lanes, into: IO[bytes]) -> None:
    """Write one row per event and one row group per thread, with names and libraries as words."""
    try:
        arrow: Any = importlib.import_module("pyarrow")
        parquet: Any = importlib.import_module("pyarrow.parquet")
    except ImportError:
        raise MissingPartError(
            "Parquet is written by pyarrow, which is not installed.",
            hint="pip install pyarrow, or save as .zip.",
        ) from None
    numbers = ["process", "thread", "ts", "kind", "library", "name", "depth", "value"]
    sorts = [arrow.int64()] * 3 + [arrow.dictionary(arrow.int32(), arrow.string())] * 3
    schema = arrow.schema(list(zip(numbers, [*sorts, arrow.int32(), arrow.int64()], strict=True)))
    words = ([one.name.lower() for one in which] for which in (Kind, Library))
    kinds, libraries, names = (arrow.array(x) for x in (*words, list(recording.names)))

    def column_texts(codes: Any, of: Any) -> Any:
        return arrow.DictionaryArray.from_arrays(arrow.array(codes, arrow.int32()), of)

    with parquet.ParquetWriter(into, schema) as writer:
        for lane in recording.lanes:
            edges, kind = lane.edges, lane.edges["kind"]
            named = ~np.isin(kind, NAMELESS)
            top = np.where(named, edges["top"], 0)
            is_cpu = np.isin(kind, (Kind.BLOCK_ENTER, Kind.BLOCK_EXIT))
            value = np.where(is_cpu, cpu_of(edges), edges["top"].view(np.int32))
            columns = [
                arrow.array(np.full(len(edges), lane.process)),
                arrow.array(np.full(len(edges), lane.thread)),
                arrow.array(edges["ts"].astype(np.int64)),
                column_texts(kind, kinds),
                column_texts(top >> NAME_BITS, libraries),
                column_texts(top & NAME_MASK, names),
                arrow.array(np.where(is_cpu, 0, edges["depth"]), arrow.int32()),
                arrow.array(value, arrow.int64(), mask=named),
            ]
            writer.write_table(arrow.Table.from_arrays(columns, schema=schema))
