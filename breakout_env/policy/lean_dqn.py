"""DI-engine's DQN with an update that wastes nothing: the same losses and weights, sooner."""

import copy
from typing import Any, Dict, List, Optional, Sequence, Tuple

import torch
from ding.model.wrapper.model_wrappers import IModelWrapper
from ding.policy import DQNPolicy
from ding.policy.command_mode_policy_instance import EpsCommandModePolicy
from ding.policy.common_utils import default_preprocess_learn
from ding.rl_utils import q_nstep_td_data, q_nstep_td_error
from ding.utils import POLICY_REGISTRY, allreduce
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from ..replay.batch import FrameBatch
from ..utils import option_checks
from .pixel_models import PixelInput

# What ``policy.learn.autocast`` may be, and what it means to torch.
AUTOCAST = {None: torch.float32, 'bfloat16': torch.bfloat16}
# Its options beside those of DI-engine's.
OPTION_CHECKS = dict(
    autocast=option_checks.one_of(*AUTOCAST), log_every_updates=option_checks.whole_number(1, 1_000_000_000)
)
# BaseLearner's monitor means over so many updates.
LOG_LOOKS_BACK_UPDATES = 10
# What an update uses of a transition.
USED = ('obs', 'next_obs', 'action', 'reward', 'done', 'weight', 'value_gamma')


