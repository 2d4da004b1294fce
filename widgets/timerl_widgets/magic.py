"""`%%scope`: a cell of a notebook, recorded."""

from __future__ import annotations

from typing import Any

from timerl_nb.show.widget_api import record
from timerl_widgets.scope_view import ScopeView


class CellFailed(Exception):
    """A recorded cell ended with an error, whose traceback is there already."""

    def _render_traceback_(self) -> list[str]:
        return []


def load(shell: Any) -> None:
    """Let cells of a shell begin with `%%scope`, or with `%%scope rec` to keep the record under a name."""

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
