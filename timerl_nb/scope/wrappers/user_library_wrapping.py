"""A library of a user's own that is told apart: `trl.scope.tap`."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Final

from timerl_nb.base.errors import OptionError, one_of
from timerl_nb.scope.storage.event_format import Library
from timerl_nb.scope.wrappers.function_wrappers import Taps

_CATEGORIES: Final = {one.name.lower(): one for one in Library if one is not Library.PYTHON}


class tap:
    """Tell calls of a module's native functions apart in what is recorded, until `off()`.

    As a context manager it is off at its end. Where nothing is recorded, calls go straight through.

    Args:
        module: with native functions, or native classes that can be changed; or its name.
        category: "backend", "simulation", "api" or "waiting".

    Raises:
        OptionError: there is no such module or category, or nothing native in it.
    """

    def __init__(self, module: ModuleType | str, category: str) -> None:
        if not isinstance(category, str) or category not in _CATEGORIES:
            raise OptionError(
                f"there is no category {category!r}.", hint=one_of(str(category), list(_CATEGORIES))
            )
        if isinstance(module, str):
            try:
                module = importlib.import_module(module)
            except ImportError as error:
                raise OptionError(
                    f"{module} cannot be imported: {error}.", hint="give a module, or its name."
                ) from None
        if not isinstance(module, ModuleType):
            raise OptionError(f"{module!r} is no module.", hint="give a module, or its name.")
        self._taps = Taps()
        self._taps.module(module, _CATEGORIES[category])
        self._taps.rebind()
        if not self._taps:
            raise OptionError(
                f"{module.__name__} has no native functions that can be tapped.",
                hint="give the module that they are defined in, such as `package._core`; what is "
                "written in Python is seen as Python inside of an operation.",
            )

    def off(self) -> None:
        """Put back what was there."""
        self._taps.remove_all()

    def __enter__(self) -> tap:
        return self

    def __exit__(self, *_: object) -> None:
        self.off()
