"""What ``lean_dqn`` and ``lean_ppo`` share: options of an update, the step of Adam, logged means, averaged weights."""

import copy
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Generic, Literal, TypeVar

import cv2
import torch

from ..utils.options import Between, Options
from .pixel_models import PixelInput

_Model = TypeVar('_Model', bound=torch.nn.Module)
# Of a learner, as a checkpoint has it: weights and optimizer by name.
State = Mapping[str, Any]
# The key of the moving average (EMA) of the weights in a checkpoint.
EMA_KEY = 'ema_model'
# DI-engine's learner logs the mean over so many last updates, so new means have to be there before them.
LOG_WINDOW_UPDATES = 10
Precision = Literal[None, 'bfloat16', 'auto']
GradClip = Annotated[float, Between(0, above=True)] | None


class LearnerOptions(Options):
    """The options in ``policy.learn`` that ``lean_dqn`` and ``lean_ppo`` add to DI-engine's."""

    _owner = 'policy option'

    grad_clip: GradClip = None
    """(float | None) Largest norm of the gradient over all weights, to which larger ones are scaled; None for no \
    limit."""
    autocast: Precision = None
    """(str | None) None for float32; ``bfloat16`` pays on CPUs with AVX512-BF16 or AMX and on GPUs since Ampere; \
    ``auto`` is ``bfloat16`` there and float32 elsewhere."""
    log_every_updates: Annotated[int, Between(1, 1_000_000_000)] = 100
    """(int) Updates over which losses and values are averaged for the log."""
    ema_decay: Annotated[float, Between(0, 0.999999, above=True)] | None = None
    """(float | None) EMA decay: collector and evaluator act with an exponential moving average of the weights, \
    average = decay * average + (1 - decay) * weights at each update; ``breakout average``, ``eval`` and ``play`` take \
    it from checkpoints. None to act with the weights themselves."""


class Diverged(ValueError):
    """A loss or a weight is infinite or not a number."""


def check_finite(what: str, values: object) -> None:
    """Raise ``Diverged``, which names options, if a number or a tensor in nested dicts and lists is not finite."""
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


class Updater(Generic[_Model]):
    """Updates the weights of a network: steps of Adam in one pass over all tensors (``fused``), means of losses and
    values for the log, and the moving average of the weights (EMA).

    Arguments:
        model: The network, on its device.
        eps: Adam's epsilon.
        max_grad_norm: Scale gradients whose norm over all weights is larger to it, and log the norm as ``grad_norm``;
            ``math.inf`` only logs it, None does neither.
    """

    def __init__(
        self,
        model: _Model,
        options: LearnerOptions,
        learning_rate: float,
        max_grad_norm: float | None,
        eps: float = 1e-8,
    ) -> None:
        self.model = model
        self.optimizer = torch.optim.Adam(model.parameters(), lr=learning_rate, eps=eps, fused=True)
        self._options, self._max_grad_norm = options, max_grad_norm
        # The network that collector and evaluator use: the EMA with ``ema_decay``, else the model itself.
        self.acting_model = model
        if options.ema_decay is not None:
            self.acting_model = copy.deepcopy(model).requires_grad_(False)
        # The newest means; their sums stay on the device until they are due.
        self.means: dict[str, float] = {}
        self._sums: torch.Tensor | None = None
        self._steps = self._summed = 0

    def step(
        self, loss: torch.Tensor, sync: Callable[[], None] | None = None, **logged: torch.Tensor
    ) -> dict[str, float]:
        """Lower the loss by one update. Raises ``Diverged`` if a new mean is not finite.

        Arguments:
            loss: Without dimensions, as ``logged``.
            sync: Called between backward and step, to average gradients.
            logged: What to log besides, the same names in each update.
        Returns:
            ``cur_lr`` and the newest means, of the loss as ``total_loss``.
        """
        self.optimizer.zero_grad()
        loss.backward()
        if sync is not None:
            sync()
        if self._max_grad_norm is not None:
            norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), self._max_grad_norm)
            logged = dict(logged, grad_norm=norm)
        self.optimizer.step()
        if self._options.ema_decay is not None:
            self._follow(self._options.ema_decay)
        self._log(dict(total_loss=loss, **logged))
        return {'cur_lr': self.optimizer.param_groups[0]['lr'], **self.means}

    def _follow(self, decay: float) -> None:
        """Move the average towards the weights."""
        average: list[torch.Tensor] = list(self.acting_model.parameters())
        weights: list[torch.Tensor] = list(self.model.parameters())
        with torch.no_grad():
            torch._foreach_lerp_(average, weights, 1 - decay)
        for averaged, buffer in zip(self.acting_model.buffers(), self.model.buffers()):
            averaged.copy_(buffer)

    def _log(self, scalars: Mapping[str, torch.Tensor]) -> None:
        values = torch.stack([scalar.detach().float() for scalar in scalars.values()])
        self._sums = values if self._sums is None else self._sums + values
        self._summed += 1
        # Fetched when they are due: the only wait of an update for a GPU, besides ReturnScale's.
        if not self.means or (self._steps + LOG_WINDOW_UPDATES) % self._options.log_every_updates == 0:
            self.means = dict(zip(scalars, (self._sums / self._summed).tolist()))
            check_finite('the mean of', self.means)
            self._sums, self._summed = None, 0
        self._steps += 1

    def state(self) -> State:
        """``model``, ``optimizer`` and the average, as a checkpoint has them; DI-engine's policies can load them."""
        optimizer = self.optimizer.state_dict()
        state = dict(model=self.model.state_dict(), optimizer=dict(optimizer, param_groups=_groups(optimizer, None)))
        return state if self._options.ema_decay is None else {**state, EMA_KEY: self.acting_model.state_dict()}

    def load_state(self, state: State) -> None:
        """Load what ``state`` returned, or a state of DI-engine's policies: then the average begins at the weights."""
        self.model.load_state_dict(state['model'])
        optimizer = state['optimizer']
        self.optimizer.load_state_dict(dict(optimizer, param_groups=_groups(optimizer, True)))
        if self._options.ema_decay is not None:
            self.acting_model.load_state_dict(acting_weights(state))


