"""What the policies that learn from whole rollouts have in common: acting in batches, updates, schedules, saves."""

from typing import Annotated, Any, Callable, ClassVar, Dict, List, Mapping, Optional, Tuple, Type

import torch

from ..utils.options import Between, Options
from ..utils.streams import Uploader
from .ema_dqn import EmaDQNPolicy, acting_weights
from .lean_dqn import AUTOCAST
from .precision import Precision, cast_copy, fastest_precision

Batch = Dict[str, torch.Tensor]


class RolloutOptions(Options):
    """The options in ``policy.learn`` of policies that learn from whole rollouts."""

    _owner = 'policy option'

    grad_clip: Optional[Annotated[float, Between(0.0, 1e9, above=True)]] = 10.0
    """(Optional[float]) Largest norm of the gradient; None for no limit."""
    autocast: Precision = 'auto'
    """(Optional[str]) As in ``lean_dqn``; ``auto`` is ``bfloat16`` where the hardware computes it faster."""
    log_every_updates: Annotated[int, Between(1, 1_000_000_000)] = 100
    """(int) Updates over which losses and values are averaged for the log."""
    ema_decay: Optional[Annotated[float, Between(0, 0.999999, above=True)]] = None
    """(Optional[float]) As in ``lean_dqn``; the values in the targets are those of the average, too."""
    lr_decay_updates: Optional[Annotated[int, Between(1, 1_000_000_000)]] = None
    """(Optional[int]) Updates over which the learning rate falls linearly to ``lr_end``; None to leave it."""
    lr_end: Annotated[float, Between(0.0, 1.0)] = 0.0
    """(float) The learning rate from update ``lr_decay_updates`` on."""


