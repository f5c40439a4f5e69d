"""PQN: Q-learning from parallel environments, without a replay buffer and without a target network."""

from typing import Annotated, Any, Dict, List, Mapping, Optional

import torch
from ding.policy.command_mode_policy_instance import EpsCommandModePolicy
from ding.utils import POLICY_REGISTRY

from ..utils.options import Between, Options
from ..utils.streams import Uploader
from .ema_dqn import EmaDQNPolicy, acting_weights
from .lean_dqn import AUTOCAST
from .precision import Precision, cast_copy, fastest_precision

Batch = Dict[str, torch.Tensor]


class PQNOptions(Options):
    """The options in ``policy.learn`` that ``pqn`` adds to DI-engine's."""

    _owner = 'policy option'

    q_lambda: Annotated[float, Between(0.0, 1.0)] = 0.65
    """(float) Weight of longer returns in a target: 0 for one-step targets, 1 for returns up to the rollout's end."""
    grad_clip: Optional[Annotated[float, Between(0.0, 1e9, above=True)]] = 10.0
    """(Optional[float]) Largest norm of the gradient; None for no limit."""
    autocast: Precision = 'auto'
    """(Optional[str]) As in ``lean_dqn``; ``auto`` is ``bfloat16`` where the hardware computes it faster."""
    log_every_updates: Annotated[int, Between(1, 1_000_000_000)] = 100
    """(int) Updates over which loss and Q values are averaged for the log."""
    ema_decay: Optional[Annotated[float, Between(0, 0.999999, above=True)]] = None
    """(Optional[float]) As in ``lean_dqn``; the values in the targets are those of the average, too."""


