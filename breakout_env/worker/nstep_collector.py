"""DI-engine's collector with n-step returns that go on from one collection to the next."""

from typing import Any, Dict, List, NamedTuple, Optional

from ding.envs import BaseEnvManager, BaseEnvTimestep
from ding.worker import SampleSerialCollector
from ding.worker.collector.base_serial_collector import TrajBuffer

from ..compat.ding_nstep_returns import correct_value_gamma
from ..utils.weak import weakly

# The last transition before a time limit has this key on its way through the collector.
_TRUNCATED = 'truncated'


class TailBuffer(TrajBuffer):
    """
    Overview:
        DI-engine's list of the latest transitions of one environment. After each piece of an episode that goes on it \
        keeps the last ones, ``tail`` of them (``nstep - 1``), whose returns need the next steps.
    Examples:
        >>> buffer = TailBuffer(2)
        >>> buffer.extend(dict(step=step, done=False) for step in range(6))
        >>> buffer.clear()  # as the collector does after a piece
        >>> [transition['step'] for transition in buffer]
        [4, 5]
    """

    def __init__(self, tail: int, deepcopy: bool = False) -> None:
        super().__init__(maxlen=None, deepcopy=deepcopy)
        self._tail = tail

    def clear(self) -> None:
        """Remove all transitions of an episode that has ended, and all but the last of one that has not."""
        ended = not self or self[-1]['done'] or _TRUNCATED in self[-1]
        del self[: len(self) if ended else max(0, len(self) - self._tail)]

    def drop(self) -> None:
        """Remove all transitions."""
        del self[:]


class NstepCollector(SampleSerialCollector):
    """
    Overview:
        DI-engine's ``sample`` collector, for any policy that computes n-step returns in ``get_train_sample``: \
        ``dqn``, ``lean_dqn``, ``rainbow``, ``c51``, ``qrdqn`` and others::

            steps         0  1  2  3  4  5 | 6  7  8  9 | 10 ...   pieces of 4, nstep 3
            transitions   0  1  2  3       |            |          handed over with the first piece
                                      4  5 | 6  7       |          with the second

        - A transition is handed over once its return is complete, ``nstep - 1`` steps later than the base would; the \
          base cuts returns at the end of each piece. Pieces, and so the env steps of all collections but the first, \
          are as long as before.
        - At the end of an episode returns are shorter, without a value after them.
        - At a time limit (``info['TimeLimit.truncated']``) they are shorter, too, but end with the value of the last \
          observation, and are not ``done`` (Pardo et al. 2018). A manager with ``reset_inplace`` does not hand that \
          observation over: its last transition is left out, and the others end with the value of the one before.
        - What an environment has played and not handed over, less than a piece and ``nstep - 1`` steps, is dropped \
          where the collector does not see what follows: at an abnormal step, a reset, and the end of the process. \
          Saves do not hold it; a resumed run starts new episodes.
    """

    def reset_policy(self, _policy: Optional[NamedTuple] = None) -> None:
        """Collect with another policy, or reset the present one."""
        if _policy is None:
            super().reset_policy()
            return
        self._plain_policy: Any = _policy
        super().reset_policy(
            self._plain_policy._replace(
                process_transition=weakly(self._process_transition), get_train_sample=weakly(self._get_train_sample)
            )
        )
        self._nstep = nstep_of(_policy)
        self._traj_len += self._nstep - 1

    def reset_env(self, _env: Optional[BaseEnvManager] = None) -> None:
        """Continue in an env manager, or reset the present one; what was not handed over is dropped."""
        super().reset_env(_env)
        for env_id in getattr(self, '_traj_buffer', ()):
            self._reset_stat(env_id)

    def reset(self, _policy: Optional[NamedTuple] = None, _env: Optional[BaseEnvManager] = None) -> None:
        """The base's ``reset``."""
        super().reset(_policy, _env)
        self._traj_buffer = {env_id: self._new_buffer(env_id) for env_id in range(self._env_num)}

    def _new_buffer(self, env_id: int) -> TailBuffer:
        return TailBuffer(self._nstep - 1, deepcopy=self._deepcopy_obs)

    def _reset_stat(self, env_id: int) -> None:
        # the base calls this at the end of an episode, and after an abnormal step
        self._traj_buffer[env_id].drop()
        super()._reset_stat(env_id)

    def _process_transition(self, obs: Any, output: Any, timestep: BaseEnvTimestep, *args: Any) -> Dict[str, Any]:
        transition = self._plain_policy.process_transition(obs, output, timestep, *args)
        if timestep.done and timestep.info.get('TimeLimit.truncated', False):
            transition[_TRUNCATED] = True
        return transition

    def _get_train_sample(self, transitions: List[Dict[str, Any]]) -> List[Any]:
        """The policy's samples of a piece, those whose returns are complete or end with it."""
        is_truncated = transitions[-1].pop(_TRUNCATED, False)
        ended = transitions[-1]['done']
        if is_truncated:
            transitions[-1]['done'] = False
            if self._env._cfg.get('reset_inplace', False):  # its next_obs is that of another game
                transitions = transitions[:-1]
        if not transitions:
            return []
        samples: List[Any] = self._plain_policy.get_train_sample(transitions)
        if self._nstep > 1:
            correct_value_gamma(samples, self._nstep, self._plain_policy.get_attribute('gamma'))
            if not ended:
                del samples[max(0, len(samples) - self._nstep + 1) :]
        return samples


def nstep_of(policy: Any) -> int:
    """
    Steps of the returns that a policy's ``get_train_sample`` computes for each transition; 1 if it computes none, or
    for sequences of transitions, or for one collection only.
    """
    if policy.get_attribute('on_policy') or policy.get_attribute('unroll_len') != 1:
        return 1
    try:
        return policy.get_attribute('nstep')
    except NotImplementedError:  # DI-engine's way to say that there is no such attribute
        return 1
