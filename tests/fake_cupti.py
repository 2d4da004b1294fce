"""Fake of `cupti.cupti` with the declarations of cupti-python 13.4 (`cupti.pyi`) and a separate clock."""

from __future__ import annotations

import time
from collections.abc import Callable
from enum import IntEnum
from types import SimpleNamespace
from typing import Any

AHEAD = 77_000_000_000  # nanoseconds by which its clock is ahead of ours
SUBSCRIBER_PARAMS_SIZE = 40

ActivityKind = IntEnum(
    "ActivityKind",
    {
        "MEMCPY": 1,
        "MEMSET": 2,
        "DRIVER": 4,
        "RUNTIME": 5,
        "DEVICE": 8,
        "CONCURRENT_KERNEL": 10,
        "MEMCPY2": 22,
    },
)
ActivityThreadIdType = IntEnum("ActivityThreadIdType", {"DEFAULT": 0, "SYSTEM": 1})
CallbackDomain = IntEnum("CallbackDomain", {"DRIVER_API": 1, "RUNTIME_API": 2})
Result = IntEnum(
    "Result", {"ERROR_NOT_INITIALIZED": 15, "ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED": 39}
)
NAMES = {
    (1, 307): "cuLaunchKernel",
    (2, 211): "cudaLaunchKernel_v7000",
    (2, 41): "cudaMemcpyAsync_v3020",
}


class cuptiError(Exception):
    def __init__(self, status: int) -> None:
        self.status = status
        super().__init__(f"error {status}")


class SubscriberParams:
    struct_size = 0
    subscriber_name = old_subscriber_name = ""

    @property
    def ptr(self) -> SubscriberParams:
        return self


class Fake:
    """The module, configured by a test: earlier subscribers, unavailable activity kinds, and activities."""

    def __init__(self, holder: str | None = None, refuses: int | None = None) -> None:
        self.holder, self.refuses = holder, refuses
        self.enabled: list[int] = []
        self.subscribed = False
        self.thread_ids = ActivityThreadIdType.DEFAULT
        self.activities: list[Any] = []
        self._handed: Callable[[list[Any]], None] | None = None
        for name in (
            "ActivityKind",
            "ActivityThreadIdType",
            "CallbackDomain",
            "Result",
            "cuptiError",
        ):
            setattr(self, name, globals()[name])
        self.SubscriberParams, self.SUBSCRIBER_PARAMS_SIZE = (
            SubscriberParams,
            SUBSCRIBER_PARAMS_SIZE,
        )

    def get_timestamp(self) -> int:
        return time.monotonic_ns() + AHEAD

    def subscribe_v2(self, callback: Any, userdata: Any, params: SubscriberParams) -> int:
        assert params.struct_size == SUBSCRIBER_PARAMS_SIZE and params.subscriber_name
        if self.holder is not None:
            params.old_subscriber_name = self.holder
            raise cuptiError(Result.ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED)
        self.subscribed = True
        return 5

    def unsubscribe(self, subscriber: int) -> None:
        assert subscriber == 5 and self.subscribed
        self.subscribed = False

    def set_thread_id_type(self, kind: int) -> None:
        self.thread_ids = ActivityThreadIdType(kind)

    def activity_register_callbacks(self, requested: Any, completed: Any) -> None:
        size, records = requested()
        assert size > 0 and records == 0
        self._handed = completed

    def activity_enable(self, kind: int) -> None:
        if kind == self.refuses:
            raise cuptiError(Result.ERROR_NOT_INITIALIZED)
        self.enabled.append(kind)

    def activity_disable(self, kind: int) -> None:
        self.enabled.remove(kind)

    def activity_flush_all(self, flag: int) -> None:
        assert self._handed is not None
        self._handed(self.activities)
        for one in self.activities:
            vars(one).clear()  # CUPTI owns the record again

    def get_callback_name(self, domain: int, cbid: int) -> str:
        return NAMES[domain, cbid]

    def ran(self, kind: int, **fields: Any) -> None:
        """Record an activity with times of our clock."""
        for name in ("start", "end"):
            if name in fields:
                fields[name] += AHEAD
        self.activities.append(SimpleNamespace(kind=kind, **fields))
