"""DI-engine's R2D2 on slices of episodes that the buffer cuts while sampling, instead of sequences cut once."""

from collections.abc import Mapping
from typing import Any

import torch
from ding.envs import BaseEnvTimestep
from ding.model.wrapper.model_wrappers import model_wrap
from ding.policy import R2D2Policy
from ding.policy.command_mode_policy_instance import EpsCommandModePolicy
from ding.utils import POLICY_REGISTRY

from ..compat.ding_eps_greedy import INDEPENDENT
from ..utils.options import describe

Transition = dict[str, Any]


@POLICY_REGISTRY.register('r2d2_slices')
class R2D2SlicesPolicy(R2D2Policy):
    """DI-engine's R2D2 (Kapturowski et al. 2019) for a buffer that stores single transitions and samples slices of
    ``burnin_step + learn_unroll_len`` consecutive steps of one episode: any such slice, while DI-engine cuts every
    episode once, at fixed steps. Each transition keeps the hidden state that the network had before it: a slice burns
    in from its stored state. n-step returns are computed from the slice. It needs the collector ``sample_with_ids`` and
    the buffer ``torchrl`` with ``sampler='slice'``; see configs/breakout_r2d2_config.py.

    The last ``nstep`` steps of a slice have no target, so DI-engine's R2D2 does not learn from the end of an episode.
    Here ``nstep`` null steps follow the end, which gives the steps before it their target. Null steps and steps without
    a target have weight 0.
    """

    config = dict(
        type='r2d2_slices',
        priority=False,
        priority_IS_weight=False,
        # (bool) Random play at the start uses the policy with epsilon 1: transitions need its hidden states.
        transition_with_policy_data=True,
        # (bool) Hand over transitions as they come, without waiting for the end of the episode.
        collect=dict(traj_len_inf=False),
    )

    _collect_model: Any

    def default_model(self) -> tuple[str, list[str]]:
        """DI-engine's DRQN on pixels 0..255, where the config names no model."""
        return 'pixel_drqn', ['breakout_env']

    @classmethod
    def check_config(cls, cfg: Mapping) -> None:
        """Refuse options that slices do not support; a ValueError names the option."""
        policy = cfg['policy']
        options = {name: policy.get(name, False) for name in ('priority', 'priority_IS_weight')}
        for name, value in dict(options, ignore_done=policy['learn'].get('ignore_done', False)).items():
            if value is not False:
                raise ValueError(
                    f'policy option `{name}` is {describe(value)}; expected False: slices are sampled without '
                    'priorities, weights exclude null steps, and targets need the ends of episodes'
                )

        if policy['burnin_step'] < 1 or policy['learn_unroll_len'] <= policy['nstep']:
            found = {name: policy[name] for name in ('burnin_step', 'learn_unroll_len', 'nstep')}
            raise ValueError(f'policy options are {found}; expected burnin_step from 1, learn_unroll_len above nstep')
        for field, name in (('collect', 'collector_env_num'), ('eval', 'evaluator_env_num')):
            states, envs = policy[field]['env_num'], cfg.get('env', {}).get(name, 0)
            if states is None or states < envs:
                raise ValueError(f'policy.{field}.env_num is {states}; expected env.{name}, {envs}: a state for each')

    def _init_learn(self) -> None:
        self.check_config(dict(policy=self._cfg))
        super()._init_learn()

    def _init_collect(self) -> None:
        super()._init_collect()
        self._unroll_len = 1  # the collector hands over transitions instead of sequences
        # in place of DI-engine's wrapper, around the one that keeps the hidden states
        self._collect_model = model_wrap(self._collect_model._model, wrapper_name=INDEPENDENT)

    def _get_nstep(self) -> int:
        return 1  # of what the collector hands over: returns are computed from the slice

    def _process_transition(self, obs: torch.Tensor, policy_output: dict, timestep: BaseEnvTimestep) -> Transition:
        return dict(super()._process_transition(obs, policy_output, timestep), null=False)

    def _get_train_sample(self, transitions: list[Transition]) -> list[Transition]:
        """Append ``nstep`` null steps to an episode that has ended; everything else is left as it is."""
        last = transitions[-1]
        if not last['done']:
            return transitions
        zeros = {key: torch.zeros_like(last[key]) for key in ('obs', 'action', 'reward')}
        first_id = last.get('step_id', 0) + 1
        return transitions + [dict(last, **zeros, null=True, step_id=first_id + i) for i in range(self._nstep)]

    def _data_preprocess_learn(self, data: list[Transition]) -> dict[str, torch.Tensor]:
        return super()._data_preprocess_learn([self._with_targets(sequence) for sequence in data])

    def _with_targets(self, sequence: dict[str, list]) -> dict[str, list]:
        """A slice as DI-engine's R2D2 expects it: n-step rewards, ends, and weights of 1 for steps with a target."""
        length, nstep = self._sequence_len, self._nstep
        found = len(sequence['null']) if isinstance(sequence['null'], list) else 1
        if found != length:
            raise ValueError(
                f'policy options `burnin_step` + `learn_unroll_len` are {length} steps, but the buffer samples slices '
                f"of {found}; expected a replay buffer of type 'torchrl' with sampler='slice', slice_len={length}"
            )
        reward, done, null = (torch.stack(sequence[key]).flatten() for key in ('reward', 'done', 'null'))
        # the learner ignores the nstep steps after the last; they only keep the shapes
        ended = torch.cat([done, done[-1:].expand(nstep)])[nstep - 1 : -1]
        missing = torch.cat([null, null.new_ones(nstep)])[nstep:]
        learnable = ~null & (~missing | ended)
        return dict(
            sequence,
            reward=list(torch.nn.functional.pad(reward, (0, nstep - 1)).unfold(0, nstep, 1)),
            done=list(ended),
            weight=list(learnable[self._burnin_step :].float()),
        )


@POLICY_REGISTRY.register('r2d2_slices_command')
class R2D2SlicesCommandModePolicy(R2D2SlicesPolicy, EpsCommandModePolicy):
    """The same with the commander that sets epsilon in the serial pipeline."""
