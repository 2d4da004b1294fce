"""Words of NumPy, PyTorch and JAX, and what stands for them here.

Whoever types one that tensors, indices or modules do not have is told what does its work; a call
with arguments that a function does not take is told how it is called.
"""

from __future__ import annotations

import difflib
import functools
import importlib
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import FunctionType, MappingProxyType
from typing import Any, Final, ParamSpec, TypeVar

from timerl_nb.base.errors import CallError, MissingNameError

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C", bound=type)
T = TypeVar("T")

_RESULT = 'the values are there after a run: ctx.output("x", x), then result["x"].'
_VALUES = "tensors are values: write y = …; what changes over time is a tensor defined by branches."
_WHERE = "the whole program runs on one device; trl.Options says which."
_LEAF = "trl.parameter(...) makes a trainable tensor; trl.grad(loss, [x]) is the gradient of any."
_WIDE = 'x.cast("{}"), after jax.config.update("jax_enable_x64", True).'
_NO_AXIS = "x.unsqueeze(axis) adds an axis of size 1; x.expand(...) repeats it."

TENSOR: Final[Mapping[str, str]] = {
    **dict.fromkeys(("numpy", "item", "tolist", "values", "get", "block_until_ready"), _RESULT),
    **dict.fromkeys(("copy", "clone", "contiguous"), _VALUES),
    **dict.fromkeys(("add_", "sub_", "mul_", "div_", "zero_", "fill_", "copy_", "exp_"), _VALUES),
    **dict.fromkeys(("to", "cpu", "cuda", "device", "is_cuda", "pin_memory"), _WHERE),
    **dict.fromkeys(("requires_grad", "requires_grad_", "grad", "retain_grad", "is_leaf"), _LEAF),
    "float": 'x.cast("f32"), or x.floating().',
    "double": _WIDE.format("f64"),
    "half": 'x.cast("f16").',
    "int": 'x.cast("i32").',
    "long": _WIDE.format("i64"),
    "bool": "compare, as in x != 0.",
    "view": "x.reshape(...).",
    "ravel": "x.flatten().",
    "size": "x.shape is a tuple.",
    "numel": "x.shape is a tuple: math.prod(x.shape).",
    "dim": "x.rank is the number of axes.",
    "nbytes": "program.memory says what is held when.",
    "gather": "x.take_along(at, axis), or x.take(at, axis) for the same positions everywhere.",
    "scatter": "x.put(at, value, axis), or x.put_add(at, values, axis).",
    "scatter_add": "x.put_add(at, values, axis).",
    "index_select": "x.take(at, axis).",
    "select": "x.take(position, axis).",
    "narrow": "x.slice(lo, hi, axis).",
    "masked_fill": "trl.where(mask, value, x).",
    "nonzero": "shapes do not depend on values: trl.where(x != 0, …, …).",
    "unfold": "x[t:t + n] slices a dimension; trl.conv and trl.max_pool slide along axes.",
    "chunk": "x.slice(lo, hi, axis), or x.unstack(axis).",
    "clamp_min": "x.clip(low, None).",
    "clamp_max": "x.clip(None, high).",
    "add": "x + y.",
    "sub": "x - y.",
    "mul": "x * y.",
    "div": "x / y.",
    "pow": "x ** y.",
    "neg": "-x.",
    "eq": "x == y.",
    "matmul": "x @ y.",
    "mm": "x @ y.",
    "bmm": "x @ y.",
    "dot": "x @ y.",
    "data": "x.detach() stops gradients.",
    "detach_": "x = x.detach().",
    "diff": "x[t + 1] - x over time; x.slice(1, n) - x.slice(0, n - 1) along an axis.",
    "apply": "trl.udf(function, x, out=…) calls a function on the host.",
    "map": "operators work on all points at once; trl.udf calls a function on the host.",
    "shift": "x[t - 1] is the value before.",
    "rolling": "x[trl.max(t - n, 0):t + 1] is a window.",
    "forward": _RESULT,
    "eval": _RESULT,
    "run": _RESULT,
}
INDEX: Final[Mapping[str, str]] = {
    "cond": "trl.value(condition) is a condition as a tensor.",
}
CONTEXT: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        ("run", "execute", "fit", "train"),
        "program = ctx.compile({T: 100}), then program.execute().",
    ),
    **dict.fromkeys(
        ("explore", "stages", "ast", "memory", "schedule", "start", "export_html"),
        "a program has it: ctx.compile({T: 100}).{name}.",
    ),
    "bounds": "bounds are given to ctx.compile({T: 100}).",
    "log": 'ctx.output("name", x) returns values from the run.',
}
PROGRAM: Final[Mapping[str, str]] = {
    **dict.fromkeys(("run", "fit", "train"), "program.execute() runs it, program.start() watched."),
    **dict.fromkeys(
        ("show", "plot", "draw", "view", "widget"),
        "program.explore() shows all of it; program.ast and program.memory draw themselves.",
    ),
    "graph": "program.pdg is the graph as written, program.fused the one that runs.",
    "find": 'program.pdg.find("name"), program.ast.find("name"), and so on.',
    "compile": "program.with_options(...) and program.with_bounds(...) compile it again.",
    "peak": "program.memory.peak.",
    "why": 'program.stages["vectorize"].why(op_id).',
    "diff": 'program.stages["fuse"].diff().',
}
_METHOD = "functions of one tensor are its methods: x.{name}(...)."
MODULE: Final[Mapping[str, str]] = {
    **dict.fromkeys(("log_softmax", "softplus", "gelu", "silu", "cummax", "topk"), _METHOD),
    **dict.fromkeys(
        ("array", "asarray", "Tensor", "from_numpy", "as_tensor", "FloatTensor"),
        "trl.data(array, domain=(t,)) for values along dimensions, trl.constant(array) for one value.",
    ),
    "cat": "trl.concat([x, y], axis=0).",
    "clamp": "x.clip(low, high).",
    "dot": "x @ y.",
    "rand": "trl.random.uniform((2,), domain=(t,)).",
    "randn": "trl.random.normal((2,), domain=(t,)).",
    "seed": "program.execute(seed=0) seeds all streams of a run.",
    "manual_seed": "program.execute(seed=0) seeds all streams of a run.",
    "PRNGKey": "program.execute(seed=0) seeds all streams of a run.",
    "float32": 'element types are names: "f32".',
    "float64": 'element types are names: "f64".',
    "float16": 'element types are names: "f16".',
    "bfloat16": 'element types are names: "bf16".',
    "int32": 'element types are names: "i32".',
    "bool": 'element types are names: "bool".',
    "no_grad": "x.detach() stops gradients.",
    "stop_gradient": "x.detach().",
    "jit": "ctx.compile({T: 100}) compiles the whole program.",
    "compile": "ctx.compile({T: 100}) compiles the whole program.",
    "vmap": "a tensor over another dimension is already one value per point of it.",
    "scan": "a recurrence is a tensor defined by branches: s[0] = …; s[t + 1] = ….",
    "fori_loop": "a recurrence is a tensor defined by branches: s[0] = …; s[t + 1] = ….",
    "save": 'x.checkpoint("folder").',
    "device": _WHERE,
    "Env": 'trl.env.make("CartPole-v1").',
    "gym": 'trl.env.make("gym.CartPole-v1").',
    "make": 'trl.env.make("CartPole-v1").',
    "Module": "trl.nn.Module.",
    "ReLU": "x.relu().",
    "Tanh": "x.tanh().",
    "Sigmoid": "x.sigmoid().",
    "Softmax": "x.softmax().",
    "GELU": "x.gelu().",
    "MSELoss": "(x - y).square().mean(over=…).",
    "zero_grad": "gradients are made anew at each iteration.",
}
MODULES: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        ("parameters", "named_parameters", "trainable_variables", "weights"),
        "module.params is the list.",
    ),
    **dict.fromkeys(("state_dict", "save"), 'module.checkpoint("folder").'),
    **dict.fromkeys(("forward", "apply"), "call the module: module(x)."),
    **dict.fromkeys(("train", "eval"), "there are no modes: a program says what it computes."),
    "load_state_dict": "module.load(path) starts from the values of a checkpoint, or of a mapping.",
    "zero_grad": "gradients are made anew at each iteration.",
    "to": _WHERE,
    "copy": "build the module twice.",
}
LEARNT: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        ("predict", "act", "action", "forward", "sample", "get_action"),
        "call it: policy(observation), with seed= to draw.",
    ),
    **dict.fromkeys(
        ("parameters", "params", "state_dict", "named_parameters", "get_weights"),
        "policy.weights are arrays by name.",
    ),
    **dict.fromkeys(("play", "rollout", "test"), "policy.evaluate(env, episodes) plays."),
    **dict.fromkeys(
        ("save", "checkpoint"), "the program does: dnn.checkpoint(folder); trl.load(path) reads it."
    ),
}
_ARGUMENTS: Final[Mapping[str, str]] = {
    "dim": "axes are named axis=, symbolic dimensions over=",
    "keepdim": _NO_AXIS.rstrip("."),
    "keepdims": _NO_AXIS.rstrip("."),
    "over": "it runs along an axis: x[0:T] has the values over t as its axis 0",
    "axis": "it has no axis to choose",
    "out": "tensors are values: assign the result",
    "dtype": "x.cast(...) changes the element type",
    "domain": "it is the same at every point; trl.like(x) or trl.data(..., domain=…) vary",
    "ddof": "multiply by n / (n - ddof)",
    "unbiased": "multiply by n / (n - 1)",
    "min": "write x.clip(low, high), None for no end",
    "max": "write x.clip(low, high), None for no end",
    "retain_graph": "a program is written once and may be differentiated often",
    "learning_rate": "it is named lr=",
    "size": "it is named shape=",
    "loc": "it is named mean=",
    "scale": "it is named std=",
}


