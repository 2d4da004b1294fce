"""Habits of NumPy, PyTorch and JAX users: supported, or refused with the replacement."""

from __future__ import annotations

import copy
import inspect
import math
import pickle
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import timerl_nb as trl
from docs.api_pages import public_modules, public_names
from timerl_nb.base import errors
from timerl_nb.compiler.language.foreign_names import CONTEXT, MODULE, MODULES, TENSOR

X = np.linspace(-1.5, 2.0, 6, dtype=np.float32)
M = np.arange(18, dtype=np.float32).reshape(6, 3) / 7 - 1

# NumPy gives the expected value, point by point
WORKS = """
np.exp(x)
np.abs(x)
np.sqrt(np.square(x))
np.maximum(x, 0.5)
np.minimum(x, m)
np.add(np.ones(3, "f"), m)
np.ones(3, "f") * m
m / np.float32(2)
np.float64(2) - x
np.array([1, 2, 3]) + m
np.array([1.0, 2.0, 3.0], "f") < m
np.float32(0.5) >= x
np.power(np.abs(x), 2)
np.clip(x, 0, 1)
np.where(x > 0, x, m)
np.concatenate([m, m * 2])
np.stack([m, -m], axis=1)
np.sum(m)
np.sum(m, 0)
np.mean(m, axis=0)
np.max(m)
np.amin(m, axis=-1)
np.std(m)
np.linalg.norm(m)
np.dot(m, m)
trl.max(m) - trl.min(m)
divmod(2, x)[1] + divmod(2, x)[0]
np.where(np.int64(2) < t, x, 0)
np.where(np.int32(2) == t, x, 0)
np.matmul(m, np.ones((3, 2), "f"))
np.ones((2, 3), "f") @ m
np.cumsum(m)
np.argmax(m)
np.argmax(np.outer(m, m)) + np.argmin(np.stack([m, -m]))
np.cumsum(np.outer(m, m))
np.cumprod(np.stack([m, m]))
np.take(np.outer(m, m), [-1, 4])
np.take(np.outer(m, m), [-1], axis=0)
np.float_power(np.argmax(m), 2)
np.expand_dims(m, np.int64(0))
np.sort(-m)
np.reshape(m, (3, 1))
np.isnan(x)
np.isfinite(m)
np.logical_and(x > 0, m > 0)
np.logical_not(x > 0)
np.arctan2(x, m)
np.sign(x) + np.floor(x) + np.rint(x) - np.negative(x)
np.tanh(x) + np.log1p(np.abs(x)) + np.expm1(x)
jnp.ones(3) * m
jnp.float32(2) + x
abs(x) + (+x)
round(x)
math.floor(x)
math.ceil(x)
divmod(x, 2.0)[0] + divmod(x, 2.0)[1]
sum([x, m, 1])
2.0 ** x
0.9 ** trl.value(t)
x + t
(x > 0) ^ (m > 0)
copy.copy(x) * 2
np.median(m) + np.quantile(m, 0.3)
np.roll(m, 1)
np.hstack([m, m]) + np.tile(m, 2)
np.outer(m, [1.0, 2.0])
np.einsum("i,i->", m, m)
np.logical_xor(m * 2, [0, 1, 2])
np.pad(m, 1)
""".strip().splitlines()

