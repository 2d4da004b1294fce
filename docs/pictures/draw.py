"""Pictures of the README and the documentation, drawn by `make pictures`.

The pictures of the explorer are photographs of its page, so they need a Chromium.
"""

from __future__ import annotations

import sys
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright
from timerl_widgets import RunMonitor
from timerl_widgets.explorer import Explorer

import timerl_nb as trl

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1]))

from tests.browser.alone import Alone  # noqa: E402
from tests.browser.conftest import FLAGS, find_chromium  # noqa: E402


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


def photograph(browser: Browser, explorer: Explorer, selector: str, path: Path) -> None:
    """Save the part of the explorer's page that a CSS selector chooses as a PNG file."""
    alone = Alone(browser, explorer)
    alone.page.wait_for_timeout(500)
    alone.page.locator(selector).first.screenshot(path=path)


def photograph_explorer(whole: trl.Program, five: trl.Program) -> None:
    """Write `explorer.png` and `comparison.png`."""
    explorer, compared = Explorer(five, ahead=False), Explorer(five, whole, ahead=False)
    explorer.selected = [op.id for op in five.fused if op.label.endswith("acting")]
    explorer.instant = 40
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=FLAGS)
        photograph(browser, explorer, ".trl-explorer", HERE / "explorer.png")
        photograph(browser, compared, ".trl-compare", HERE / "comparison.png")
        browser.close()


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
    photograph_explorer(whole, five)


if __name__ == "__main__":
    main()
