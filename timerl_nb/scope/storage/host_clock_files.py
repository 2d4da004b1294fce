"""Files of a process that joins a recording from another host.

The process records into a subfolder of its host. It writes a file beside its manifest::

    host-gpu1/10.host   JSON: the host, the parent and its host, and anchors of both clocks
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from timerl_nb.base.atomic_files import write_whole
from timerl_nb.scope.device_activity.clock_alignment import Anchor

HOST: Final = "host-"  # prefix of a host's subfolder


def folder_of(host: str) -> str:
    """Return the name of a host's subfolder."""
    return HOST + re.sub(r"[^\w.-]", "_", host)


@dataclass(frozen=True)
class Join:
    """How a process of another host joined the recording.

    Attributes:
        host: its host.
        parent, parent_host: its parent, and the parent's host; "" for the host of the recording.
        anchors: comparisons of the host's clock (`theirs`) with that of the recording (`ours`).
    """

    host: str
    parent: int
    parent_host: str
    anchors: Sequence[Anchor] = ()

    def write(self, folder: Path, process: int) -> None:
        """Write the file of a process.

        Raises:
            OSError: the folder cannot be written.
        """
        about = {**asdict(self), "anchors": [asdict(one) for one in self.anchors]}
        write_whole(folder / f"{process}.host", json.dumps(about).encode(), synced=False)