REFUSED = """
range(T)                              | not a Python integer
[0, 1, 2][t]                          | not a Python integer
np.zeros(T)                           | not a Python integer
np.zeros((T, 3))                      | not a Python integer
np.arange(T)                          | is not an array
np.array(x)                           | is not an array
np.array([x, x])                      | is not an array
np.asarray(t)                         | is not an array
np.exp(t)                             | trl.value
np.add.reduce(m)                      | takes no recurrent tensors
np.exp(x, out=np.zeros(3))            | takes no recurrent tensors
np.put(m, 0, 9.0)                     | y = x.put
np.linalg.inv(m)                      | takes no recurrent tensors
np.add(x, "a")                        | is not a tensor
x + np.array(["a"])                   | is not a tensor
jnp.exp(x)                            | is not a JAX array
jnp.array(x)                          | is not a JAX array
jnp.where(x > 0, x, 0)                | is not a JAX array
float(x)                              | ctx.output
int(x)                                | ctx.output
complex(x)                            | ctx.output
math.exp(x)                           | x.exp
math.sqrt(t)                          | trl.value
math.trunc(x)                         | not a Python integer
"%d" % t                              | not a Python integer
"%f" % x                              | not a Python float
bool(x)                               | trl.where
1 if x else 2                         | trl.where
not x                                 | no truth value
x and m                               | no truth value
t and b                               | no truth value
0 < x < 1                             | no truth value
0 < t < T                             | a < b < c
min(t + 2, T)                         | trl.min
max(x, m)                             | trl.min
t in (b, t)                           | no truth value
t in range(5)                         | no truth value
3 in m                                | .any()
3 in t                                | support `in`
len(m)                                | x.shape
len(t)                                | no Python length
[v for v in m]                        | x.unstack
[v for v in t]                        | every point
sum(m)                                | x.unstack
sorted(m)                             | x.unstack
reversed(m)                           | x.unstack
round(x, 2)                           | scale it
0.9 ** t                              | trl.value(t)
1 / t                                 | trl.value(t)
t ** 2                                | not affine
t * 0.5                               | integers only
abs(t)                                | trl.max
~t                                    | compare first
t & b                                 | compare first
t << 1                                | compare first
True & (t > 0)                        | must be conditions
f"{x:.2f}"                            | takes no format
f"{t:3d}"                             | takes no format
format(x, "10")                       | takes no format
x == "t"                              | is not a tensor
x + "a"                               | is not a tensor
"a" + x                               | is not a tensor
x + None                              | is not a tensor
x + {}                                | is not a tensor
x + 1j                                | is not a tensor
x < None                              | is not a tensor
copy.deepcopy(x)                      | copied deeply
copy.deepcopy(t > 0)                  | copied deeply
copy.deepcopy(trl.nn.Linear(2, 3))    | copied deeply
copy.copy(ctx)                        | copied or pickled
pickle.dumps(x)                       | pickled
pickle.dumps(t)                       | pickled
pickle.dumps(ctx)                     | pickled
x["t"]                                | is not an index expression
x[1.0]                                | is not an index expression
x[None]                               | x.unsqueeze
x[[0, 1]]                             | is not an index expression
m[t, 0]                               | x.take
setattr(x, "requires_grad", True)     | takes no attribute
setattr(x, "shape", (3,))             | takes no attribute
x.__delitem__(0)                      | cannot lose elements
m.sum(dim=0)                          | axis=
m.sum(0)                              | axis=0
m.argmax(over=t)                      | x[0:T]
m.sort(over=t)                        | x[0:T]
x.cumsum(over=t)                      | x[0:T]
m.clip(min=0)                         | x.clip(low, high)
m.softmax(dim=-1)                     | softmax(axis=-1
x.backward(retain_graph=True)         | backward()
m @ trl.zeros((4,))                   | 3 and 4
m @ 2                                 | element by element
m.reshape(2, 2)                       | cannot become
m.reshape(3.0)                        | is not a shape
m.reshape(None)                       | is not a shape
m.expand(-1, 3)                       | not a size
m.expand("a")                         | not a size
trl.zeros((3,), domain=(t,))          | trl.like
trl.where(x > 0)                      | where(condition, x, y
trl.max(x, over=t)                    | maximum
trl.concat([m, m], dim=0)             | axis=
trl.random.normal(size=(2,))          | shape=
trl.value("t")                        | is not a tensor
trl.value(None)                       | is not a tensor
trl.parameter((2,), init=lambda: 0)   | takes 0 positional
trl.parameter((2,), init=lambda s: "a") | is not a number
trl.tensor([1.0, 2.0])                | is not a size
trl.grad(x)                           | needs the tensors to differentiate by
trl.grad(x, [3])                      | not a tensor to differentiate
trl.grad(lambda: x, [x])              | not a tensor to differentiate
trl.udf(np.sin, x)                    | missing 1 required
trl.optim.Adam()                      | missing 1 required
trl.optim.Adam(3)                     | needs a list of parameters
trl.optim.Adam([w], learning_rate=0.1) | use lr=
trl.nn.Linear(2)                      | missing 1 required
ctx.output(x)                         | missing 1 required
ctx.compile(T=4)                      | unexpected keyword
ctx["t"]                              | ctx.dims
ctx.t                                 | ctx.dims
ctx.run()                             | ctx.compile
x.foo                                 | has no 'foo'
x.sumn()                              | did you mean sum
x.numpy()                             | ctx.output
x.item()                              | ctx.output
x.view(3)                             | x.reshape
x.size()                              | x.shape
x.to("cpu")                           | one device
x.dim()                               | x.rank
trl.topk(m, 2)                        | x.topk
x.gather(0, x)                        | x.take_along
x.scatter(0, x)                       | x.put
x.copy()                              | tensors are immutable
x.clone()                             | tensors are immutable
x.requires_grad                       | trl.parameter
x.grad                                | trl.parameter
x.add_(1)                             | tensors are immutable
x.masked_fill(x > 0, 0)               | trl.where
t.foo                                 | an index has no 'foo'
(t > 0).any()                         | a condition has no 'any'
trl.array([1])                        | trl.data
trl.Tensor([1])                       | trl.data
trl.jit                               | ctx.compile
trl.zeors((2,))                       | did you mean zeros
trl.nn.Liner(2, 3)                    | did you mean Linear
trl.nn.ReLU()                         | x.relu
trl.optim.Adm                         | did you mean Adam
trl.random.rand(2)                    | trl.random.uniform
trl.random.seed(0)                    | seed=0
trl.algorithms.td4                    | did you mean td3
trl.algorithms.pppo                   | did you mean ppo
trl.Options(precision="f64")          | jax_enable_x64
trl.distributions.Categoric           | did you mean Categorical
trl.env.mak                           | did you mean make
trl.nn.Linear(2, 3).parameters()      | module.params
trl.optim.SGD([w]).zero_grad()        | start at 0 in each iteration
""".strip().splitlines()