def missing(kind: str, name: str, known: Iterable[str], words: Mapping[str, str]) -> Exception:
    """The error that says what does the work of a name that a thing of some kind does not have."""
    if name.startswith("_"):  # Python's protocols ask for these, and want the plain answer
        return AttributeError(f"{kind} has no attribute {name!r}")
    public = [n for n in known if not n.startswith("_")]
    hint = words[name].replace("{name}", name) if name in words else close(name, public)
    return MissingNameError(f"{kind} has no {name!r}.", hint=hint)


def close(name: str, known: Sequence[str]) -> str:
    """The names closest to one that does not exist; all of them where they are few."""
    found = difflib.get_close_matches(name, known, n=3)
    if found:
        return f"did you mean {' or '.join(found)}?"
    return f"there are {', '.join(known)}." if len(known) < 25 else "dir() lists what there is."


def expect_type(value: Any, kind: type[T] | tuple[type[Any], ...], what: str, how: str) -> T:
    """The value itself.

    Args:
        what: what it has to be; of several kinds, any.
        how: how to come by such a thing.

    Raises:
        CallError: it is of another kind.
    """
    if isinstance(value, kind):
        return value
    shown = next(iter(repr(value).splitlines()), "")
    raise CallError(f"{shown if len(shown) < 50 else shown[:50] + '…'} is not {what}.", hint=how)


