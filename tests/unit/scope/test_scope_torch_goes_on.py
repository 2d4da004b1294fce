"""PyTorch works while wrapped and afterwards, and all wrappers are removed."""

from __future__ import annotations

import copy
import inspect
import json
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import timerl_nb as trl
from tests.unit.scope.test_scope_taps import bound, changed
from timerl_nb.scope.wrappers.function_wrappers import is_tap

torch = pytest.importorskip(
    "torch", reason="PyTorch is not installed: make torch-env, and run .venv-torch/bin/pytest"
)
pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]


class Net(torch.nn.Module):
    """Functions, methods and operators of all sorts."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.tanh(self.layer(x)) + x[0]
        y = torch.nn.functional.relu(y) @ y.t()
        return y.reshape(-1).sum(0) - torch.cat([x, x]).mean()


def net() -> Net:
    torch.manual_seed(3)
    return Net()


def trained() -> list[bytes]:
    """Return a network's exact parameters after a few steps of training."""
    made = net()
    optimizer = torch.optim.Adam(made.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        made(torch.randn(4, 3)).pow(2).backward()
        optimizer.step()
    return [weights.detach().numpy().tobytes() for weights in made.parameters()]


def test_all_of_torch_is_put_back() -> None:
    torch.overrides.get_overridable_functions()
    trained()  # lazily created objects
    before, tensor, module = bound(), list(vars(torch.Tensor).items()), vars(torch.nn.Module).copy()
    hooks = sys.modules["torch.optim.optimizer"]
    with trl.scope.record():
        trained()
        assert is_tap(torch.add) and is_tap(torch.Tensor.__add__) and is_tap(torch._VF.lstm)
        assert len(hooks._global_optimizer_pre_hooks) == 1
    assert not changed(before)
    assert list(vars(torch.Tensor).items()) == tensor
    assert not any(map(is_tap, vars(torch.Tensor).values()))
    assert vars(torch.nn.Module) == module
    assert "lstm" not in vars(torch._VF)
    assert not hooks._global_optimizer_pre_hooks and not hooks._global_optimizer_post_hooks


def test_results_are_the_same_to_the_bit() -> None:
    want = trained()
    with trl.scope.record():
        assert trained() == want
    assert trained() == want


def test_taps_pass_for_what_they_wrap() -> None:
    add, method, operator = torch.add, torch.Tensor.add, torch.Tensor.__add__
    with trl.scope.record():
        assert torch.add is not add and torch.add == add and {add: 1}[torch.add] == 1
        assert inspect.isbuiltin(torch.add) and inspect.ismethoddescriptor(torch.Tensor.add)
        assert torch.Tensor.add == method and torch.Tensor.__add__ == operator
        pickled = pickle.dumps((torch.tanh, torch.Tensor.add))
        made = copy.deepcopy([torch.add, net()])
        assert made[0] == add
    assert pickle.loads(pickled) == (torch.tanh, method)
    assert torch.add is add and torch.Tensor.add is method


def compiled(backend: str) -> str:
    """Return `torch.compile`'s input, as one graph."""
    codes = list[str]()

    def looking(graph: Any, _: Any) -> Any:
        codes.append(graph.code)
        return graph.forward

    torch._dynamo.reset()
    made = net()
    chosen: Any = looking if backend == "looking" else backend
    torch.compile(made, backend=chosen, fullgraph=True)(torch.ones(2, 3)).backward()
    return "".join(codes)


def exported() -> str:
    return str(torch.export.export(net(), (torch.ones(2, 3),)).graph)


def scripted() -> Any:
    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x) * 2 + x.sum()

    torch.jit._state._clear_class_state()
    both = torch.jit.script(function), torch.jit.script(net())
    return both[0](torch.ones(2)).tolist(), both[1](torch.ones(2, 3)).item(), str(both[1].graph)


def traced() -> str:
    return torch.jit.trace(net(), torch.ones(2, 3)).code


def transformed() -> Any:
    x = torch.arange(6.0).reshape(2, 3)
    of = torch.func
    state = dict(net().named_parameters())
    return (
        of.vmap(lambda v: torch.dot(v, v) + v.sum())(x).tolist(),
        of.grad(lambda z: torch.sin(z).sum())(x).tolist(),
        of.jacrev(lambda z: torch.sin(z) * z)(x).tolist(),
        of.functional_call(net(), state, (x,)).item(),
        of.vmap(of.grad(lambda z: (z * z).sum()))(x).tolist(),
    )


