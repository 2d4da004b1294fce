"""Interrupts during isl's work are handled, for every kind of work."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from tests.unit.symbolic.interrupted import KINDS

ROOT = Path(__file__).parents[3]


def test_an_interrupt_ends_every_kind_of_work() -> None:
    command = [sys.executable, "-m", "tests.unit.symbolic.interrupted"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as child:
        # no isl call takes more than two seconds; a longer wait is a hang
        stuck = threading.Timer(90, child.kill)
        stuck.start()
        try:
            assert child.stdout is not None
            for kind in KINDS:
                assert child.stdout.readline().strip() == kind
                time.sleep(0.4)  # isl is in the middle of it
                child.send_signal(signal.SIGINT)
                # Python drops exceptions in weak-reference callbacks: in that case, send another
                # interrupt
                again = threading.Timer(20, child.send_signal, (signal.SIGINT,))
                again.start()
                assert child.stdout.readline().strip() == "interrupted", kind
                again.cancel()
            assert child.wait() == 0
        finally:
            stuck.cancel()
            child.kill()
