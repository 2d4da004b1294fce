"""Rows lost with a remote process."""

from __future__ import annotations

from dataclasses import dataclass

from timerl_nb.base.text_formatting import format_count


@dataclass(frozen=True)
class ProcessLoss:
    """Rows that were lost with a remote process of a training run.

    Attributes:
        what: the process, such as "shard 0" or "actor 1".
        rows: the number of lost rows. For an actor, an upper bound in environment steps: its rollout in progress, and the
            steps of incomplete entries.
        error: the reason.

    Example:
        >>> print(trl.replay.ProcessLoss("shard 0", 512, "its node was removed"))
        512 rows were lost with shard 0: its node was removed
    """

    what: str
    rows: int
    error: str

    def __str__(self) -> str:
        verb = "was" if self.rows == 1 else "were"
        return f"{format_count(self.rows, 'row')} {verb} lost with {self.what}: {self.error}"
