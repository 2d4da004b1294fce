"""The two recorders of `trl.scope`; both must pass the same tests."""

from __future__ import annotations

import os
import threading
from typing import Final

import pytest

from timerl_nb.scope.analysis.recording_queries import Recording
from timerl_nb.scope.analysis.thread_timelines import Lane
from timerl_nb.scope.wrappers import c_or_python_recorder as native
from timerl_nb.scope.wrappers import python_recorder as pure

PYTHON_ALONE: Final = "from timerl_nb.scope.wrappers import c_or_python_recorder as native, python_recorder; native.module = python_recorder\n"


@pytest.fixture(params=["c", "python"], autouse=True)
def recorder_in(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Select the language of the recorder: C or Python."""
    if request.param == "python":
        monkeypatch.setattr(native, "module", pure)
    elif native.module is pure:
        if os.environ.get("TIMERL_REQUIRE_C"):
            pytest.fail(
                "the recorder in C was not built: install a C compiler and Python's headers"
            )
        pytest.skip("the recorder in C was not built")
    return request.param


def own_lane(recording: Recording) -> Lane:
    """Return the track of this thread. Other threads may record too, such as a progress bar's."""
    here = os.getpid(), threading.get_native_id()
    (lane,) = (one for one in recording.lanes if (one.process, one.thread) == here)
    return lane
