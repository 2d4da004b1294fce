"""Programs whose kernels PyTorch runs: values, ownership of memory, settings outside, options and messages."""

from __future__ import annotations

import importlib
import itertools
import multiprocessing
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import timerl_nb as trl
from tests.reinforce import reinforce
from tests.unit.checks import Expected
from timerl_nb.base.errors import ExecutionError, OptionError
from timerl_nb.compiler.ir.operation_kinds import KINDS
from timerl_nb.compiler.ir.random_bits import GENERATORS
from timerl_nb.compiler.ir.reference.evaluation_rules import RULES
from timerl_nb.compiler.ir.reference.evaluator import Reference
from timerl_nb.driver.compiling.machine_dependent_options import device_limit, machine_of
from timerl_nb.runtime import engine
from timerl_nb.runtime.engine import load_engine

torch = pytest.importorskip(
    "torch", reason="PyTorch is not installed: make torch-env, and run .venv-torch/bin/pytest"
)
pytestmark = pytest.mark.torch

TORCH = trl.Options(backend="torch")


def run(ctx: trl.Context, bounds: Any, **options: Any) -> trl.Result:
    return ctx.compile(bounds, trl.Options(backend="torch", **options)).execute(
        seed=3, progress=False
    )


def test_reinforce_has_the_curve_of_jax() -> None:
    ctx = reinforce(window=5)
    bounds = {"B": 16, "I": 20, "T": 30}
    program = ctx.compile(bounds, TORCH)
    assert program.executable.how == "interpreted by PyTorch on cpu"
    own = program.execute(seed=1, progress=False)
    jax = program.with_options(backend="jax", executor="interpret").execute(seed=1, progress=False)
    np.testing.assert_allclose(own["return"], jax["return"], rtol=1e-5)
    for name, value in jax.parameters.items():
        np.testing.assert_allclose(own.parameters[name], value, rtol=2e-3, atol=2e-4)
    assert own.memory.peak == jax.memory.peak


def test_nested_and_consecutive_loops_end_by_conditions() -> None:
    with trl.Context("i", "t", "k") as ctx:
        (i, most), (t, first), (k, _) = ctx.dims
        x = trl.random.uniform(domain=(i, t))
        y = trl.tensor((), domain=(i, k))
        y[i, 0] = x[i, first - 1]
        y[i, k + 1] = y * 0.6
        m = y.mean(over=k) + x.mean(over=t)
        ctx.output("m", m)
        ctx.output("last", m[most - 1])
        ends = {"I": m < 0.75, "T": x > 0.7, "K": y < 0.3}
    bounds = {name: trl.until(d, at_most=4 + k) for k, (name, d) in enumerate(ends.items())}
    program = ctx.compile(bounds, TORCH)
    reference, result = Reference(program.source_graph, program.bounds, 3), run(ctx, bounds)
    for name, lengths in reference.lengths().items():
        np.testing.assert_array_equal(result.lengths[name], lengths)
    for name, value in reference.outputs().items():
        np.testing.assert_allclose(result[name], value, rtol=1e-5)


def test_the_text_of_a_kernel_is_its_program() -> None:
    with trl.Context("t") as ctx:
        ((t, T),) = ctx.dims
        x = trl.random.uniform(domain=(t,))
        ctx.output("y", (x * 2.0 + 1.0).tanh())
    program = ctx.compile({T: 4}, TORCH)
    program.execute(progress=False)
    text = str(program.executable)
    assert "aten_tanh(" in text and "def kernel(" in text


@pytest.mark.parametrize("generator", GENERATORS)
def test_bits_are_those_of_the_reference_on_every_device(generator: str) -> None:
    """A GPU computes the bits by signed words; here the CPU computes them in this way, too."""
    random_rules = importlib.import_module("timerl_nb.runtime.torch_backend.random_rules")
    far = 2**31 + 5
    with trl.Context("b", "t") as ctx:
        (b, B), (t, T) = ctx.dims
        ctx.output("u", trl.random.bits((3,), domain=(b, t)))
    pdg = ctx.pdg()
    (op,) = (op for op in pdg if op.kind == "rng")
    op = replace(op, attrs=replace(op.attrs, generator=generator))
    for seed in (0, 12345, 2**63 + 17):
        for point in ((0, 0), (3, 7), (far, 2**32 - 1)):
            words = tuple(np.array([w & 0xFFFFFFFF], np.uint32) for w in (seed >> 32, seed))
            at = dict(zip(op.attrs.dims, point, strict=True))
            scope = random_rules.TorchScope({}, at, words, lambda n: n, lambda n: False)
            found = random_rules.bits_of(scope, op).view(torch.int32).numpy().view(np.uint32)
            reference = Reference(pdg, {"B": 1, "T": 1}, seed=seed)
            want = RULES["rng"](reference, op, (), at)
            np.testing.assert_array_equal(found, want)


