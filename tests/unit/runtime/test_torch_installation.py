"""Messages about PyTorch's installation, with stand-ins for the library."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import timerl_nb as trl
from timerl_nb.base.errors import OptionError
from timerl_nb.runtime import engine

PACKAGE = "timerl_nb.runtime.torch_backend"


@pytest.fixture(autouse=True)
def _without_engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Import the engine anew, and restore the imported one afterwards."""
    for name in [one for one in sys.modules if one.startswith(PACKAGE)]:
        monkeypatch.delitem(sys.modules, name)
    for name in [one for one in sys.modules if one.partition(".")[0] == "torch"]:
        monkeypatch.delitem(sys.modules, name)
    engine._engine.cache_clear()
    yield
    for name in [*sys.modules]:
        if name.startswith(PACKAGE) or name.partition(".")[0] == "torch":
            del sys.modules[name]  # of stand-ins; other libraries look for "torch" here
    engine._engine.cache_clear()


def compile_with_torch() -> None:
    with trl.Context("t") as ctx:
        ((t, T),) = ctx.dims
        ctx.output("x", trl.value(t))
    ctx.compile({T: 3}, trl.Options(backend="torch"))


def stand_in(folder: Path, text: str) -> None:
    (folder / "torch.py").write_text(text)


def test_a_missing_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(OptionError, match="not installed") as caught:
        compile_with_torch()
    assert 'pip install "timerl-nb[torch]"' in str(caught.value)
    with trl.Context("t") as ctx:
        ((t, T),) = ctx.dims
        ctx.output("x", trl.value(t))
    ctx.compile({T: 3}).execute(progress=False)  # JAX needs no PyTorch


def test_a_library_without_its_dependencies(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stand_in(tmp_path, "raise ImportError('libcublas.so.12: cannot open shared object file')\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(OptionError, match=r"cannot be loaded: libcublas\.so\.12") as caught:
        compile_with_torch()
    assert "pip install torch" in str(caught.value)


def test_a_library_that_is_too_old(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    stand_in(tmp_path, "__version__ = '2.1.0+cpu'\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(OptionError, match=r"2\.9 or newer, and 2\.1\.0\+cpu is installed"):
        compile_with_torch()
