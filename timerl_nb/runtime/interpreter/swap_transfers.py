"""Transfers of swapped values between device and host during a run of the interpreter.

One background thread copies, in the order of the instructions. An offloaded value counts as device
memory until the planned wait for its copy, a fetched value from the start of its fetch. Both agree with
the memory plan. A reader waits only for unfinished copies. Errors of the thread appear at the
instruction that waits.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from timerl_nb.base.errors import ExecutionError, Origin
from timerl_nb.compiler.memory.placement.storage_kinds import Store
from timerl_nb.runtime.engine import Engine, load_engine
from timerl_nb.runtime.memory_ledger import Ledger

THREAD = "timerl-transfer"


@dataclass(frozen=True)
class Copy:
    """Copy between device and host; `begun` is a time of `time.perf_counter`, `seconds` a duration."""

    verb: str
    tensor: str
    nbytes: int
    begun: float
    seconds: float


class Transfers:
    """Background thread, and the values being offloaded.

    Args:
        ledger: Memory ledger of the run.
        copying: Number of executed points before an offloaded value leaves the device.
        engine: Library of the arrays; JAX by default.

    Attributes:
        copies: Completed copies; None if they are not recorded.
    """

    def __init__(self, ledger: Ledger, copying: int, engine: Engine | None = None) -> None:
        self.ledger, self.copying = ledger, copying
        self.engine = load_engine("jax") if engine is None else engine
        self._leaving: dict[tuple[int, Any], tuple[SwapStore, int]] = {}
        self._worker: ThreadPoolExecutor | None = None
        self.copies: list[Copy] | None = None

    def submit(self, verb: str, store: SwapStore, copy: Callable[[], Any]) -> Future[Any]:
        if self._worker is None:
            self._worker = ThreadPoolExecutor(1, THREAD)
        try:
            return self._worker.submit(self.timed_copy, verb, store, copy)
        except RuntimeError:  # during the exit of Python, no thread can start work
            made: Future[Any] = Future()
            made.set_result(self.timed_copy(verb, store, copy))
            return made

    def timed_copy(self, verb: str, store: SwapStore, copy: Callable[[], Any]) -> Any:
        """Make a copy on the current thread, and record it."""
        begun = perf_counter()
        made = copy()
        if self.copies is not None:
            spent = perf_counter() - begun
            self.copies.append(Copy(verb, store.name, store.nbytes, begun, spent))
        return made

    def offload(self, store: SwapStore, key: Any) -> None:
        """Start to copy a value to the host; its device memory is freed after `copying` executed points.

        Under a dynamic bound the value may not exist, as its point may not have run.
        """
        if key not in store:
            return
        store.copy(key)
        self._leaving[id(store), key] = (store, len(self.ledger.trace) + self.copying)
        if not self.copying:
            self.drop_due()

    def drop_due(self) -> None:
        """Free the device memory of due offloaded values. Called before every executed point."""
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
        """Complete all transfers, and end the thread."""
        for (name, key), (store, _) in list(self._leaving.items()):
            self._drop(name, key, store)
        self.close()

    def come_back(self, store: SwapStore, key: Any) -> None:
        """Start to copy a value back to the device, unless it is still there."""
        if store.is_away(key) and not self.cancel_offload(store, key):
            self.ledger.live += store.nbytes
            store.bring(key)

    def cancel_offload(self, store: SwapStore, key: Any) -> bool:
        """Cancel the pending offload of a value; return whether there was one."""
        return self._leaving.pop((id(store), key), None) is not None

    def close(self) -> None:
        """End the thread. Pending copies are dropped."""
        if self._worker is not None:
            self._worker.shutdown(wait=True, cancel_futures=True)
            self._worker = None


class SwapStore(dict[Any, Any]):
    """Values or blocks of a swapped tensor by key, on the device and on the host.

    Reading waits for pending copies. At the end of a run, outputs are read from the host.
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
        """Remove a value and its copy on the host; return `default` if it was not on the device."""
        self._transfers.cancel_offload(self, key)
        if self._copies.pop(key, None) is not None:
            self._transfers.ledger.host -= self.nbytes
        return super().pop(key, default)

    def clear(self) -> None:
        """Remove all values and copies."""
        super().clear()
        self._transfers.ledger.host -= self.nbytes * len(self._copies)
        self._copies.clear()

    def is_away(self, key: Any) -> bool:
        """Whether a value has a copy on the host, or is being copied there."""
        return key in self._copies

    def copy(self, key: Any) -> None:  # pyrefly: ignore[bad-override]
        """Start to copy a value to the host, unless a copy exists."""
        value = self[key]
        if key not in self._copies:
            self._home = self._transfers.engine.placement(value)
            self._copies[key] = self._transfers.submit(
                "offload", self, lambda: self._transfers.engine.to_host(value)
            )
            self._transfers.ledger.host += self.nbytes

    def put_away(self, key: Any, value: Any) -> None:
        """Store a value of the device on the host only."""
        self[key] = value
        self.copy(key)
        self.drop(key)

    def drop(self, key: Any) -> None:
        """Free a value on the device, after its copy to the host is complete."""
        self._wait(self._copies[key], key, "the host")
        super().__delitem__(key)

    def bring(self, key: Any) -> None:
        """Start to copy a value to the device."""
        copy, home = self._copies[key], self._home
        self[key] = self._transfers.submit(
            "fetch", self, lambda: self._transfers.engine.from_host(copy.result(), home)
        )

    def _wait(self, moving: Future[Any], key: Any, where: str) -> Any:
        try:
            return moving.result()
        except Exception as error:
            at = key if isinstance(key, tuple) else (key,)
            raise ExecutionError(
                f"{self.name}({', '.join(map(str, at))}) cannot be copied to {where}: {error}",
                origin=self._origin,
                hint="free memory there, or choose a smaller bound.",
            ) from error
