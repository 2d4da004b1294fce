"""Workers of a sweep: each run is one `timerl resume FOLDER` in a process of its own.

Whether a process of this machine or a worker of Ray's, it does the same; only how it is launched, and
how its death is noticed, differs. One that dies is launched again, and goes on from what was saved.
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
# `-m` would import modules from the current folder: a `tqdm.py` there would run
_ROOT: Final = str(Path(__file__).parents[3])
_CHILD: Final = (
    "import sys; sys.path.append(sys.argv.pop(1)); from timerl_nb.cli.main import main; "
    "sys.exit(main())"
)
Tell = Callable[[str], None]


class Processes:
    """Processes of this machine.

    Args:
        count: how many at once.
        retries: how often a run that died is gone on with.
        tell: is called with what happens beside.
    """

    def __init__(self, count: int, retries: int, tell: Tell) -> None:
        self._count, self._retries, self._tell = count, retries, tell
        self._going: set[subprocess.Popen[bytes]] = set()
        self._changed = threading.Lock()
        self._over = False

    def run(self, folders: Sequence[Path]) -> Iterator[tuple[Path, int]]:
        """Do all, each folder with its exit status as it comes to its end."""
        with ThreadPoolExecutor(self._count) as pool:
            asked = {pool.submit(self._run_with_retries, folder): folder for folder in folders}
            try:
                for future in as_completed(asked):
                    yield asked[future], future.result()
            except BaseException:  # Ctrl-C: each stops after its turn, and saves
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
                    [sys.executable, "-P", "-c", _CHILD, _ROOT, "resume", str(folder), "--quiet"],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,  # Ctrl-C is ours to pass on
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
    """Workers of Ray, on this machine or in a cluster whose machines share the sweep's folder.

    Args:
        count, retries, tell: as for `Processes`.
        address: of a cluster; None for this machine alone.

    Raises:
        MissingPartError: Ray is not installed.
    """

    def __init__(self, count: int, retries: int, tell: Tell, address: str | None = None) -> None:
        try:
            self._ray: Any = importlib.import_module("ray")
        except ImportError as error:
            raise MissingPartError(
                f"Ray cannot be imported: {error}.",
                hint="pip install 'timerl-nb[ray]'; without --ray the sweep runs in processes of this "
                "machine.",
            ) from error
        self._count, self._retries, self._tell = count, retries, tell
        self._address = address

    def run(self, folders: Sequence[Path]) -> Iterator[tuple[Path, int]]:
        """Do all, each folder with its exit status as it comes to its end."""
        ray = self._ray
        options: Mapping[str, Any] = (
            {"address": self._address}
            if self._address
            else {"num_cpus": self._count, "include_dashboard": False}
        )
        with warnings.catch_warnings():
            # Ray's own processes are forked to run another program at once, which harms no thread
            warnings.filterwarnings("ignore", "os.fork", RuntimeWarning)
            ray.init(log_to_driver=False, configure_logging=False, **options)
        try:
            # a worker for each run alone, as a process is: JAX keeps what it has for good
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
                        f"Ray failed: {error}", hint="look at the cluster's own logs."
                    ) from error
                except ray.exceptions.RayTaskError as error:
                    self._tell(f"{folder.name}: {error}")
                    status = FAILED
                except ray.exceptions.RayError as error:  # the worker is no more
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
    return f"{folder.name} died of {why}: it goes on ({time} of {of})"


def _in_worker(folder: str) -> int:
    """What a worker of Ray's does; returns the exit status."""
    path = user_path(folder)
    with (
        open(path / OUTPUT, "a") as output,
        contextlib.redirect_stdout(output),
        contextlib.redirect_stderr(output),
    ):
        return outcome("timerl resume", lambda: go_on(path, quiet=True))