class RolloutPolicy(EmaDQNPolicy):
    """
    Overview:
        The base of ``lean_ppo``. A subclass says how its network acts, what it learns from a rollout, and \
        its loss. It needs the collector ``rollout`` and the buffer ``rollout``.
    """

    options_class: ClassVar[Type[RolloutOptions]]
    # What the loss is logged with.
    scalars: ClassVar[Tuple[str, ...]]

    def _decide(self, output: Mapping[str, torch.Tensor], eps: float) -> Batch:
        """
        Actions for what the network made of B observations: ``action`` and ``value``, both :math:`(B)`, and whatever
        else the targets need of a step.
        """
        raise NotImplementedError

    def _loss(self, output: Mapping[str, torch.Tensor], data: Batch) -> Tuple[torch.Tensor, ...]:
        """The loss of a minibatch, then the ``scalars``."""
        raise NotImplementedError

    # ---------------------------------------------------------------- collecting

    def _init_collect(self) -> None:
        self._unroll_len = 1
        self._dtype = AUTOCAST[fastest_precision(self._cfg.learn.autocast, self._device)]
        self._cast: Any = None  # the network that acts in the type it computes with; None after a change of its weights

    def _reset_collect(self, data_id: Optional[List[int]] = None) -> None:
        """Acting keeps no state of an episode."""

    def _cast_model(self) -> Any:
        """The network that acts in the type that it computes with, which saves casting its weights at each step."""
        # fused optimizers do not count their writes in the version of a tensor, so it cannot tell that weights changed
        if self._cast is None:
            self._cast = cast_copy(self._acting_model, self._dtype).eval()
        return self._cast

    def _forward_collect(self, data: Mapping[int, Any], eps: float = 0.0) -> Dict[int, Any]:
        """
        Overview:
            Choose actions that explore.
        Arguments:
            - data (:obj:`Mapping[int, Any]`): Observations by environment.
            - eps (:obj:`float`): Probability of a random action, for policies that explore so.
        Returns:
            - output (:obj:`Dict[int, Any]`): For each environment its ``action``, the ``value`` of its observation, \
                and what else the policy's targets need of the step.
        """
        decided = self.act_on_batch(torch.stack([torch.as_tensor(obs) for obs in data.values()]), eps)
        steps = zip(*(tensor.unbind() for tensor in decided.values()))
        return {env_id: dict(zip(decided, step)) for env_id, step in zip(data, steps)}

    def act_on_batch(self, obs: torch.Tensor, eps: float = 0.0) -> Batch:
        """
        Overview:
            Choose actions that explore, for a batch of observations; the collector ``rollout`` calls this.
        Arguments:
            - obs (:obj:`torch.Tensor`): Observations of B environments.
            - eps (:obj:`float`): As of ``forward``.
        Returns:
            - output (:obj:`Batch`): ``action``, ``value`` and what else the policy's targets need, on the CPU.
        Shapes:
            - obs: :math:`(B, 4, 84, 84)`, uint8; output: :math:`(B)`.
        """
        with torch.inference_mode():
            scaled = obs.to(self._device).to(self._dtype).div_(255)
            output = self._cast_model().forward_scaled(scaled)
            return self._decide({key: tensor.float().cpu() for key, tensor in output.items()}, eps)

    def _get_act_on_batch(self) -> Callable[..., Batch]:
        """``collect_mode.get_attribute('act_on_batch')``: DI-engine's modes have no other way to another method."""
        return self.act_on_batch

    def _process_transition(self, obs: Any, policy_output: Mapping, timestep: Any) -> Dict[str, Any]:
        raise TypeError(
            f'the policy {self.config["type"]} learns from whole rollouts; expected create_config.collector '
            "type='rollout'"
        )

    # ---------------------------------------------------------------- learning

    def _init_learn(self) -> None:
        learn = self._cfg.learn
        self._options: Any = self.options_class.of_section('policy option', 'learn', learn)
        self._priority = self._priority_IS_weight = False
        self._learn_model = self._model
        self._uploader = Uploader(self._device)
        self._optimizer = torch.optim.Adam(self._model.parameters(), lr=learn.learning_rate, eps=1e-5, fused=True)
        self._learn_dtype = AUTOCAST[fastest_precision(self._options.autocast, self._device)]
        self._updates = 0
        self._sums, self._summed = torch.zeros(1 + len(self.scalars), device=self._device), 0
        self._means: Dict[str, float] = {}

    def _forward_learn(self, data: Batch) -> Dict[str, Any]:
        """
        Overview:
            One update from a minibatch of the buffer ``rollout``.
        Returns:
            - info (:obj:`Dict[str, Any]`): ``cur_lr``; ``total_loss`` and the policy's own scalars, averaged over the \
                last ``log_every_updates`` updates.
        """
        data = self._uploader.upload(data)
        self._model.train()
        for group in self._optimizer.param_groups:
            group['lr'] = self._learning_rate()
        with torch.autocast(torch.device(self._device).type, self._learn_dtype, self._learn_dtype != torch.float32):
            output = self._model.forward_scaled(data['obs'].to(self._learn_dtype).div_(255))
        loss, *scalars = self._loss({key: tensor.float() for key, tensor in output.items()}, data)
        self._optimizer.zero_grad()
        loss.backward()
        if self._options.grad_clip is not None:
            torch.nn.utils.clip_grad_norm_(self._model.parameters(), self._options.grad_clip)
        self._optimizer.step()
        self._updates += 1
        self._update_average()
        self._cast = None
        return {'cur_lr': self._optimizer.param_groups[0]['lr'], **self._averaged(loss, *scalars)}

    def _learning_rate(self) -> float:
        start, updates = self._cfg.learn.learning_rate, self._options.lr_decay_updates
        return start if updates is None else start + (self._options.lr_end - start) * min(1.0, self._updates / updates)

    def _averaged(self, *scalars: torch.Tensor) -> Dict[str, float]:
        self._sums += torch.stack([scalar.detach() for scalar in scalars])
        self._summed += 1
        if not self._means or self._summed >= self._options.log_every_updates:
            self._means = dict(zip(self._monitor_vars_learn()[1:], (self._sums / self._summed).tolist()))
            self._sums.zero_()
            self._summed = 0
        return self._means

    def _reset_learn(self, data_id: Optional[List[int]] = None) -> None:
        """Learning keeps no state of an episode."""

    def _monitor_vars_learn(self) -> List[str]:
        return ['cur_lr', 'total_loss', *self.scalars]

    def _state_dict_learn(self) -> Dict[str, Any]:
        state = dict(model=self._model.state_dict(), optimizer=self._optimizer.state_dict(), updates=self._updates)
        return {**state, **self._average_state()}

    def _load_state_dict_learn(self, state_dict: Dict[str, Any]) -> None:
        self._model.load_state_dict(state_dict['model'])
        self._optimizer.load_state_dict(state_dict['optimizer'])
        self._updates = state_dict.get('updates', 0)
        self._load_average(state_dict)
        self._cast = None

    def _state_dict_collect(self) -> Dict[str, Any]:
        return dict(model=self._acting_model.state_dict())

    def _load_state_dict_collect(self, state_dict: Dict[str, Any]) -> None:
        self._model.load_state_dict(acting_weights(state_dict), strict=True)
        self._cast = None
