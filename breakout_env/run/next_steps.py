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

# Options of ding and their names here; the default of ding means no limit.
_LIMITS_OF_DING = {'env_step': 'max_env_step', 'train_iter': 'max_updates'}
_UNLIMITED = '1e8'


def next_steps(folder: str, resume: Mapping[str, str], others: Mapping[str, str]) -> str:
    """Lines about a run: how to resume it, if there is a save; where it is; what else to do with it."""
    commands = {
        'its curves': shell_command('breakout', 'plot', folder),
        'in TensorBoard': shell_command('tensorboard', '--logdir', os.path.join(folder, LOGS)),
        **others,
    }
    lines = [f'Checkpoints, logs and the merged config are in {folder}', *listed_commands(commands)]
    return '\n'.join([*(listed_commands(resume) if saves_in(folder) else ()), *lines])


def used_up(limit: str, learner: BaseLearner) -> str:
    """That a run has used up its budget, which may have been so when it began, with a checkpoint loaded."""
    return (
        f'The budget of {limit} is used up: it counts from the beginning of the run, which has {learner.train_iter:,} '
        f'updates and {learner.collector_envstep:,} env steps; to train on, resume it with a larger one.'
    )


def larger_budget(folder: str, budget: Budget) -> Budget:
    """The budget with which a run continues: where its log says that it has reached a limit, that is doubled."""
    try:
        rows = RunLog.read(folder).progress
        columns = dict(env_steps='env_step', updates='updates', episodes='games', hours='hours')
        return budget.larger(**{name: rows[column][-1] for name, column in columns.items()})
    except (ValueError, OSError, IndexError):  # a full disk has lost it
        return budget


def larger_stop_value(folder: str, stop_value: float | None) -> float | None:
    """The ``env.stop_value`` with which a run continues, if its last evaluation has reached the present one."""
    try:
        evaluation = RunLog.read(folder).evaluation
        score, updates = evaluation['score'][-1], evaluation['updates'][-1]
    except (ValueError, OSError, IndexError):
        return None
    return None if stop_value is None or score < stop_value or not updates else 2 * max(score, 1.0)


def say_next_steps(learner: BaseLearner) -> None:
    """At the end of a run of ``ding``, or of a config that runs as a program; ``breakout train`` says its own."""
    if sys.exc_info()[1] is not None or (is_command() and not options_of_ding()):
        return
    others, resume = {}, resume_command(learner)
    if config := _started_with().get('config'):
        agent = '--load-path', newest_checkpoint(learner.exp_name)
        others['its score'] = shell_command('ding', '-m', 'eval', '-c', config, '-s', 0, *agent)
        others['as videos'] = f'{others["its score"]} --replay-path video'
    output.print_line(next_steps(learner.exp_name, {'resume': resume} if resume else {}, others))


def resume_command(learner: BaseLearner) -> str | None:
    """The command that continues a run of ``ding``, with larger limits where it has reached them; None without a
    config. ``breakout train`` continues the pipeline `serial`, ``ding`` any other.
    """
    started, folder = _started_with(), learner.exp_name
    if not (config := started.get('config')):
        return None
    limits = [max(1, int(float(started.get(name, DEFAULT_ENV_STEPS)))) for name in _LIMITS_OF_DING]
    budget = Budget(*limits).larger(env_steps=learner.collector_envstep, updates=learner.train_iter)
    cfg = learner.policy.get_attribute('cfg')
    stop_value = larger_stop_value(folder, cfg.eval.get('evaluator', {}).get('stop_value'))
    changes: dict[str, object] = {} if stop_value is None else {'env.stop_value': stop_value}
    if (mode := started.get('mode', 'serial')) == 'serial':
        words = ['-c', config, '--resume', folder, '--env-steps', budget.env_steps]
        for path, value in changes.items():
            words += ['--set', f'{path}={value:g}']
        return shell_command('breakout', 'train', *words)
    if not cfg.learn.get('resume_training', False):
        changes['policy.learn.resume_training'] = True
    words = ['-m', mode, '-c', config, '-s', started.get('seed', [0])[0], '--exp-name', folder]
    words += ['--env-step', budget.env_steps, '--train-iter', budget.updates]
    in_config = ', '.join(f'{path}={value}' for path, value in changes.items())
    return shell_command('ding', *words) + (f'  # with {in_config} in {config}' if changes else '')


def limits_of_ding() -> dict[str, int]:
    """What ``ding`` was told of the budget, named as the options of the hook ``progress``."""
    started = _started_with()
    given = {name: started.get(option, _UNLIMITED) for option, name in _LIMITS_OF_DING.items()}
    return {name: int(float(limit)) for name, limit in given.items() if limit != _UNLIMITED}


def _started_with() -> Mapping[str, Any]:
    """The options that `ding` was called with, by their names; of a config that runs as a program only ``config``."""
    main = sys.modules['__main__']
    return options_of_ding() or (dict(config=main.__file__) if hasattr(main, 'main_config') else {})
