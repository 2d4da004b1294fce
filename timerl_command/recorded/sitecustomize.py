"""Python runs this as it starts where `timerl scope run` has put its folder ahead: the process joins the recording.

So unchanged scripts are recorded, and the Python processes that they start, however they do. The library itself
would take a second to import; only the recorder is, beside a package that is not there yet.
"""

import contextlib
import importlib
import os
import sys
import types

_HERE = os.path.dirname(os.path.abspath(__file__))
_LIBRARY = os.path.join(os.path.dirname(os.path.dirname(_HERE)), "timerl_nb")


def _bare(name: str, folder: str) -> None:
    """A package of which nothing but modules is there."""
    package = types.ModuleType(name)
    package.__path__ = [folder]
    sys.modules[name] = package


def _join(told: str) -> None:
    bare = {"timerl_nb": _LIBRARY, "timerl_nb.scope": os.path.join(_LIBRARY, "scope")}
    for name, path in bare.items():
        _bare(name, path)
    try:
        joining = importlib.import_module("timerl_nb.scope.recording.process_joining")
    finally:
        for name in bare:  # who imports the library has all of it
            sys.modules.pop(name, None)
    joining.join(told)


sys.path[:] = [path for path in sys.path if os.path.abspath(path) != _HERE]
_own = sys.modules.pop("sitecustomize")
with contextlib.suppress(ImportError):
    import sitecustomize as sitecustomize  # that of whoever set up this Python  # pyrefly: ignore[missing-import]
sys.modules.setdefault("sitecustomize", _own)  # Python asks for it
if "TIMERL_SCOPE" in os.environ:
    _join(os.environ["TIMERL_SCOPE"])