def overridden() -> Any:
    overrides, seen = torch.overrides, list[str]()

    class Mode(overrides.TorchFunctionMode):
        def __torch_function__(
            self, function: Any, types: Any, args: Any = (), named: Any = None
        ) -> Any:
            seen.append(str(overrides.resolve_name(function)))
            return function(*args, **(named or {}))

    with Mode():
        torch.add(torch.ones(1), 1) + 1
    functions = overrides.get_overridable_functions()
    assert torch.add in overrides.get_testing_overrides()
    return seen, {str(owner): len(found) for owner, found in functions.items()}


def subclassed() -> Any:
    seen = list[tuple[str, bool]]()

    class Mine(torch.Tensor):
        @classmethod
        def __torch_function__(
            cls, function: Any, types: Any, args: Any = (), named: Any = None
        ) -> Any:
            seen.append((function.__name__, function in (torch.add, torch.Tensor.add)))
            return super().__torch_function__(function, types, args, named or {})

    x = Mine([1.0, 2.0])
    made = torch.add(x, 1), x.add(1), x + 1, x[0], -x
    return seen, [type(one).__name__ for one in made]


def dispatched() -> Any:
    from torch.utils._python_dispatch import TorchDispatchMode

    seen = list[str]()

    class Mode(TorchDispatchMode):
        def __torch_dispatch__(
            self, function: Any, types: Any, args: Any = (), named: Any = None
        ) -> Any:
            seen.append(str(function))
            return function(*args, **(named or {}))

    with Mode():
        torch.add(torch.ones(1), 1)
    with torch.device("meta"):
        seen.append(str(torch.ones(3).device))
    return seen


def checkpointed() -> Any:
    x = torch.ones(2, 3, requires_grad=True)
    torch.utils.checkpoint.checkpoint(net(), x, use_reentrant=False).backward()
    assert x.grad is not None
    return x.grad.tolist(), str(torch.fx.symbolic_trace(net()).code)


class Numbers(torch.utils.data.Dataset[Any]):
    def __len__(self) -> int:
        return 6

    def __getitem__(self, k: int) -> torch.Tensor:
        return torch.full((2,), float(k)) + torch.randn(1)


def loaded(how: str, workers: int) -> Any:
    given = torch.utils.data.DataLoader(
        Numbers(),
        batch_size=2,
        num_workers=workers,
        multiprocessing_context=how,
        generator=torch.Generator().manual_seed(2),
    )
    return [batch.tolist() for batch in given]


@pytest.mark.parametrize(
    "work",
    [
        pytest.param(lambda: compiled("looking"), id="compiled"),
        pytest.param(lambda: compiled("aot_eager"), id="compiled with autograd"),
        exported,
        scripted,
        traced,
        transformed,
        overridden,
        subclassed,
        dispatched,
        checkpointed,
        pytest.param(lambda: loaded("fork", 2), id="loaded"),
    ],
)
def test_it_works_while_recorded_and_after(work: Callable[[], Any]) -> None:
    want = work()
    with trl.scope.record():
        assert work() == want
    assert work() == want


def test_spawned_workers_load() -> None:
    want = loaded("fork", 1)
    with trl.scope.record():
        assert loaded("spawn", 1) == want


def test_it_works_after_what_was_made_in_a_recording(tmp_path: Path) -> None:
    """In a separate process, in which nothing was created before."""
    (tmp_path / "s.py").write_text(_MADE_INSIDE)
    done = subprocess.run([sys.executable, "s.py"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    inside, after = map(json.loads, done.stdout.splitlines())
    assert inside == after and inside[:2] == [True, True]


_MADE_INSIDE = """
import json, torch, timerl_nb as trl
def f(x):
    return torch.tanh(x) * 2 + torch.nn.functional.linear(x, x).sum()
def work():
    want, x = f(torch.ones(2, 2)), torch.ones(2, 2)
    scripted = torch.jit.script(f)(x)
    compiled = torch.compile(f, backend="eager", fullgraph=True)(x)
    nodes = torch.export.export(torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Tanh()), (x,)).graph.nodes
    return [torch.equal(want, scripted), torch.equal(want, compiled), len(nodes)]
with trl.scope.record():
    print(json.dumps(work()))
print(json.dumps(work()))
"""


def test_what_is_compiled_is_compiled_once_for_all_recordings() -> None:
    count = [0]

    def counting(graph: Any, _: Any) -> Any:
        count[0] += 1
        return graph.forward

    function = torch.compile(
        lambda x: torch.tanh(x).sum() + torch.nn.functional.linear(x, x).mean(), backend=counting
    )
    x = torch.ones(3, 3)
    want = function(x)
    for _ in range(4):
        with trl.scope.record():
            assert torch.equal(function(x), want)
        assert torch.equal(function(x), want)
    assert count[0] == 2  # with wrappers, and without
