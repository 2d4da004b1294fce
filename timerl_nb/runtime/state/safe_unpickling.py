"""Bytes on disk as values: only of kinds that a table names, so that no bytes can run what they like."""

from __future__ import annotations

import pickle
from collections.abc import Collection, Mapping
from typing import Any, ClassVar, Final

CLASSES: Final = "*"  # in place of a name: every class that the module defines


class Allowed(pickle.Unpickler):
    """Makes what its table names, and nothing else.

    Attributes:
        table: names by module. Neither `getattr` nor anything else that reaches further may be there.
    """

    table: ClassVar[Mapping[str, Collection[str]]] = {}

    def find_class(self, module_name: str, global_name: str, /) -> Any:
        """What bytes name.

        Raises:
            pickle.UnpicklingError: the table does not name it.
        """
        names = self.table.get(module_name, ())
        if names and "." not in global_name:  # a path of attributes would lead anywhere
            found = super().find_class(module_name, global_name)
            own = isinstance(found, type) and found.__module__ == module_name
            if global_name in names or (CLASSES in names and own):
                return found
        raise pickle.UnpicklingError(f"{module_name}.{global_name} is not made from bytes")
