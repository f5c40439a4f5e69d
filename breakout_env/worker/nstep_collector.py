"""DI-engine's collector with n-step returns that continue from one collection to the next."""

import itertools
from typing import Any

from ding.envs import BaseEnvManager, BaseEnvTimestep
from ding.policy import Policy
from ding.utils import SERIAL_COLLECTOR_REGISTRY
from ding.worker.collector.base_serial_collector import TrajBuffer

from ..compat.ding_nstep_returns import correct_value_gamma, resets_inplace
from .collector import ScoringCollector, scores_in
from .step_callback import StepCallback, weakly

# A key in the ``info`` and in the transition of the last step before a time limit: whether its observation is known.
_LAST_OBS_IS_KNOWN = 'last_obs_is_known'
Transition = dict[str, Any]
# Shared by all collectors of a process: two of them may fill one replay buffer.
_episode_ids = itertools.count()


def number_episodes_from(first: int) -> None:
    """For several processes that fill one replay buffer: the id of this process's next episode."""
    global _episode_ids
    _episode_ids = itertools.count(first)


class TailBuffer(TrajBuffer):
    """DI-engine's list of the latest transitions of one environment. ``clear`` keeps the last ``tail`` of them, whose
    n-step returns need the next steps; ``drop`` ends the episode.

    Examples:
        >>> buffer = TailBuffer(2)
        >>> buffer.extend(dict(step=step) for step in range(6))
        >>> buffer.clear()  # as the collector does after a fragment
        >>> [transition['step'] for transition in buffer]
        [4, 5]
    """

    def __init__(self, tail: int, deepcopy: bool = False) -> None:
        super().__init__(maxlen=None, deepcopy=deepcopy)
        self._tail = tail

    def clear(self) -> None:
        del self[: max(0, len(self) - self._tail)]

    def drop(self) -> None:
        del self[:]


