"""Wrapping of a user's native library: `trl.scope.tap`."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Final

from timerl_nb.base.errors import OptionError, one_of
from timerl_nb.compiler.language.foreign_names import explain_constructor
from timerl_nb.scope.storage.event_format import Library
from timerl_nb.scope.wrappers.function_wrappers import Taps

_CATEGORIES: Final = {one.name.lower(): one for one in Library if one is not Library.PYTHON}


@explain_constructor
class tap:
    """Wrapper of the native functions of a module, so that recordings report their time separately.

    Calls are recorded until `off()`, or until the end of the `with` block. Without a recording, the
    functions run unchanged.

    Args:
        module: module with native functions or mutable native classes, or its name.
        category: "backend", "simulation", "api" or "waiting".

    Raises:
        OptionError: the module or category does not exist, or the module has no native functions.

    Example:
        >>> with trl.scope.tap("zlib", "backend"), trl.scope.record() as recording:
        ...     import zlib
        ...     with trl.scope.operation("compression"):
        ...         data = zlib.compress(bytes(1000))
        >>> ("compression", "python", "backend") in recording.transitions()
        True
    """

    def __init__(self, module: ModuleType | str, category: str) -> None:
        if not isinstance(category, str) or category not in _CATEGORIES:
            raise OptionError(
                f"the category {category!r} does not exist.",
                hint=one_of(str(category), list(_CATEGORIES)),
            )
        if isinstance(module, str):
            try:
                module = importlib.import_module(module)
            except ImportError as error:
                raise OptionError(
                    f"{module} cannot be imported: {error}.", hint="pass a module or its name."
                ) from None
        if not isinstance(module, ModuleType):
            raise OptionError(f"{module!r} is not a module.", hint="pass a module or its name.")
        self._taps = Taps()
        self._taps.module(module, _CATEGORIES[category])
        self._taps.rebind()
        if not self._taps:
            raise OptionError(
                f"{module.__name__} has no native functions to wrap.",
                hint="pass the module that defines them, such as `package._core`. Functions written in "
                "Python count as Python time; put an operation around them.",
            )

    def off(self) -> None:
        """Remove the wrappers and restore the functions."""
        self._taps.remove_all()

    def __enter__(self) -> tap:
        return self

    def __exit__(self, *_: object) -> None:
        self.off()