def test_each_kind_has_a_rule_or_a_reason() -> None:
    rules = importlib.import_module("timerl_nb.runtime.torch_backend.operation_rules")
    assert set(rules.RULES) | set(rules.NO_RULE) == set(KINDS)
    assert not set(rules.RULES) & set(rules.NO_RULE)


def test_a_kernel_that_inductor_refuses_runs_traced(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any, **named: Any) -> Any:
        raise RuntimeError("no such lowering\nmore lines")

    monkeypatch.setattr(torch, "compile", refuse)
    monkeypatch.setenv("CXX", sys.executable)  # any program stands for a compiler
    program = count().compile({"T": 6}, trl.Options(backend="torch", torch_compile=True))
    found = program.execute(seed=3, progress=False)
    np.testing.assert_array_equal(found["x"], run(count(), {"T": 6})["x"])
    assert "# not compiled by TorchInductor: RuntimeError: no such lowering\n" in str(
        program.executable
    )


def test_a_missing_compiler_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    engine._engine.cache_clear()
    with pytest.raises(OptionError, match="needs a C\\+\\+ compiler"):
        count().compile({"T": 6}, trl.Options(backend="torch", torch_compile=True))


# --- ownership -----------------------------------------------------------------------------------


def test_results_share_no_memory() -> None:
    own = load_engine("torch").own
    x = torch.arange(6.0).reshape(2, 3)
    made = own([x, x.t(), x[0], torch.ones(3).expand(2, 3)])
    pointers = {one.untyped_storage().data_ptr() for one in made}
    assert len(pointers) == 4
    assert all(one.is_contiguous() for one in made)
    assert all(one.untyped_storage().nbytes() == one.numel() * 4 for one in made)


def test_a_function_may_keep_its_arguments() -> None:
    kept: list[tuple[np.ndarray, np.ndarray]] = []

    def keep(x: np.ndarray) -> np.ndarray:
        kept.append((x, x.copy()))
        return np.zeros((), np.float32)

    with trl.Context("i", "t") as ctx:
        (i, I), (t, T) = ctx.dims
        x = trl.tensor((), domain=(i, t))
        x[i, 0] = trl.value(i).cast("f32")
        x[i, t + 1] = x[i, t] + 1.0
        y = trl.udf(keep, x[i, 0:T].sum(axis=0), out=((), "f32"))
        ctx.output("x", x + y)
    run(ctx, {"I": 3, "T": 4})
    assert kept
    for x, then in kept:
        np.testing.assert_array_equal(x, then)


def test_live_views_receive_copies_of_tensors_and_rows() -> None:
    for value in (torch.ones(3), np.ones(3)):
        copied = load_engine("torch").snapshot(value)
        value[0] = 5
        assert float(copied[0]) == 1


def test_a_stream_is_recorded_from_jax_alone() -> None:
    program = count().compile({"T": 3}, TORCH)
    with pytest.raises(OptionError, match="it runs with PyTorch"):
        trl.streams.record(program)


def test_a_constant_is_a_result_of_its_own() -> None:
    given = np.arange(3, dtype=np.float32)
    with trl.Context("i") as ctx:
        ((i, I),) = ctx.dims
        x = trl.tensor((3,), domain=(i,))
        x[0] = trl.constant(given)
        x[i + 1] = x[i] + 1.0
        ctx.output("x", x)
    for donate in (True, False):
        result = run(ctx, {"I": 4}, donate=donate, vectorize=False)
        np.testing.assert_array_equal(result["x"], given + np.arange(4)[:, None])
    np.testing.assert_array_equal(given, np.arange(3))


# --- settings outside ----------------------------------------------------------------------------


def count() -> trl.Context:
    with trl.Context("t") as ctx:
        ((t, T),) = ctx.dims
        x = trl.tensor((), domain=(t,))
        x[0] = 1.0
        x[t + 1] = x[t] * 0.5 + trl.random.uniform(domain=(t,))
        ctx.output("x", x)
    return ctx