def _groups(optimizer_state: State, fused: bool | None) -> list[dict]:
    """The parameter groups of an optimizer's state with another setting of ``fused``, which loading them applies."""
    return [dict(group, fused=fused) for group in optimizer_state['param_groups']]


class PixelScaler:
    """Crops a batch for the network and scales it to [0, 1], channels last, which is the faster layout on all CPUs and
    GPUs that were measured, into reused memory: allocating it takes a tenth of an update on a CPU.
    """

    def __init__(self, model: PixelInput, dtype: torch.dtype) -> None:
        self._model, self._dtype = model, dtype
        self._memory: torch.Tensor | None = None

    def __call__(self, *batches: torch.Tensor) -> torch.Tensor:
        """Put the batches one after the other into one tensor, which the next call overwrites."""
        shape = (sum(map(len, batches)), *self._model.crop(batches[0]).shape[1:])
        if self._memory is None or self._memory.shape != shape:
            self._memory = torch.empty(
                shape, dtype=self._dtype, device=batches[0].device, memory_format=torch.channels_last
            )
        for pixels, part in zip(batches, self._memory.split([len(pixels) for pixels in batches])):
            if pixels.device.type == 'cpu' and pixels.dtype == torch.uint8 and pixels.shape[1] > 1:
                part.copy_(_interleaved(self._model.crop(pixels))).div_(255)
            else:
                self._model.scaled(pixels, out=part)
        return self._memory


def _interleaved(pixels: torch.Tensor) -> torch.Tensor:
    """Copy to channels last by OpenCV: PyTorch took a seventh of an update on a CPU for it."""
    copied = torch.empty(pixels.shape, dtype=torch.uint8, memory_format=torch.channels_last)
    for planes, screen in zip(pixels.numpy(), copied.permute(0, 2, 3, 1).numpy()):
        cv2.merge(list(planes), dst=screen)
    return copied


def fastest_dtype(autocast: str | None, device: str | torch.device) -> torch.dtype:
    """What the option ``autocast`` means on this machine: ``auto`` is bfloat16 if the CPU has instructions for it
    (AVX512-BF16 or AMX) or the GPU does (compute capability 8 and higher), else float32.
    """
    if autocast != 'auto':
        return torch.float32 if autocast is None else torch.bfloat16
    if torch.device(device).type == 'cuda':
        has_bfloat16 = torch.cuda.get_device_capability(device) >= (8, 0)
    else:
        has_bfloat16 = torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    return torch.bfloat16 if has_bfloat16 else torch.float32


def autocast(device: str | torch.device, dtype: torch.dtype) -> torch.autocast:
    """The context in which layers on a device compute in ``dtype``; float32 leaves them as they are."""
    return torch.autocast(torch.device(device).type, dtype, enabled=dtype is not torch.float32)


def cast_copy(model: _Model, dtype: torch.dtype) -> _Model:
    """A frozen copy with the encoder's weights (all, without an encoder) cast to ``dtype``, which saves casting them at
    each forward. The head of ``pixel_dqn`` always computes in float32.
    """
    model = copy.deepcopy(model).requires_grad_(False)
    getattr(model, 'encoder', model).to(dtype)
    return model


def acting_weights(state_dict: State) -> dict[str, torch.Tensor]:
    """The weights in a checkpoint that collector and evaluator use: the average, if there is one."""
    return state_dict.get(EMA_KEY, state_dict['model'])