NAMES = {"np": np, "jnp": jnp, "jax": jax, "math": math, "copy": copy, "pickle": pickle, "trl": trl}


def symbols(ctx: Any) -> dict[str, Any]:
    (b, B), (t, T) = ctx.dims
    x, m = trl.data(X, domain=(t,)), trl.data(M, domain=(t,))
    w = trl.parameter((3,), domain=(t,))
    return {**NAMES, "ctx": ctx, "b": b, "B": B, "t": t, "T": T, "x": x, "m": m, "w": w}


@pytest.mark.parametrize("executor", ["xla", "interpret"])
def test_what_works_is_what_numpy_says(executor: Any) -> None:
    class Plain:  # the value of an index as a tensor at one point
        value, max, min = int, staticmethod(np.max), staticmethod(np.min)

    with trl.Context("b", "t") as ctx:
        known = symbols(ctx)
        for k, text in enumerate(WORKS):
            made = eval(text, dict(known))
            assert isinstance(made, trl.RecurrentTensor), text
            ctx.output(str(k), made + trl.value(known["t"]) * 0 if made.dtype != "bool" else made)
    result = ctx.compile({"B": 1, "T": 6}, trl.Options(executor=executor)).execute()
    for k, text in enumerate(WORKS):
        for t in range(6):
            plain = {**NAMES, "trl": Plain, "t": t, "x": X[t], "m": M[t]}
            np.testing.assert_allclose(
                result[str(k)][t], np.asarray(eval(text, plain)), rtol=2e-5, atol=1e-6, err_msg=text
            )


@pytest.mark.parametrize("line", REFUSED, ids=lambda line: line.split(" | ")[0].strip())
def test_what_does_not_says_what_to_write(line: str) -> None:
    text, _, message = (part.strip() for part in line.rpartition(" | "))
    code = compile(text, "<newcomer>", "eval")
    with trl.Context("b", "t") as ctx:
        known = symbols(ctx)
        with pytest.raises(errors.TimeRLError) as caught:
            eval(code, known)
    assert message in str(caught.value)
    assert caught.value.origin.file == "<newcomer>", "the user's own line"
    assert caught.value.what.endswith(".")


