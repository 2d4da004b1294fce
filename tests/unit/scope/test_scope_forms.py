"""All syntactic forms of native calls of PyTorch, JAX and NumPy are recorded as library calls.

A form is a line of Python. Plain attributes (`x.shape`, `x.dtype`) are excluded: a wrapper would
cost more than the call.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import timerl_nb as trl
from tests.recorders import recorder_in as recorder_in

OPERATORS: Final = """
    x + y; x - y; x * y; x / y; x // y; x % y; x ** 2; x @ y; -x; +x; abs(x); ~i; i & 1; i | 1; i ^ 1; i << 1; i >> 1
    2 + x; 2 - x; 2 * x; 2 / x; 2 // x; 2 % x; 2 ** x; 3 & i; 3 | i; 3 ^ i; 1 << i; 64 >> i; x.__rmatmul__(y)
    x < y; x <= y; x == y; x != y; x > y; x >= 0; x[0]; x[i]; x[1:, None]; bool(x[0, 0]); float(x[0, 0]); int(i[0])
"""
IN_PLACE: Final = """
    x += 0; x -= 0; x *= 1; x /= 1; c //= 1; c %= 9; c **= 1; i &= 7; i |= 0; i ^= 0; i <<= 0; i >>= 0; x[0] = 1
    x[i] = 1.0; x.add_(0); c.zero_(); c.clamp_(0, 1); c.copy_(x); x.requires_grad_(False); del w.grad
"""
METHODS: Final = """
    len(x); list(x); 0.5 in x; reversed(x); x.sum(); x.mean(0); x.argmax(); x.view(-1); x.reshape(-1); x.split(2)
    x.unique(); x.norm(); x.to(torch.float64); x.float(); x.cpu(); x.detach(); x.item() if x.numel() == 1 else x.max().item()
    x.tolist(); x.numpy(); np.asarray(x); x.clone(); copy.deepcopy(x); x.new_zeros(3); x.new_tensor([1.0]); x.expand(1, 8, 8)
    x.T; x.mT; x.H; x.mH; x.real; torch.view_as_complex(p).imag; x.data; w.grad; x.data = y; w.grad = None
    w.requires_grad = True
"""
FUNCTIONS: Final = """
    torch.Tensor(rows); torch.Tensor(2, 3); torch.tensor(rows); torch.as_tensor(rows); torch.from_numpy(np.ones(3))
    torch.zeros(3); torch.ones(3); torch.randn(3); torch.arange(3); torch.full((2,), 1.0); torch.nn.Parameter(x)
    torch.stack([x, y]); torch.cat([x, y]); torch.where(x > 0, x, y); torch.einsum("ij,jk", x, y); torch.from_dlpack(x)
    torch.manual_seed(0); torch.seed(); torch.initial_seed(); torch.get_rng_state(); torch.set_rng_state(state)
    torch.set_grad_enabled(True); torch.set_num_threads(1); torch.set_default_dtype(torch.float32)
    F.relu(x); F.softmax(x, 1); F.linear(x, y); F.mse_loss(x, y); F.cross_entropy(x, i); F.conv1d(x[None], x[None])
    F.scaled_dot_product_attention(x, x, x); F.one_hot(i); F.pad(x, (1, 1)); F.smooth_l1_loss(x, y); F.layer_norm(x, (8,))
    F.dropout(x); F.log_softmax(x, 1); F.gelu(x); F.embedding(i, x); F.max_pool1d(x[None], 2)
    torch.linalg.norm(x); torch.linalg.qr(x); torch.linalg.solve(x, y); torch.linalg.svd(x); torch.linalg.inv(x)
    torch.fft.fft(x); torch.special.expit(x); torch.vmap(torch.sin)(x)
    torch.distributions.Categorical(logits=x).sample(); torch.distributions.Normal(x, 1.0).log_prob(y)
    layer(x); layer.zero_grad(); sgd.step(); adam.step(); sgd.zero_grad(); layer.state_dict()
    (w * 2).sum().backward(); torch.autograd.grad((w * 2).sum(), w); torch.nn.utils.clip_grad_norm_(layer.parameters(), 1.0)
"""
CONTEXTS: Final = """
    torch.no_grad(); torch.enable_grad(); torch.inference_mode(); torch.set_grad_enabled(True); torch.autocast("cpu")
    torch.random.fork_rng()
"""
ARRAYS: Final = """
    x.at[0].set(1.0); x.at[0].add(1.0); x.sum(); x.mean(0); x.argmax(); x.max(); x.reshape(-1); x.astype(int); x.T; x.real
    x.cumsum(); x.dot(y); x.copy(); x.round(); x.item() if x.size == 1 else x[0, 0].item(); x.tolist(); list(x); divmod(x, 2)
    jnp.add(x, y); jnp.sin(x); jnp.dot(x, y); jnp.where(x > 0, x, y); jnp.concatenate([x, y]); jnp.zeros(3); jnp.ones(3)
    jnp.array(rows); jnp.asarray(rows); jnp.arange(3); jnp.linalg.norm(x); jax.nn.relu(x); jax.nn.softmax(x); jax.nn.gelu(x)
    jax.random.split(key); jax.random.normal(key, (3,)); jax.lax.add(x, y); jax.lax.scan(lambda c, r: (c + r, c), x[0], x)
    jax.vmap(jnp.sin)(x); jax.grad(lambda a: (a**2).sum())(x); jax.jit(lambda a: a + 1)(x); jax.device_put(np.ones(3))
    x.block_until_ready()
