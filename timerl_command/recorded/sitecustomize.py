"""Start-up module of recorded Python processes.

`timerl scope run` puts this folder first on the module search path. Python imports `sitecustomize` at start-up, so the
script and all of its child processes join the recording without changes. Only the recorder is imported: the whole
library would take a second.
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
        for name in bare:  # a later import of the library must run in full
            sys.modules.pop(name, None)
    joining.join(told)


sys.path[:] = [path for path in sys.path if os.path.abspath(path) != _HERE]
_own = sys.modules.pop("sitecustomize")
with contextlib.suppress(ImportError):
    import sitecustomize as sitecustomize  # that of whoever set up this Python  # pyrefly: ignore[missing-import]
sys.modules.setdefault("sitecustomize", _own)  # Python asks for it
if "TIMERL_SCOPE" in os.environ:
    _join(os.environ["TIMERL_SCOPE"])
