"""Hints for names and arguments of NumPy, PyTorch and JAX that this library does not have.

An unknown attribute of a tensor, index or module raises an error with the equivalent in its hint. A call with
unknown arguments raises an error with the function's signature.
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

_RESULT = 'values exist only after a run: ctx.output("x", x), then result["x"].'
_VALUES = (
    "tensors are immutable: write y = …; for a state that changes, define a tensor by branches."
)
_WHERE = "the whole program runs on one device; choose it in trl.Options."
_LEAF = (
    "create a trainable tensor with trl.parameter(...); trl.grad(loss, [x]) returns any gradient."
)
_WIDE = 'write x.cast("{}") after jax.config.update("jax_enable_x64", True).'
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
    "nbytes": "program.memory shows the memory of each buffer over time.",
    "gather": "write x.take_along(at, axis), or x.take(at, axis) for the same positions everywhere.",
    "scatter": "x.put(at, value, axis), or x.put_add(at, values, axis).",
    "scatter_add": "x.put_add(at, values, axis).",
    "index_select": "x.take(at, axis).",
    "select": "x.take(position, axis).",
    "narrow": "x.slice(lo, hi, axis).",
    "masked_fill": "trl.where(mask, value, x).",
    "nonzero": "shapes cannot depend on values; write trl.where(x != 0, …, …).",
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
    "map": "an operator applies to all points; trl.udf calls a function on the host.",
    "shift": "x[t - 1] is the previous value.",
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
        "it is part of a compiled program: ctx.compile({T: 100}).{name}.",
    ),
    "bounds": "pass bounds to ctx.compile({T: 100}).",
    "log": 'write ctx.output("name", x) to return values from a run.',
}
PROGRAM: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        ("run", "fit", "train"), "write program.execute(), or program.start() for a live view."
    ),
    **dict.fromkeys(
        ("show", "plot", "draw", "view", "widget"),
        "program.explore() opens the explorer; notebooks display program.ast and program.memory.",
    ),
    "graph": "program.pdg is the graph before the passes, program.fused the graph after them.",
    "find": 'program.pdg.find("name"), program.ast.find("name"), and so on.',
    "compile": "program.with_options(...) and program.with_bounds(...) compile it again.",
    "peak": "program.memory.peak.",
    "why": 'program.stages["vectorize"].why(op_id).',
    "diff": 'program.stages["fuse"].diff().',
}
_METHOD = "it is a method of tensors: x.{name}(...)."
MODULE: Final[Mapping[str, str]] = {
    **dict.fromkeys(("log_softmax", "softplus", "gelu", "silu", "cummax", "topk"), _METHOD),
    **dict.fromkeys(
        ("array", "asarray", "Tensor", "from_numpy", "as_tensor", "FloatTensor"),
        "write trl.data(array, domain=(t,)) for one value per point, trl.constant(array) for a constant.",
    ),
    "cat": "trl.concat([x, y], axis=0).",
    "clamp": "x.clip(low, high).",
    "dot": "x @ y.",
    "rand": "trl.random.uniform((2,), domain=(t,)).",
    "randn": "trl.random.normal((2,), domain=(t,)).",
    "seed": "program.execute(seed=0) seeds all streams of a run.",
    "manual_seed": "program.execute(seed=0) seeds all streams of a run.",
    "PRNGKey": "program.execute(seed=0) seeds all streams of a run.",
    "float32": 'element types are strings: "f32".',
    "float64": 'element types are strings: "f64".',
    "float16": 'element types are strings: "f16".',
    "bfloat16": 'element types are strings: "bf16".',
    "int32": 'element types are strings: "i32".',
    "bool": 'element types are strings: "bool".',
    "no_grad": "x.detach() stops gradients.",
    "stop_gradient": "x.detach().",
    "jit": "ctx.compile({T: 100}) compiles the whole program.",
    "compile": "ctx.compile({T: 100}) compiles the whole program.",
    "vmap": "let the tensor vary over another dimension: it has one value per point of it.",
    "scan": "write a recurrence as a tensor defined by branches: s[0] = …; s[t + 1] = ….",
    "fori_loop": "write a recurrence as a tensor defined by branches: s[0] = …; s[t + 1] = ….",
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
    "zero_grad": "gradients start at 0 in each iteration; omit the call.",
}
MODULES: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        ("parameters", "named_parameters", "trainable_variables", "weights"),
        "module.params is the list.",
    ),
    **dict.fromkeys(("state_dict", "save"), 'module.checkpoint("folder").'),
    **dict.fromkeys(("forward", "apply"), "call the module: module(x)."),
    **dict.fromkeys(
        ("train", "eval"),
        "modules have no modes; write dropout and the like where training needs it.",
    ),
    "load_state_dict": "module.load(path) loads the initial values from a checkpoint or a mapping.",
    "zero_grad": "gradients start at 0 in each iteration; omit the call.",
    "to": _WHERE,
    "copy": "build the module twice.",
}
LEARNT: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        ("predict", "act", "action", "forward", "sample", "get_action"),
        "call the policy: policy(observation), with seed= for a random action.",
    ),
    **dict.fromkeys(
        ("parameters", "params", "state_dict", "named_parameters", "get_weights"),
        "policy.weights maps names to arrays.",
    ),
    **dict.fromkeys(("play", "rollout", "test"), "write policy.evaluate(env, episodes)."),
    **dict.fromkeys(
        ("save", "checkpoint"),
        "save in the program with dnn.checkpoint(folder); read it with trl.load(path).",
    ),
}
_ARGUMENTS: Final[Mapping[str, str]] = {
    "dim": "use axis= for axes and over= for symbolic dimensions",
    "keepdim": _NO_AXIS.rstrip("."),
    "keepdims": _NO_AXIS.rstrip("."),
    "over": "this function works along an axis; x[0:T] has the points of t as its axis 0",
    "axis": "this function has no axis argument",
    "out": "tensors are immutable: assign the result",
    "dtype": "change the element type with x.cast(...)",
    "domain": "the result is the same at every point; use trl.like(x) or trl.data(..., domain=…) otherwise",
    "ddof": "multiply by n / (n - ddof)",
    "unbiased": "multiply by n / (n - 1)",
    "min": "write x.clip(low, high), with None for no limit",
    "max": "write x.clip(low, high), with None for no limit",
    "retain_graph": "omit it: any number of gradients may be taken",
    "learning_rate": "use lr=",
    "size": "use shape=",
    "loc": "use mean=",
    "scale": "use std=",
    "batch_size": "use batch=",
    "clip_range": "use clip=",
    "ent_coef": "use entropy=",
    "gae_lambda": "use lam=",
    "max_grad_norm": "use max_norm=",
    "n_epochs": "use epochs=",
    "policy_delay": "use delay=",
    "target_update_interval": "use target_every=",
    "vf_coef": "use critic=",
}


def missing(kind: str, name: str, known: Iterable[str], words: Mapping[str, str]) -> Exception:
    """Return the error for an unknown attribute, with its equivalent or the closest names in the hint."""
    if name.startswith("_"):  # Python's protocols probe these names
        return AttributeError(f"{kind} has no attribute {name!r}")
    public = [n for n in known if not n.startswith("_")]
    hint = words[name].replace("{name}", name) if name in words else close(name, public)
    return MissingNameError(f"{kind} has no {name!r}.", hint=hint)


def close(name: str, known: Sequence[str]) -> str:
    """Return a hint with the closest names; with all names if there are few."""
    found = difflib.get_close_matches(name, known, n=3)
    if found:
        return f"did you mean {' or '.join(found)}?"
    return f"the names are {', '.join(known)}." if len(known) < 25 else "dir() lists the names."


def expect_type(value: Any, kind: type[T] | tuple[type[Any], ...], what: str, how: str) -> T:
    """Check the type of an argument and return the argument.

    Args:
        what: a description of the expected type.
        how: the hint.

    Raises:
        CallError: it has another type.
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
    """Return a module's `__getattr__` and `__dir__`.

    Args:
        words: names of other libraries, with their equivalents.
        later: modules to import at first use by name, or `module:name` for a name in one.
    """

    def find(name: str) -> Any:
        if name in later:
            part, _, attribute = later[name].partition(":")
            found = importlib.import_module(part)
            return getattr(found, attribute) if attribute else found
        raise missing(module, name, known(), MODULE if words is None else words)

    return find, known