"""
UFUNCS: Final = """
    np.add(x, y); np.exp(x); np.maximum(x, 0); np.dot(x, y); np.concatenate([x, y]); np.where(x > 0, x, y); np.matmul(x, y)
    np.zeros(3); np.array([1, 2]); np.arange(3); np.isnan(x); np.logical_and(x, y); np.copyto(x, y); np.einsum("ij,jk", x, y)
"""


def forms(text: str) -> list[str]:
    return [one.strip() for line in text.splitlines() for one in line.split(";") if one.strip()]


def missing(rec: trl.scope.record, some: Iterable[str], libraries: tuple[str, ...]) -> list[str]:
    """Return the forms without a recorded call."""
    seen = {operation for operation, _, to in rec.transitions() if to in libraries}
    return [form for form in some if form not in seen]


def run(some: Iterable[str], names: dict[str, Any], contexts: Iterable[str] = ()) -> None:
    for form in some:
        code = compile(form, form, "exec")
        with trl.scope.operation(form):
            exec(code, names)
    for form in contexts:
        code = compile(f"with {form}: pass", form, "exec")
        with trl.scope.operation(form):
            exec(code, names)


def state_of(cls: type) -> Mapping[str, Any]:
    return {name: value for name, value in vars(cls).items() if name != "__doc__"}


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_forms_of_pytorch() -> None:
    torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed")
    x = torch.rand(8, 8) + 0.5
    layer = torch.nn.Linear(8, 8)
    layer(x).sum().backward()
    w = torch.ones(8, requires_grad=True)
    w.sum().backward()
    names: dict[str, Any] = {
        "torch": torch,
        "np": np,
        "F": torch.nn.functional,
        "copy": __import__("copy"),
        "x": x,
        "y": torch.rand(8, 8),
        "c": torch.rand(8, 8),
        "p": torch.rand(8, 2),
        "i": torch.arange(8),
        "rows": x.tolist(),
        "w": w,
        "layer": layer,
        "sgd": torch.optim.SGD(layer.parameters(), 0.1),
        "adam": torch.optim.Adam(layer.parameters()),
        "state": torch.get_rng_state(),
    }
    lines = forms(OPERATORS + METHODS + FUNCTIONS + IN_PLACE)
    contexts = [one for one in forms(CONTEXTS) if one not in lines]
    assert len({*lines, *contexts}) > 150
    threads, before = torch.get_num_threads(), [state_of(x) for x in (torch.Tensor, torch._C)]  # type: ignore[arg-type]
    try:
        with trl.scope.record(exact=True) as rec:
            run(lines, names, contexts)
    finally:
        torch.set_num_threads(threads)
    assert missing(rec, [*lines, *contexts], ("backend",)) == []
    after = [state_of(x) for x in (torch.Tensor, torch._C)]  # type: ignore[arg-type]
    assert [one.keys() for one in before] == [one.keys() for one in after]
    assert all(a[k] is b[k] for a, b in zip(before, after, strict=True) for k in a)
    assert torch.Tensor([1.0, 2.0]).tolist() == [1.0, 2.0] and torch.Tensor(2, 3).shape == (2, 3)


def test_forms_of_jax(tmp_path: Path) -> None:
    x = jnp.arange(16.0).reshape(4, 4) + 1
    names: dict[str, Any] = {
        "jax": jax,
        "jnp": jnp,
        "np": np,
        "x": x,
        "y": x + 1,
        "i": jnp.arange(4),
    }
    names |= {"rows": np.ones((2, 3)).tolist(), "key": jax.random.key(0)}
    lines = forms(OPERATORS.replace("x.__rmatmul__(y)", "") + ARRAYS)
    assert len(lines) > 80
    array = type(x)
    before = state_of(array)
    with trl.scope.record(exact=True) as rec:
        run(lines, names)
    assert missing(rec, lines, ("backend", "waiting")) == []
    after = state_of(array)
    assert before.keys() == after.keys() and all(before[k] is after[k] for k in before)
    assert "jax._src.dispatch" in sys.modules and (x + 1).tolist() == names["y"].tolist()


def test_forms_of_numpy_where_it_is_wrapped() -> None:
    """Operators of arrays cannot be wrapped: their class is immutable."""
    x = np.ones((3, 3))
    lines = forms(UFUNCS)
    add = np.add
    with trl.scope.tap("numpy", "backend"), trl.scope.record(taps=False) as rec:
        run(lines, {"np": np, "x": x, "y": x + 1})
        assert isinstance(np.add, np.ufunc) and np.add.reduce([1, 2]) == 3
        assert np.add == add and np.add.nin == 2
    assert missing(rec, lines, ("backend",)) == []
    assert np.add is add
