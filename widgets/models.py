"""Generator of the TypeScript types in `src/models.ts` from the view-models' dataclasses.

`python widgets/models.py` writes the file; tests/test_layers.py checks that it is current.
"""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

import numpy as np

from timerl_nb import show
from timerl_nb.show.recording.recording_view import ScopeView
from timerl_nb.show.recording.timeline_downsampling import StretchView
from timerl_nb.show.systems.assignment_view import MappingView
from timerl_nb.show.systems.collection_strategies import StrategiesView
from timerl_nb.show.systems.stream_view import StreamView
from timerl_nb.show.view_model import View, parts

WRITTEN = Path(__file__).parent / "src/models.ts"
HEAD = """\
// View-models as Python sends them; widgets/models.py writes this from its dataclasses.
import type { Numbers } from "./shared/buffers";
"""
PLAIN = {int: "number", float: "number", str: "string", bool: "boolean", type(None): "null"}


def models() -> str:
    """Return the interfaces of all view-models and of their parts.

    Raises:
        TypeError: two types have the same name, or a part has no JSON type.
    """
    found = {kind.__name__: kind for kind in _views()}
    written: dict[str, str] = {}
    while missing := found.keys() - written.keys():
        written |= {name: "".join(_interface(found[name], found)) for name in sorted(missing)}
    return HEAD + "".join(text for _, text in sorted(written.items()))


def _views() -> Iterator[type]:
    views = {name: getattr(show, name) for name in show.__all__}
    views |= {
        one.__name__: one
        for one in (MappingView, ScopeView, StreamView, StretchView, StrategiesView)
    }  # these import more modules
    for _, kind in sorted(views.items()):
        if isinstance(kind, type) and issubclass(kind, View) and kind is not View:
            yield kind


def _interface(kind: type, found: dict[str, type]) -> Iterator[str]:
    yield f"\nexport interface {kind.__name__} {{\n"
    if issubclass(kind, View):
        yield f'  view: "{kind.view}";\n'
    for key, (_, hint) in parts(kind).items():
        yield f"  {key}: {_type(hint, found)};\n"
    yield "}\n"


def _type(hint: Any, found: dict[str, type]) -> str:
    origin, inner = get_origin(hint), get_args(hint)
    if hint in PLAIN:
        return PLAIN[hint]
    if hint is Any:
        return "unknown"
    if origin is np.ndarray:
        return "Numbers"
    if origin is Literal:
        return " | ".join(f'"{one}"' for one in inner)
    if origin in (Union, types.UnionType):
        return " | ".join(dict.fromkeys(_type(one, found) for one in inner))
    if origin is frozenset or (origin is tuple and inner[1:] == (...,)):
        one = _type(inner[0], found)
        return f"({one})[]" if " | " in one else f"{one}[]"
    if origin is tuple:
        return f"[{', '.join(_type(one, found) for one in inner)}]"
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return f"Record<string, {_type(inner[1], found)}>"
    if is_dataclass(hint) and isinstance(hint, type):
        if found.setdefault(hint.__name__, hint) is not hint:
            raise TypeError(f"two parts of view-models have the name {hint.__name__}")
        return hint.__name__
    raise TypeError(f"{hint} has no JSON type")


if __name__ == "__main__":
    WRITTEN.write_text(models(), encoding="utf-8")
