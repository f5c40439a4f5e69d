"""PPO from rollouts of many environments, in DI-engine's off-policy pipeline."""

import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Annotated, Any, NamedTuple

import numpy as np
import torch
from ding.envs import BaseEnvTimestep
from ding.policy import Policy
from ding.policy.command_mode_policy_instance import DummyCommandModePolicy
from ding.utils import POLICY_REGISTRY
from easydict import EasyDict

from ..utils.options import Between, Flag, describe
from .learner import (
    GradClip,
    LearnerOptions,
    PixelScaler,
    Precision,
    State,
    Updater,
    acting_weights,
    autocast,
    cast_copy,
    check_finite,
    fastest_dtype,
)
from .mirror import Mirror
from .pixel_models import PixelActorCritic, PixelInput
from .return_scale import ReturnScale

Observation = np.ndarray | torch.Tensor
# What a policy decides for one environment, by name.
Action = dict[str, torch.Tensor]


class Samples(NamedTuple):
    """What PPO learns from, a rollout or a minibatch of it: one row for each env step."""

    obs: torch.Tensor
    action: torch.Tensor
    # Logarithm of the action's probability when it was played.
    log_prob: torch.Tensor
    # By GAE, not normalised.
    advantage: torch.Tensor
    # What the critic learns: the advantage and the value when the action was played.
    returns: torch.Tensor
    # 0 for a step that was lost with its environment, else 1.
    weight: torch.Tensor


class Losses(NamedTuple):
    """The loss of a minibatch, and what is logged beside it; all are scalars."""

    total: torch.Tensor
    # Means of the critic's values and of the policy's entropies.
    value: torch.Tensor
    entropy: torch.Tensor
    # KL divergence of the policy from the one that played, by the estimator k3 (Schulman 2020, "Approximating KL
    # Divergence").
    approx_kl: torch.Tensor
    # Share of the steps whose probability ratio is outside of the clip range.
    clip_fraction: torch.Tensor
    # Of the returns, and of what the values during play left unexplained of them.
    return_variance: torch.Tensor
    residual_variance: torch.Tensor


class LeanPPOOptions(LearnerOptions):
    """The options in ``policy.learn`` that ``lean_ppo`` adds to DI-engine's."""

    grad_clip: GradClip = 0.5
    """(float | None) As in ``lean_dqn``."""
    autocast: Precision = 'auto'
    """(str | None) As in ``lean_dqn``."""
    gae_lambda: Annotated[float, Between(0.0, 1.0)] = 0.95
    """(float) GAE lambda: 0 is the one-step TD error, 1 is Monte Carlo."""
    clip_ratio: Annotated[float, Between(0.0, 1.0, above=True)] = 0.1
    """(float) PPO clip range epsilon: the probability ratio is clipped to [1 - epsilon, 1 + epsilon]."""
    value_weight: Annotated[float, Between(0.0, 1e6)] = 0.25
    """(float) Value coefficient: weight of the value's mean squared error in the loss (``vf_coef`` in \
    Stable-Baselines3)."""
    entropy_weight: Annotated[float, Between(0.0, 1e6)] = 0.01
    """(float) Entropy coefficient: weight of the policy's entropy in the loss, which keeps it exploring."""
    anneal: Flag = False
    """(bool) Move learning rate, entropy coefficient and discount to ``lr_end``, ``entropy_end`` and ``discount_end`` \
    over the run's budget, the limit of the hook ``progress`` that is used up first."""
    lr_end: Annotated[float, Between(0.0, 1.0)] = 0.0
    """(float) The learning rate at the end."""
    entropy_end: Annotated[float, Between(0.0, 1e6)] | None = None
    """(float | None) The entropy coefficient at the end; None to leave it."""
    discount_end: Annotated[float, Between(0.0, 1.0)] | None = None
    """(float | None) The discount at the end: the horizon, 1 / (1 - discount), grows geometrically; None to leave \
    it."""
    normalize_returns: Flag = False
    """(bool) The critic learns returns that are normalised by the mean and deviation of recent ones, for discounts \
    close to 1, whose returns are large."""
    mirror: Flag = False
    """(bool) Left-right equivariant: a mirrored screen gives mirrored action probabilities and the same value."""


