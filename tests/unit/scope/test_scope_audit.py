"""An audit lists executed native functions without wrappers."""

from __future__ import annotations

import binascii
import importlib
import json
import queue
import sys
import threading
import zlib
from pathlib import Path

import pytest

import timerl_nb as trl
from tests.recorders import recorder_in as recorder_in
from timerl_nb.base.errors import ExecutionError, OptionError
from timerl_nb.cli import main
from timerl_nb.scope.analysis.coverage_audit import Enough, audit


def counts(found: audit) -> dict[str, int]:
    return {row.name: row.calls for row in found.rows}


def test_what_is_untapped_is_counted_and_what_is_tapped_is_not() -> None:
    given: queue.Queue[int] = queue.Queue()
    with trl.scope.tap(zlib, "api"), trl.scope.audit() as found:
        for _ in range(3):
            zlib.crc32(b"x")
            binascii.crc32(b"x")
        given.put(1)
        given.get()  # waits, with all calls inside
        assert sorted(range(4), key=lambda x: -binascii.crc32(b"x") * x)
        thread = threading.Thread(target=lambda: [binascii.crc32(b"x") for _ in range(5)])
        thread.start()
        thread.join()
        with pytest.raises(TypeError):
            binascii.crc32("x")  # type: ignore[arg-type]
    had = counts(found)
    assert had["binascii.crc32"] == 3 + 4 + 5 + 1 and had["builtins.sorted"] == 1
    assert "zlib.crc32" not in had and not any("lock.acquire" in name for name in had)
    assert sys.getprofile() is None and found.total >= sum(row.ns for row in found.rows) > 0
    said = str(found)
    assert "native functions without a wrapper" in said and "builtins.sorted" in said


def test_imports_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "imported_by_it.py").write_text("import binascii\nbinascii.crc32(b'x')\n")
    monkeypatch.syspath_prepend(tmp_path)
    with trl.scope.audit() as found:
        importlib.import_module("imported_by_it")
    assert "binascii.crc32" not in counts(found)
    del sys.modules["imported_by_it"]


def test_it_is_enough_after_some_seconds() -> None:
    rounds = 0
    with trl.scope.audit(seconds=0.01) as found:
        while True:
            try:
                rounds += len(str(rounds))
            except Exception:
                pytest.fail("it is no Exception")
    assert rounds > 0 and found.total >= 10_000_000
    with pytest.raises(ZeroDivisionError), trl.scope.audit():
        rounds /= 0
    assert issubclass(Enough, BaseException) and not issubclass(Enough, Exception)


def test_wrong_audits_are_refused(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="seconds=0 is not positive"):
        trl.scope.audit(seconds=0)
    with trl.scope.record(tmp_path / "r"), pytest.raises(ExecutionError, match="is still open"):
        trl.scope.audit().__enter__()
    sys.setprofile(lambda *_: None)
    try:
        with pytest.raises(ExecutionError, match="another profiler is active"):
            trl.scope.audit().__enter__()
    finally:
        sys.setprofile(None)


def test_a_script_is_checked(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "s.py").write_text(
        "import binascii, json, sys\n"
        "print(json.dumps([__name__, *sys.argv[1:]]))\n"
        "for _ in range(20_000): binascii.crc32(b'x')\n"
        "sys.exit(3)\n"
    )
    assert main(["scope", "check", "--seconds", "60", str(tmp_path / "s.py"), "--own"]) == 0
    out, err = capfd.readouterr()
    assert json.loads(err.splitlines()[-1]) == ["__main__", "--own"]
    assert "binascii.crc32" in out and "native functions without a wrapper" in out
    assert main(["scope", "check", "-m", "json"]) == 2
    assert main(["scope", "check"]) == 2
    assert main(["scope", "check", "--seconds", "0", str(tmp_path / "s.py")]) == 1
    assert "seconds=0.0 is not positive" in capfd.readouterr().err
