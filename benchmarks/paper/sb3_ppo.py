"""PPO of Stable-Baselines3 with one epoch of one batch, the same network, and a vectorised NumPy environment."""

from __future__ import annotations

import importlib
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np

from benchmarks.paper.pytorch_ppo import STRIDE
from benchmarks.training.systems import Runner
from benchmarks.works import CRITIC, ENTROPY, GAMMA, LAM, RATE, Work


class StableBaselinesPpo(Runner):
    """One iteration of `stable_baselines3.PPO` per advance: `n_steps` of all environments, one update."""

    def __init__(self, work: Work, device: str = "cpu") -> None:
        sb3, torch = (importlib.import_module(name) for name in ("stable_baselines3", "torch"))
        env = _environment(work)
        self._points = work.points
        self._model = sb3.PPO(
            "MlpPolicy",
            env,
            learning_rate=RATE,
            n_steps=work.steps,
            batch_size=work.points,
            n_epochs=1,
            gamma=GAMMA,
            gae_lambda=LAM,
            ent_coef=ENTROPY,
            vf_coef=CRITIC / 2,
            max_grad_norm=float("inf"),
            device=device,
            seed=0,
            policy_kwargs={
                "features_extractor_class": _trunk(work, torch),
                "net_arch": [],
                "log_std_init": 0.0,
            },
        )
        # Without this call, SB3 prepares the buffer of the rollout again in each call of `learn`.
        _, self._callback = self._model._setup_learn(10**12)

    def advance(self) -> None:
        model = self._model
        model.collect_rollouts(model.env, self._callback, model.rollout_buffer, model.n_steps)
        model.train()

    def close(self) -> None:
        del self._model


def _environment(work: Work) -> Any:
    """Return the synthetic environment as a `VecEnv`; episodes end at the last step."""
    spaces = importlib.import_module("gymnasium").spaces
    base = importlib.import_module("stable_baselines3.common.vec_env.base_vec_env").VecEnv

    class Synthetic(base):  # type: ignore[misc, valid-type]
        def __init__(self) -> None:
            self._rng, self._t = np.random.default_rng(0), 0
            box = spaces.Box(-1.0, 1.0, work.obs_shape, np.float32)
            super().__init__(work.envs, box, spaces.Box(-1.0, 1.0, (1,), np.float32))

        def _seen(self) -> Any:
            state = self._state.reshape(-1, *(1,) * len(work.obs_shape))
            return np.ascontiguousarray(np.broadcast_to(state, (work.envs, *work.obs_shape)))

        def reset(self) -> Any:
            self._state, self._t = self._rng.uniform(-1, 1, work.envs).astype(np.float32), 0
            return self._seen()

        def step_async(self, actions: Any) -> None:
            self._actions = actions

        def step_wait(self) -> Any:
            moved = self._state + STRIDE * self._actions[:, 0].clip(-1, 1)
            self._state, self._t = moved.clip(-1, 1).astype(np.float32), self._t + 1
            rewards, is_over = -np.abs(self._state), self._t == work.steps
            infos: list[dict[str, Any]] = [{} for _ in range(work.envs)]
            seen = self.reset() if is_over else self._seen()
            return seen, rewards, np.full(work.envs, is_over), infos

        def close(self) -> None: ...

        def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
            return [None] * work.envs

        def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None: ...

        def env_method(self, method_name: str, *args: Any, **kwargs: Any) -> list[Any]:
            return [None] * work.envs

        def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
            return [False] * work.envs

    return Synthetic()


def _trunk(work: Work, torch: Any) -> type:
    """Return the features extractor with the shared tanh layers."""
    base = importlib.import_module("stable_baselines3.common.torch_layers").BaseFeaturesExtractor

    class Trunk(base):  # type: ignore[misc, valid-type]
        def __init__(self, space: Any) -> None:
            super().__init__(space, work.width)
            sizes = [prod(work.obs_shape), *work.hidden]
            parts: list[Any] = [torch.nn.Flatten()]
            for a, b in pairwise(sizes):
                parts += [torch.nn.Linear(a, b), torch.nn.Tanh()]
            self._net = torch.nn.Sequential(*parts)

        def forward(self, obs: Any) -> Any:
            return self._net(obs)

    return Trunk
