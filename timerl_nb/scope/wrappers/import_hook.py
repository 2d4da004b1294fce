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
    """Wrap the functions of a library, as far as the module has them: a program may have replaced it."""
    try:
        which[name](taps, module)
    except Exception as error:  # the program goes on
        warn(f"calls of {name} are not all told apart: {cause(error)}.")


class ImportHook:
    """A finder of modules, to wrap libraries as soon as they are imported."""

    def __init__(self, taps: Taps, which: Libraries) -> None:
        self._taps, self._which = taps, which

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """The spec that others find, whose loader also taps."""
        if name not in self._which:
            return None
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)  # Python skips finders without it
            if finder is self or find is None or (spec := find(name, path, target)) is None:
                continue
            if _can_execute(spec.loader):
                spec.loader = _Loader(spec.loader, self._taps, self._which)
            return spec
        return None


def _can_execute(loader: Any) -> bool:
    """Whether a loader has both methods called by `_Loader`; Python also takes one with `load_module` alone."""
    return hasattr(loader, "exec_module") and hasattr(loader, "create_module")


class _Loader(Loader):
    """Loads a module as another loader does, and taps it."""

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
