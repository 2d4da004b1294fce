"""PyTorch as the engine of interpreted programs.

Each kernel is traced once to straight-line calls of ATen. Only `torch_engine` is imported from outside, by
`runtime.engine.load_engine`. The import fails with an `OptionError` if PyTorch is missing or unusable.
"""

from importlib import import_module
from typing import Final

from timerl_nb.base.errors import OptionError

OLDEST: Final = (2, 9)


def check_installation() -> None:
    """Import PyTorch.

    Raises:
        OptionError: PyTorch is missing, cannot be loaded, or is too old.
    """
    try:
        torch = import_module("torch")
    except (ImportError, OSError) as error:
        if getattr(error, "name", None) == "torch":
            raise OptionError(
                "backend='torch' needs PyTorch, which is not installed.",
                hint='run `pip install "timerl-nb[torch]"`, or leave out backend.',
            ) from None
        raise OptionError(
            f"backend='torch' needs PyTorch, which cannot be loaded: {error}.",
            hint="install it with its dependencies by `pip install torch`; the usual build for Linux also needs "
            "NVIDIA's libraries.",
        ) from error
    version = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
    if version < OLDEST:
        raise OptionError(
            f"backend='torch' needs PyTorch {'.'.join(map(str, OLDEST))} or newer, and {torch.__version__} is "
            "installed.",
            hint='run `pip install --upgrade "timerl-nb[torch]"`.',
        )


check_installation()