def _default_dtype() -> Callable[[], None]:
    torch.set_default_dtype(torch.float64)
    return lambda: torch.set_default_dtype(torch.float32)


def _default_device() -> Callable[[], None]:
    torch.set_default_device("meta")
    return lambda: torch.set_default_device("cpu")


def _threads() -> Callable[[], None]:
    before = torch.get_num_threads()
    torch.set_num_threads(3)

    def restore() -> None:
        assert torch.get_num_threads() == 3
        torch.set_num_threads(before)

    return restore


@pytest.mark.parametrize("change", [_default_dtype, _default_device, _threads])
def test_settings_of_the_user_do_not_matter(change: Callable[[], Callable[[], None]]) -> None:
    want = run(count(), {"T": 6})["x"]
    restore = change()
    try:
        found = run(count(), {"T": 6})["x"]
    finally:
        restore()
    np.testing.assert_array_equal(found, want)


def test_settings_of_the_process_are_restored() -> None:
    settings = importlib.import_module("timerl_nb.runtime.torch_backend.kernel_settings")
    cudnn = torch.backends.cudnn

    def state() -> tuple[Any, ...]:
        flags = cudnn.deterministic, cudnn.benchmark, cudnn.allow_tf32
        return (
            torch.get_float32_matmul_precision(),
            torch.are_deterministic_algorithms_enabled(),
            *flags,
        )

    before = state()
    torch.set_float32_matmul_precision("medium")
    cudnn.benchmark = True
    try:
        outside, gpu = state(), settings.ProcessSettings(settings.ON_CPU)
        with gpu:
            with gpu:  # as in another thread
                assert state() == ("highest", True, True, False, False)
            assert state() == ("highest", True, True, False, False)
        assert state() == outside
        with settings.ON_CPU:
            assert state() == ("highest", *outside[1:])
        assert state() == outside
    finally:
        torch.set_float32_matmul_precision("highest")
        cudnn.benchmark = False
    assert state() == before


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64])
def test_integers_are_contracted_by_exact_products_of_floats(dtype: Any) -> None:
    """A GPU has no integer products; here the CPU computes them in this way, too."""
    sums = importlib.import_module("timerl_nb.runtime.torch_backend.reduction_rules")
    ends = torch.iinfo(dtype)
    made = torch.Generator().manual_seed(1)
    x, y = (
        torch.randint(ends.min, ends.max, shape, dtype=dtype, generator=made)
        for shape in ((3, 40, 2), (2, 40, 5))
    )
    x[0], y[0] = ends.min, ends.min
    found = sums.contract_integers("bka", "akc", "bc", x, y)
    assert found.dtype is dtype
    torch.testing.assert_close(found, torch.einsum("bka,akc->bc", x, y), rtol=0, atol=0)
    with pytest.raises(ExecutionError, match="2,097,153 products"):
        sums.contract_integers("k", "k", "", *[torch.zeros((), dtype=dtype).expand(2**21 + 1)] * 2)


def test_a_kernel_of_pytorch_costs_more_than_one_of_jax() -> None:
    costs, plain = machine_of(TORCH), machine_of(trl.Options())
    assert costs.launch > plain.launch and costs.bandwidth == plain.bandwidth


@pytest.mark.parametrize("mode", [torch.no_grad, torch.enable_grad, torch.inference_mode])
def test_gradient_modes_do_not_matter(mode: Any) -> None:
    want = run(count(), {"T": 6})["x"]
    with mode():
        np.testing.assert_array_equal(run(count(), {"T": 6})["x"], want)
    program = count().compile({"T": 6}, TORCH)
    program.execute(seed=3, progress=False)  # traced outside, and run inside
    with mode():
        np.testing.assert_array_equal(program.execute(seed=3, progress=False)["x"], want)


def test_two_programs_run_at_once() -> None:
    want, found = run(count(), {"T": 40})["x"], dict[int, Any]()

    def work(k: int) -> None:
        found[k] = run(count(), {"T": 40})["x"]

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for k in range(4):
        np.testing.assert_array_equal(found[k], want)


