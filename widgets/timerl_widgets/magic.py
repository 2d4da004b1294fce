"""Cell magic `%%scope`: records a notebook cell."""

from __future__ import annotations

from typing import Any

from timerl_nb.show.widget_api import record
from timerl_widgets.scope_view import ScopeView


class CellFailed(Exception):
    """Error in a recorded cell, whose traceback has already been printed."""

    def _render_traceback_(self) -> list[str]:
        return []


def load(shell: Any) -> None:
    """Register the magic: `%%scope` records a cell, `%%scope rec` also assigns the recording to `rec`."""

    def scope(line: str, cell: str) -> ScopeView | None:
        with record() as rec:
            done = shell.run_cell(cell)
        if line.strip():
            shell.push({line.strip(): rec})
        shown = ScopeView(rec)
        if done.success:
            return shown
        shell.display_pub.publish(*shown._repr_mimebundle_())
        raise CellFailed from (done.error_in_exec or done.error_before_exec)

    shell.register_magic_function(scope, "cell")
