"""DI-engine's R2D2, fed with slices of episodes that a buffer cuts when it samples, not with sequences cut once."""

from typing import Any, Dict, List, Tuple

import torch
from ding.policy import R2D2Policy
from ding.policy.command_mode_policy_instance import EpsCommandModePolicy
from ding.utils import POLICY_REGISTRY

from ..utils.option_checks import shown


@POLICY_REGISTRY.register('r2d2_slices')
class R2D2SlicesPolicy(R2D2Policy):
    """
    Overview:
        DI-engine's R2D2 (Kapturowski et al. 2019) for a buffer that stores single transitions and samples slices of \
        ``burnin_step + learn_unroll_len`` consecutive steps of one episode: any such slice, where DI-engine's own \
        cuts every episode once, at fixed places. Each transition keeps the hidden state that the network had before \
        it, so a slice starts from its stored state and burns in from there. n-step returns are made from the slice.

        .. note::
            DI-engine's R2D2 learns nothing from the end of an episode that is longer than a sequence: the last \
            ``nstep`` steps of a sequence have no target, and its last sequence ends with the episode. Here ``nstep`` \
            null steps follow the end, as DI-engine appends them to short episodes, so that the steps before the end \
            do have their target. Null steps and steps without a target weigh nothing.
    Interfaces:
        As ``R2D2Policy``; needs the collector ``sample_with_ids`` and the buffer ``torchrl`` with \
        ``sampler='slice'``.
    """

    config = dict(
        type='r2d2_slices',
        # (bool) Slices are drawn evenly: TorchRL can not weigh slices of episodes that are stored in pieces.
        priority=False,
        priority_IS_weight=False,
        # (bool) Random play at the start takes the policy's own path, with epsilon: hidden states have to be there.
        transition_with_policy_data=True,
        # (bool) Hand over transitions as they come; False, as episodes must not be awaited.
        collect=dict(traj_len_inf=False),
    )

    def default_model(self) -> Tuple[str, List[str]]:
        """
        Overview:
            The model that stands for none.
        Returns:
            - model_info (:obj:`Tuple[str, List[str]]`): DI-engine's DRQN on pixels 0..255.
        """
        return 'pixel_drqn', ['breakout_env']

    def _init_learn(self) -> None:
        for name, cfg in (('priority', self._cfg), ('priority_IS_weight', self._cfg), ('ignore_done', self._cfg.learn)):
            if cfg[name] is not False:
                raise ValueError(
                    f'policy option `{name}` is {shown(cfg[name])}; expected False: slices are drawn evenly, weights '
                    'serve to leave null steps out, and that takes the ends of episodes'
                )
        super()._init_learn()

    def _init_collect(self) -> None:
        super()._init_collect()
        self._unroll_len = 1  # what the collector sees: transitions, not sequences

    def _process_transition(self, obs: Any, policy_output: Dict[str, Any], timestep: Any) -> Dict[str, Any]:
        return dict(super()._process_transition(obs, policy_output, timestep), null=False)

    def _get_train_sample(self, transitions: List[Dict[str, Any]]) -> List[Dict[str, Any]]:
        """
        Overview:
            Leave transitions as they are, but for ``nstep`` null steps behind the end of an episode.
        Arguments:
            - transitions (:obj:`List[Dict[str, Any]]`): Consecutive transitions of one environment.
        Returns:
            - transitions (:obj:`List[Dict[str, Any]]`): What goes into the buffer.
        """
        last = transitions[-1]
        if not last['done']:
            return transitions
        nothing = {key: torch.zeros_like(last[key]) for key in ('obs', 'action', 'reward')}
        ids = range(last.get('step_id', 0) + 1, last.get('step_id', 0) + 1 + self._nstep)
        return transitions + [dict(last, **nothing, null=True, step_id=step_id) for step_id in ids]

    def _data_preprocess_learn(self, data: List[Dict[str, Any]]) -> Dict[str, torch.Tensor]:
        return super()._data_preprocess_learn([self._with_targets(sequence) for sequence in data])

    def _with_targets(self, sequence: Dict[str, List[Any]]) -> Dict[str, List[Any]]:
        """
        Overview:
            Make n-step rewards and ends of a slice, and weigh its steps: 1 if a step has a target, else 0.
        Arguments:
            - sequence (:obj:`Dict[str, List[Any]]`): A slice as the buffer samples it.
        Returns:
            - sequence (:obj:`Dict[str, List[Any]]`): What DI-engine's R2D2 learns from.
        """
        length, nstep = self._sequence_len, self._nstep
        found = len(sequence['null']) if isinstance(sequence['null'], list) else 1
        if found != length:
            raise ValueError(
                f'policy options `burnin_step` + `learn_unroll_len` are {length} steps, but the buffer samples slices '
                f"of {found}; expected a replay buffer of type 'torchrl' with sampler='slice', slice_len={length}"
            )
        reward, done, null = (torch.stack(sequence[key]).flatten() for key in ('reward', 'done', 'null'))
        # Of the nstep steps after the last, the learner uses nothing; they only keep the shapes.
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
    """
    Overview:
        The same with epsilon set by the commander, which the serial pipeline asks for.
    """
