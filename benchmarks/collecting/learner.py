"""Independent learner: PPO in plain PyTorch on batches of `trl.collect`, until CartPole is solved.

The same learner runs on our environments (all steps in one XLA call) and on Gymnasium's (step by
step).
"""

from __future__ import annotations

import importlib
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Final

import timerl_nb as trl
from benchmarks.training.stock_ppo import EPISODES, GOAL

ENVS, STEPS = 16, 64
EPOCHS, ROWS = 10, 256  # epochs per batch, and rows per minibatch
GAMMA, LAMBDA, CLIP, RATE = 0.98, 0.9, 0.2, 1e-3
MOST: Final = 400  # batches
SOURCES: Final = (("ours", "CartPole-v1", "scan"), ("Gymnasium", "gym.CartPole-v1", "native"))


@dataclass(frozen=True)
class Learnt:
    """Outcome of a run.

    Attributes:
        solved: Whether the mean return of the last 100 episodes reached 475.
        best: The greatest such mean.
        steps: Environment steps until then, or in total.
        collecting, learning: Seconds, without the compilation for the first batch.
    """

    solved: bool
    best: float
    steps: int
    collecting: float
    learning: float


class Ppo:
    """Clipped PPO with two tanh layers and Adam.

    Attributes:
        weights: Tensors under the names used by the collector's policy.
    """

    def __init__(self, weights: Mapping[str, Any]) -> None:
        self._torch: Any = importlib.import_module("torch")
        self.weights = {name: self._tensor(x) for name, x in weights.items()}
        self._adam = self._torch.optim.Adam(self.weights.values(), lr=RATE, eps=1e-5)

    def _tensor(self, x: Any) -> Any:
        return self._torch.from_dlpack(x).clone().requires_grad_()

    def _layer(self, name: str, x: Any) -> Any:
        return x @ self.weights[f"{name}.weight"] + self.weights[f"{name}.bias"]

    def outputs(self, obs: Any) -> tuple[Any, Any]:
        """Return log-probabilities of actions, [rows, 2], and values, [rows]."""
        x = obs
        for k in range(2):
            x = self._layer(f"trunk.{k}", x).tanh()
        return self._layer("actor", x).log_softmax(-1), self._layer("critic", x)[:, 0]

    def advantages(self, batch: Any) -> Any:
        """Return generalised advantages, [steps, envs].

        Terminated episodes have no bootstrap value, truncated ones have one.
        """
        with self._torch.no_grad():
            after = self._torch.cat([batch.value[1:], self.outputs(batch.last_obs)[1][None]])
            if len(batch.final):
                final = batch.final
                after[final.step, final.env] = self.outputs(final.obs)[1]
        after[batch.terminated] = 0.0
        goes_on = ~(batch.terminated | batch.truncated)
        errors = batch.reward + GAMMA * after - batch.value
        found = self._torch.zeros_like(errors)
        sums = self._torch.zeros_like(errors[0])
        for t in reversed(range(len(errors))):
            sums = found[t] = errors[t] + GAMMA * LAMBDA * goes_on[t] * sums
        return found

    def learn(self, batch: Any) -> None:
        """Train for some epochs on minibatches of the valid steps."""
        advantage, valid = self.advantages(batch), batch.valid
        rows = [x[valid] for x in (batch.obs, batch.action.long(), batch.log_prob, advantage)] + [
            (advantage + batch.value)[valid]
        ]
        for _ in range(EPOCHS):
            for which in self._torch.randperm(len(rows[0])).split(ROWS):
                self._step(*(x[which] for x in rows))

    def _step(self, obs: Any, action: Any, before: Any, gain: Any, aim: Any) -> None:
        log_probs, value = self.outputs(obs)
        ratio = (log_probs.gather(1, action[:, None])[:, 0] - before).exp()
        gain = (gain - gain.mean()) / (gain.std() + 1e-8)
        loss = -self._torch.minimum(gain * ratio, gain * ratio.clamp(1 - CLIP, 1 + CLIP)).mean()
        loss = loss + 0.5 * (value - aim).square().mean()
        self._adam.zero_grad()
        loss.backward()
        self._torch.nn.utils.clip_grad_norm_(self.weights.values(), 0.5)
        self._adam.step()


def learnt(env: str, how: str, seed: int, most: int = MOST) -> Learnt:
    """Train until the goal or the maximal number of batches.

    Raises:
        ImportError: PyTorch is not installed.
    """
    torch: Any = importlib.import_module("torch")
    torch.manual_seed(seed)
    torch.set_num_threads(1)  # more threads cost more than they save
    policy = trl.DNNBuilder().from_env(trl.env.make(env), hidden=[64, 64], critic=True)
    recent: deque[float] = deque(maxlen=EPISODES)
    best, steps, collecting, learning = 0.0, 0, 0.0, 0.0
    with trl.collect(env, policy, envs=ENVS, steps=STEPS, seed=seed, how=how) as c:
        ppo = Ppo(c.weights)
        batch = c.next()
        for _ in range(most):
            began = perf_counter()
            ppo.learn(batch.torch())
            between = perf_counter()
            batch = c.next(params=ppo.weights)
            recent.extend(batch.episodes.returns)
            steps += batch.count
            collecting += perf_counter() - between
            learning += between - began
            if len(recent) == EPISODES:
                best = max(best, sum(recent) / EPISODES)
                if best >= GOAL:
                    break
    return Learnt(best >= GOAL, best, steps, collecting, learning)


def table(seeds: int = 3) -> Iterator[str]:
    """Print one row per seed and source, interleaved."""
    yield (
        f"| PPO in PyTorch, {ENVS} environments, {STEPS} steps | seed | mean return of 100 episodes "
        "| steps | collecting, s | steps/s | learning, s |"
    )
    yield "|---|---|---|---|---|---|---|"
    for seed in range(1, seeds + 1):
        for name, env, how in SOURCES:
            m = learnt(env, how, seed)
            mark = "" if m.solved else ", not solved"
            yield (
                f"| {name}, {how} | {seed} | {m.best:.0f}{mark} | {m.steps:,} | {m.collecting:.2f} "
                f"| {m.steps / m.collecting:,.0f} | {m.learning:.1f} |"
            )