def test_threads_that_start_during_a_run_keep_the_number_of_the_process() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        programs = [count().compile({"T": 60}, TORCH) for _ in range(3)]
        threads = [
            threading.Thread(target=program.execute, kwargs={"progress": False})
            for program in programs
        ]
        for thread in threads:
            thread.start()
        seen: list[int] = []
        while any(thread.is_alive() for thread in threads):
            one = threading.Thread(target=lambda: seen.append(torch.get_num_threads()))
            one.start()
            one.join()
        assert set(seen) == {2} and torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_a_kernel_inside_a_kernel_restores_the_number_of_threads() -> None:
    inner = count().compile({"T": 2}, TORCH)

    def host(x: Any) -> Any:
        return np.asarray(x) + inner.execute(seed=3, progress=False)["x"][-1]

    with trl.Context("t") as ctx:
        ((t, T),) = ctx.dims
        kind = jax.ShapeDtypeStruct((), jnp.float32)
        x = trl.random.uniform(domain=(t,))
        ctx.output("y", trl.jaxed(lambda x: jax.pure_callback(host, kind, x), x, out=((), "f32")))
    program = ctx.compile({T: 3}, trl.Options(backend="torch", vectorize=False))
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        for _ in range(2):  # traced, then run
            program.execute(progress=False)
            assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_autocast_does_not_matter() -> None:
    with trl.Context("t") as ctx:
        ((t, T),) = ctx.dims
        a = trl.random.normal((8, 8), domain=(t,))
        ctx.output("y", a @ a)
    program = ctx.compile({T: 3}, TORCH)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        traced = program.execute(progress=False)["y"]
    want = program.execute(progress=False)["y"]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = program.execute(progress=False)["y"]
    np.testing.assert_array_equal(found, want)
    np.testing.assert_array_equal(traced, want)


# --- user functions ------------------------------------------------------------------------------


def test_jax_functions_run_inside_a_kernel() -> None:
    given = np.arange(12, dtype=np.float32).reshape(4, 3)
    with trl.Context("t") as ctx:
        ((t, T),) = ctx.dims
        x = trl.data(given, domain=t)
        ctx.output("y", trl.jaxed(lambda x: jnp.cumsum(x) * 2.0, x, out=((3,), "f32")))
    np.testing.assert_allclose(run(ctx, {"T": 4})["y"], np.cumsum(given, 1) * 2)


def test_tensors_are_data_and_results_of_functions() -> None:
    given = torch.arange(4.0)
    with trl.Context("t") as ctx:
        ((t, T),) = ctx.dims
        x = trl.data(given, domain=t)
        y = trl.udf(lambda x: torch.tensor(float(x)) * 2, x, out=((), "f32"))
        ctx.output("y", y)
    np.testing.assert_array_equal(run(ctx, {"T": 4})["y"], [0, 2, 4, 6])


# --- edge cases of operations --------------------------------------------------------------------


@pytest.mark.parametrize("form", ["plain", "with a gradient", "bfloat16", "negated"])
def test_any_tensor_is_data_a_constant_an_input_or_a_result(form: str) -> None:
    one = torch.ones(2)
    forms = {
        "plain": one,
        "with a gradient": torch.nn.Parameter(one),
        "bfloat16": one.bfloat16(),
        "negated": torch.conj(torch.complex(one, -one)).imag,
    }
    x, dtype = forms[form], "bf16" if form == "bfloat16" else "f32"
    with trl.Context("t") as ctx:
        ((t, T),) = ctx.dims
        made = trl.udf(lambda _: x, trl.random.uniform((2,), domain=(t,)), out=((2,), dtype))
        ctx.output("y", made + trl.data(torch.stack([x] * 3), domain=t) + trl.constant(x) + x)
    np.testing.assert_array_equal(run(ctx, {T: 3})["y"].astype("f"), np.full((3, 2), 4))
    with trl.Context("i") as ctx:
        ((i, I),) = ctx.dims
        ctx.output("y", trl.given("x", (2,), "f32", domain=(i,)) * 1.0)
    program = ctx.compile({I: trl.endless}, TORCH)
    with program.turns(given=itertools.repeat({"x": x})) as turns:
        assert next(turns)["y"].tolist() == [1, 1]


