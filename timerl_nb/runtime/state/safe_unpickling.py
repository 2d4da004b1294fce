"""Unpickling restricted to a table of names, so that no file can run arbitrary code."""

from __future__ import annotations

import pickle
from collections.abc import Collection, Mapping
from typing import Any, ClassVar, Final

CLASSES: Final = "*"  # entry of a table that allows every class defined in a module


class Allowed(pickle.Unpickler):
    """Unpickler that creates only the types in its table.

    Attributes:
        table: Allowed names by module. It must not contain `getattr` or similar functions, which would
            give access to other objects.
    """

    table: ClassVar[Mapping[str, Collection[str]]] = {}

    def find_class(self, module_name: str, global_name: str, /) -> Any:
        """Return a named object.

        Raises:
            pickle.UnpicklingError: The name is not in the table.
        """
        names = self.table.get(module_name, ())
        if names and "." not in global_name:  # a dotted path could reach other objects
            found = super().find_class(module_name, global_name)
            own = isinstance(found, type) and found.__module__ == module_name
            if global_name in names or (CLASSES in names and own):
                return found
        raise pickle.UnpicklingError(f"{module_name}.{global_name} is not allowed in this file")
