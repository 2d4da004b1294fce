"""Exchange of arrays and parameters with PyTorch."""

from __future__ import annotations

import sys

import jax.numpy as jnp
import numpy as np
import pytest

import timerl_nb as trl
from timerl_nb.base.errors import MissingPartError, OptionError, ShapeError
from timerl_nb.compiler.ir.shapes import NUMPY


def test_a_missing_library_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingPartError, match="needs PyTorch, which is not installed"):
        trl.to_torch(np.ones(2))


def test_reasons_for_copies() -> None:
    assert trl.exchange.explain_copy(np.ones((2, 3))) == ""
    assert "contiguous" in trl.exchange.explain_copy(np.ones((2, 3)).T)
    fixed = np.ones(2)
    fixed.setflags(write=False)
    assert "read-only" in trl.exchange.explain_copy(fixed)
    assert "JAX" in trl.exchange.explain_copy(jnp.ones(2))


@pytest.fixture
def torch() -> object:
    return pytest.importorskip("torch", reason="PyTorch is not installed: make torch-env")


@pytest.mark.torch
def test_arrays_share_memory_where_both_may_write(torch) -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    shared = trl.to_torch(x)
    shared[0, 0] = 9
    assert x[0, 0] == 9
    copied = trl.to_torch(x.T)
    copied[0, 0] = 5
    assert x[0, 0] == 9
    fixed = jnp.arange(3.0)
    changed = trl.to_torch(fixed)
    changed[0] = 7
    assert float(fixed[0]) == 0
    y = torch.ones(3)
    trl.from_torch(y)[0] = 4
    assert float(y[0]) == 4
    learned = torch.ones(3, requires_grad=True)
    trl.from_torch(learned)[0] = 4
    assert float(learned[0].detach()) == 1


@pytest.mark.torch
@pytest.mark.parametrize("dtype", NUMPY.values(), ids=NUMPY)
def test_all_element_types_return_unchanged(torch, dtype: np.dtype) -> None:
    x = np.array([[0, 1], [1, 0]], dtype)
    back = trl.from_torch(trl.to_torch(x))
    assert back.dtype == dtype
    np.testing.assert_array_equal(back.astype(np.float64), x.astype(np.float64))


@pytest.mark.torch
def test_parameters_move_to_a_module_and_back(torch) -> None:
    given = {"a.weight": np.arange(8.0, dtype=np.float32).reshape(4, 2), "a.bias": np.ones(2, "f")}
    names = {"weight": "a.weight", "bias": "a.bias"}
    net = torch.nn.Linear(4, 2)
    trl.exchange.load_into(net, given, names)
    x = np.linspace(0, 1, 4, dtype=np.float32)
    with torch.no_grad():
        found = net(torch.from_numpy(x)).numpy()
    np.testing.assert_allclose(found, x @ given["a.weight"] + 1, rtol=1e-6)
    back = trl.exchange.read_from(net, names)
    for name, value in given.items():
        np.testing.assert_array_equal(back[name], value)
    back["a.bias"][0] = 100
    assert float(net.bias[0].detach()) == 1


@pytest.mark.torch
def test_wrong_names_and_shapes_change_nothing(torch) -> None:
    net = torch.nn.Linear(4, 2)
    before = {name: x.clone() for name, x in net.state_dict().items()}
    bias = np.ones(2, np.float32)
    with pytest.raises(ShapeError, match=r"'weight' has the shape \(2, 4\).* needs \(4, 2\)"):
        trl.exchange.load_into(net, {"bias": bias, "weight": np.ones((2, 4), np.float32)})
    with pytest.raises(ShapeError, match="no trained parameter 'weight'"):
        trl.exchange.load_into(net, {"bias": bias})
    with pytest.raises(ShapeError, match="the module has no parameter 'wait'"):
        trl.exchange.load_into(net, {"w": bias}, {"wait": "w"})
    with pytest.raises(ShapeError, match="no parameter for 'extra'"):
        trl.exchange.load_into(
            net, {"bias": bias, "weight": np.ones((4, 2), np.float32), "extra": bias}
        )
    for name, x in net.state_dict().items():
        assert torch.equal(x, before[name])


@pytest.mark.torch
def test_no_value_is_lost_on_the_way_to_a_module(torch) -> None:
    linear = torch.nn.Linear(4, 2)
    weights = {"weight": np.ones((4, 2), np.float32), "bias": np.ones(2, np.float32)}
    before = linear.bias.tolist()
    with pytest.raises(ShapeError, match="has no memory yet"):
        trl.exchange.load_into(torch.nn.Linear(4, 2, device="meta"), weights)
    with pytest.raises(ShapeError, match="has no memory yet"):
        trl.exchange.read_from(torch.nn.LazyLinear(3))
    with pytest.raises(ShapeError, match="not complex"):
        trl.exchange.load_into(linear, {**weights, "bias": np.full(2, 1 + 5j)})
    with pytest.raises(ShapeError, match="torch.nn.Module is needed, not OrderedDict"):
        trl.exchange.load_into(linear.state_dict(), weights)
    with pytest.raises(ShapeError, match="two parameters of the module have the name 'a'"):
        trl.exchange.read_from(linear, {"weight": "a", "bias": "a"})
    assert linear.bias.tolist() == before
    half = {name: torch.tensor(x).bfloat16().requires_grad_() for name, x in weights.items()}
    trl.exchange.load_into(linear, half)
    assert linear.bias.tolist() == [1, 1]


@pytest.mark.torch
def test_parameters_that_share_memory_have_one_value(torch) -> None:
    class Tied(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.e, self.l = torch.nn.Embedding(5, 3), torch.nn.Linear(3, 5, bias=False)
            self.l.weight = self.e.weight

        def get_extra_state(self) -> dict[str, int]:
            return {"version": 1}

        def set_extra_state(self, state: object) -> None:
            raise AssertionError("nothing is loaded")

    module, ones = Tied(), np.ones((5, 3), np.float32)
    with pytest.raises(ShapeError, match="share their memory, but have different values"):
        trl.exchange.load_into(module, {"e.weight": ones, "l.weight": 0 * ones.T})
    trl.exchange.load_into(module, {"e.weight": ones, "l.weight": ones.T})
    assert sorted(trl.exchange.read_from(module)) == ["e.weight", "l.weight"]
    with pytest.deprecated_call():
        scripted = torch.jit.script(torch.nn.Linear(2, 3))
    assert trl.exchange.read_from(scripted)["weight"].shape == (2, 3)


@pytest.mark.torch
def test_unusual_arrays_and_tensors(torch) -> None:
    assert trl.to_torch(np.arange(2, dtype=">f4")).tolist() == [0, 1]
    assert "order" in trl.exchange.explain_copy(np.ones(2, ">f4"))
    for wrong in (np.array(["a"]), None):
        with pytest.raises(ShapeError, match="must be an array of numbers"):
            trl.to_torch(wrong)
    with pytest.raises(OptionError, match="device='cuda' is not available"):
        trl.to_torch(np.ones(2), device="cuda")
    for wrong in (torch.eye(2).to_sparse(), torch.ones(2).to(torch.float8_e4m3fn)):
        with pytest.raises(ShapeError, match="NumPy has no array"):
            trl.from_torch(wrong)
    negated = torch.conj(torch.complex(torch.ones(2), torch.ones(2))).imag
    assert "negates" in trl.exchange.explain_copy(negated)
    assert trl.from_torch(negated).tolist() == [-1, -1]
