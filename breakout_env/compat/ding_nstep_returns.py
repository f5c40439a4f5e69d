"""DI-engine 0.5.3: ``Adder.get_nstep_return_data`` discounts the value after the last ``nstep`` transitions of a
fragment once too little, ``gamma ** (len - i - 1)`` instead of ``gamma ** (len - i)``.
"""

from typing import Any


def correct_value_gamma(samples: list[dict[str, Any]], nstep: int, gamma: float) -> None:
    """Give the last transitions of a fragment the discount of the steps in their returns."""
    for steps, sample in enumerate(reversed(samples[-nstep:]), start=1):
        if 'value_gamma' in sample:
            sample['value_gamma'] = gamma**steps


def resets_inplace(manager: Any) -> bool:
    """Whether an env manager of DI-engine replaces the last observation of an episode by the first of the next one."""
    return getattr(manager, '_cfg', {}).get('reset_inplace', False)
