"""How the program's text speaks of stores: their names, and the keys of their values."""

from __future__ import annotations

from collections.abc import Sequence

from timerl_nb.compiler.memory.placement.storage_kinds import Store


def store_name(tensor: tuple[int, int]) -> str:
    """The variable that holds a tensor's store."""
    return f"v{tensor[0]}_{tensor[1]}"


def key_text(store: Store, index: Sequence[str]) -> str:
    """The key of a value in its store, from the source of each index; as `Store.key` has it."""
    if store.kind == "block":
        index = [e for k, e in enumerate(index) if k != store.position]
    if store.kind == "slot" or (store.kind == "block" and store.most <= 1):
        return "0"
    if store.kind == "ring":
        return f"{index[store.position]} % {store.size}"
    return index[0] if len(index) == 1 else f"({', '.join(index)})"