@POLICY_REGISTRY.register('lean_ppo')
class LeanPPOPolicy(Policy):
    """PPO (Schulman et al. 2017, "Proximal Policy Optimization Algorithms"): the policy draws the actions of a rollout
    in many environments, GAE gives their advantages, and a few epochs of random minibatches lower a clipped loss. As in
    Stable-Baselines3, advantages are normalised in each minibatch and values are not clipped. It needs the collector
    ``rollout``, the buffer ``rollout`` and the model ``pixel_actor_critic``; see configs/breakout_ppo_config.py. The
    number of epochs is ``learn.update_per_collect`` times ``learn.batch_size`` divided by ``collect.n_sample``. An
    evaluation takes the most probable action.
    """

    config = dict(
        type='lean_ppo',
        # (bool) Priorities are for replay buffers: a rollout is used as a whole.
        priority=False,
        priority_IS_weight=False,
        # (float) Discount of the next step's reward.
        discount_factor=0.99,
        # (int) Updates after each collection, transitions of an update, learning rate of Adam at the start.
        learn=dict(
            LeanPPOOptions().model_dump(),
            update_per_collect=48,
            batch_size=64,
            learning_rate=0.00025,
            ignore_done=False,
        ),
        # (int) Env steps of a rollout of all environments together.
        collect=dict(n_sample=1024, unroll_len=1),
        eval=dict(),
        other=dict(),
    )

    @classmethod
    def check_config(cls, cfg: Mapping) -> None:
        cls._checked(cfg['policy'])

    @classmethod
    def check_network(cls, cfg: Mapping, network: PixelActorCritic) -> None:
        """Raise ValueError if the options ask for a mirror that the network of a config cannot have."""
        if cls._checked(cfg['policy']).mirror:
            Mirror(network)

    @staticmethod
    def _checked(policy: Mapping) -> LeanPPOOptions:
        options = LeanPPOOptions.of_section('config option', 'policy.learn', policy['learn'])
        without_effect = {name: policy.get(name, False) for name in ('multi_gpu', 'priority', 'priority_IS_weight')}
        for name, value in {**without_effect, 'learn.ignore_done': policy['learn'].get('ignore_done', False)}.items():
            if value:
                raise ValueError(f'policy.{name} is {describe(value)}; expected False: it has no effect with lean_ppo')
        if options.discount_end is not None and 1 in (policy['discount_factor'], options.discount_end):
            raise ValueError(
                f'policy.learn.discount_end is {options.discount_end} and policy.discount_factor is '
                f'{policy["discount_factor"]}; expected both below 1, where the horizon, 1 / (1 - discount), is finite'
            )
        return options

    def default_model(self) -> tuple[str, list[str]]:
        """Actor and critic on pixels 0..255, where the config names no model."""
        return 'pixel_actor_critic', ['breakout_env']

    # Whether `breakout train` collects while this policy learns, unless it is told --serial.
    overlaps = True
    _model: PixelActorCritic
    _updater: Updater[PixelActorCritic]
    # The used share of the run's budget: the hook `progress` sets it, None if there is none.
    _budget_used: float | None = None
    # The acting network, cast to `_dtype`. Reset to None when the weights change; tensor versions do not show it,
    # because fused optimizers do not bump them.
    _cast: PixelActorCritic | None = None

    def __init__(
        self, cfg: EasyDict, model: torch.nn.Module | None = None, enable_field: Sequence[str] | None = None
    ) -> None:
        self._options, self._return_scale = self._checked(cfg), ReturnScale()
        super().__init__(cfg, model, enable_field)

    @cached_property
    def _dtype(self) -> torch.dtype:
        return fastest_dtype(self._options.autocast, self._device)

    @property
    def _acting_model(self) -> PixelActorCritic:
        """The learner's; a policy that does not learn loads the averaged weights into its network."""
        return self._updater.acting_model if 'learn' in self._enable_field else self._model

    def _init_collect(self) -> None:
        self._unroll_len = 1
        if not isinstance(self._model, PixelInput):
            raise ValueError(
                f'the model {type(self._model).__name__} is not a PixelInput; lean_ppo expects pixel_actor_critic, or '
                'a network whose forward_scaled returns `logit` and `value`'
            )

    def _forward_collect(self, data: Mapping[int, Observation], eps: float = 0.0) -> dict[int, Action]:
        """``_act_on_batch`` by environment. DI-engine passes ``eps``, which is unused: the policy itself explores."""
        decided = self._act_on_batch(torch.stack([torch.as_tensor(obs) for obs in data.values()]))
        steps = zip(*(tensor.unbind() for tensor in decided.values()))
        return {env_id: dict(zip(decided, step)) for env_id, step in zip(data, steps)}

    def _act_on_batch(self, obs: torch.Tensor, eps: float = 0.0) -> dict[str, torch.Tensor]:
        """``action``, ``value`` of the observation and ``log_prob``, the logarithm of the action's probability, on the
        CPU; the collector ``rollout`` calls this, as ``collect_mode.get_attribute('act_on_batch')``.

        Shapes:
            obs: :math:`(B, F, S, S)`, uint8, B environments, F frames, S pixels; output: :math:`(B)`.
        """
        with torch.inference_mode(), autocast(self._device, self._dtype):
            if self._cast is None:
                self._cast = cast_copy(self._acting_model, self._dtype).eval()
                self._acting_scaler = PixelScaler(self._cast, self._dtype)
            output = self._cast.forward_scaled(self._acting_scaler(obs.to(self._device, non_blocking=True)))
            if 'value' not in output:
                raise ValueError(f'the model {type(self._model).__name__} returns {sorted(output)} without `value`')
            # in one tensor, to wait for a GPU once
            decided = torch.cat([output['logit'], output['value'].unsqueeze(1)], dim=1).float().cpu()
            logit, value = decided[:, :-1], self._return_scale.returns(decided[:, -1])
            log_probs = logit.log_softmax(dim=1)
            try:
                action = torch.multinomial(log_probs.exp(), 1)
            except RuntimeError:  # its message names probabilities; this one names options
                check_finite('the output of the network that acts', logit)
                raise
            return dict(action=action[:, 0], value=value, log_prob=log_probs.gather(1, action)[:, 0])

    def _process_transition(self, obs: Observation, policy_output: Mapping, timestep: BaseEnvTimestep) -> dict:
        raise TypeError(
            f'the policy {self.config["type"]} learns from whole rollouts; expected create_config.collector '
            "type='rollout'"
        )

    def _get_train_sample(self, transitions: Mapping[str, torch.Tensor]) -> Samples:
        """Add GAE advantages (Schulman et al. 2016) and the critic's target returns to a rollout, and put it on the
        learner's device: a GPU gets a rollout once, not once for each epoch.

        Shapes:
            transitions: ``obs`` :math:`(T, N, ...)`, T steps of N environments; ``value`` :math:`(T + 1, N)`, also of
                what follows the last step; ``action``, ``log_prob``, ``reward``, ``done``, ``weight`` :math:`(T, N)`.
            samples: :math:`(T N, ...)`.
        """
        reward, value, weight = transitions['reward'], transitions['value'], transitions['weight']
        discount = self._get_discount() * (1 - transitions['done'].float())
        error = reward + discount * value[1:] - value[:-1]
        advantage, following = torch.empty_like(reward), torch.zeros_like(value[-1])
        for t in reversed(range(len(reward))):
            following = error[t] + discount[t] * self._cfg.learn.gae_lambda * following
            # a step that was lost with its environment has no reward: the value replaces the return
            following = torch.where(weight[t] > 0, following, 0)
            advantage[t] = following
        kept = {key: transitions[key] for key in ('obs', 'action', 'log_prob', 'weight')}
        samples = Samples(**kept, advantage=advantage, returns=advantage + value[:-1])
        return Samples(*(tensor.flatten(0, 1).to(self._device) for tensor in samples))

    def _init_learn(self) -> None:
        self._priority = self._priority_IS_weight = False
        self._learn_model = self._model
        critic = getattr(self._model, 'critic', None)
        if self._options.normalize_returns and not (isinstance(critic, torch.nn.Linear) and critic.bias is not None):
            raise ValueError(
                f'policy.learn.normalize_returns is True, and {type(self._model).__name__} has no linear layer '
                '`critic` with a bias; expected one that gives the value, or False'
            )
        self._mirror = Mirror(self._model) if self._options.mirror else None
        if self._mirror is not None:
            self._mirror.begin()
        self._scaler = PixelScaler(self._model, self._dtype)
        limit = math.inf if self._options.grad_clip is None else self._options.grad_clip
        self._updater = Updater(self._model, self._options, self._cfg.learn.learning_rate, limit, eps=1e-5)

    def _forward_learn(self, data: Samples) -> dict[str, Any]:
        """One update from a minibatch of the buffer ``rollout``, logged and checked as ``Updater.step`` says."""
        if self._options.anneal and self._budget_used is None:
            raise ValueError(
                'policy.learn.anneal is True, and the run has no budget; expected a limit in the ext_args of the hook '
                '`progress`, or anneal=False'
            )
        data = Samples(*(tensor.to(self._device, non_blocking=True) for tensor in data))
        self._model.train()
        if self._options.normalize_returns:
            critics = {network.critic for network in (self._model, self._acting_model)}
            self._return_scale.follow(data.returns[data.weight > 0], critics)
        for group in self._updater.optimizer.param_groups:
            group['lr'] = self._annealed(self._cfg.learn.learning_rate, self._options.lr_end)
        with autocast(self._device, self._dtype):
            output = self._model.forward_scaled(self._scaler(data.obs))
        sync = None if self._mirror is None else self._mirror.average_gradients
        losses = self._loss({key: tensor.float() for key, tensor in output.items()}, data)
        logged = losses._asdict()
        info = self._updater.step(logged.pop('total'), sync, **logged)
        self._cast = None
        # of pooled variances: a minibatch may have hardly any
        variance, residual = info.pop('return_variance'), info.pop('residual_variance')
        return dict(info, explained_variance=1 - residual / variance if variance else 0.0)

    def _loss(self, output: Mapping[str, torch.Tensor], data: Samples) -> Losses:
        """The loss of a minibatch; steps that were lost do not count."""
        options, played = self._options, data.weight > 0
        count = played.sum().clamp(min=1)

        def mean(values: torch.Tensor) -> torch.Tensor:
            return torch.where(played, values, 0).sum() / count

        advantage = data.advantage - mean(data.advantage)
        residual_variance = mean(advantage.square())  # an advantage is a return without the value during play
        # of the population: a sample's deviation needs two samples
        advantage = advantage / (residual_variance.sqrt() + 1e-8)
        log_probs = output['logit'].log_softmax(dim=1)
        log_ratio = log_probs.gather(1, data.action.unsqueeze(1)).squeeze(1) - data.log_prob
        ratio = log_ratio.exp()
        clipped = ratio.clamp(1 - options.clip_ratio, 1 + options.clip_ratio)
        policy_loss = -mean(torch.min(ratio * advantage, clipped * advantage))
        value_loss = mean((output['value'] - self._return_scale.normalized(data.returns)).square())
        entropy = -mean((log_probs.exp() * log_probs).sum(dim=1))
        entropy_weight = self._annealed(options.entropy_weight, options.entropy_end)
        loss = policy_loss + options.value_weight * value_loss - entropy_weight * entropy
        with torch.no_grad():
            return Losses(
                loss,
                value=mean(self._return_scale.returns(output['value'])),
                entropy=entropy,
                approx_kl=mean(ratio - 1 - log_ratio),
                clip_fraction=mean(((ratio - 1).abs() > options.clip_ratio).float()),
                return_variance=mean((data.returns - mean(data.returns)).square()),
                residual_variance=residual_variance,
            )

    @property
    def _used(self) -> float:
        """Progress of annealing, from 0 to 1."""
        return (self._budget_used or 0.0) if self._options.anneal else 0.0

    def _annealed(self, begin: float, end: float | None) -> float:
        """An option's present value, interpolated from ``begin`` to ``end``."""
        return begin if end is None else (1 - self._used) * begin + self._used * end

    def _get_discount(self) -> float:
        """``collect_mode.get_attribute('discount')``."""
        begin, end, used = self._cfg.discount_factor, self._options.discount_end, self._used
        return begin if end is None else 1 - (1 - begin) ** (1 - used) * (1 - end) ** used

    def _monitor_vars_learn(self) -> list[str]:
        diagnostics = ['approx_kl', 'clip_fraction', 'explained_variance', 'grad_norm']
        return ['cur_lr', 'total_loss', 'value', 'entropy', *diagnostics]

    def _init_eval(self) -> None:
        """Nothing to prepare."""

    def _forward_eval(self, data: Mapping[int, Observation]) -> dict[int, Action]:
        """The most probable ``action`` for the observation of each environment."""
        obs = torch.stack([torch.as_tensor(obs) for obs in data.values()]).to(self._device)
        network = self._acting_model.eval()
        with torch.no_grad():
            output = network.forward(obs)
        output['action'] = output['logit'].argmax(dim=-1)
        steps = zip(*(tensor.cpu().unbind() for tensor in output.values()))
        return {env_id: dict(zip(output, step)) for env_id, step in zip(data, steps)}

    def _state_dict_learn(self) -> State:
        return dict(self._updater.state(), return_scale=self._return_scale.state)

    def _load_state_dict_learn(self, state_dict: State) -> None:
        self._updater.load_state(state_dict)
        if self._mirror is not None:
            self._mirror.check()
        self._return_scale.state = state_dict['return_scale']
        self._cast = None

    def _state_dict_collect(self) -> State:
        state = dict(budget_used=self._budget_used, return_scale=self._return_scale.state)
        return dict(state, model=self._acting_model.state_dict())

    def _load_state_dict_collect(self, state_dict: State) -> None:
        self._model.load_state_dict(acting_weights(state_dict), strict=True)
        self._return_scale.state = state_dict['return_scale']
        self._budget_used = state_dict.get('budget_used')  # not in the checkpoint of a learner
        self._cast = None

    _state_dict_eval, _load_state_dict_eval = _state_dict_collect, _load_state_dict_collect


@POLICY_REGISTRY.register('lean_ppo_command')
class LeanPPOCommandModePolicy(LeanPPOPolicy, DummyCommandModePolicy):
    """The same with a commander that has nothing to set: the policy itself explores."""
