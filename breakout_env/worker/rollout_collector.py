"""A collector of whole rollouts: the same number of steps from each of many environments."""

from typing import Any, Dict, List, Mapping, Optional

import numpy as np
import torch
from ding.envs import BaseEnvTimestep
from ding.torch_utils import to_ndarray
from ding.utils import SERIAL_COLLECTOR_REGISTRY

from .collector import FullGamesCollector


def check_rollout(n_sample: Optional[int], env_num: int, random_collect_size: int = 0) -> None:
    """``ValueError`` unless a rollout has as many steps of each environment, all of them chosen by the policy."""
    if not n_sample or n_sample % env_num:
        raise ValueError(
            f'policy.collect.n_sample is {n_sample}; expected a multiple of env.collector_env_num ({env_num})'
        )
    if random_collect_size:
        raise ValueError(
            f'policy.random_collect_size is {random_collect_size}; expected 0, as policies that learn from rollouts '
            'learn nothing from random play'
        )


@SERIAL_COLLECTOR_REGISTRY.register('rollout')
class RolloutCollector(FullGamesCollector):
    """
    Overview:
        Collects ``n_sample`` env steps, as many from each environment, into one tensor for each key: no dict and no \
        tensor a transition, which took DI-engine's collector half a millisecond each. A rollout goes through the \
        policy's ``get_train_sample`` as a whole; ``lean_ppo`` needs it so. It steps all environments at \
        once, so its env manager must be synchronous.
    Examples:
        >>> from ding.worker import get_serial_collector_cls
        >>> from easydict import EasyDict
        >>> get_serial_collector_cls(EasyDict(type='rollout', import_names=['breakout_env'])).__name__
        'RolloutCollector'
    """

    def reset(self, _policy: Optional[Any] = None, _env: Optional[Any] = None) -> None:
        """The base's ``reset``."""
        super().reset(_policy, _env)
        # The memory of the newest two rollouts, as one may be learned from while the next is collected.
        self._screens: List[torch.Tensor] = []

    def collect(  # type: ignore[override]
        self,
        n_sample: Optional[int] = None,
        train_iter: int = 0,
        policy_kwargs: Optional[dict] = None,
        **unused: Any,
    ) -> Dict[str, torch.Tensor]:
        """
        Overview:
            Collect one rollout with the policy's present weights.
        Arguments:
            - n_sample (:obj:`Optional[int]`): Env steps of all environments together; None for the config's.
            - train_iter (:obj:`int`): Updates so far, for the log.
            - policy_kwargs (:obj:`Optional[dict]`): Arguments of the policy's ``forward``, such as ``eps``.
        Returns:
            - samples (:obj:`Dict[str, torch.Tensor]`): What the policy's ``get_train_sample`` made of the rollout. \
                Its observations are overwritten by the collection after the next.
        Raises:
            - ValueError: If ``n_sample`` is not a multiple of the number of environments, or the config asks for \
                random play.
            - RuntimeError: If the env manager is not synchronous.
        """
        n_sample = n_sample or self._default_n_sample
        check_rollout(n_sample, self._env_num, self._policy_cfg.get('random_collect_size', 0))
        kwargs = policy_kwargs or {}
        self.epsilon = kwargs.get('eps')
        games_before = self.games
        rollout = self._rollout(n_sample // self._env_num, kwargs)
        self._total_envstep_count += n_sample
        self._total_train_sample_count += n_sample
        self._log_scores(games_before)
        return self._plain_policy.get_train_sample(rollout)

    def _rollout(self, steps: int, kwargs: Mapping[str, Any]) -> Dict[str, torch.Tensor]:
        size = steps, self._env_num
        screens = self._next_screens(steps)
        decided: Dict[str, List[torch.Tensor]] = {}
        reward, weight, done = torch.zeros(size), torch.zeros(size), torch.zeros(size, dtype=torch.bool)
        for t in range(steps):
            obs = self._obs()
            np.stack(list(obs.values()), out=screens[t].numpy())
            output = self._policy.forward(dict(zip(obs, screens[t])), **kwargs)
            for key in output[next(iter(obs))]:
                decided.setdefault(key, []).append(torch.stack([output[i][key] for i in obs]))
            timesteps = self._env.step(to_ndarray({i: output[i]['action'] for i in obs}))
            for row, i in enumerate(obs):
                timestep = timesteps[i]
                if timestep.info.get('abnormal', False):
                    self._env.reset({i: None})
                    continue
                reward[t, row] = np.asarray(timestep.reward).item()  # of one element, in an array or not
                done[t, row], weight[t, row] = bool(timestep.done), 1.0
                if timestep.done:
                    self._end_episode(i, timestep)
                    if timestep.info.get('TimeLimit.truncated', False):  # the game would have gone on
                        final = self._policy.forward({i: timestep.obs}, **kwargs)[i]['value']
                        reward[t, row] += self._policy_cfg.discount_factor * final
        last = self._policy.forward(self._obs(), **kwargs)
        decided['value'].append(torch.stack([output['value'] for output in last.values()]))
        outputs = {key: torch.stack(rows) for key, rows in decided.items()}
        return dict(obs=screens, reward=reward, done=done, weight=weight, **outputs)

    def _obs(self) -> Dict[int, Any]:
        obs = self._env.ready_obs
        if len(obs) != self._env_num:
            raise RuntimeError(
                f'the env manager has observations of {len(obs)} of {self._env_num} environments; the collector '
                '`rollout` expects one that steps all of them at once, such as `breakout`'
            )
        return dict(sorted(obs.items()))

    def _next_screens(self, steps: int) -> torch.Tensor:
        if self._screens and len(self._screens[0]) != steps:
            self._screens.clear()
        if len(self._screens) < 2:
            first = torch.as_tensor(next(iter(self._obs().values())))
            self._screens.append(torch.empty((steps, self._env_num, *first.shape), dtype=first.dtype))
        else:
            self._screens.append(self._screens.pop(0))
        return self._screens[-1]

    def _end_episode(self, env_id: int, timestep: BaseEnvTimestep) -> None:
        self._total_episode_count += 1
        self._policy.reset([env_id])
