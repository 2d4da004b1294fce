"""isl in a process of its own, for the few single calls that take it long.

islpy keeps the interpreter while isl works, and a large schedule is one call. In a child process it
can be interrupted: who waits for it sees signals, and the child ends with the wait. This file is
also what the child runs, as a script, so that it imports isl alone.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final

import islpy as isl

UNSCHEDULABLE: Final = "unable to carry dependences"
# isl is where this process found it, which may be where the environment pointed
_CHILD: Final = (
    "import runpy, sys; _, this, *sys.path = sys.argv; runpy.run_path(this, {}, '__main__')"
)


def ask_elsewhere(given: Mapping[str, str], operations: int) -> Mapping[str, str]:
    """The text of isl's answer as "made", its complaint as "error", or how its process "ended".

    Args:
        given: isl's texts: of a problem's domain, validity and proximity relations and context, whose
            schedule is wanted; or of the "times" of something, of which the latest are.
        operations: how many elementary operations isl may spend.
    """
    command = [sys.executable, "-I", "-c", _CHILD, __file__, *filter(None, sys.path)]
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    try:  # of a group of its own: an interrupt at the terminal is for who waits
        child = subprocess.Popen(command, text=True, start_new_session=True, **pipes)  # pyrefly: ignore[no-matching-overload]
    except OSError as error:
        return {"ended": str(error)}
    try:
        answer, complaint = child.communicate(json.dumps([dict(given), operations]))
    except BaseException:
        child.kill()
        child.wait()
        raise
    if child.returncode:
        return {"ended": " ".join([f"status {child.returncode}", *complaint.splitlines()[-1:]])}
    return json.loads(answer)


def _question(given: Mapping[str, str]) -> Callable[[], Any]:
    if "times" in given:
        return isl.UnionMap(given["times"]).lexmax
    constraints = isl.ScheduleConstraints.on_domain(isl.UnionSet(given["domain"]))
    constraints = constraints.set_validity(isl.UnionMap(given["validity"]))
    constraints = constraints.set_proximity(isl.UnionMap(given["proximity"]))
    return constraints.set_context(isl.Set(given["context"])).compute_schedule


def _answer(given: Mapping[str, str], operations: int) -> Mapping[str, str]:
    context, call = isl.DEFAULT_CONTEXT, _question(given)
    context.reset_operations()
    context.set_max_operations(operations)
    try:
        made = call()
    except isl.Error as error:
        return {"error": str(error)}
    context.set_max_operations(0)
    return {"made": made.to_str()}


if __name__ == "__main__":
    json.dump(_answer(*json.load(sys.stdin)), sys.stdout)
