"""Check gymnasium's environments with the lifecycle kit, and write docs/results/lifecycle_gymnasium.json.

pip install "gymnasium[box2d,classic-control,mujoco,toy-text]" minigrid python-xlib
xvfb-run python docs/scripts/check_gymnasium.py
"""

import importlib
import json
from datetime import datetime, timezone
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import gymnasium
from sources import RESULTS, git

from breakout_env.testing import check_lifecycle, gymnasium_env

GROUPS = {
    'classic control': ('Acrobot-v1', 'CartPole-v1', 'MountainCar-v0', 'MountainCarContinuous-v0', 'Pendulum-v1'),
    'toy text': ('Blackjack-v1', 'CliffWalking-v1', 'FrozenLake-v1', 'Taxi-v4'),
    'Box2D': ('BipedalWalker-v3', 'CarRacing-v3', 'LunarLander-v3', 'LunarLanderContinuous-v3'),
    'MuJoCo': (
        'Ant-v5',
        'HalfCheetah-v5',
        'Hopper-v5',
        'Humanoid-v5',
        'HumanoidStandup-v5',
        'InvertedDoublePendulum-v5',
        'InvertedPendulum-v5',
        'Pusher-v5',
        'Reacher-v5',
        'Swimmer-v5',
        'Walker2d-v5',
    ),
    'ale-py': ('ALE/Breakout-v5',),
    'minigrid': ('MiniGrid-DoorKey-5x5-v0', 'MiniGrid-Empty-5x5-v0', 'MiniGrid-FourRooms-v0'),
}
MODULES = ('ale_py', 'minigrid')  # they register their environments
PACKAGES = ('gymnasium', 'ale-py', 'Box2D', 'minigrid', 'mujoco', 'pygame')


def main() -> None:
    """Check the environments that start."""
    for module in MODULES:
        importlib.import_module(module)
    rows = []
    about: Any = dict(date=datetime.now(timezone.utc).date().isoformat(), commit=git('rev-parse', '--short', 'HEAD'))
    about['versions'] = {name: version(name) for name in PACKAGES}
    for group, names in GROUPS.items():
        for name in names:
            report = check_lifecycle(gymnasium_env(partial(gymnasium.make, name)), time_limit_s=30.0)
            rows.append(dict(env=name, group=group, findings=[finding._asdict() for finding in report]))
            print(f'{name}\n{report}', flush=True)
    text = json.dumps(dict(about, rows=rows), indent=1).replace(f'{Path(gymnasium.__file__).parents[1]}/', '')
    (RESULTS / 'lifecycle_gymnasium.json').write_text(f'{text}\n')


if __name__ == '__main__':
    main()
