"""Exit statuses of commands, and the printing of errors."""

from __future__ import annotations

import sys
import traceback as tracebacks
from collections.abc import Callable
from pathlib import Path
from typing import Final

from timerl_nb.base.errors import TimeRLError
from timerl_nb.runtime.jax_backend.process_connection import report_end

FINE: Final = 0
FAILED: Final = 1
WRONG: Final = 2
INTERRUPTED: Final = 130


def outcome(name: str, do: Callable[[], int], *, traceback: bool = False) -> int:
    """Run a function, print its error, and return the exit status: 0 success, 1 TimeRL error, 2 wrong usage, 130
    interrupted.

    Args:
        name: the name of the command, printed before the error.
        do: the function.
        traceback: print the full traceback.
    """
    try:
        return do()
    except TimeRLError as error:
        report_end(error)
        if traceback:
            tracebacks.print_exception(error)
        else:
            print(f"{name}: {format_error(error)}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        print(f"\n{name}: interrupted.", file=sys.stderr)
        return INTERRUPTED
    except SystemExit as exit:  # argparse has printed its error
        return exit.code if isinstance(exit.code, int) else FINE


def format_error(error: TimeRLError) -> str:
    """Format an error, without its origin if that is a line of TimeRL-nb, which the user cannot change."""
    file = error.origin.file
    ours = not error.origin.line or Path(__file__).parents[1] in Path(file).parents
    text = str(error).replace(f"\n  at {error.origin}", "", 1) if ours else str(error)
    return "\n".join([text, *getattr(error, "__notes__", ())])
