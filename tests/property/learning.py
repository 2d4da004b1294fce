"""Learning parts of random programs: parameters, optimisers, convolutions, environments."""

from __future__ import annotations

from typing import Any

import timerl_nb as trl
from tests.property.drawn import Drawn


def parameter(d: Drawn) -> None:
    """Add a parameter with an optimiser; at most one per program, with a dedicated loss."""
    if any(isinstance(x, trl.Parameter) for x in d.leaves):
        return
    x = d.tensor()
    assert x is not None
    y = d.tensor(shape=x.shape)
    assert y is not None
    name = d.pick(d.symbols)
    outer = d.domain([n for n in d.symbols if n < name]) if d.rarely(3) else ()
    init = d.data((), x.shape, "f32")
    w = trl.parameter(init, domain=(*outer, name), name="w", dtype=d.pick(("f32", "f32", "bf16")))
    d.leaves.append(w)
    d.add(w, "parameter")
    made = (x * w).tanh()
    others = [
        n for n in made.domain if n not in w.domain
    ]  # along its own dimension it would depend on itself
    if others and d.rarely(2):
        made = _through(d, made, d.pick(others))
    loss = (made - y.tanh()) ** 2
    loss = loss.sum(axis=tuple(range(loss.rank))) if loss.rank else loss
    loss.backward()
    # keeps the divisor of a moment above rounding errors
    eps, clipped = {"eps": 0.1}, d.pick(({}, {}, {"max_norm": 0.5}, {"max_value": 0.3}))
    rules = {
        "SGD": lambda: trl.optim.SGD([w], 0.1, **clipped),
        "momentum": lambda: trl.optim.SGD([w], 0.1, momentum=0.5, **clipped),
        "Adam": lambda: trl.optim.Adam([w], 0.1, **eps, **clipped),
        "AdamW": lambda: trl.optim.AdamW([w], 0.1, **eps, **clipped),
        "RMSProp": lambda: trl.optim.RMSProp([w], 0.1, **eps, **clipped),
    }
    rule = d.pick((*rules, "none"))
    if rule in rules:
        rules[rule]().step()
        d.add(w.next, f"{rule} of w along {name}")
    d.add(w.grad, "derivative")
    d.ctx.output("loss", loss)


def _through(d: Drawn, x: trl.RecurrentTensor, name: str) -> trl.RecurrentTensor:
    """Return a recurrence on `x`, for gradients through time."""
    var, _ = d.symbols[name]
    y = trl.tensor(x.shape, x.dtype, domain=x.domain)
    y[d.key(x, name, 0)] = x[d.key(x, name, 0)]
    y[d.key(x, name, var + 1)] = (y * 0.5 + x).tanh()
    return y


def convolution(d: Drawn) -> None:
    """Convolve over one or two axes of a tensor, or over a dimension's."""
    way = d.pick(("conv", "strided", "transposed", "plane", "greatest", "mean", "dimension"))
    name, size = d.pick(d.symbols), d.pick((1, 2, 3))
    if way == "dimension":
        x = d.tensor(shape=(2,), over=name)
        x = trl.random.normal((2,), domain=(name,)) if x is None else x
        var, bound = d.symbols[name]
        part = d.pick((slice(0, bound), slice(var, bound), slice(0, var + 1)))
        x = x[d.key(x, name, part)].transpose(1, 0)
    else:
        x = d.tensor(shape=(2, 3))
        x = trl.random.normal((2, 3), domain=d.domain()) if x is None else x

    def kernel(*shape: int) -> trl.RecurrentTensor:
        domain = d.domain()
        made = trl.data(d.data(domain, shape, "f32"), domain=domain)
        d.leaves.append(made)
        return made

    made = {
        "conv": lambda: trl.conv(x, kernel(2, 2, size), padding=d.pick((1, "same"))),
        "strided": lambda: trl.conv(x, kernel(2, 1, 2), stride=2, padding=1, groups=2),
        "transposed": lambda: trl.conv_transpose(x, kernel(2, 2, size), stride=d.pick((1, 2))),
        "plane": lambda: trl.conv(x.reshape(1, 2, 3), kernel(2, 1, 2, 2), dilation=(1, 2)).sum(
            axis=-1
        ),
        "greatest": lambda: trl.max_pool(x, 2, stride=1, padding=d.pick((0, 1))),
        "mean": lambda: trl.avg_pool(x, 2, padding=1),
        "dimension": lambda: trl.conv(x, kernel(2, 2, size), padding="same"),
    }
    y = made[way]().tanh()
    d.add(y if way != "dimension" and d.rarely(2) else y.mean(axis=-1), f"{way} convolution")


def environment(d: Drawn) -> None:
    """Add episodes that read existing tensors."""
    name = d.pick(d.symbols)
    var, _ = d.symbols[name]
    others = d.domain([n for n in d.symbols if n != name])
    domain = tuple(n for n in d.symbols if n == name or n in others)
    options: dict[str, Any] = {
        "autoreset": d.pick((None, None, "next_step", "same_step")),
        "max_steps": d.pick((None, 1, 2, 3)),
    }
    game = d.pick(("CartPole-v1", "synthetic"))
    if game == "synthetic":
        options |= {"obs_shape": d.pick(((2,), (2, 3))), "differentiable": d.rarely(2)}
    env = trl.env.make(game, **options)
    o = trl.like(env.obs_space, domain=domain)
    o[d.key(o, name, 0)] = env.reset(domain=others)
    drive = trl.random.normal((), domain=domain)
    if game == "synthetic":
        found = [
            x
            for x in d.tensors
            if x.shape == () and x.dtype == "f32" and set(x.domain) <= set(domain)
        ]
        drive = d.pick([drive, *found]) - o.mean(axis=tuple(range(o.rank)))
        step = env.step(drive.tanh().reshape(1))
    else:
        step = env.step((drive > o.sum(axis=0)).cast("i32"))
    o[d.key(o, name, var + 1)] = step.obs
    d.add(o, f"{game} {options}")
    more = {"reward": step.reward, "done": step.done, "alive": step.alive, "final": step.final_obs}
    what = d.pick(more)
    d.add(more[what], f"{what} of the environment")
