"""Long isl calls in a child process.

islpy holds the interpreter lock during a call, and scheduling a large program is one call. In a
child process the call can be interrupted: the parent receives signals while it waits, and kills the
child. The child runs this file as a script and imports only isl.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final

import islpy as isl

UNSCHEDULABLE: Final = "unable to carry dependences"
# The child gets the parent's search path, so that it imports the same isl.
_CHILD: Final = (
    "import runpy, sys; _, this, *sys.path = sys.argv; runpy.run_path(this, {}, '__main__')"
)


def ask_elsewhere(given: Mapping[str, str], operations: int) -> Mapping[str, str]:
    """Run one isl computation in a child process.

    Args:
        given: isl texts. With the keys "domain", "validity", "proximity" and "context", the result
            is a schedule. With the key "times", it is the lexicographic maximum of the relation.
        operations: the limit on isl operations.

    Returns:
        The result as text under "made", isl's error message under "error", or the reason of the
        child's death under "ended".
    """
    command = [sys.executable, "-I", "-c", _CHILD, __file__, *filter(None, sys.path)]
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    try:  # A separate process group: an interrupt at the terminal goes to the parent only.
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
