"""Device tracer with CUPTI (`cupti-python`), for programs without PyTorch and JAX.

Written for cupti-python 13.0 and 13.4, and tested against an imitation of it, not on a GPU.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Sequence
from typing import Any, Final

from timerl_nb.scope.device_activity.device_operations import Sort
from timerl_nb.scope.device_activity.trace_data import Rows, Trace

TRACER: Final = "CUPTI"
_BUFFER: Final = 8 << 20  # size of CUPTI's buffers in bytes
_KINDS: Final = ("DEVICE", "CONCURRENT_KERNEL", "MEMCPY", "MEMCPY2", "MEMSET", "RUNTIME", "DRIVER")
_COPIES: Final = {1: "HtoD", 2: "DtoH", 8: "DtoD", 10: "PtoP"}  # values of CUpti_ActivityMemcpyKind


def absent() -> str:
    """Return the reason why CUPTI is unavailable, or ""."""
    try:
        importlib.import_module("cupti.cupti").get_timestamp()
    except ImportError:
        return "neither PyTorch nor JAX is imported, and cupti-python is not installed"
    except Exception as error:  # the errors of cupti-python have no common class
        return f"CUPTI sees no GPU: {error}"
    return ""


class CuptiTracer:
    """Device tracer with CUPTI and CUPTI's clock.

    Args:
        make_busy_error: returns the error for another active tracer, from its name.
    """

    name = TRACER

    def __init__(self, make_busy_error: Callable[[str], Exception]) -> None:
        self._cupti: Any = importlib.import_module("cupti.cupti")
        self._make_busy_error = make_busy_error
        self._rows = Rows()
        self._devices: dict[int, str] = {}
        self._kinds: list[Any] = []
        self._subscriber = self._began = 0

    def start(self) -> str:
        api = self._cupti
        asked = api.SubscriberParams()
        asked.struct_size = api.SUBSCRIBER_PARAMS_SIZE
        asked.subscriber_name = "timerl scope"
        try:
            self._subscriber = api.subscribe_v2(lambda *_: None, None, asked.ptr)
        except api.cuptiError as error:
            if error.status == api.Result.ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED:
                raise self._make_busy_error(
                    asked.old_subscriber_name or "another user of CUPTI"
                ) from error
            return f"CUPTI does not start: {api.Result(error.status).name}"
        try:
            # thread ids as in the timelines
            api.set_thread_id_type(api.ActivityThreadIdType.SYSTEM)
            api.activity_register_callbacks(lambda: (_BUFFER, 0), self._collect_activities)
            for kind in _KINDS:
                api.activity_enable(getattr(api.ActivityKind, kind))
                self._kinds.append(getattr(api.ActivityKind, kind))
        except api.cuptiError as error:
            self._end()
            return f"CUPTI does not start: {api.Result(error.status).name}"
        self._began = api.get_timestamp()
        return ""

    def read_clock(self, number: int) -> int | None:
        return int(self._cupti.get_timestamp())

    def stop(self) -> Trace:
        self._cupti.activity_flush_all(1)  # also flush incomplete buffers
        end = int(self._cupti.get_timestamp())
        self._end()
        return self._rows.trace(
            os.getpid(), self.name, self._began, end, self._devices, "the trace has no device"
        )

    def _end(self) -> None:
        for kind in self._kinds:
            self._cupti.activity_disable(kind)
        self._kinds.clear()
        self._cupti.unsubscribe(self._subscriber)

    def _collect_activities(self, activities: Sequence[Any]) -> None:
        """Copy the records of a CUPTI buffer; CUPTI reuses the buffer after this call."""
        api, rows = self._cupti, self._rows
        kinds = api.ActivityKind
        apis = {
            kinds.DRIVER: api.CallbackDomain.DRIVER_API,
            kinds.RUNTIME: api.CallbackDomain.RUNTIME_API,
        }
        for one in activities:
            kind = one.kind
            if kind in apis:
                name = api.get_callback_name(apis[kind], one.cbid).partition("_v")[0]
                rows.call(name, one.start, one.end, one.thread_id, one.correlation_id)
            elif kind == kinds.DEVICE:
                self._devices[one.id] = one.name
            else:
                where = (
                    getattr(one, "device_id", 0),
                    getattr(one, "stream_id", 0),
                    one.correlation_id,
                )
                if kind in (kinds.MEMCPY, kinds.MEMCPY2):
                    name = f"Memcpy {_COPIES.get(one.copy_kind, '')}".rstrip()
                    rows.run(Sort.COPY, name, one.start, one.end, *where)
                elif kind == kinds.MEMSET:
                    rows.run(Sort.SET, "Memset", one.start, one.end, *where)
                elif kind == kinds.CONCURRENT_KERNEL:
                    rows.run(Sort.KERNEL, one.name, one.start, one.end, *where)
