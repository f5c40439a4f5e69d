"""What to do with a run that has ended: the commands that continue, show and evaluate it."""

import os
import sys
from collections.abc import Mapping
from typing import Any

from ding.worker import BaseLearner

from ..compat.ding_command_line import is_command, options_of_ding
from ..utils import output
from ..utils.command_line import listed_commands, shell_command
from .budget import DEFAULT_ENV_STEPS, Budget
from .log import RunLog
from .paths import LOGS, newest_checkpoint, saves_in

_UNLIMITED = '1e8'  # the default of ding's limits


def next_steps(folder: str, resume: str, others: Mapping[str, str]) -> str:
    """Lines about a run: how to resume it, if there is a save; where it is; what else to do with it."""
    commands = {
        'its curves': shell_command('breakout', 'plot', folder),
        'in TensorBoard': shell_command('tensorboard', '--logdir', os.path.join(folder, LOGS)),
        **others,
    }
    lines = listed_commands({'resume': resume}) if saves_in(folder) else []
    lines += [f'Checkpoints, logs and the merged config are in {folder}', *listed_commands(commands)]
    return '\n'.join(lines)


def larger_budget(folder: str, budget: Budget) -> Budget:
    """The budget with which a run continues: limits that it has reached, as its log says, are doubled."""
    try:
        rows = RunLog.read(folder).progress
        columns = dict(env_steps='env_step', updates='updates', episodes='games', hours='hours')
        used = {name: rows[column][-1] for name, column in columns.items()}
    except (ValueError, OSError, IndexError):  # a full disk has lost it
        return budget
    limits = {name: limit for name, limit in vars(budget).items() if limit is not None}
    for name in limits:
        while used[name] >= limits[name]:
            limits[name] *= 2
    return Budget(**limits)


def say_next_steps(learner: BaseLearner) -> None:
    """At the end of a run of ``ding``, or of a config that runs as a program; ``breakout train`` says its own."""
    if sys.exc_info()[1] is not None or (is_command() and not options_of_ding()):
        return
    others = {}
    if config := _started_with().get('config'):
        agent = '--load-path', newest_checkpoint(learner.exp_name)
        others['its score'] = shell_command('ding', '-m', 'eval', '-c', config, '-s', 0, *agent)
        others['as videos'] = f'{others["its score"]} --replay-path video'
    resume = resume_command(learner) or 'the same command with policy.learn.resume_training=True in the config'
    output.print_line(next_steps(learner.exp_name, resume, others))


def resume_command(learner: BaseLearner) -> str | None:
    """The command that continues a run of DI-engine's pipeline `serial`, with twice the env steps if it has used them
    up; None for other pipelines, and without a config.
    """
    started = _started_with()
    if 'config' not in started or started.get('mode', 'serial') != 'serial':
        return None
    env_steps = max(1, int(float(started.get('env_step', DEFAULT_ENV_STEPS))))
    larger = larger_budget(learner.exp_name, Budget(env_steps))
    words = '-c', started['config'], '--resume', learner.exp_name, '--env-steps', larger.env_steps
    return shell_command('breakout', 'train', *words)


def limits_of_ding() -> dict[str, int]:
    """What ``ding`` was told of the budget, named as the options of the hook ``progress``."""
    names = dict(env_step='max_env_step', train_iter='max_updates')
    given = {name: options_of_ding().get(option, _UNLIMITED) for option, name in names.items()}
    return {name: int(float(limit)) for name, limit in given.items() if limit != _UNLIMITED}


def _started_with() -> Mapping[str, Any]:
    """The options that `ding` was called with, by their names; of a config that runs as a program only ``config``."""
    main = sys.modules['__main__']
    return options_of_ding() or (dict(config=main.__file__) if hasattr(main, 'main_config') else {})