@POLICY_REGISTRY.register('pqn')
class PQNPolicy(EmaDQNPolicy):
    """
    Overview:
        PQN (Gallici et al. 2025, "Simplifying Deep Temporal Difference Learning"): rollouts of many environments, \
        Q(lambda) targets that are computed once for a rollout, a few passes over it in random minibatches. \
        LayerNorm in the network takes the place of the target network, the number of environments that of the \
        replay buffer. It needs the collector ``rollout``, the buffer ``rollout`` and a model with \
        ``layer_norm=True``; see configs/breakout_pqn_config.py. Passes over a rollout: ``learn.update_per_collect`` \
        times ``learn.batch_size`` divided by ``collect.n_sample``.
    Examples:
        >>> PQNPolicy.default_config().learn.q_lambda
        0.65
    """

    config = dict(type='pqn', learn=PQNOptions().model_dump())

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

    def _forward_collect(self, data: Mapping[int, Any], eps: float) -> Dict[int, Any]:
        """
        Overview:
            Choose epsilon-greedy actions.
        Returns:
            - output (:obj:`Dict[int, Any]`): For each environment its ``action`` and its ``value``, the highest Q \
                value of the observation.
        """
        obs = torch.stack([torch.as_tensor(obs) for obs in data.values()]).to(self._device)
        with torch.inference_mode():
            model = self._cast_model()
            q_value = model.forward_scaled(obs.to(self._dtype).div_(255))['logit'].float().cpu()
        value, action = q_value.max(dim=1)
        explores = torch.rand(len(action)) < eps
        action = torch.where(explores, torch.randint(q_value.shape[1], action.shape), action)
        return {i: dict(action=a, value=v) for i, a, v in zip(data, action.unbind(), value.unbind())}

    def _get_train_sample(self, transitions: Batch) -> Batch:
        """
        Overview:
            Replace what a rollout needs for targets by the targets, Q(lambda) returns as in Peng and Williams 1994.
        Arguments:
            - transitions (:obj:`Batch`): ``obs``, ``action``, ``reward``, ``done``, ``weight``, and ``value``, \
                for the observations after the last step, too.
        Returns:
            - samples (:obj:`Batch`): ``obs``, ``action``, ``target``, ``weight``.
        Shapes:
            - obs: :math:`(T, N, ...)`, T steps of N environments; value: :math:`(T + 1, N)`; others: :math:`(T, N)`.
            - samples: :math:`(T N, ...)`.
        """
        reward, value, weight = transitions['reward'], transitions['value'], transitions['weight']
        discount = self._cfg.discount_factor * (1 - transitions['done'].float())
        q_lambda = self._cfg.learn.q_lambda
        target, following = torch.empty_like(reward), value[-1]
        for t in reversed(range(len(reward))):
            following = reward[t] + discount[t] * (q_lambda * following + (1 - q_lambda) * value[t + 1])
            # a step that was lost with its environment has no reward: the value stands for the return
            following = torch.where(weight[t] > 0, following, value[t])
            target[t] = following
        samples = dict(obs=transitions['obs'], action=transitions['action'], target=target, weight=weight)
        return {key: tensor.flatten(0, 1) for key, tensor in samples.items()}

    def _process_transition(self, obs: Any, policy_output: Mapping, timestep: Any) -> Dict[str, Any]:
        raise TypeError("the policy pqn learns from whole rollouts; expected create_config.collector type='rollout'")

    # ---------------------------------------------------------------- learning

    def _init_learn(self) -> None:
        learn = self._cfg.learn
        options = PQNOptions.of_section('policy option', 'learn', learn)
        self._priority = self._priority_IS_weight = False
        self._learn_model = self._model
        self._uploader = Uploader(self._device)
        self._optimizer = torch.optim.Adam(self._model.parameters(), lr=learn.learning_rate, eps=1e-5, fused=True)
        self._grad_clip, self._log_every = options.grad_clip, options.log_every_updates
        self._learn_dtype = AUTOCAST[fastest_precision(options.autocast, self._device)]
        self._sums, self._updates = torch.zeros(2, device=self._device), 0
        self._means: Dict[str, float] = {}

    def _forward_learn(self, data: Batch) -> Dict[str, Any]:
        """
        Overview:
            One update from a minibatch of the buffer ``rollout``.
        Returns:
            - info (:obj:`Dict[str, Any]`): ``cur_lr``; ``total_loss`` and ``q_value``, averaged over the last \
                ``log_every_updates`` updates.
        """
        data = self._uploader.upload(data)
        self._model.train()
        with torch.autocast(torch.device(self._device).type, self._learn_dtype, self._learn_dtype != torch.float32):
            scaled = data['obs'].to(self._learn_dtype).div_(255)
            q_value = self._model.forward_scaled(scaled)['logit'].float()
        chosen = q_value.gather(1, data['action'].unsqueeze(1)).squeeze(1)
        loss = (data['weight'] * (chosen - data['target']).square()).mean() / 2
        self._optimizer.zero_grad()
        loss.backward()
        if self._grad_clip is not None:
            torch.nn.utils.clip_grad_norm_(self._model.parameters(), self._grad_clip)
        self._optimizer.step()
        self._update_average()
        self._cast = None
        return {'cur_lr': self._optimizer.param_groups[0]['lr'], **self._scalars(loss, chosen)}

    def _scalars(self, loss: torch.Tensor, q_value: torch.Tensor) -> Dict[str, float]:
        self._sums += torch.stack([loss.detach(), q_value.detach().mean()])
        self._updates += 1
        if not self._means or self._updates >= self._log_every:
            self._means = dict(zip(('total_loss', 'q_value'), (self._sums / self._updates).tolist()))
            self._sums.zero_()
            self._updates = 0
        return self._means

    def _reset_learn(self, data_id: Optional[List[int]] = None) -> None:
        """Learning keeps no state of an episode."""

    def _monitor_vars_learn(self) -> List[str]:
        return ['cur_lr', 'total_loss', 'q_value']

    def _state_dict_learn(self) -> Dict[str, Any]:
        return dict(model=self._model.state_dict(), optimizer=self._optimizer.state_dict(), **self._average_state())

    def _load_state_dict_learn(self, state_dict: Dict[str, Any]) -> None:
        self._model.load_state_dict(state_dict['model'])
        self._optimizer.load_state_dict(state_dict['optimizer'])
        self._load_average(state_dict)
        self._cast = None

    def _state_dict_collect(self) -> Dict[str, Any]:
        return dict(model=self._acting_model.state_dict())

    def _load_state_dict_collect(self, state_dict: Dict[str, Any]) -> None:
        self._model.load_state_dict(acting_weights(state_dict), strict=True)
        self._cast = None


@POLICY_REGISTRY.register('pqn_command')
class PQNCommandModePolicy(PQNPolicy, EpsCommandModePolicy):
    """The same with the commander that sets epsilon in the serial pipeline."""
