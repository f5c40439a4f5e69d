"""DI-engine's DQN with a faster update: the same losses and weights."""

from typing import Annotated, Any, Dict, Literal, Mapping, Optional, Sequence, Tuple

import torch
from ding.model.wrapper.model_wrappers import IModelWrapper
from ding.policy import DQNPolicy
from ding.policy.command_mode_policy_instance import EpsCommandModePolicy
from ding.policy.common_utils import default_preprocess_learn
from ding.rl_utils import q_nstep_td_data, q_nstep_td_error
from ding.utils import POLICY_REGISTRY
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from ..replay.batch import FrameBatch
from ..utils.options import Between, Options, shown
from ..utils.streams import Uploader
from .ema_dqn import EmaDQNPolicy, follow
from .pixel_models import PixelInput
from .precision import cast_copy

# What ``policy.learn.autocast`` means to torch.
AUTOCAST = {None: torch.float32, 'bfloat16': torch.bfloat16}
# What ``policy.learn.loss`` means: of each transition, on its own.
LOSSES = dict(mse=torch.nn.MSELoss(reduction='none'), huber=torch.nn.HuberLoss(reduction='none'))
# BaseLearner's monitor averages over so many updates.
LOG_WINDOW_UPDATES = 10
# The keys of a transition that an update uses.
USED_KEYS = ('obs', 'next_obs', 'action', 'reward', 'done', 'weight', 'value_gamma')


class LeanDQNOptions(Options):
    """The options in ``policy.learn`` that ``lean_dqn`` adds to those of DI-engine's ``dqn``."""

    autocast: Literal[None, 'bfloat16'] = None
    """(Optional[str]) None for float32; ``bfloat16`` pays on CPUs with AVX512-BF16 or AMX and on GPUs since Ampere."""
    log_every_updates: Annotated[int, Between(1, 1_000_000_000)] = 100
    """(int) Updates over which loss and Q values are averaged for the log."""
    target_theta: Optional[Annotated[float, Between(0, 1, above=True)]] = None
    """(Optional[float]) Share by which each update moves the target network towards the online one (Lillicrap et al. \
    2016), with ``target_update_freq`` None or left out; None to copy it every ``target_update_freq`` updates."""
    loss: Literal['mse', 'huber'] = 'mse'
    """(str) ``mse`` for the squared TD error; ``huber`` for half of it up to an error of 1 and linear beyond, which \
    clips its gradient (Mnih et al. 2015)."""
    grad_clip: Optional[Annotated[float, Between(0, above=True)]] = None
    """(Optional[float]) Gradients whose norm over all weights is larger are scaled to it; None for no limit."""
    ema_decay: Optional[Annotated[float, Between(0, 0.999999, above=True)]] = None
    """(Optional[float]) Collector and evaluator act with an exponential moving average of the weights, of which each \
    update keeps this share; ``breakout average``, ``eval``, ``play`` and ``export`` take it from checkpoints. None to \
    act with the weights themselves."""

    @classmethod
    def check(cls, owner: str, section_name: str, learn: Mapping) -> 'LeanDQNOptions':
        """
        Overview:
            The options in ``policy.learn``, which also holds DI-engine's; ``owner`` begins the error messages.
        Raises:
            - ValueError: If one is not allowed, or two contradict each other.
        """
        options = cls.of_section(owner, section_name, learn)
        theta, freq = options.target_theta, learn.get('target_update_freq')
        if theta is None and freq is None:
            raise ValueError(
                f'{owner} `{section_name}.target_update_freq` is None (NoneType), as is `{section_name}.target_theta`; '
                'expected one of them to update the target network'
            )
        # DI-engine's default is in every config, so that it does not tell whether somebody named it
        if theta is not None and freq not in (None, DQNPolicy.config['learn']['target_update_freq']):
            raise ValueError(
                f'{owner} `{section_name}.target_update_freq` is {shown(freq)}; expected None beside '
                f'`{section_name}.target_theta`, which updates the target network at each update'
            )
        return options


