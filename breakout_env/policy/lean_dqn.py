"""DI-engine's DQN with a faster update: the same losses and weights."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from ding.model.wrapper.model_wrappers import model_wrap
from ding.policy import DQNPolicy
from ding.policy.command_mode_policy_instance import EpsCommandModePolicy
from ding.utils import POLICY_REGISTRY
from ding.utils.data import default_collate
from easydict import EasyDict
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from ..compat.ding_eps_greedy import INDEPENDENT
from ..replay.batch import FrameBatch
from .learner import LearnerOptions, PixelScaler, State, Updater, acting_weights, autocast, fastest_dtype
from .pixel_models import PixelInput

# The keys of a transition that an update uses.
USED_KEYS = ('obs', 'next_obs', 'action', 'reward', 'done', 'weight', 'value_gamma')


@POLICY_REGISTRY.register('lean_dqn')
class LeanDQNPolicy(DQNPolicy):
    """DI-engine's ``dqn`` (double, dueling, n-step, prioritised, as configured) with the same hyper-parameters, the
    same checkpoints and, up to the order of floating-point additions, the same losses and weights. It is faster,
    because:

    - batches of the buffer ``frame`` are not stacked again, and go to the device as uint8, on a separate stream;
    - screens are scaled there once for both networks, channels last, and Adam is ``fused``;
    - on a GPU, where launching layers takes longer than computing them, the online network processes both states
      of a transition in one forward; on a CPU in two, as only one of them needs a gradient;
    - means for the log, and priorities, stay on the device until they are used.

    Priorities are the sizes of the TD errors (Schaul et al. 2016; DI-engine's are their squares). Each environment
    draws its own epsilon-greedy actions.
    """

    config = dict(type='lean_dqn', learn=LearnerOptions().model_dump())

    _updater: Updater

    def __init__(
        self, cfg: EasyDict, model: torch.nn.Module | None = None, enable_field: Sequence[str] | None = None
    ) -> None:
        self._options = LearnerOptions.of_section('config option', 'policy.learn', cfg['learn'])
        # `learn` first: collector and evaluator act with the network that it averages
        fields = self.total_field if enable_field is None else enable_field
        super().__init__(cfg, model, sorted(fields, key=lambda field: field != 'learn'))

    def default_model(self) -> tuple[str, list[str]]:
        """DI-engine's DQN on pixels 0..255, where the config names no model."""
        return 'pixel_dqn', ['breakout_env']

    @classmethod
    def check_config(cls, cfg: Mapping) -> None:
        LearnerOptions.of_section('config option', 'policy.learn', cfg['policy']['learn'])

    def _init_learn(self) -> None:
        super()._init_learn()
        self._updater = Updater(
            self._model, self._options, self._cfg.learn.learning_rate, max_grad_norm=self._options.grad_clip
        )
        self._optimizer = self._updater.optimizer
        self._dtype = fastest_dtype(self._options.autocast, self._device)
        self._one_forward = self._cuda and not any(
            isinstance(module, (_BatchNorm, _DropoutNd)) for module in self._model.modules()
        )  # these would mix the two states
        self._copy_stream = torch.cuda.Stream(self._device) if self._cuda else None
        self._scaler = PixelScaler(self._model, self._dtype) if isinstance(self._model, PixelInput) else None
        # built once: DI-engine builds them on the host at each update, and waits until the GPU has them
        self._discounts = (self._gamma ** torch.arange(self._nstep)).unsqueeze(1).to(self._device)
        # the parameters themselves: this dict serves all later updates of the target network
        self._weights = self._learn_model.state_dict()

    def _forward_learn(self, data: Sequence[dict]) -> dict[str, Any]:
        """One update, as ``DQNPolicy`` makes it. Returns what ``Updater.step`` does, and ``priority`` if it is used."""
        prepared = self._prepared(data)
        batch = self._uploaded({key: prepared[key] for key in USED_KEYS if prepared.get(key) is not None})
        loss, td_error, q_value, target_q_value = self._loss(batch)
        sync = (lambda: self.sync_gradients(self._learn_model)) if self._cfg.multi_gpu else None
        means = dict(q_value=q_value.mean(), target_q_value=target_q_value.mean())
        info: dict[str, Any] = dict(self._updater.step(loss, sync, **means))
        self._target_model.update(self._weights)
        if self._priority:
            info['priority'] = td_error.tolist()
        return info

    def _uploaded(self, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Copy to the device: to a GPU from pinned memory, during the previous update and without waiting."""
        if self._copy_stream is None:
            return {key: tensor.to(self._device) for key, tensor in tensors.items()}
        with torch.cuda.stream(self._copy_stream):
            uploaded = {key: tensor.to(self._device, non_blocking=True) for key, tensor in tensors.items()}
        current = torch.cuda.current_stream(self._device)
        current.wait_stream(self._copy_stream)
        for tensor in uploaded.values():
            tensor.record_stream(current)  # keeps the memory until that stream has read it
        return uploaded

    def _loss(self, batch: dict[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """The loss of a batch with double DQN's TD target: n-step return + (1 - done) * discount * Q_target(s',
        argmax_a Q_online(s', a)). Returns loss, |TD error|, and ``q_value`` and ``target_q_value`` for the log.

        Shapes:
            batch: ``reward`` :math:`(n, B)`, n rewards of an n-step return; ``obs`` as of ``_q_values``; others
                :math:`(B)`.
        """
        q_value, next_q_value, target_q_value = self._q_values(batch['obs'], batch['next_obs'])
        chosen = q_value.gather(1, batch['action'].unsqueeze(1)).squeeze(1)
        following = target_q_value.gather(1, next_q_value.argmax(dim=-1, keepdim=True)).squeeze(1)
        discount = batch.get('value_gamma', self._gamma**self._nstep)
        target = (batch['reward'] * self._discounts).sum(0) + discount * following * (1 - batch['done'])
        losses = functional.mse_loss(chosen, target, reduction='none')
        if 'weight' in batch:
            losses = losses * batch['weight']
        return losses.mean(), (chosen - target).detach().abs(), q_value, target_q_value

    def _prepared(self, data: Sequence[dict]) -> dict[str, Any]:
        """As DI-engine's ``default_preprocess_learn``; a batch of the buffer ``frame`` is not stacked again."""
        batch: dict[str, Any] = dict(data.collated() if isinstance(data, FrameBatch) else default_collate(list(data)))
        batch['done'] = torch.zeros(len(batch['done'])) if self._cfg.learn.ignore_done else batch['done'].float()
        reward = batch['reward']
        batch['reward'] = (reward.unsqueeze(1) if reward.dim() == 1 else reward).t().contiguous()
        if self._priority and self._cfg.priority_IS_weight:
            batch['weight'] = batch['priority_IS'] if 'priority_IS' in batch else batch['IS']
        return batch

    def _q_values(self, obs: torch.Tensor, next_obs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """The Q values that an update needs, in float32: the online network's of ``obs``, with a gradient, and of
        ``next_obs``, and the target network's of ``next_obs``.

        Shapes:
            obs, next_obs: :math:`(B, F, S, S)`, B batch size, F frames, S pixels.
            q_value, next_q_value, target_q_value: :math:`(B, A)`, A actions.
        """
        for model in (self._learn_model, self._target_model):
            if not model.training:  # train() walks through all modules
                model.train()
        size, pixels = len(obs), self._scaler is not None
        if self._scaler is not None:
            both = self._scaler(obs, next_obs)
        else:
            both = torch.cat([obs, next_obs])
            both = both.contiguous(memory_format=torch.channels_last) if both.dim() == 4 else both

        def q_values(model: Any, x: torch.Tensor) -> torch.Tensor:
            return (model.forward_scaled(x) if pixels else model.forward(x))['logit']

        with autocast(self._device, self._dtype):
            # with a gradient first: autocast caches the weights that it casts there, and the next forward reuses them
            q_value = q_values(self._model, both if self._one_forward else both[:size])
            with torch.no_grad():
                next_q_value = q_value[size:] if self._one_forward else q_values(self._model, both[size:])
                target_q_value = q_values(self._target_model, both[size:])
        return q_value[:size].float(), next_q_value.detach().float(), target_q_value.float()

    @property
    def _acting_model(self) -> torch.nn.Module:
        """The learner's; a policy that does not learn loads the averaged weights into its network."""
        return self._updater.acting_model if 'learn' in self._enable_field else self._model

    def _init_collect(self) -> None:
        super()._init_collect()
        self._collect_model = model_wrap(self._acting_model, wrapper_name=INDEPENDENT)
        self._collect_model.reset()

    def _init_eval(self) -> None:
        super()._init_eval()
        self._eval_model = model_wrap(self._acting_model, wrapper_name='argmax_sample')
        self._eval_model.reset()

    def _state_dict_learn(self) -> State:
        """A state that ``DQNPolicy`` can load, too."""
        return dict(self._updater.state(), target_model=self._target_model.state_dict())

    def _load_state_dict_learn(self, state_dict: State) -> None:
        """Load a state of this policy or of ``DQNPolicy``."""
        self._updater.load_state(state_dict)
        self._target_model.load_state_dict(state_dict['target_model'])
        self._weights = self._learn_model.state_dict()

    def _load_state_dict_collect(self, state_dict: State) -> None:
        super()._load_state_dict_collect(dict(model=acting_weights(state_dict)))

    def _load_state_dict_eval(self, state_dict: State) -> None:
        super()._load_state_dict_eval(dict(model=acting_weights(state_dict)))


@POLICY_REGISTRY.register('lean_dqn_command')
class LeanDQNCommandModePolicy(LeanDQNPolicy, EpsCommandModePolicy):
    """The same with the commander that sets epsilon in the serial pipeline."""
