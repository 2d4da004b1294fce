"""An interrupt is seen while isl works, whatever it works on."""

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
        # no call takes isl above two seconds; what waits much longer would wait for ever
        stuck = threading.Timer(90, child.kill)
        stuck.start()
        try:
            assert child.stdout is not None
            for kind in KINDS:
                assert child.stdout.readline().strip() == kind
                time.sleep(0.4)  # isl is in the middle of it
                child.send_signal(signal.SIGINT)
                # Python drops what is raised in a weak reference's callback: then it is asked again
                again = threading.Timer(20, child.send_signal, (signal.SIGINT,))
                again.start()
                assert child.stdout.readline().strip() == "interrupted", kind
                again.cancel()
            assert child.wait() == 0
        finally:
            stuck.cancel()
            child.kill()
