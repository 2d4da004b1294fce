"""System errors are reported with the user's line and a remedy."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from timerl_nb.base.chrome_trace import write_events
from timerl_nb.base.errors import ExecutionError, explain_os_errors


def test_the_systems_reason_and_the_callers_line_are_told() -> None:
    error = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    with pytest.raises(ExecutionError) as caught, explain_os_errors("no file", hint="free space."):
        raise error
    assert caught.value.what == f"no file: {os.strerror(errno.ENOSPC)}."
    assert caught.value.hint == "free space." and caught.value.__suppress_context__
    assert caught.value.origin is not None
    with (
        pytest.raises(ExecutionError, match=r"no file: odd\."),
        explain_os_errors("no file", hint=""),
    ):
        raise OSError("odd")


def test_the_line_is_that_of_the_users_call(tmp_path: Path) -> None:
    """Frames of the library in between are skipped."""
    with pytest.raises(ExecutionError, match=r"the trace .* cannot be written") as caught:
        write_events(tmp_path / "missing" / "trace.json", [])
    assert Path(caught.value.origin.file).name == Path(__file__).name


def test_other_errors_pass() -> None:
    with pytest.raises(KeyError), explain_os_errors("no file", hint=""):
        raise KeyError("other")
    with explain_os_errors("no file", hint=""):
        pass
