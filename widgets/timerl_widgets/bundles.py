"""The bundles that `widgets/bundle.py` built from TypeScript."""

from __future__ import annotations

from pathlib import Path

STATIC = Path(__file__).parent / "static"


def module(name: str) -> Path:
    """The page's module of a widget: what `src/entries/<name>.ts` became.

    Raises:
        ImportError: it has not been built.
    """
    path = STATIC / f"{name}.js"
    if not path.exists():
        raise ImportError(
            f"the widgets are not built ({path.name} is missing): run `make setup`, or "
            "`python widgets/bundle.py` in the repository"
        )
    return path