def test_unsigned_integers_divide_and_shift_as_the_reference() -> None:
    x, y = (np.array(row, np.uint8) for row in ([7, 255, 200, 128], [255, 8, 9, 255]))
    with trl.Context("t") as ctx:
        ((t, T),) = ctx.dims
        a, b = trl.data(x, domain=t), trl.data(y, domain=t)
        for name, made in (("floor", a // b), ("rest", a % b), ("right", a >> b), ("left", a << b)):
            ctx.output(name, made)
    found = run(ctx, {T: 4})
    want = ctx.compile({T: 4}, trl.Options(executor="interpret")).execute(progress=False)
    for name in found:
        np.testing.assert_array_equal(found[name], want[name])
    assert found["rest"].tolist() == [7, 7, 2, 128] and not found["right"].any()


def test_scans_of_any_length() -> None:
    for n in (1, 5, 1000):
        xs = np.linspace(-1, 1, 1000, dtype=np.float32)
        with trl.Context("t") as ctx:
            ((t, T),) = ctx.dims
            x = trl.data(xs, domain=t)
            y = trl.tensor((), domain=(t,))
            y[0] = x[0]
            y[t + 1] = y[t] * 0.9 + x[t + 1]
            ctx.output("y", y)
        want = np.zeros(n, np.float32)
        for k in range(n):
            want[k] = xs[k] + (np.float32(0.9) * want[k - 1] if k else 0)
        np.testing.assert_allclose(run(ctx, {"T": n})["y"], want, rtol=1e-5, atol=1e-6)


def test_integers_wrap_and_divide_as_the_reference() -> None:
    low = np.iinfo(np.int32).min
    x = np.array([low, low, 7, -7, 5, 0, 3, -1], np.int32)
    y = np.array([-1, 0, 2, 2, 0, 0, -2, -3], np.int32)
    with trl.Context("t") as ctx:
        ((t, T),) = ctx.dims
        a, b = trl.data(x, domain=t), trl.data(y, domain=t)
        ctx.output("floor", a // b)
        ctx.output("mod", a % b)
        ctx.output("pow", a**b)
        ctx.output("least", (a.cast("u32") < b.cast("u32")).cast("i32"))
        ctx.output("max", trl.max(a.cast("u32"), b.cast("u32")))
    found = run(ctx, {"T": 8})
    Expected(ctx.pdg(), {"T": 8}, 3).assert_same(found, "PyTorch")


# --- options and messages ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "option",
    [
        {"executor": "xla"},
        {"devices": 2},
        {"fuse_iterations": 2},
        {"tile": "auto"},
        {"tile_kernel": True},
        {"tune": True},
    ],
)
def test_options_of_xla_are_refused_by_name(option: dict[str, Any]) -> None:
    (name,) = option
    with pytest.raises(OptionError, match=rf"{name}=.* and backend='torch'"):
        trl.Options(backend="torch", **option)


def test_options_of_torch_need_torch() -> None:
    with pytest.raises(OptionError, match="torch_compile=True and backend='jax'"):
        trl.Options(torch_compile=True)
    with pytest.raises(OptionError, match="device='cuda' and backend='jax'"):
        trl.Options(device="cuda")


def test_a_missing_gpu_is_reported() -> None:
    if torch.cuda.is_available():
        pytest.skip("PyTorch finds a GPU")
    with pytest.raises(OptionError, match="PyTorch finds no GPU"):
        count().compile({"T": 3}, trl.Options(backend="torch", device="cuda")).executable  # noqa: B018


def test_a_gpu_needs_a_setting_for_equal_sums_and_limits_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (1 << 20, 1 << 30))
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    options = trl.Options(backend="torch", device="cuda:0")
    engine._engine.cache_clear()
    try:
        with pytest.raises(OptionError, match="needs the environment variable CUBLAS_WORKSPACE"):
            device_limit(options)
        monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        assert device_limit(options) == 1 << 30
        assert device_limit(options.with_(device_memory="1MiB")) == 1 << 20
        assert device_limit(TORCH) is None
    finally:
        engine._engine.cache_clear()


def test_the_library_is_imported_only_on_demand() -> None:
    code = """if True:
        import sys
        import timerl_nb as trl
        with trl.Context("t") as ctx:
            ((t, T),) = ctx.dims
            ctx.output("x", trl.value(t))
        ctx.compile({T: 3}).execute(progress=False)
        assert "torch" not in sys.modules
        ctx.compile({T: 3}, trl.Options(backend="torch")).execute(progress=False)
        assert "torch" in sys.modules
        assert "torch._dynamo" not in sys.modules  # its import takes seconds
    """
    subprocess.run([sys.executable, "-c", code], check=True)


def _in_child(pipe: Any) -> None:
    pipe.send(run(count(), {"T": 5})["x"].tolist())


def test_a_new_process_runs_after_a_first_run() -> None:
    want = run(count(), {"T": 5})["x"].tolist()
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    child = context.Process(target=_in_child, args=(theirs,))
    child.start()
    assert ours.recv() == want
    child.join()