def module_names(
    module: str,
    known: Callable[[], Iterable[str]],
    words: Mapping[str, str] | None = None,
    *,
    later: Mapping[str, str] = MappingProxyType({}),
) -> tuple[Callable[[str], Any], Callable[[], Iterable[str]]]:
    """A module's `__getattr__` and `__dir__`.

    Args:
        words: those that it has not, and what does their work.
        later: by name, modules that are imported when they are first asked for, or `module:name` in one.
    """

    def find(name: str) -> Any:
        if name in later:
            part, _, attribute = later[name].partition(":")
            found = importlib.import_module(part)
            return getattr(found, attribute) if attribute else found
        raise missing(module, name, known(), MODULE if words is None else words)

    return find, known


def explain_call_errors(function: Callable[P, R]) -> Callable[P, R]:
    """The function, which answers a call with arguments that it does not take by saying which it does."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except TypeError as error:
            inside = error.__traceback__ is not None and error.__traceback__.tb_next is not None
            if inside or isinstance(error, CallError):
                raise
            raise misfit(function, kwargs, error) from None

    return call


def all_asked(cls: C) -> C:
    """The class, whose public methods and those of our classes below it are all `asked`."""
    for base in cls.__mro__[:-1]:
        if base.__module__.startswith(__name__.partition(".")[0]):
            for name, method in list(vars(base).items()):
                if isinstance(method, FunctionType) and (name == "__init__" or name[0] != "_"):
                    if not hasattr(method, "__wrapped__"):
                        setattr(base, name, explain_call_errors(method))
    return cls


def misfit(function: Callable[..., Any], given: Mapping[str, Any], error: TypeError) -> CallError:
    """The error that says how a function is called, of a call that it does not take."""
    takes = inspect.signature(function)
    name = getattr(function, "__qualname__", str(function)).removesuffix(".__init__").split(".")[-1]
    shown = [str(p).split(":")[0].split(" = ")[0] for p in takes.parameters.values()]
    defaults = [p.default for p in takes.parameters.values()]
    parts = [
        s if d is inspect.Parameter.empty else f"{s.split('=')[0]}={d!r}"
        for s, d in zip(shown, defaults, strict=True)
    ]
    parts = [p for p in parts if p != "self"]
    unknown = [k for k in given if k not in takes.parameters]
    hints = [_ARGUMENTS[k] for k in unknown if k in _ARGUMENTS]
    what = str(error).rpartition("() ")[2] or str(error)
    return CallError(
        f"{name}() {what}.",
        hint="; ".join([*hints, f"it is called as {name}({', '.join(parts)})."]),
    )
