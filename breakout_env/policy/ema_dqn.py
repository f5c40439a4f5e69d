"""A DQN that acts with an exponential moving average of its weights: what our policies have in common."""

import copy
from typing import Any, Dict, List, Mapping, Optional, Tuple

import torch
from ding.model.wrapper.model_wrappers import model_wrap
from ding.policy import DQNPolicy

# Where a checkpoint has the averaged weights.
AVERAGED = 'ema_model'


class EmaDQNPolicy(DQNPolicy):
    """
    Overview:
        DI-engine's ``dqn`` whose collector and evaluator act with an exponential moving average of the weights, where \
        ``learn.ema_decay`` says so. A subclass calls ``_update_average`` after each step of its optimizer.
    """

    _average: Optional[torch.nn.Module] = None

    def default_model(self) -> Tuple[str, List[str]]:
        """DI-engine's DQN on pixels 0..255, where the config names no model."""
        return 'pixel_dqn', ['breakout_env']

    @property
    def _acting_model(self) -> torch.nn.Module:
        """The network that acts: the average, where this policy learns it; one that only acts is given its weights."""
        if self._cfg.learn.get('ema_decay') is None or 'learn' not in self._enable_field:
            return self._model
        if self._average is None:  # the fields are set up in any order
            self._average = copy.deepcopy(self._model).requires_grad_(False)
        return self._average

    def _update_average(self) -> None:
        if self._cfg.learn.ema_decay is not None:
            follow(self._acting_model, self._model, 1 - self._cfg.learn.ema_decay)

    def _average_state(self) -> Dict[str, Any]:
        """What a subclass adds to its ``_state_dict_learn``."""
        return {} if self._cfg.learn.ema_decay is None else {AVERAGED: self._acting_model.state_dict()}

    def _load_average(self, state_dict: Mapping[str, Any]) -> None:
        if self._cfg.learn.ema_decay is not None:
            self._acting_model.load_state_dict(acting_weights(state_dict))

    def _init_collect(self) -> None:
        super()._init_collect()
        self._collect_model = model_wrap(self._acting_model, wrapper_name='eps_greedy_sample')
        self._collect_model.reset()

    def _init_eval(self) -> None:
        super()._init_eval()
        self._eval_model = model_wrap(self._acting_model, wrapper_name='argmax_sample')
        self._eval_model.reset()

    def _load_state_dict_collect(self, state_dict: Dict[str, Any]) -> None:
        super()._load_state_dict_collect(dict(model=acting_weights(state_dict)))

    def _load_state_dict_eval(self, state_dict: Dict[str, Any]) -> None:
        super()._load_state_dict_eval(dict(model=acting_weights(state_dict)))


@torch.no_grad()
def follow(model: torch.nn.Module, online: torch.nn.Module, share: float) -> None:
    """Move a model's weights by this share towards the online network's."""
    torch._foreach_lerp_(list(model.parameters()), list(online.parameters()), share)
    for ours, theirs in zip(model.buffers(), online.buffers()):
        ours.copy_(theirs)


def acting_weights(state_dict: Mapping[str, Any]) -> Dict[str, Any]:
    """The weights in a checkpoint that act: the average, where there is one."""
    return state_dict.get(AVERAGED, state_dict['model'])