@POLICY_REGISTRY.register('lean_dqn')
class LeanDQNPolicy(DQNPolicy):
    """
    Overview:
        DI-engine's ``dqn`` (double, dueling, n-step, prioritised, as configured) with the same hyper-parameters, the \
        same checkpoints and, up to the order in which floating-point numbers are added, the same losses and weights. \
        What it saves:

        - a batch of the ``frame`` buffer is taken as the tensors it is, instead of being listed and stacked again;
        - screens go to the device as uint8, on a stream of their own, and are scaled there once for both networks;
        - they are laid out as convolutions read them fastest (channels last);
        - Adam passes once over its tensors (``fused``) instead of a dozen times;
        - on a GPU, where launching layers takes longer than computing them, the online network sees both states of a \
          transition in one forward; on a CPU it takes two, as only one of them needs a gradient;
        - loss and Q values stay on the device, and their means are fetched once in ``log_every_updates``;
        - priorities are fetched only if they are used (``policy.priority``).

        ``autocast='bfloat16'`` computes the layers in half of the bits, with weights, loss and optimizer in float32. \
        It does change the numbers; docs/performance.md says what it does to the score.
    Interfaces:
        As ``DQNPolicy``.
    """

    config = dict(
        type='lean_dqn',
        learn=dict(
            # (str) None for float32; 'bfloat16' pays on CPUs with AVX512-BF16 or AMX and GPUs since Ampere.
            autocast=None,
            # (int) Updates over which loss and Q values are meaned before they go to the log.
            log_every_updates=100,
        ),
    )

    def default_model(self) -> Tuple[str, List[str]]:
        """
        Overview:
            The model that stands for none.
        Returns:
            - model_info (:obj:`Tuple[str, List[str]]`): DI-engine's DQN on pixels 0..255.
        """
        return 'pixel_dqn', ['breakout_env']

    def _init_learn(self) -> None:
        """
        Overview:
            As ``DQNPolicy``, with a fused optimizer.
        Raises:
            - ValueError: If one of the options that are ours is none that will do.
        """
        options = self._cfg.learn
        for name, check in OPTION_CHECKS.items():
            option_checks.checked('policy option', f'learn.{name}', options[name], check)
        super()._init_learn()
        self._optimizer = torch.optim.Adam(self._model.parameters(), lr=options.learning_rate, fused=True)
        self._dtype = AUTOCAST[options.autocast]
        self._one_forward = self._cuda and not any(
            isinstance(module, (_BatchNorm, _DropoutNd)) for module in self._model.modules()
        )  # these would mix the two states
        self._copy_stream = torch.cuda.Stream() if self._cuda else None
        # the tensors in it are the parameters, so it need not be built again for each look at whether a copy is due
        self._weights = self._learn_model.state_dict()
        self._target_copy: Optional[torch.nn.Module] = None
        self._copied_version = 0
        # Memory of its own for the scaled screens: 7 MB that were new at each update took a tenth of it on a CPU.
        self._scaled: Optional[torch.Tensor] = None
        self._updates = self._summed = 0
        self._sums = torch.zeros(3, device=self._device)
        self._means: Dict[str, float] = {}

    def _forward_learn(self, data: Sequence[Dict[str, Any]]) -> Dict[str, Any]:
        """
        Overview:
            One update.
        Arguments:
            - data (:obj:`Sequence[Dict[str, Any]]`): A batch of the ``frame`` buffer, or a list of transitions, as \
                ``DQNPolicy`` takes it.
        Returns:
            - info (:obj:`Dict[str, Any]`): ``cur_lr``; ``total_loss``, ``q_value`` and ``target_q_value``, meaned \
                over ``log_every_updates`` updates and renewed as often; ``priority`` if priorities are used.
        """
        data = self._upload(self._prepared(data))
        q_value, next_q_value, target_q_value = self._q_values(data['obs'], data['next_obs'])
        loss, td_error = q_nstep_td_error(
            q_nstep_td_data(
                q_value,
                target_q_value,
                data['action'],
                next_q_value.argmax(dim=-1),
                data['reward'],
                data['done'],
                data['weight'],
            ),
            self._gamma,
            nstep=self._nstep,
            value_gamma=data.get('value_gamma'),
        )
        self._optimizer.zero_grad()
        loss.backward()
        if self._cfg.multi_gpu:
            self.sync_gradients(self._learn_model)
        self._optimizer.step()
        self._target_model.update(self._weights)

        info: Dict[str, Any] = {'cur_lr': self._optimizer.defaults['lr']}
        info.update(self._scalars(loss, q_value, target_q_value))
        if self._priority:
            info['priority'] = td_error.abs().tolist()
        return info

    def sync_gradients(self, model: torch.nn.Module) -> None:
        """
        Overview:
            As the base: each gradient becomes the mean over all ranks of a data-parallel run; but all of them in one \
            message, where the base sends one for each weight and waits for it.
        Arguments:
            - model (:obj:`torch.nn.Module`): The network, with the gradients of this rank's batch.
        """
        if not self._bp_update_sync:  # then they have been sent during the backward pass
            super().sync_gradients(model)
            return
        gradients = [weight.grad for weight in model.parameters() if weight.requires_grad]
        together = torch.cat([gradient.flatten() for gradient in gradients])
        allreduce(together)
        for gradient, mean in zip(gradients, together.split([gradient.numel() for gradient in gradients])):
            gradient.copy_(mean.view_as(gradient))

    def _prepared(self, data: Sequence[Dict[str, Any]]) -> Dict[str, Any]:
        """What DI-engine's ``default_preprocess_learn`` makes of a batch, without listing and stacking it."""
        if not isinstance(data, FrameBatch):
            return default_preprocess_learn(
                list(data),
                use_priority=self._priority,
                use_priority_IS_weight=self._cfg.priority_IS_weight,
                ignore_done=self._cfg.learn.ignore_done,
                use_nstep=True,
            )
        data = dict(data.collated())
        data['done'] = torch.zeros(len(data['done'])) if self._cfg.learn.ignore_done else data['done'].float()
        reward = data['reward']
        data['reward'] = (reward.unsqueeze(1) if reward.dim() == 1 else reward).t().contiguous()
        if self._priority and self._cfg.priority_IS_weight:
            data['weight'] = data['priority_IS'] if 'priority_IS' in data else data['IS']
        else:
            data['weight'] = data.get('weight')
        return data

    def _upload(self, data: Dict[str, Any]) -> Dict[str, Any]:
        """The batch on the learner's device; from pinned memory it is copied while the update before is computed."""
        used = {key: data[key] for key in USED if data.get(key) is not None}
        # the buffer may keep its frames on another device than ours, so this is not for a GPU alone
        with torch.cuda.stream(self._copy_stream):
            used = {key: value.to(self._device, non_blocking=self._cuda) for key, value in used.items()}
        if self._copy_stream is not None:
            computing = torch.cuda.current_stream()
            computing.wait_stream(self._copy_stream)
            for value in used.values():
                value.record_stream(computing)  # or the memory would be given away while it is still read
        return {'weight': None, **used}

    def _q_values(self, obs: torch.Tensor, next_obs: torch.Tensor) -> Tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """
        Overview:
            The Q values that an update needs, in float32.
        Arguments:
            - obs, next_obs (:obj:`torch.Tensor`): Observations.
        Returns:
            - q_value (:obj:`torch.Tensor`): The online network's, of ``obs``, with a gradient.
            - next_q_value (:obj:`torch.Tensor`): The online network's, of ``next_obs``.
            - target_q_value (:obj:`torch.Tensor`): The target network's, of ``next_obs``.
        Shapes:
            - obs, next_obs (:obj:`torch.Tensor`): :math:`(B, F, S, S)`, B batch size, F frames, S pixels.
            - q_value, next_q_value, target_q_value (:obj:`torch.Tensor`): :math:`(B, A)`, A actions.
        """
        for model in (self._learn_model, self._target_model):
            if not model.training:  # walking through the modules takes its time, too
                model.train()
        size, pixels = len(obs), isinstance(self._model, PixelInput)
        both = torch.cat([obs, next_obs])
        if both.dim() == 4:
            both = both.contiguous(memory_format=torch.channels_last)
        if pixels:
            if self._scaled is None or self._scaled.shape != both.shape:
                self._scaled = torch.empty_like(both, dtype=self._dtype)
            both = self._model.scaled(both, out=self._scaled)

        def q_values(model: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
            return (model.forward_scaled(x) if pixels else model.forward(x))['logit']

        with torch.autocast(self._device_type, self._dtype, enabled=self._dtype is not torch.float32):
            # the gradient's forward first: autocast keeps the weights it casts for it, and the next one finds them
            q_value = q_values(self._model, both if self._one_forward else both[:size])
            with torch.no_grad():
                next_q_value = q_value[size:] if self._one_forward else q_values(self._model, both[size:])
                target_q_value = q_values(self._target(), both[size:])
        return q_value[:size].float(), next_q_value.detach().float(), target_q_value.float()

    @property
    def _device_type(self) -> str:
        return torch.device(self._device).type

    def _target(self) -> torch.nn.Module:
        """The target network; under autocast a copy in its type, as the weights would be cast at each update."""
        if self._dtype is torch.float32 or 'target_update_freq' not in self._cfg.learn:
            return self._target_model
        model = self._target_model
        while isinstance(model, IModelWrapper):  # one puts the weights in, another is DI-engine's bottom of them all
            model = model._model
        version = sum(weight._version for weight in model.parameters())  # grows with whatever writes into them
        if self._target_copy is None or self._copied_version != version:
            self._target_copy = copy.deepcopy(model).to(self._dtype)
            self._copied_version = version
        return self._target_copy

    def _scalars(self, loss: torch.Tensor, q_value: torch.Tensor, target_q_value: torch.Tensor) -> Dict[str, float]:
        """Means that are at most ``log_every_updates`` old; the only place where an update waits for the GPU."""
        self._sums += torch.stack([loss.detach(), q_value.detach().mean(), target_q_value.mean()])
        self._summed += 1
        # DI-engine's log means what it was given in its last 10 updates, so they are to be there before it looks
        if not self._means or (self._updates + LOG_LOOKS_BACK_UPDATES) % self._cfg.learn.log_every_updates == 0:
            means = (self._sums / self._summed).tolist()
            self._means = dict(zip(('total_loss', 'q_value', 'target_q_value'), means))
            self._sums.zero_()
            self._summed = 0
        self._updates += 1
        return self._means

    def _state_dict_learn(self) -> Dict[str, Any]:
        """
        Overview:
            As ``DQNPolicy``, which can load it, too.
        """
        state = super()._state_dict_learn()
        state['optimizer'] = _fused(state['optimizer'], None)
        return state

    def _load_state_dict_learn(self, state_dict: Dict[str, Any]) -> None:
        """
        Overview:
            Load what this policy or ``DQNPolicy`` saved.
        """
        super()._load_state_dict_learn({**state_dict, 'optimizer': _fused(state_dict['optimizer'], True)})
        self._weights = self._learn_model.state_dict()


def _fused(optimizer_state: Dict[str, Any], fused: Optional[bool]) -> Dict[str, Any]:
    """An optimizer's state with another way to compute it: loading one sets that, too."""
    groups = [dict(group, fused=fused) for group in optimizer_state['param_groups']]
    return {**optimizer_state, 'param_groups': groups}


@POLICY_REGISTRY.register('lean_dqn_command')
class LeanDQNCommandModePolicy(LeanDQNPolicy, EpsCommandModePolicy):
    """
    Overview:
        The same with epsilon set by the commander, which the serial pipeline asks for.
    """
