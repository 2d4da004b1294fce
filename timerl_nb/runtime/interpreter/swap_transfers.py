"""Values on their way between device and host: swapping while a program runs.

One background thread copies, in the order of the instructions. An offloaded value counts on the device
until the plan says that its copy has been waited for, a fetched one from its fetch on; both are exactly
what the memory plan predicts. A reader waits only for what has not arrived, and what goes wrong in
the thread is raised at the instruction that waits.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from timerl_nb.base.errors import ExecutionError, Origin
from timerl_nb.compiler.memory.placement.storage_kinds import Store
from timerl_nb.runtime.jax_backend import jax_engine as backend
from timerl_nb.runtime.memory_ledger import Ledger

THREAD = "timerl-transfer"


@dataclass(frozen=True)
class Copy:
    """A copy between device and host; when it began, as `time.perf_counter` counts, and its seconds."""

    verb: str
    tensor: str
    nbytes: int
    begun: float
    seconds: float


class Transfers:
    """The background thread, and the values that are leaving the device.

    Args:
        copying: during how many executed points a value that leaves is still on the device.

    Attributes:
        copies: what was copied; None where nobody asks.
    """

    def __init__(self, ledger: Ledger, copying: int) -> None:
        self.ledger, self.copying = ledger, copying
        self._leaving: dict[tuple[int, Any], tuple[SwapStore, int]] = {}
        self._worker: ThreadPoolExecutor | None = None
        self.copies: list[Copy] | None = None

    def submit(self, verb: str, store: SwapStore, copy: Callable[[], Any]) -> Future[Any]:
        if self._worker is None:
            self._worker = ThreadPoolExecutor(1, THREAD)
        try:
            return self._worker.submit(self.timed_copy, verb, store, copy)
        except RuntimeError:  # the interpreter exits, and lets no thread begin anything
            made: Future[Any] = Future()
            made.set_result(self.timed_copy(verb, store, copy))
            return made

    def timed_copy(self, verb: str, store: SwapStore, copy: Callable[[], Any]) -> Any:
        """Make a copy, on this thread; it is among `copies`."""
        begun = perf_counter()
        made = copy()
        if self.copies is not None:
            spent = perf_counter() - begun
            self.copies.append(Copy(verb, store.name, store.nbytes, begun, spent))
        return made

    def offload(self, store: SwapStore, key: Any) -> None:
        """Copy a value to the host; it leaves the device when the copy is due.

        Under a dynamic bound there may be none: its point never ran.
        """
        if key not in store:
            return
        store.copy(key)
        self._leaving[id(store), key] = (store, len(self.ledger.trace) + self.copying)
        if not self.copying:
            self.drop_due()

    def drop_due(self) -> None:
        """Take off the device what is due; called ahead of every executed point."""
        now = len(self.ledger.trace)
        while self._leaving:
            (name, key), (store, due) = next(iter(self._leaving.items()))
            if due > now:
                return
            self._drop(name, key, store)

    def _drop(self, name: int, key: Any, store: SwapStore) -> None:
        store.drop(key)
        del self._leaving[name, key]
        self.ledger.live -= store.nbytes

    def finish(self) -> None:
        """Complete all that has begun, and end the thread."""
        for (name, key), (store, _) in list(self._leaving.items()):
            self._drop(name, key, store)
        self.close()

    def come_back(self, store: SwapStore, key: Any) -> None:
        """Copy a value to the device again; one that has not left stays."""
        if store.is_away(key) and not self.cancel_offload(store, key):
            self.ledger.live += store.nbytes
            store.bring(key)

    def cancel_offload(self, store: SwapStore, key: Any) -> bool:
        """Whether a value was about to leave; it does not any more."""
        return self._leaving.pop((id(store), key), None) is not None

    def close(self) -> None:
        """End the thread. What it has not begun to copy stays where it is."""
        if self._worker is not None:
            self._worker.shutdown(wait=True, cancel_futures=True)
            self._worker = None


class SwapStore(dict[Any, Any]):
    """The values (or blocks) of a swapped tensor by key: on the device, and copies on the host.

    Reading waits for what is on its way. At the end of a run, outputs are read from the host.
    """

    def __init__(self, transfers: Transfers, store: Store, origin: Origin) -> None:
        super().__init__()
        self.nbytes = store.unit
        self.name, self._origin, self._transfers = store.name, origin, transfers
        self._copies: dict[Any, Future[Any]] = {}
        self._home: Any = None

    def __getitem__(self, key: Any) -> Any:
        value = super().__getitem__(key)
        if isinstance(value, Future):
            value = self._wait(value, key, "the device")
            super().__setitem__(key, value)
        return value

    def __missing__(self, key: Any) -> Any:
        if key not in self._copies:
            raise KeyError(key)
        return self._wait(self._copies[key], key, "the host")

    def __delitem__(self, key: Any) -> None:
        if self.pop(key) is None:
            raise KeyError(key)

    def pop(self, key: Any, default: Any = None) -> Any:
        """Let go of a value and its copy; `default` if it was not on the device."""
        self._transfers.cancel_offload(self, key)
        if self._copies.pop(key, None) is not None:
            self._transfers.ledger.host -= self.nbytes
        return super().pop(key, default)

    def clear(self) -> None:
        """Let go of all values and copies."""
        super().clear()
        self._transfers.ledger.host -= self.nbytes * len(self._copies)
        self._copies.clear()

    def is_away(self, key: Any) -> bool:
        """Whether a value is on the host, or on its way there."""
        return key in self._copies

    def copy(self, key: Any) -> None:  # pyrefly: ignore[bad-override]
        """Begin to copy a value to the host, unless it has been before."""
        value = self[key]
        if key not in self._copies:
            self._home = value.sharding
            self._copies[key] = self._transfers.submit(
                "offload", self, lambda: backend.to_host(value)
            )
            self._transfers.ledger.host += self.nbytes

    def put_away(self, key: Any, value: Any) -> None:
        """Have a value that is given (on the device) on the host alone."""
        self[key] = value
        self.copy(key)
        self.drop(key)

    def drop(self, key: Any) -> None:
        """Let go of the value on the device once it is on the host."""
        self._wait(self._copies[key], key, "the host")
        super().__delitem__(key)

    def bring(self, key: Any) -> None:
        """Begin to copy a value to the device."""
        copy, home = self._copies[key], self._home
        self[key] = self._transfers.submit(
            "fetch", self, lambda: backend.from_host(copy.result(), home)
        )

    def _wait(self, moving: Future[Any], key: Any, where: str) -> Any:
        try:
            return moving.result()
        except Exception as error:
            at = key if isinstance(key, tuple) else (key,)
            raise ExecutionError(
                f"{self.name}({', '.join(map(str, at))}) could not be copied to {where}: {error}",
                origin=self._origin,
                hint="free memory there, or take less with a smaller bound.",
            ) from error
