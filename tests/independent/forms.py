"""Text templates of expressions in both forms; {x} is the operand, {a} an axis."""

from __future__ import annotations

# Unary: the templates, and whether derivatives pass.
FUNCTIONS: tuple[tuple[str, str, bool], ...] = (
    ("(-{x})", "(-{x})", True),
    ("{x}.abs()", "np.abs({x})", True),
    ("{x}.tanh()", "np.tanh({x})", True),
    ("{x}.sin()", "np.sin({x})", True),
    ("{x}.cos()", "np.cos({x})", True),
    ("{x}.square()", "np.square({x})", True),
    ("{x}.sigmoid()", "(1 / (1 + np.exp(-{x})))", True),
    ("{x}.tanh().exp()", "np.exp(np.tanh({x}))", True),
    ("{x}.tanh().expm1()", "np.expm1(np.tanh({x}))", True),
    ("({x}.abs() + 1.0).log()", "np.log(np.abs({x}) + 1.0)", True),
    ("{x}.abs().log1p()", "np.log1p(np.abs({x}))", True),
    ("({x}.square() + 0.1).sqrt()", "np.sqrt(np.square({x}) + 0.1)", True),
    ("({x}.abs() + 0.5).rsqrt()", "(1 / np.sqrt(np.abs({x}) + 0.5))", True),
    ("({x}.abs() + 0.5).reciprocal()", "(1 / (np.abs({x}) + 0.5))", True),
    ("{x}.sin().erf()", "erf(np.sin({x}))", True),
    ("{x}.arctan()", "np.arctan({x})", True),
    ("{x}.relu()", "np.maximum({x}, 0.0)", True),
    ("{x}.leaky_relu(0.1)", "np.where({x} > 0, {x}, 0.1 * {x})", True),
    ("{x}.elu()", "np.where({x} > 0, {x}, np.expm1(np.minimum({x}, 0)))", True),
    ("{x}.softplus()", "np.logaddexp(0.0, {x})", True),
    ("{x}.silu()", "({x} / (1 + np.exp(-{x})))", True),
    ("{x}.gelu()", "({x} * 0.5 * (1 + erf({x} / np.sqrt(2.0))))", True),
    ("{x}.clip(-0.7, 0.8)", "np.clip({x}, -0.7, 0.8)", True),
    ("({x} * 0.5 + 0.3)", "({x} * 0.5 + 0.3)", True),
    ("(1.5 - {x})", "(1.5 - {x})", True),
    ("({x} / 3.0)", "({x} / 3.0)", True),
    ("({x} * 2.0).floor()", "np.floor(loops.near({x} * 2.0))", False),
    ("({x} * 2.0).ceil()", "np.ceil(loops.near({x} * 2.0))", False),
    ("({x} * 2.0).round()", "np.round(loops.near({x} * 2.0))", False),
    ("{x}.sign()", "np.sign(loops.near({x}))", False),
)
PAIRS: tuple[tuple[str, str], ...] = (
    ("({x} + {y})", "({x} + {y})"),
    ("({x} - {y})", "({x} - {y})"),
    ("({x} * {y})", "({x} * {y})"),
    ("({x} / ({y}.abs() + 0.5))", "({x} / (np.abs({y}) + 0.5))"),
    ("trl.max({x}, {y})", "np.maximum({x}, {y})"),
    ("trl.min({x}, {y})", "np.minimum({x}, {y})"),
    ("(({x}.abs() + 0.5) ** {y}.tanh())", "((np.abs({x}) + 0.5) ** np.tanh({y}))"),
)
INTEGERS: tuple[tuple[str, str], ...] = (
    ("({x} + {y})", "({x} + {y})"),
    ("({x} - {y})", "({x} - {y})"),
    ("({x} * {y} % 7)", "({x} * {y} % 7)"),
    ("trl.max({x}, {y})", "np.maximum({x}, {y})"),
    ("trl.min({x}, {y})", "np.minimum({x}, {y})"),
    ("({x} // 3 - {y})", "({x} // 3 - {y})"),
    ("({x}.abs() % 5 + {y})", "(np.abs({x}) % 5 + {y})"),
)
COMPARED = ("<", "<=", ">", ">=", "==", "!=")
# Over an axis: the templates, and whether an empty axis has a value.
REDUCED: tuple[tuple[str, str, bool], ...] = (
    ("{x}.sum(axis={a})", "np.sum({x}, axis={a})", True),
    ("{x}.sum(axis={a})", "np.sum({x}, axis={a})", True),
    ("{x}.prod(axis={a})", "np.prod({x}, axis={a})", True),
    ("{x}.discounted_sum(0.9, axis={a})", "discounted({x}, 0.9, {a})", True),
    ("{x}.cumsum(axis={a}).sum(axis={a})", "np.sum(np.cumsum({x}, axis={a}), axis={a})", True),
    ("{x}.square().sum(axis={a})", "np.sum(np.square({x}), axis={a})", True),
    ("{x}.linear_scan(0.7, axis={a}).sum(axis={a})", "np.sum(scan({x}, 0.7, {a}), axis={a})", True),
    ("{x}.mean(axis={a})", "np.mean({x}, axis={a})", False),
    ("{x}.max(axis={a})", "np.max({x}, axis={a})", False),
    ("{x}.min(axis={a})", "np.min({x}, axis={a})", False),
    ("{x}.logsumexp(axis={a})", "logsumexp({x}, {a})", False),
    ("{x}.var(axis={a})", "np.var({x}, axis={a})", False),
    ("({x} + 2.0).norm(axis={a})", "np.sqrt(np.sum(np.square({x} + 2.0), axis={a}))", False),
    ("{x}.cummax(axis={a}).mean(axis={a})", "np.mean(np.maximum.accumulate({x}, {a}), {a})", False),
    ("({x}.softmax(axis={a}) * {x}).sum(axis={a})", "np.sum(softmax({x}, {a}) * {x}, {a})", False),
    (
        "{x}.cumsum(axis={a}, reverse=True).max(axis={a})",
        "np.max(np.flip(np.cumsum(np.flip({x}, {a}), {a}), {a}), {a})",
        False,
    ),
)
# Over a concrete axis that is preserved.
ALONG: tuple[tuple[str, str], ...] = (
    ("{x}.softmax(axis={a})", "softmax({x}, {a})"),
    ("{x}.log_softmax(axis={a})", "np.log(softmax({x}, {a}))"),
    ("{x}.cumsum(axis={a})", "np.cumsum({x}, axis={a})"),
    ("{x}.cumsum(axis={a}, reverse=True)", "np.flip(np.cumsum(np.flip({x}, {a}), {a}), {a})"),
    ("{x}.cumprod(axis={a})", "np.cumprod({x}, axis={a})"),
    ("{x}.cummax(axis={a})", "np.maximum.accumulate({x}, axis={a})"),
    ("{x}.cummin(axis={a})", "np.minimum.accumulate({x}, axis={a})"),
    ("{x}.flip({a})", "np.flip({x}, {a})"),
    ("{x}.sort(axis={a})", "np.sort({x}, axis={a})"),
    ("{x}.sort(axis={a}, descending=True)", "np.flip(np.sort({x}, axis={a}), {a})"),
    ("{x}.linear_scan(0.6, axis={a}, reverse=True)", "scan({x}, 0.6, {a}, True)"),
)
