"""Create the recordings of `datasets`: `python tests/traces.py ours|torch|jax FILE`.

`torch` and `jax` need the package of that name. Only `ours` imports this project, so that PyTorch's
file can be made in an environment with PyTorch alone.
"""

import shutil
import sys
import tempfile
from pathlib import Path


def ours(path: str) -> None:
    """Two phases of some steps, in wrapped calls, with a thread and a child process that are joined."""
    import multiprocessing
    import threading
    import time
    import zlib

    import timerl_nb as trl

    content = bytes(range(256)) * 400

    def packs() -> None:
        with trl.scope.operation("pack"):
            zlib.compress(content)

    with tempfile.TemporaryDirectory() as folder:
        with (
            trl.scope.tap(zlib, "backend"),
            trl.scope.record(f"{folder}/ours", calibrated=False) as rec,
        ):
            with trl.scope.phase("collect"):
                child = multiprocessing.get_context("fork").Process(target=packs, name="worker")
                child.start()
                for _ in range(3):
                    with trl.scope.operation("step"):
                        time.sleep(0.001)
                        packs()
                child.join()
            with trl.scope.phase("update"):
                thread = threading.Thread(target=packs, name="packer")
                thread.start()
                thread.join()
        rec.save(path)


def torch(path: str) -> None:
    """PyTorch 2.13.0 on a CPU: a linear layer, forward and backward."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    net = torch.nn.Linear(4, 2)
    net(torch.ones(3, 4)).sum().backward()
    with profile(activities=[ProfilerActivity.CPU]) as seen:
        net(torch.ones(3, 4)).sum().backward()
    seen.export_chrome_trace(path)


def jax(path: str) -> None:
    """JAX on a CPU: a jitted function, called three times between two marks of the calling thread."""
    import threading

    import jax
    import jax.numpy as jnp

    function = jax.jit(lambda x: jnp.tanh(x @ x).sum())
    x = jnp.ones((64, 64))
    function(x).block_until_ready()
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level, options.host_tracer_level = 0, 1
    with tempfile.TemporaryDirectory() as folder:
        jax.profiler.start_trace(folder, profiler_options=options)
        for k in range(2):
            mark = f"timerl mark {k} of thread {threading.get_native_id()}"
            with jax.profiler.TraceAnnotation(mark):
                pass
            for _ in range(3 * (1 - k)):
                function(x).block_until_ready()
        jax.profiler.stop_trace()
        (found,) = Path(folder).rglob("*.xplane.pb")
        shutil.copy(found, path)


if __name__ == "__main__":
    {"ours": ours, "torch": torch, "jax": jax}[sys.argv[1]](sys.argv[2])
