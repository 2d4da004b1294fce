"""How a command ends: its exit status, and what an error says."""

from __future__ import annotations

import sys
import traceback as tracebacks
from collections.abc import Callable
from pathlib import Path
from typing import Final

from timerl_nb.base.errors import TimeRLError

FINE: Final = 0
FAILED: Final = 1
WRONG: Final = 2
INTERRUPTED: Final = 130


def outcome(name: str, do: Callable[[], int], *, traceback: bool = False) -> int:
    """The exit status of what is done: 0 fine, 1 an error of ours, 2 wrong usage, 130 interrupted.

    Args:
        name: of the command, ahead of what an error says.
        traceback: show where an error arose.
    """
    try:
        return do()
    except TimeRLError as error:
        if traceback:
            tracebacks.print_exception(error)
        else:
            print(f"{name}: {format_error(error)}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        print(f"\n{name}: interrupted.", file=sys.stderr)
        return INTERRUPTED
    except SystemExit as exit:  # argparse has said what there is to say
        return exit.code if isinstance(exit.code, int) else FINE


def format_error(error: TimeRLError) -> str:
    """What an error says, without a line of ours: it would be nobody's to mend."""
    file = error.origin.file
    ours = not error.origin.line or Path(__file__).parents[1] in Path(file).parents
    text = str(error).replace(f"\n  at {error.origin}", "", 1) if ours else str(error)
    return "\n".join([text, *getattr(error, "__notes__", ())])
