"""Import hook: wraps the functions of a library as soon as the program imports it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, TypeAlias

from timerl_nb.base.errors import warn
from timerl_nb.scope.storage.json_validation import cause
from timerl_nb.scope.wrappers.function_wrappers import Taps

Libraries: TypeAlias = Mapping[str, Callable[[Taps, Any], None]]


def wrap_library(taps: Taps, which: Libraries, name: str, module: Any) -> None:
    """Wrap the functions of a library. A replaced or incomplete module gives a warning."""
    try:
        which[name](taps, module)
    except Exception as error:  # the program continues
        warn(
            f"some calls of {name} are not recorded separately: {cause(error)}.",
            hint=f"put an operation around calls of {name}.",
        )


class ImportHook:
    """Module finder that wraps the functions of a library right after its import."""

    def __init__(self, taps: Taps, which: Libraries) -> None:
        self._taps, self._which = taps, which

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Return the spec from the other finders, with a `_Loader` around its loader."""
        if name not in self._which:
            return None
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)  # Python skips finders without this method
            if finder is self or find is None or (spec := find(name, path, target)) is None:
                continue
            if _can_execute(spec.loader):
                spec.loader = _Loader(spec.loader, self._taps, self._which)
            return spec
        return None


def _can_execute(loader: Any) -> bool:
    """Return whether a loader has both methods called by `_Loader`.

    Old loaders have only `load_module`.
    """
    return hasattr(loader, "exec_module") and hasattr(loader, "create_module")


class _Loader(Loader):
    """Loader around another loader; installs wrappers after the import."""

    def __init__(self, loader: Any, taps: Taps, which: Libraries) -> None:
        self._loader, self._taps, self._which = loader, taps, which

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        spec = module.__spec__
        assert spec is not None
        spec.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        if module.__name__ in self._which:
            wrap_library(self._taps, self._which, module.__name__, module)
            self._taps.rebind()