@SERIAL_COLLECTOR_REGISTRY.register('nstep')
class NstepCollector(ScoringCollector):
    """DI-engine's ``sample`` collector with correct n-step returns, for any policy that computes them in
    ``get_train_sample``: ``dqn``, ``lean_dqn``, ``rainbow``, ``c51``, ``qrdqn`` and others::

        steps         0  1  2  3  4  5 | 6  7  8  9 | 10 ...   fragments of 4, nstep 3
        transitions   0  1  2  3       |            |          returned with the first fragment
                                  4  5 | 6  7       |          with the second

    - A transition is returned once its n-step return is complete, ``nstep - 1`` steps later than by the base,
      which cuts returns at the end of each fragment. At the end of an episode returns are shorter.
    - At a time limit (``info['TimeLimit.truncated']``) returns are shorter, too, but bootstrap from the value of
      the last observation; ``done`` is False there (Pardo et al. 2018). DI-engine's managers with ``reset_inplace``
      do not hand that observation over: there the last transition is left out, and the others bootstrap from the
      observation before it.
    - All transitions are returned. What one collection returns beyond ``n_sample`` is subtracted from the next, so
      that updates and env steps keep the configured ratio.
    - Pending transitions are dropped at an abnormal step, a reset, and the end of the process.
    """

    # What the collections so far have returned beyond ``n_sample``.
    _surplus = 0

    def reset_policy(self, _policy: Policy | None = None) -> None:
        if _policy is None:
            super().reset_policy()
            return
        self._plain_policy = _policy
        super().reset_policy(
            self._plain_policy._replace(
                process_transition=weakly(self._process_transition), get_train_sample=weakly(self._get_train_sample)
            )
        )
        self._nstep = nstep_of(_policy)
        self._traj_len += self._nstep - 1

    def reset_env(self, _env: BaseEnvManager | None = None) -> None:
        """Continue in an env manager, or reset the present one; pending transitions are dropped."""
        super().reset_env(None if _env is None else StepCallback(_env, weakly(self._on_step)))
        for env_id in getattr(self, '_traj_buffer', ()):
            self._reset_stat(env_id)

    def reset(self, _policy: Policy | None = None, _env: BaseEnvManager | None = None) -> None:
        super().reset(_policy, _env)
        self._traj_buffer = {env_id: self._new_buffer(env_id) for env_id in range(self._env_num)}
        self._surplus = 0

    def _new_buffer(self, env_id: int) -> TailBuffer:
        return TailBuffer(self._nstep - 1, deepcopy=self._deepcopy_obs)

    def _reset_stat(self, env_id: int) -> None:
        # the base calls this at the end of an episode, and after an abnormal step
        self._traj_buffer[env_id].drop()
        super()._reset_stat(env_id)

    def collect(
        self,
        n_sample: int | None = None,
        train_iter: int = 0,
        drop_extra: bool = False,
        random_collect: bool = False,
        **kwargs: Any,
    ) -> list[Transition]:
        """As the base's, with ``drop_extra`` off by default.

        Returns:
            ``n_sample`` transitions on average, after random play at least as many; none where earlier collections have
            returned enough.
        """
        self.epsilon = (kwargs.get('policy_kwargs') or {}).get('eps')
        games_before = self.games
        n_sample = request = n_sample or self._default_n_sample
        counts = n_sample is not None and not (drop_extra or random_collect)
        if counts:
            request = n_sample - self._surplus
            if n_sample % self._env_num == 0:  # in whole steps of all environments, as the base warns otherwise
                request = -(-request // self._env_num) * self._env_num
        self._random_steps, self._random_steps_done = (n_sample or 0) if random_collect else 0, 0
        try:
            transitions = super().collect(request, train_iter, drop_extra, random_collect, **kwargs)
        finally:
            self._random_steps = 0
        if counts:
            # R2D2's null steps were not played
            self._surplus += sum(sample.get('null') is not True for sample in transitions) - n_sample
        self._log_scores(games_before)
        return transitions

    def _on_step(self, timesteps: dict[int, BaseEnvTimestep]) -> None:
        self._note_step(len(timesteps), scores_in(timesteps))
        for env_id, timestep in timesteps.items():
            if timestep.done and timestep.info.get('TimeLimit.truncated', False):
                obs = final_obs_of(self._env, env_id, timestep)
                info = dict(timestep.info, **{_LAST_OBS_IS_KNOWN: obs is not None})
                timesteps[env_id] = timestep._replace(obs=timestep.obs if obs is None else obs, info=info)

    def _process_transition(self, obs: object, output: object, timestep: BaseEnvTimestep, *args: object) -> Transition:
        transition = self._plain_policy.process_transition(obs, output, timestep, *args)
        if _LAST_OBS_IS_KNOWN in timestep.info:
            transition[_LAST_OBS_IS_KNOWN] = timestep.info[_LAST_OBS_IS_KNOWN]
        return transition

    def _get_train_sample(self, transitions: list[Transition]) -> list[Transition]:
        """The policy's samples of a fragment whose returns are complete, or cut by the episode's end."""
        last_obs_is_known = transitions[-1].pop(_LAST_OBS_IS_KNOWN, None)
        episode_continues = last_obs_is_known is None and not transitions[-1]['done']
        if last_obs_is_known is not None:
            transitions[-1]['done'] = False
            if not last_obs_is_known:  # its next_obs belongs to another episode
                transitions = transitions[:-1]
        if not transitions:
            return []
        samples: list[Transition] = self._plain_policy.get_train_sample(transitions)
        if self._nstep > 1:
            correct_value_gamma(samples, self._nstep, self._plain_policy.get_attribute('gamma'))
            if episode_continues:
                del samples[max(0, len(samples) - self._nstep + 1) :]
        return samples


def final_obs_of(manager: BaseEnvManager, env_id: int, timestep: BaseEnvTimestep) -> Any | None:
    """The last observation of an episode that ended in the manager's last step; None if the manager does not hand it
    over: with DI-engine's option ``reset_inplace`` the timestep has the first observation of the next episode.
    """
    known = getattr(manager, 'final_obs', None)  # of the manager `breakout`
    if isinstance(known, dict) and env_id in known:
        return known[env_id]
    return None if resets_inplace(manager) else timestep.obs


def nstep_of(policy: Policy) -> int:
    """Steps of the returns that a policy's ``get_train_sample`` computes for each transition; 1 if it computes none, or
    for sequences of transitions, or for one collection only.
    """
    if policy.get_attribute('on_policy') or policy.get_attribute('unroll_len') != 1:
        return 1
    try:
        return policy.get_attribute('nstep')
    except NotImplementedError:  # DI-engine's way to say that there is no such attribute
        return 1


class NumberedTailBuffer(TailBuffer):
    """Adds ``env_id``, ``episode_id`` and ``step_id`` to each transition; ``drop`` begins another episode."""

    def __init__(self, env_id: int, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._env_id = env_id
        self.drop()

    def drop(self) -> None:
        super().drop()
        self._episode_id, self._step_id = next(_episode_ids), 0

    def append(self, data: dict) -> None:
        super().append(dict(data, env_id=self._env_id, episode_id=self._episode_id, step_id=self._step_id))
        self._step_id += 1


@SERIAL_COLLECTOR_REGISTRY.register('sample_with_ids')
class SampleWithIdsCollector(NstepCollector):
    """``nstep`` for any policy. Its transitions, including random play, carry ``env_id``, ``episode_id``
    (unique in the process, see ``number_episodes_from``) and ``step_id`` (0, 1, ... within the episode).
    """

    def _new_buffer(self, env_id: int) -> NumberedTailBuffer:
        return NumberedTailBuffer(env_id, self._nstep - 1, deepcopy=self._deepcopy_obs)
