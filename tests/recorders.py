"""The two recorders of `trl.scope`, which pass the same tests."""

from __future__ import annotations

import os
from typing import Final

import pytest

from timerl_nb.scope import native, pure

PYTHON_ALONE: Final = "from timerl_nb.scope import native, pure; native.module = pure\n"


@pytest.fixture(params=["c", "python"], autouse=True)
def recorder_in(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """In which language what is recorded is written."""
    if request.param == "python":
        monkeypatch.setattr(native, "module", pure)
    elif native.module is pure:
        if os.environ.get("TIMERL_REQUIRE_C"):
            pytest.fail(
                "the recorder in C was not built: install a C compiler and Python's headers"
            )
        pytest.skip("the recorder in C was not built")
    return request.param
