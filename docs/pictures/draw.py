"""Draws the README's picture and those of single views anew: `make pictures`."""

from __future__ import annotations

from pathlib import Path

from timerl_widgets import RunMonitor

import timerl_nb as trl

HERE = Path(__file__).parent


def reinforce(window: int | None) -> trl.Program:
    with trl.Context("b", "i", "t") as ctx:
        (b, B), (i, I), (t, T) = ctx.dims
        with ctx.region("acting"):
            env = trl.env.make("CartPole-v1")
            dnn = trl.DNNBuilder(domain=(i,)).from_env(env, hidden=[32, 32]).build()
            o = trl.like(env.obs_space, domain=(b, i, t))
            o[b, i, 0] = env.reset(domain=(b, i))
            a = dnn.sample(o)
            o[b, i, t + 1], r, d = env.step(a)
        with ctx.region("learning"):
            end = T if window is None else trl.min(t + window, T)
            g = r[b, i, t:end].discounted_sum(0.95)
            loss = -dnn.log_prob(a) * g
            loss.mean(over=(b, t)).backward()
            trl.optim.Adam(dnn.params, lr=1e-3).step()
        ctx.output("return", r.sum(over=t).mean(over=b))
    return ctx.compile({B: 64, I: 3, T: 40})


def main() -> None:
    whole, five = reinforce(None), reinforce(5)
    schedules = {"r[b, i, t:T]": whole, "r[b, i, t:trl.min(t + 5, T)]": five}
    picture = trl.show.side_by_side({title: p.schedule for title, p in schedules.items()})
    (HERE / "one_line_change.svg").write_text(picture.svg, encoding="utf-8")
    trl.show.graph_view(five.stages["fuse"].artifact).save(HERE / "graph.svg")
    trl.show.LoopView.from_program(five).save(HERE / "loops.svg")
    trl.show.IterationSpaceView.from_program(five).save(HERE / "space.svg")
    trl.show.MemoryView.from_program(whole).save(HERE / "memory.svg")
    monitor = RunMonitor(whole.with_bounds({"I": 60}).with_options(executor="interpret"))
    monitor.start().result()
    bundle, _ = monitor._repr_mimebundle_()
    (HERE / "run.svg").write_text(bundle["image/svg+xml"], encoding="utf-8")


if __name__ == "__main__":
    main()
