"""DI-engine 0.5.3: ``Adder.get_nstep_return_data`` discounts the value after the last ``nstep`` transitions of a
fragment once too little, ``gamma ** (len - i - 1)`` instead of ``gamma ** (len - i)``.
"""

from typing import Any


def correct_value_gamma(samples: list[dict[str, Any]], nstep: int, gamma: float) -> None:
    """Give the last transitions of a fragment the discount of the steps in their returns.

    Examples:
        >>> samples = [dict(value_gamma=0.5 ** steps) for steps in (2, 1, 0)]  # upstream's, of three steps with nstep 2
        >>> correct_value_gamma(samples, nstep=2, gamma=0.5)
        >>> [sample['value_gamma'] for sample in samples]
        [0.25, 0.25, 0.5]
    """
    for steps, sample in enumerate(reversed(samples[-nstep:]), start=1):
        if 'value_gamma' in sample:
            sample['value_gamma'] = gamma**steps


def resets_inplace(manager: Any) -> bool:
    """Whether an env manager of DI-engine replaces the last observation of an episode by the first of the next one."""
    return getattr(manager, '_cfg', {}).get('reset_inplace', False)
