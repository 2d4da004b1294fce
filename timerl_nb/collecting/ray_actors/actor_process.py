"""Actor of Ray with a group of environments and the policy.

Ray receives the text of this module rather than its name. A machine without this package, or with
another version of it, can therefore report that. The module imports only the standard library.
"""

from __future__ import annotations

import os
import platform
import signal
import sys
import traceback
import warnings
from collections.abc import Mapping
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any


def answer_of(function: Any, *args: Any) -> dict[str, Any]:
    """Return the result of a function, or its error, with the worker's node and the warnings."""
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            answer = {"value": function(*args)}
        except Exception as error:
            trace = "".join(traceback.format_exception(error))
            answer = {"error": _portable(error), "trace": trace}
    told = [str(one.message) for one in warned if type(one.message).__name__ == "TimeRLWarning"]
    return answer | {"node": platform.node(), "warnings": told}


def _portable(error: BaseException) -> Any:
    """Return an error in bytes, or its text if it cannot be pickled."""
    if isinstance(error, ImportError):
        return {"missing": error.name or str(error), "said": str(error)}
    try:
        return import_module("ray.cloudpickle").dumps(error)
    except Exception:
        return f"{type(error).__name__}: {error}"


def versions() -> dict[str, str]:
    """Return the versions that must be equal in the driver and all workers."""
    try:
        own = version("timerl-nb")
    except PackageNotFoundError:  # a copy of the sources
        own = "without metadata"
    return {"Python": f"{sys.version_info[0]}.{sys.version_info[1]}", "timerl-nb": own}


class EnvironmentActor:
    """Environments of one worker."""

    def open(
        self, wanted: Mapping[str, str], settings: Mapping[str, Any], payload: Any, *args: Any
    ) -> dict[str, Any]:
        """Open the environments.

        Args:
            wanted: versions of the driver, by name.
            settings: settings of JAX.
            payload: pickled strategy, environment and policy, as a list of one reference.
            args: further arguments of `actor_environments.open_group`.

        Returns:
            The answer; its value has the differing versions, if any.
        """
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the driver handles interrupts
        # the actor has no accelerator: its CPUs are reserved, and the driver may use the GPU
        os.environ["JAX_PLATFORMS"] = "cpu"
        return answer_of(self._open, wanted, settings, payload, *args)

    def _open(
        self, wanted: Mapping[str, str], settings: Mapping[str, Any], payload: Any, *args: Any
    ) -> dict[str, str]:
        import_module("timerl_nb")
        here = versions()
        differing = {name: x for name, x in here.items() if x != wanted[name]}
        if not differing:
            group = import_module("timerl_nb.collecting.ray_actors.actor_environments")
            self._group = group.open_group(settings, _fetch(payload[0]), *args)
        return differing

    def collect(self, number: int, weights: Any, policy_version: int) -> dict[str, Any]:
        """Return the steps of a batch; a repeated number returns the same ones.

        Args:
            number: number of the batch.
            weights: weights of the policy, as a list of one reference.
            policy_version: their version.
        """
        return answer_of(self._group.collect, number, weights[0], policy_version, _fetch)

    def close(self) -> None:
        """Close the environments."""
        group = getattr(self, "_group", None)
        if group is not None:
            group.close()


def _fetch(reference: Any) -> Any:
    return import_module("ray").get(reference)
