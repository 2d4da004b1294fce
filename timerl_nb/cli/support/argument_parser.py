"""Argument parser of the commands: argparse with suggestions for misspelt options."""

from __future__ import annotations

import argparse
import ast
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from timerl_nb.base.errors import one_of


class Parser(argparse.ArgumentParser):
    """Parser of one command.

    Args:
        command: the words of the command, such as "scope run".
        about: the description.
        examples: example lines, printed unchanged.
    """

    def __init__(self, command: str, about: str, examples: str = "", **options: Any) -> None:
        super().__init__(
            prog=f"timerl {command}",
            description=about,
            epilog=f"examples:\n{examples}" if examples else None,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
            **options,
        )
        self.add_argument(
            "--traceback", action="store_true", help="print the full traceback of an error"
        )

    def parse_words(self, words: Sequence[str]) -> argparse.Namespace:
        """Parse the arguments; invalid ones end the process with status 2, as in argparse."""
        given, unknown = self.parse_known_args(words)
        if unknown:
            options = [name for name in self._option_string_actions if name.startswith("--")]
            word = unknown[0].split("=")[0]
            hint = one_of(word, options) if word.startswith("-") else "quote arguments with spaces."
            self.error(f"{unknown[0]!r} is unknown. {hint}")
        return given

    def error(self, message: str) -> NoReturn:
        print(f"{self.prog}: {message}\n  {self.prog} --help lists all arguments.", file=sys.stderr)
        raise SystemExit(2)


def make_argument_type(read: Callable[[str], Any], what: str) -> Callable[[str], Any]:
    """Return `read` for argparse, with an error that names the expected type."""

    def parse(text: str) -> Any:
        try:
            return read(text)
        except ValueError as error:
            said = f" ({error})" if str(error) else ""
            raise argparse.ArgumentTypeError(f"{text!r} is not {what}{said}") from None

    return parse


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError
    return number


def _pairs(text: str) -> dict[str, str]:
    found = dict[str, str]()
    for part in text.split(","):
        name, equals, value = (word.strip() for word in part.partition("="))
        if not (name and equals and value):
            raise ValueError
        found[name] = value
    return found


positive = make_argument_type(_positive, "a positive number")
bounds = make_argument_type(
    lambda text: {name: _positive(value) for name, value in _pairs(text).items()},
    "a list of bounds such as B=64,I=20,T=500",
)


def parse_assignment(text: str) -> tuple[str, str]:
    """Parse NAME=VALUE."""
    name, equals, value = text.partition("=")
    if not (name and equals and value):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name.replace("-", "_"), value


def literal(text: str) -> Any:
    """Parse a Python literal: 4, 0.5, True, None, {"t": 64}; any other text is returned unchanged."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def merge_dicts(given: Sequence[dict[str, int]] | None) -> dict[str, int]:
    """Merge dictionaries; later ones take precedence."""
    return {name: value for one in given or () for name, value in one.items()}
