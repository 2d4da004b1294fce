"""All benchmarks, as tables in Markdown."""

from __future__ import annotations

import os
import platform

import jax

from benchmarks import compiling, depth, interpreter, peaks

if __name__ == "__main__":
    device = jax.devices()[0]
    print(f"Python {platform.python_version()}, jax {jax.__version__}, ", end="")
    print(f"{device.platform} ({device.device_kind}), {os.cpu_count()} cores\n")
    compiling.main()
    print()
    depth.main()
    peaks.main()
    print()
    interpreter.main()
