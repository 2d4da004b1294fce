"""Workers of a sweep: each run is one `timerl resume FOLDER` in a separate process.

Processes of this machine and Ray workers differ only in the launch and in the detection of a crash. A crashed
run is launched again and continues from its last save.
"""

from __future__ import annotations

import contextlib
import importlib
import signal
import subprocess
import sys
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any, Final

from timerl_nb.base.atomic_files import user_path
from timerl_nb.base.errors import ExecutionError, MissingPartError
from timerl_nb.cli.support.exit_status import FAILED, outcome
from timerl_nb.cli.support.foreground_run import go_on

OUTPUT: Final = "output.txt"
# `-m` would import modules from the current folder, for example a `tqdm.py` there
ROOT: Final = str(Path(__file__).parents[3])
CHILD: Final = (
    "import sys; sys.path.append(sys.argv.pop(1)); from timerl_nb.cli.main import main; "
    "sys.exit(main())"
)
Tell = Callable[[str], None]


class Processes:
    """Worker processes on this machine.

    Args:
        count: the number of simultaneous processes.
        retries: the number of restarts of a crashed run.
        tell: a function called with messages.
    """

    def __init__(self, count: int, retries: int, tell: Tell) -> None:
        self._count, self._retries, self._tell = count, retries, tell
        self._going: set[subprocess.Popen[bytes]] = set()
        self._changed = threading.Lock()
        self._over = False

    def run(self, folders: Sequence[Path]) -> Iterator[tuple[Path, int]]:
        """Run all folders, and yield each with its exit status when it ends."""
        with ThreadPoolExecutor(self._count) as pool:
            asked = {pool.submit(self._run_with_retries, folder): folder for folder in folders}
            try:
                for future in as_completed(asked):
                    yield asked[future], future.result()
            except BaseException:  # Ctrl-C: each process stops after its turn, and saves
                self._stop()
                pool.shutdown(cancel_futures=True)
                raise

    def _run_with_retries(self, folder: Path) -> int:
        status = self._run_once(folder)
        for k in range(1, self._retries + 1):
            if status >= 0 or self._over:
                break
            died = signal.Signals(-status).name
            self._tell(_goes_on(folder, died, k, self._retries))
            status = self._run_once(folder)
        return status

    def _run_once(self, folder: Path) -> int:
        with open(folder / OUTPUT, "ab") as output:
            with self._changed:
                if self._over:
                    return -signal.SIGINT
                process = subprocess.Popen(
                    [sys.executable, "-P", "-c", CHILD, ROOT, "resume", str(folder), "--quiet"],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,  # this process passes Ctrl-C on
                )
                self._going.add(process)
            try:
                return process.wait()
            finally:
                with self._changed:
                    self._going.discard(process)

    def _stop(self) -> None:
        with self._changed:
            self._over = True
            for process in self._going:
                process.send_signal(signal.SIGINT)


class Ray:
    """Ray workers, on this machine or in a cluster whose machines share the sweep's folder.

    Args:
        count, retries, tell: as in `Processes`.
        address: the address of a cluster; None for this machine.

    Raises:
        MissingPartError: Ray is not installed.
    """

    def __init__(self, count: int, retries: int, tell: Tell, address: str | None = None) -> None:
        try:
            self._ray: Any = importlib.import_module("ray")
        except ImportError as error:
            raise MissingPartError(
                f"Ray cannot be imported: {error}.",
                hint="run pip install 'timerl-nb[ray]', or omit --ray to use processes of this "
                "machine.",
            ) from error
        self._count, self._retries, self._tell = count, retries, tell
        self._address = address

    def run(self, folders: Sequence[Path]) -> Iterator[tuple[Path, int]]:
        """Run all folders, and yield each with its exit status when it ends."""
        ray = self._ray
        options: Mapping[str, Any] = (
            {"address": self._address}
            if self._address
            else {"address": "local", "num_cpus": self._count, "include_dashboard": False}
        )
        with warnings.catch_warnings():
            # Ray's forked processes execute another program immediately, so forking with threads is safe
            warnings.filterwarnings("ignore", "os.fork", RuntimeWarning)
            ray.init(log_to_driver=False, configure_logging=False, **options)
        try:
            # one worker process per run: JAX never releases its memory
            task = ray.remote(num_cpus=1, max_calls=1, max_retries=0)(_in_worker)
            waiting, going, died = [*reversed(folders)], dict[Any, Path](), Counter[Path]()
            while waiting or going:
                while waiting and len(going) < self._count:
                    folder = waiting.pop()
                    going[task.remote(str(folder.absolute()))] = folder
                (done, *_), _ = ray.wait(list(going), num_returns=1)
                folder = going.pop(done)
                try:
                    status = int(ray.get(done))
                except ray.exceptions.RaySystemError as error:
                    raise ExecutionError(
                        f"Ray failed: {error}", hint="check the logs of the cluster."
                    ) from error
                except ray.exceptions.RayTaskError as error:
                    self._tell(f"{folder.name}: {error}")
                    status = FAILED
                except ray.exceptions.RayError as error:  # the worker has died
                    died[folder] += 1
                    status = -signal.SIGKILL
                    if died[folder] <= self._retries:
                        why = type(error).__name__
                        self._tell(_goes_on(folder, why, died[folder], self._retries))
                        waiting.append(folder)
                        continue
                yield folder, status
        finally:
            ray.shutdown()


def _goes_on(folder: Path, why: str, time: int, of: int) -> str:
    return f"{folder.name} died of {why}: restarting ({time} of {of})"


def _in_worker(folder: str) -> int:
    """Run in a Ray worker, and return the exit status."""
    path = user_path(folder)
    with (
        open(path / OUTPUT, "a") as output,
        contextlib.redirect_stdout(output),
        contextlib.redirect_stderr(output),
    ):
        return outcome("timerl resume", lambda: go_on(path, quiet=True))