def explain_call_errors(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function: a call with unsuitable arguments raises an error with its signature."""

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


_CALLED = ("__init__", "__call__")


def explain_method_errors(cls: C) -> C:
    """Decorate a class: apply `explain_call_errors` to its public methods, inherited ones included."""
    for base in cls.__mro__[:-1]:
        if base.__module__.startswith(__name__.partition(".")[0]):
            for name, method in list(vars(base).items()):
                if isinstance(method, FunctionType) and (name in _CALLED or name[0] != "_"):
                    if not hasattr(method, "__wrapped__"):
                        setattr(base, name, explain_call_errors(method))
    return cls


def _argument_hint(name: str, known: Sequence[str]) -> str:
    """Return the equivalent of an unknown argument, or the argument with the closest name."""
    hint = _ARGUMENTS.get(name, "")
    use = hint.removeprefix("use ").removesuffix("=") if hint.endswith("=") else ""
    if hint and (not use or use in known):
        return hint
    found = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {found[0]!r}?" if found else ""


def misfit(function: Callable[..., Any], given: Mapping[str, Any], error: TypeError) -> CallError:
    """Return the error for a call with unsuitable arguments, with the function's signature in the hint."""
    takes = inspect.signature(function)
    whole = getattr(function, "__qualname__", str(function))
    is_object = whole.endswith(".__call__")  # a call of an instance: class(...)(...)
    name = whole.removesuffix(".__init__").removesuffix(".__call__").split(".")[-1]
    shown = [str(p).split(":")[0].split(" = ")[0] for p in takes.parameters.values()]
    defaults = [p.default for p in takes.parameters.values()]
    parts = [
        s if d is inspect.Parameter.empty else f"{s.split('=')[0]}={d!r}"
        for s, d in zip(shown, defaults, strict=True)
    ]
    parts = [p for p in parts if p != "self"]
    unknown = [k for k in given if k not in takes.parameters]
    hints = [hint for k in unknown if (hint := _argument_hint(k, [*takes.parameters]))]
    signature = (
        f"the signature {'of a call is ' if is_object else f'is {name}'}({', '.join(parts)})."
    )
    what = str(error).rpartition("() ")[2] or str(error)
    return CallError(
        f"{f'a call of {name}' if is_object else f'{name}()'} {what}.",
        hint="; ".join([*hints, signature]).replace("?; ", "? "),
    )
