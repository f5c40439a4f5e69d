"""Check DI-engine's environments and BreakoutEnv with the lifecycle kit, and write docs/results/lifecycle.json.

pip install Box2D bsuite imageio pygame
python docs/scripts/check_dizoo.py
"""

import importlib
import json
from collections.abc import Callable
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path
from typing import Any

import gymnasium
from ding.envs import DingEnvWrapper
from easydict import EasyDict
from sources import RESULTS, git

from breakout_env.testing import check_lifecycle

BOX2D = dict(act_scale=True, rew_clip=False, replay_path=None, replay_path_gif=None, save_replay_gif=False)
GYMNASIUM = 'DingEnvWrapper, gymnasium CartPole-v1'
# package and class, and the config
DIZOO = {
    'acrobot': ('classic_control.acrobot.envs:AcroBotEnv', {}),
    'beergame': ('beergame.envs.beergame_env:BeerGameEnv', dict(role=0, agent_type='bs', demandDistribution=0)),
    'bipedalwalker': ('box2d.bipedalwalker.envs:BipedalWalkerEnv', dict(env_id='BipedalWalker-v3', **BOX2D)),
    'bitflip': ('bitflip.envs:BitFlipEnv', dict(n_bits=4)),
    'bsuite': ('bsuite.envs:BSuiteEnv', dict(env_id='catch/0')),
    'cartpole': ('classic_control.cartpole.envs:CartPoleEnv', {}),
    'cliffwalking': ('cliffwalking.envs:CliffWalkingEnv', {}),
    'league_demo': ('league_demo.game_env:GameEnv', None),
    'lunarlander': ('box2d.lunarlander.envs:LunarLanderEnv', dict(env_id='LunarLander-v2', **BOX2D)),
    'maze': ('maze.envs:Maze', dict(size=16)),
    'pendulum': ('classic_control.pendulum.envs:PendulumEnv', dict(act_scale=True)),
    'taxi': ('taxi.envs:TaxiEnv', dict(env_id='Taxi-v3', max_episode_steps=100)),
}


def factory(path: str, cfg: Any) -> Callable[[], Any]:
    """Makes an environment of dizoo."""
    module, name = path.split(':')
    cls = getattr(importlib.import_module(f'dizoo.{module}'), name)
    return (lambda: cls()) if cfg is None else (lambda: cls(EasyDict(cfg)))


def gymnasium_window() -> Any:
    """As DI-engine's issue 815: an environment of gymnasium with a window."""
    return DingEnvWrapper(gymnasium.make('CartPole-v1', render_mode='human'), cfg={'env_wrapper': 'default'})


def main() -> None:
    """Check the environments that start."""
    rows = []
    factories = {name: (lambda entry=entry: factory(*entry)) for name, entry in DIZOO.items()}
    factories[GYMNASIUM] = lambda: gymnasium_window
    factories['BreakoutEnv'] = lambda: importlib.import_module('breakout_env').BreakoutEnv
    about: Any = dict(date=datetime.now(timezone.utc).date().isoformat(), commit=git('rev-parse', '--short', 'HEAD'))
    about['versions'] = {name: version(name) for name in ('DI-engine', 'gym', 'gymnasium')}
    for name in sorted(factories, key=str.lower):
        try:
            report = check_lifecycle(factories[name](), time_limit_s=30.0)
        except Exception as error:
            print(f'{name}: {error}')
            continue
        rows.append(dict(env=name, findings=[finding._asdict() for finding in report]))
        print(f'{name}\n{report}', flush=True)
    text = json.dumps(dict(about, rows=rows), indent=1).replace(f'{Path(gymnasium.__file__).parents[1]}/', '')
    (RESULTS / 'lifecycle.json').write_text(f'{text}\n')


if __name__ == '__main__':
    main()