@POLICY_REGISTRY.register('lean_dqn')
class LeanDQNPolicy(EmaDQNPolicy):
    """
    Overview:
        DI-engine's ``dqn`` (double, dueling, n-step, prioritised, as configured) with the same hyper-parameters, the \
        same checkpoints and, up to the order of floating-point additions, the same losses and weights. What makes it \
        faster:

        - a batch of the ``frame`` buffer already consists of tensors; it is not listed and stacked again;
        - screens go to the device as uint8, on a stream of their own, and are scaled there once for both networks;
        - their memory format is the fastest for convolutions (channels last);
        - Adam is ``fused``: one pass over its tensors instead of a dozen;
        - on a GPU, where launching layers takes longer than computing them, the online network processes both states \
          of a transition in one forward; on a CPU in two, as only one of them needs a gradient;
        - loss and Q values stay on the device, and their means are fetched every ``log_every_updates`` updates;
        - priorities are fetched only if they are used (``policy.priority``).

        ``autocast='bfloat16'`` computes the layers with half of the bits, with weights, loss and optimizer in \
        float32. It changes the numbers.
    Examples:
        >>> LeanDQNPolicy.default_config().learn.log_every_updates
        100
    """

    config = dict(type='lean_dqn', learn=LeanDQNOptions().model_dump())
    # Which output of the network learns.
    _output = 'logit'

    def _init_learn(self) -> None:
        options = self._cfg.learn
        own = self._options = LeanDQNOptions.check('policy option', 'learn', options)
        super()._init_learn()
        self._optimizer = torch.optim.Adam(self._model.parameters(), lr=options.learning_rate, fused=True)
        self._dtype = AUTOCAST[own.autocast]
        self._one_forward = self._cuda and not any(
            isinstance(module, (_BatchNorm, _DropoutNd)) for module in self._model.modules()
        )  # these would mix the two states
        self._uploader = Uploader(self._device)
        # DI-engine makes them at each update, on the host, and waits until the GPU has them
        self._discounts = (self._gamma ** torch.arange(self._nstep)).unsqueeze(1).to(self._device)
        # its tensors are the parameters: built once, it serves all later updates of the target network
        self._weights = self._learn_model.state_dict()
        self._target_copy: Optional[torch.nn.Module] = None
        self._copied_version = 0
        # Reused memory for the scaled screens: allocating 7 MB took a tenth of each update on a CPU.
        self._scaled: Optional[torch.Tensor] = None
        self._updates = self._summed = 0
        self._sums = torch.zeros(3, device=self._device)
        self._means: Dict[str, float] = {}

    def _forward_learn(self, data: Sequence[Dict[str, Any]]) -> Dict[str, Any]:
        """
        Overview:
            One update from a batch of the ``frame`` buffer, or from a list of transitions, as ``DQNPolicy`` makes it.
        Returns:
            - info (:obj:`Dict[str, Any]`): ``cur_lr``; ``total_loss``, ``q_value`` and ``target_q_value``, averaged \
                over the last ``log_every_updates`` updates; ``priority`` if priorities are used.
        """
        prepared = self._prepared(data)
        used = {key: prepared[key] for key in USED_KEYS if prepared.get(key) is not None}
        batch = self._uploader.upload(used)
        loss, td_error, q_value, target_q_value = self._loss(batch)
        self._optimizer.zero_grad()
        loss.backward()
        if self._cfg.multi_gpu:
            self.sync_gradients(self._learn_model)
        if self._options.grad_clip is not None:
            torch.nn.utils.clip_grad_norm_(self._model.parameters(), self._options.grad_clip)
        self._optimizer.step()
        if self._options.target_theta is None:
            self._target_model.update(self._weights)
        else:
            follow(_unwrapped(self._target_model), self._model, self._options.target_theta)
        self._update_average()

        info: Dict[str, Any] = {'cur_lr': self._optimizer.defaults['lr']}
        info.update(self._scalars(loss, q_value, target_q_value))
        if self._priority:
            info['priority'] = td_error.abs().tolist()
        return info

    def _loss(self, batch: Dict[str, torch.Tensor]) -> Tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """The loss of a batch, the TD error of each transition, and ``q_value`` and ``target_q_value`` for the log."""
        q_value, next_q_value, target_q_value = self._q_values(batch['obs'], batch['next_obs'])
        loss, td_error = self._td_error(batch, q_value, target_q_value, next_q_value.argmax(dim=-1))
        return loss, td_error, q_value, target_q_value

    def _td_error(
        self, batch: Dict[str, torch.Tensor], q_value: torch.Tensor, next_value: torch.Tensor, next_action: torch.Tensor
    ) -> Tuple[torch.Tensor, torch.Tensor]:
        """The loss, and the TD error of each transition, whose rewards are followed by the value of ``next_action``."""
        return q_nstep_td_error(
            q_nstep_td_data(
                q_value,
                next_value,
                batch['action'],
                next_action,
                (batch['reward'] * self._discounts).sum(0),
                batch['done'],
                batch.get('weight'),
            ),
            self._gamma,
            nstep=self._nstep,
            cum_reward=True,
            value_gamma=batch.get('value_gamma'),
            criterion=LOSSES[self._options.loss],
        )

    def _prepared(self, data: Sequence[Dict[str, Any]]) -> Dict[str, Any]:
        """The result of DI-engine's ``default_preprocess_learn``, without listing and stacking the batch."""
        if not isinstance(data, FrameBatch):
            return default_preprocess_learn(
                list(data),
                use_priority=self._priority,
                use_priority_IS_weight=self._cfg.priority_IS_weight,
                ignore_done=self._cfg.learn.ignore_done,
                use_nstep=True,
            )
        batch: Dict[str, Any] = dict(data.collated())
        batch['done'] = torch.zeros(len(batch['done'])) if self._cfg.learn.ignore_done else batch['done'].float()
        reward = batch['reward']
        batch['reward'] = (reward.unsqueeze(1) if reward.dim() == 1 else reward).t().contiguous()
        if self._priority and self._cfg.priority_IS_weight:
            batch['weight'] = batch['priority_IS'] if 'priority_IS' in batch else batch['IS']
        else:
            batch['weight'] = batch.get('weight')
        return batch

    def _q_values(self, obs: torch.Tensor, next_obs: torch.Tensor) -> Tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """
        Overview:
            The Q values that an update needs, in float32: the online network's of ``obs``, with a gradient, and of \
            ``next_obs``, and the target network's of ``next_obs``.
        Shapes:
            - obs, next_obs (:obj:`torch.Tensor`): :math:`(B, F, S, S)`, B batch size, F frames, S pixels.
            - q_value, next_q_value, target_q_value (:obj:`torch.Tensor`): :math:`(B, A)`, A actions.
        """
        for model in (self._learn_model, self._target_model):
            if not model.training:  # train() walks through all modules
                model.train()
        size, pixels = len(obs), isinstance(self._model, PixelInput)
        both = torch.cat([obs, next_obs])
        if both.dim() == 4:
            both = both.contiguous(memory_format=torch.channels_last)
        if pixels:
            if self._scaled is None or self._scaled.shape != both.shape:
                self._scaled = torch.empty_like(both, dtype=self._dtype)
            both = self._model.scaled(both, out=self._scaled)

        def q_values(model: Any, x: torch.Tensor) -> torch.Tensor:
            return (model.forward_scaled(x) if pixels else model.forward(x))[self._output]

        with torch.autocast(self._device_type, self._dtype, enabled=self._dtype is not torch.float32):
            # with a gradient first: autocast caches the weights that it casts there, and the next forward reuses them
            q_value = q_values(self._model, both if self._one_forward else both[:size])
            with torch.no_grad():
                next_q_value = q_value[size:] if self._one_forward else q_values(self._model, both[size:])
                target_q_value = q_values(self._target(), both[size:])
        return q_value[:size].float(), next_q_value.detach().float(), target_q_value.float()

    @property
    def _device_type(self) -> str:
        return torch.device(self._device).type

    def _target(self) -> torch.nn.Module:
        """The target network; under autocast a copy in that type, which saves casting its weights at each update."""
        if self._dtype is torch.float32 or self._options.target_theta is not None:
            return self._target_model
        model = _unwrapped(self._target_model)
        version = sum(weight._version for weight in model.parameters())  # every write into them counts
        if self._target_copy is None or self._copied_version != version:
            self._target_copy = cast_copy(model, self._dtype)
            self._copied_version = version
        return self._target_copy

    def _scalars(self, loss: torch.Tensor, q_value: torch.Tensor, target_q_value: torch.Tensor) -> Dict[str, float]:
        """Means over the last ``log_every_updates`` updates; the only place where an update waits for the GPU."""
        self._sums += torch.stack([loss.detach(), q_value.detach().mean(), target_q_value.mean()])
        self._summed += 1
        # DI-engine logs the mean over its last 10 updates, so new means have to be there 10 updates before it logs
        if not self._means or (self._updates + LOG_WINDOW_UPDATES) % self._cfg.learn.log_every_updates == 0:
            means = (self._sums / self._summed).tolist()
            self._means = dict(zip(('total_loss', 'q_value', 'target_q_value'), means))
            self._sums.zero_()
            self._summed = 0
        self._updates += 1
        return self._means

    def _state_dict_learn(self) -> Dict[str, Any]:
        """A state that ``DQNPolicy`` can load, too."""
        state = super()._state_dict_learn()
        return {**state, 'optimizer': _fused(state['optimizer'], None), **self._average_state()}

    def _load_state_dict_learn(self, state_dict: Dict[str, Any]) -> None:
        """Load a state of this policy or of ``DQNPolicy``."""
        super()._load_state_dict_learn({**state_dict, 'optimizer': _fused(state_dict['optimizer'], True)})
        self._weights = self._learn_model.state_dict()
        self._load_average(state_dict)


def _unwrapped(model: Any) -> torch.nn.Module:
    while isinstance(model, IModelWrapper):  # DI-engine wraps a wrapper of its own in each
        model = model._model
    return model


def _fused(optimizer_state: Dict[str, Any], fused: Optional[bool]) -> Dict[str, Any]:
    """An optimizer's state with another setting of ``fused``, which loading the state applies."""
    groups = [dict(group, fused=fused) for group in optimizer_state['param_groups']]
    return {**optimizer_state, 'param_groups': groups}


@POLICY_REGISTRY.register('lean_dqn_command')
class LeanDQNCommandModePolicy(LeanDQNPolicy, EpsCommandModePolicy):
    """The same with the commander that sets epsilon in the serial pipeline."""
