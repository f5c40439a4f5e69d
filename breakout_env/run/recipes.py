"""The configs that come with the package, and which of them trains where the user names none."""

from pathlib import Path

# by whether PyTorch can use a GPU here
RECIPES = {False: 'configs/breakout_ppo_config.py', True: 'configs/breakout_ppo_gpu_config.py'}
_PACKAGE = Path(__file__).resolve().parent.parent


def shipped(relative: str) -> Path:
    """Where a file of ``configs/`` or ``entry/``, such as ``'configs/breakout_dqn_cpu_config.py'``, is: inside the
    package in a wheel, beside it in a clone.
    """
    for folder in (_PACKAGE, _PACKAGE.parent):
        if (folder / relative).is_file():
            return folder / relative
    raise FileNotFoundError(f'{relative} is missing; expected it in {_PACKAGE}: the installation is incomplete')
