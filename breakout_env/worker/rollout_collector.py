"""A collector of whole rollouts: the same number of steps from each of many environments."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from ding.envs import BaseEnvManager, BaseEnvTimestep
from ding.utils import SERIAL_COLLECTOR_REGISTRY

from ..env_manager import GroupEnvManager
from ..env_manager.shared_buffers import StepBatch, is_abnormal
from ..utils import run_registry
from .collector import ScoringCollector
from .nstep_collector import final_obs_of


def check_rollout(n_sample: int | None, env_num: int, random_collect_size: int = 0) -> None:
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


class BatchAdapter:
    """The array interface of ``GroupEnvManager`` over any other of DI-engine's synchronous managers: all environments
    are one batch, and lost ones are reset.
    """

    def __init__(self, manager: BaseEnvManager) -> None:
        self._manager = manager
        self.halves = [list(range(manager.env_num))]
        self._timesteps: dict[int, BaseEnvTimestep] = {}

    def waiting_obs(self, env_ids: Sequence[int], out: np.ndarray | None = None) -> np.ndarray:
        """The observations that wait for an action; ``RuntimeError`` if some environments have none."""
        ready = self._manager.ready_obs
        if len(ready) != self._manager.env_num:
            raise RuntimeError(
                f'the env manager has observations of {len(ready)} of {self._manager.env_num} environments; the '
                'collector `rollout` expects one that steps all of them at once: `breakout`, `base`, or `subprocess` '
                'with reset_inplace=True'
            )
        return np.stack([ready[env_id] for env_id in env_ids], out=out)

    def send(self, actions: np.ndarray, env_ids: Sequence[int]) -> None:
        self._timesteps = self._manager.step({env_id: np.asarray(a) for env_id, a in zip(env_ids, actions)})

    def recv(self, out: np.ndarray | None = None) -> StepBatch:
        env_ids, timesteps = self.halves[0], self._timesteps
        lost = [env_id for env_id in env_ids if is_abnormal(timesteps[env_id].info)]
        reward, done = np.zeros(len(env_ids), np.float32), np.zeros(len(env_ids), np.bool_)
        if lost:
            self._manager.reset(dict.fromkeys(lost))
        batch = StepBatch(env_ids, self.waiting_obs(env_ids, out), reward, done, {}, {})
        for row, env_id in enumerate(env_ids):
            batch.enter(row, timesteps[env_id], final_obs_of(self._manager, env_id, timesteps[env_id]))
        return batch


@SERIAL_COLLECTOR_REGISTRY.register('rollout')
class RolloutCollector(ScoringCollector):
    """Collects ``n_sample`` env steps, as many from each environment, into one tensor for each key: no dict and no
    tensor a transition, which took DI-engine's collector half a millisecond each. The policy chooses the actions of a
    batch (``act_on_batch``) and makes samples of a rollout as a whole (``get_train_sample``); ``lean_ppo`` does.

    Under the env manager ``breakout`` the environments are in two halves: one plays while the policy acts for the other
    (``GroupEnvManager``). Under any other synchronous manager all of them are stepped at once.

    At a time limit the discounted value of the episode's last observation is added to the reward (Pardo et al. 2018).
    Where the manager does not hand it over (DI-engine's ``subprocess`` with ``reset_inplace``), the last step is left
    out, and the one before it bootstraps from the value of the last step's own observation. A step that was lost with
    its environment has weight 0, too.
    """

    collects_rollouts = True  # not lists of transitions, as collectors on Ray send them

    @classmethod
    def check_config(cls, cfg: Mapping) -> None:
        policy = cfg['policy']
        env_num = policy['collect'].get('env_num') or cfg['env'].get('collector_env_num')
        if env_num is not None:
            check_rollout(policy['collect'].get('n_sample'), env_num, policy.get('random_collect_size', 0))
        manager = cfg['env'].get('manager', {})
        kind, in_place = manager.get('type', ''), manager.get('reset_inplace', False)
        if kind == 'async_subprocess' or ('subprocess' in kind and not in_place):
            raise ValueError(
                f'the env manager is {kind!r} with reset_inplace={in_place}, whose environments do not wait for each '
                'other; the collector `rollout` expects `breakout`, `base`, or `subprocess` with reset_inplace=True'
            )

    def reset_env(self, _env: BaseEnvManager | None = None) -> None:
        super().reset_env(_env)
        takes_batches = getattr(self._env, 'takes_batches', False) is True
        self._batches: GroupEnvManager | BatchAdapter = self._env if takes_batches else BatchAdapter(self._env)
        self._halves = self._batches.halves
        ends = torch.tensor([0, *map(len, self._halves)]).cumsum(0).tolist()
        # Their columns in the rollout.
        self._columns = [slice(*pair) for pair in zip(ends, ends[1:])]
        # The memory of the newest two rollouts, as one may be learned from while the next is collected.
        self._screens: list[torch.Tensor] = []

    def collect(
        self,
        n_sample: int | None = None,
        train_iter: int = 0,
        policy_kwargs: dict | None = None,
        **unused: object,
    ) -> dict[str, torch.Tensor]:
        """Collect one rollout with the policy's present weights.

        Arguments:
            n_sample: Env steps of all environments together; None for the config's.
            policy_kwargs: Arguments of the policy's ``act_on_batch``, such as ``eps``.
        Returns:
            What the policy's ``get_train_sample`` made of the rollout. Its observations are overwritten by the
            collection after the next.
        Raises:
            ValueError: If ``n_sample`` is not a multiple of the number of environments, or the config asks for random
                play.
            RuntimeError: If the env manager is not synchronous.
        """
        n_sample = n_sample or self._default_n_sample
        check_rollout(n_sample, self._env_num, self._policy_cfg.get('random_collect_size', 0))
        kwargs = policy_kwargs or {}
        self.epsilon = kwargs.get('eps')
        games_before = self.games
        try:
            rollout = self._rollout(n_sample // self._env_num, kwargs)
        except (OSError, EOFError):  # a signal to all processes of a run ends its workers, too
            run_registry.stop_if_requested(self._exp_name)
            raise
        self._total_envstep_count += n_sample
        self._total_train_sample_count += n_sample
        self._log_scores(games_before)
        return self._policy.get_train_sample(rollout)

    def _rollout(self, steps: int, kwargs: Mapping[str, object]) -> dict[str, torch.Tensor]:
        act = self._policy.get_attribute('act_on_batch')
        size = steps, self._env_num
        screens = self._next_screens(steps)
        rollout = dict(
            obs=screens[:-1],
            reward=torch.zeros(size),
            done=torch.zeros(size, dtype=torch.bool),
            weight=torch.zeros(size),
            value=torch.empty(steps + 1, self._env_num),
        )
        for half, columns in zip(self._halves, self._columns):
            self._batches.waiting_obs(half, out=screens[0, columns].numpy())
        for t in range(steps + 1):
            for half, columns in zip(self._halves, self._columns):
                if t > 0:
                    row = {key: rollout[key][t - 1, columns] for key in ('reward', 'done', 'weight')}
                    self._receive(screens[t, columns], row, act, kwargs)
                decided = act(screens[t, columns], **kwargs)
                if t == steps:  # only the value of what follows the last step is needed
                    decided = dict(value=decided['value'])
                else:
                    self._batches.send(decided['action'].numpy(), half)
                for key, tensor in decided.items():
                    if key not in rollout:
                        rollout[key] = torch.empty(size, dtype=tensor.dtype)
                    rollout[key][t, columns] = tensor
        return rollout

    def _receive(self, screens: torch.Tensor, row: dict[str, torch.Tensor], act: Callable, kwargs: Mapping) -> None:
        """Enter the results of a half's newest actions."""
        batch = self._batches.recv(out=screens.numpy())
        row['reward'][:] = torch.from_numpy(batch.reward)
        row['done'][:] = torch.from_numpy(batch.done)
        row['weight'][:] = 1
        for column, info in batch.infos.items():
            if is_abnormal(info):
                row['weight'][column] = 0
                continue
            if not batch.done[column]:  # its step did not fit into shared memory
                continue
            self._total_episode_count += 1
            self._policy.reset([batch.env_ids[column]])
            if not info.get('TimeLimit.truncated', False):
                continue
            if column in batch.final_obs:  # the game would have continued
                final = torch.as_tensor(batch.final_obs[column]).unsqueeze(0)
                discount = self._policy.get_attribute('discount')
                row['reward'][column] += discount * act(final, **kwargs)['value'].item()
            else:
                row['reward'][column] = row['weight'][column] = 0
        scores = [float(info['game_return']) for info in batch.infos.values() if 'game_return' in info]
        self._note_step(len(batch.env_ids), scores)

    def _next_screens(self, steps: int) -> torch.Tensor:
        """Memory for the observations of a rollout and for those after it: :math:`(T + 1, N, ...)`."""
        if not self._screens or len(self._screens[0]) != steps + 1:
            first = torch.from_numpy(self._batches.waiting_obs(self._halves[0]))[0]
            # whole rollouts are uploaded to a GPU
            pinned = torch.device(self._policy.get_attribute('device')).type == 'cuda'
            size = steps + 1, self._env_num, *first.shape
            self._screens = [torch.empty(size, dtype=first.dtype, pin_memory=pinned) for _ in range(2)]
        self._screens.reverse()
        return self._screens[0]
