"""What ``lean_dqn`` and ``lean_ppo`` share: options of an update, the step of Adam, logged means, averaged weights."""

import copy
from abc import abstractmethod
from functools import cached_property
from typing import Annotated, Any, Callable, Dict, Literal, Mapping, Optional, TypeVar, Union

import cv2
import torch

from ..utils.options import Between, Options
from .pixel_models import PixelInput

_Model = TypeVar('_Model', bound=torch.nn.Module)
# The key of the moving average (EMA) of the weights in a checkpoint.
EMA_KEY = 'ema_model'
# DI-engine's learner logs the mean over its last updates, so new means have to be there so many updates before.
LOG_WINDOW_UPDATES = 10
Precision = Literal[None, 'bfloat16', 'auto']
GradClip = Optional[Annotated[float, Between(0, above=True)]]


class LearnerOptions(Options):
    """The options in ``policy.learn`` that ``lean_dqn`` and ``lean_ppo`` add to DI-engine's."""

    _owner = 'policy option'

    grad_clip: GradClip = None
    """(Optional[float]) Gradients whose norm over all weights is larger are scaled to it; None for no limit."""
    autocast: Precision = None
    """(Optional[str]) None for float32; ``bfloat16`` pays on CPUs with AVX512-BF16 or AMX and on GPUs since Ampere; \
    ``auto`` is ``bfloat16`` there and float32 elsewhere."""
    log_every_updates: Annotated[int, Between(1, 1_000_000_000)] = 100
    """(int) Updates over which losses and values are averaged for the log."""
    ema_decay: Optional[Annotated[float, Between(0, 0.999999, above=True)]] = None
    """(Optional[float]) EMA decay: collector and evaluator act with an exponential moving average of the weights, \
    average = decay * average + (1 - decay) * weights at each update; ``breakout average``, ``eval`` and ``play`` take \
    it from checkpoints. None to act with the weights themselves."""


class Diverged(ValueError):
    """A loss or a weight is infinite or not a number."""


def check_finite(what: str, values: Any) -> None:
    """``Diverged``, with the options to look at, if a number or a tensor in nested dicts and lists is not finite."""
    if isinstance(values, Mapping):
        for name, value in values.items():
            check_finite(f'{what} `{name}`', value)
    elif isinstance(values, (list, tuple)):
        for value in values:
            check_finite(what, value)
    elif isinstance(values, (float, torch.Tensor)) and not torch.as_tensor(values).isfinite().all():
        raise Diverged(
            f'{what} is infinite or not a number: the training has diverged, and its last save is from before. '
            'Expected a lower policy.learn.learning_rate or, of lean_dqn and lean_ppo, a limit of the gradient '
            '(policy.learn.grad_clip) or float32 (policy.learn.autocast=None)'
        )


class LeanPolicy(object):
    """
    Overview:
        A mixin for our policies: steps of Adam on a network's weights, in one pass over them (``fused``), the means \
        of losses and values for the log, and the moving average of the weights, with which collector and evaluator \
        act where ``learn.ema_decay`` says so. It stands after DI-engine's class, which has the default config.
    """

    _cfg: Any
    _model: Any
    _device: Any
    _enable_field: Any

    @staticmethod
    @abstractmethod
    def _checked(policy: Mapping) -> Any:
        """The options of a policy's config, ``LearnerOptions``; a ValueError names one that is not allowed."""

    @cached_property
    def _options(self) -> Any:
        return self._checked(self._cfg)

    @cached_property
    def _dtype(self) -> torch.dtype:
        """What its layers compute in."""
        return fastest_dtype(self._options.autocast, self._device)

    def _autocast(self) -> torch.autocast:
        enabled = self._dtype is not torch.float32
        return torch.autocast(torch.device(self._device).type, self._dtype, enabled=enabled)

    def _init_steps(self, *names: str, eps: float = 1e-8) -> None:
        """``names``: of what is averaged for the log; ``eps``: of Adam."""
        learning_rate = self._cfg.learn.learning_rate
        self._optimizer = torch.optim.Adam(self._model.parameters(), lr=learning_rate, eps=eps, fused=True)
        # means stay on the device until they are due
        self._names, self._steps, self._summed = names, 0, 0
        self._sums = torch.zeros(len(names), device=next(self._model.parameters()).device)
        self._means: Dict[str, float] = {}

    def _step(
        self, loss: torch.Tensor, *scalars: torch.Tensor, sync: Optional[Callable[[], None]] = None
    ) -> Dict[str, float]:
        """
        Overview:
            Lower the loss by one update.
        Arguments:
            - loss, scalars (:obj:`torch.Tensor`): Without dimensions, in the order of the names.
            - sync (:obj:`Optional[Callable]`): Called between backward and step, to average gradients.
        Returns:
            - info (:obj:`Dict[str, float]`): ``cur_lr`` and the newest means.
        Raises:
            - Diverged: If a new mean is not finite.
        """
        self._optimizer.zero_grad()
        loss.backward()
        if sync is not None:
            sync()
        if self._options.grad_clip is not None:
            torch.nn.utils.clip_grad_norm_(self._model.parameters(), self._options.grad_clip)
        self._optimizer.step()
        if (decay := self._options.ema_decay) is not None:
            average, model = self._acting_model, self._model
            with torch.no_grad():
                torch._foreach_lerp_(list(average.parameters()), list(model.parameters()), 1 - decay)
            for ours, theirs in zip(average.buffers(), model.buffers()):
                ours.copy_(theirs)
        self._sums += torch.stack([scalar.detach().float() for scalar in (loss, *scalars)])
        self._summed += 1
        # fetched when due, the only wait of an update for a GPU (besides ReturnScale's)
        if not self._means or (self._steps + LOG_WINDOW_UPDATES) % self._options.log_every_updates == 0:
            self._means = dict(zip(self._names, (self._sums / self._summed).tolist()))
            check_finite('the mean of', self._means)
            self._sums.zero_()
            self._summed = 0
        self._steps += 1
        return {'cur_lr': self._optimizer.param_groups[0]['lr'], **self._means}

    @cached_property
    def _acting_model(self) -> torch.nn.Module:
        """
        The EMA model if this policy learns with ``ema_decay``; else the model, into which an acting policy loads the
        averaged weights.
        """
        if self._options.ema_decay is None or 'learn' not in self._enable_field:
            return self._model
        return copy.deepcopy(self._model).requires_grad_(False)

    def _average_state(self) -> Dict[str, Any]:
        """What a policy adds to its ``_state_dict_learn``."""
        return {} if self._options.ema_decay is None else {EMA_KEY: self._acting_model.state_dict()}

    def _load_average(self, state_dict: Mapping[str, Any]) -> None:
        if self._options.ema_decay is not None:
            self._acting_model.load_state_dict(acting_weights(state_dict))


