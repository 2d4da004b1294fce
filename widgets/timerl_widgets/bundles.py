"""Access to the JavaScript bundles built by `widgets/bundle.py`."""

from __future__ import annotations

from pathlib import Path

STATIC = Path(__file__).parent / "static"


def module(name: str) -> Path:
    """Return the path of a widget's module, built from `src/entries/<name>.ts`.

    Raises:
        ImportError: the module has not been built.
    """
    path = STATIC / f"{name}.js"
    if not path.exists():
        raise ImportError(
            f"the widgets have not been built ({path.name} is missing): run `make setup`, or "
            "`python widgets/bundle.py` in the repository"
        )
    return path
