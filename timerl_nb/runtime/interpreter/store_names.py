"""Names of stores in generated code, and expressions for the keys of their values."""

from __future__ import annotations

from collections.abc import Sequence

from timerl_nb.compiler.memory.placement.storage_kinds import Store


def store_name(tensor: tuple[int, int]) -> str:
    """Return the variable name of a tensor's store."""
    return f"v{tensor[0]}_{tensor[1]}"


def key_text(store: Store, index: Sequence[str]) -> str:
    """Return the key of a value in its store, as source code. It mirrors `Store.key`."""
    if store.has_one_entry:
        return "0"
    if store.traits.is_cyclic:
        return f"{index[store.position]} % {store.size}"
    found = store.without_row(tuple(index))
    return found[0] if len(found) == 1 else f"({', '.join(found)})"