class ScaledScreens(object):
    """
    Overview:
        Scales a batch for the network: cropped, / 255, channels last, into reused memory (allocating it takes a tenth \
        of an update on a CPU).

        Channels last is the faster layout for training on all CPUs that were measured, and on GPUs: on one thread \
        with AVX2 by 1.1 for a batch of 64 and by 2 for one of 256, with bfloat16 instructions by 1.2.
    """

    def __init__(self, model: PixelInput, dtype: torch.dtype) -> None:
        self._model, self._dtype = model, dtype
        self._memory: Optional[torch.Tensor] = None

    def __call__(self, *batches: torch.Tensor) -> torch.Tensor:
        """One batch after the other in one tensor, which the next call overwrites."""
        shape = (sum(map(len, batches)), *self._model.seen(batches[0]).shape[1:])
        if self._memory is None or self._memory.shape != shape:
            self._memory = torch.empty(
                shape, dtype=self._dtype, device=batches[0].device, memory_format=torch.channels_last
            )
        for pixels, part in zip(batches, self._memory.split([len(pixels) for pixels in batches])):
            if pixels.device.type == 'cpu' and pixels.dtype == torch.uint8 and pixels.shape[1] > 1:
                part.copy_(_interleaved(self._model.seen(pixels))).div_(255)
            else:
                self._model.scaled(pixels, out=part)
        return self._memory


def _interleaved(pixels: torch.Tensor) -> torch.Tensor:
    """A copy, channels last, by OpenCV: with PyTorch, copying planes into it took a seventh of an update on a CPU."""
    copied = torch.empty(pixels.shape, dtype=torch.uint8, memory_format=torch.channels_last)
    for planes, screen in zip(pixels.numpy(), copied.permute(0, 2, 3, 1).numpy()):
        cv2.merge(list(planes), dst=screen)
    return copied


def fastest_dtype(autocast: Optional[str], device: Union[str, torch.device]) -> torch.dtype:
    """
    What the option ``autocast`` means on this machine: for ``auto`` bfloat16 where the CPU has instructions for it
    (AVX512-BF16 or AMX) or the GPU does (compute capability 8 and higher), else float32.
    """
    if autocast != 'auto':
        return torch.float32 if autocast is None else torch.bfloat16
    if torch.device(device).type == 'cuda':
        has_bfloat16 = torch.cuda.get_device_capability(device) >= (8, 0)
    else:
        has_bfloat16 = torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    return torch.bfloat16 if has_bfloat16 else torch.float32


def cast_copy(model: _Model, dtype: torch.dtype) -> _Model:
    """
    A frozen copy with the encoder's weights (all, without an encoder) cast to ``dtype``, which saves casting them at
    each forward. The head of ``pixel_dqn`` always computes in float32.
    """
    model = copy.deepcopy(model).requires_grad_(False)
    getattr(model, 'encoder', model).to(dtype)
    return model


def acting_weights(state_dict: Mapping[str, Any]) -> Dict[str, Any]:
    """The weights in a checkpoint that act: the average, where there is one."""
    return state_dict.get(EMA_KEY, state_dict['model'])