def test_there_are_many() -> None:
    assert len(WORKS) + len(REFUSED) > 200


def test_what_python_answers_itself() -> None:
    """Protocol checks for an attribute get Python's usual answer."""
    with trl.Context("t") as ctx:
        ((t, _),) = ctx.dims
        x = trl.value(t).floating()
        assert not hasattr(x, "numpy")
        assert getattr(x, "item", None) is None
        assert not hasattr(x, "__array_interface__")
        assert not hasattr(trl, "vmap")
        assert not hasattr(ctx, "t")
        assert (x == None) is False  # noqa: E711 (a tensor is not None)
        assert (x != None) is True  # noqa: E711
        assert x in [x]
        assert copy.copy(x) is x
        assert {x: 1, t: 2}[t] == 2
        assert f"{x}" == str(x) == "f32[] @ (t)"
        assert (np.shape(x), np.ndim(x)) == ((), 0)
        y = x
        y += 1  # another tensor of the same name
        assert y is not x
    with pytest.raises(ImportError):
        from timerl_nb import jit  # noqa: F401


def test_foreign_words_are_not_ours() -> None:
    """Existing names need no advice: an entry would hide later additions."""
    with trl.Context("t"):
        x, opt = trl.zeros((2,)), trl.nn.Linear(2, 3)
        for words, thing in ((TENSOR, x), (MODULES, opt), (CONTEXT, trl.Context("t"))):
            assert [name for name in words if hasattr(thing, name)] == []
    assert [name for name in MODULE if name in trl.__all__] == []
    for words in (TENSOR, MODULES, CONTEXT, MODULE):
        assert all(hint.endswith(".") for hint in words.values())


# classes that users construct; the library constructs all others
CONSTRUCTED = """
trl.compose: Bytes Choice Device Fpga Iteration Latency Link Links Words
trl.distributions: Bernoulli Beta Categorical MultiCategorical Normal TanhNormal
trl.env: Box CartPole ClipReward Discrete FrameStackObservation MultiDiscrete NormalizeObservation RepeatAction TMaze
trl.optim: SGD Adam AdamW RMSProp
trl.replay: Allocation BySpeed Ddpg Dqn Hindsight LinearSchedule Proportional Replay Sac SampleToInsertRatio Sequences \
Stepwise SumTree Td3
trl.scope: audit devices record tap
trl.streams: Gpu
trl: Context DNNBuilder Options Resource
"""


def called() -> Iterator[tuple[str, Any]]:
    modules = public_modules()
    for module_name, module in modules.items():
        if module_name not in ("trl", "trl.show"):
            for name in public_names(module):
                if inspect.isfunction(value := getattr(module, name)):
                    yield f"{module_name}.{name}", value
    for module_name, names in (line.split(":") for line in CONSTRUCTED.strip().splitlines()):
        for name in names.split():
            yield f"{module_name}.{name}", getattr(modules[module_name], name)


def test_an_unknown_argument_is_explained_everywhere() -> None:
    found: dict[str, str] = {}
    for name, function in called():
        try:
            function(no_such_option=1)
        except errors.TimeRLError:
            continue
        except TypeError as error:
            found[name] = str(error)
        else:
            found[name] = "accepted"
    assert not found


@pytest.mark.parametrize("name", ["Dqn", "Ddpg", "Td3", "Sac"])
def test_options_of_algorithms_with_actors_are_explained(name: str) -> None:
    with pytest.raises(errors.CallError, match=rf"did you mean 'hidden'\? the signature is {name}"):
        getattr(trl.replay, name)(hiden=(4,))
    with pytest.raises(errors.CallError, match="use lr=; the signature"):
        getattr(trl.replay, name)(learning_rate=0.1)


def test_options_of_environments_are_explained() -> None:
    with pytest.raises(errors.EnvError, match=r"^CartPole-v1: .*'max_step'") as found:
        trl.env.make("CartPole-v1", max_step=5)
    assert "did you mean 'max_steps'?" in found.value.hint
