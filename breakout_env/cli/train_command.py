"""``breakout train``."""

import ast
import importlib.util
import os
import shlex
import signal
import subprocess
import sys
import traceback
from functools import lru_cache
from pathlib import Path
from shlex import quote
from types import ModuleType
from typing import Any, List, Mapping, Optional, Tuple

import click
import torch

from ..run.budget import Budget
from ..run.config_file import read_config_file
from ..run.folder import closing_words, folder_below_here, newest_checkpoint, run_to_resume, saved_runs
from ..utils import signals
from ..utils.atomic_file import DamagedFile
from ..utils.command_types import COUNT, HOURS, SEED, THREADS
from .common import CONTEXT, shipped

ENTRY = 'entry/breakout_dqn_main.py'
CONFIGS = dict(cpu='configs/breakout_dqn_cpu_config.py', cuda='configs/breakout_dqn_config.py')
ENV_STEPS = dict(cpu=1_000_000, cuda=10_000_000)


@click.command('train', context_settings=CONTEXT)
@click.option(
    '-c',
    '--config',
    type=click.Path(exists=True, dir_okay=False),
    help="Config file, as for `ding -m serial -c`; by default the package's own for the device.",
)
@click.option(
    '-s',
    '--seed',
    'seeds',
    multiple=True,
    default=(0,),
    show_default=True,
    type=SEED,
    help='Seed of everything random; given several times, a run for each, one after the other.',
)
@click.option(
    '--device',
    type=click.Choice(['auto', 'cpu', 'cuda']),
    default='auto',
    show_default=True,
    help='Where to learn; auto is the GPU if there is one.',
)
@click.option(
    '--env-steps',
    '--env-step',  # as ding calls it
    'env_steps',
    type=COUNT,
    help='End after so many env steps, 4 emulator frames each.',
)
@click.option('--updates', type=COUNT, help='End after so many updates.')
@click.option('--episodes', type=COUNT, help='End after so many whole games.')
@click.option('--hours', type=HOURS, help='End after so many hours.')
@click.option('--exp-name', metavar='FOLDER', help="Folder of the run, in place of the config's exp_name.")
@click.option(
    '--set',
    'changes',
    multiple=True,
    metavar='KEY=VALUE',
    help='Another value than the one in the config, such as policy.learn.learning_rate=0.00025; may be repeated.',
)
@click.option('--threads', type=THREADS, help="PyTorch's threads; by default one for each core.")
@click.option('--overlap/--serial', default=False, show_default=True, help='Collect while learning; pays on GPUs.')
@click.option(
    '--resume',
    is_flag=False,
    flag_value='',
    metavar='[FOLDER]',
    help='Go on with the run in a folder; without a folder, with the last saved one of this exp_name.',
)
@click.pass_context
def command(ctx: click.Context, seeds: Tuple[int, ...], **options: Any) -> None:
    """
    Train DQN on Breakout.

    Whichever of --env-steps, --updates, --episodes and --hours comes first ends the run, and each end is a save; so are
    Ctrl-C and SIGTERM. Without any of them it is a million env steps on a CPU and ten million on a GPU.

    \b
    Examples:
      breakout train                          the recipe for this machine
      breakout train --hours 48 --env-steps 20000000
      breakout train --resume                 go on with the last run
      breakout train -s 0 -s 1 -s 2           three; then `breakout plot` them
      breakout train --set policy.learn.learning_rate=0.0005
    """
    if len(seeds) > 1:
        ctx.exit(_one_after_the_other(ctx, seeds, options))
    folder = _train(seeds[0], **options)
    again = _command_line(ctx, exp_name=None, resume=folder)
    best = quote(newest_checkpoint(folder))
    commands = {
        'its curves': f'breakout plot {quote(folder)}',
        'in TensorBoard': f'tensorboard --logdir {quote(os.path.join(folder, "log"))}',
        'its score': f'breakout eval --checkpoint {best}',
        'a better agent': f'breakout average {quote(folder)}',
        'watch it': f'breakout play --checkpoint {best}',
    }
    click.echo(closing_words(folder, f'breakout train {shlex.join(again)}', commands))


def _train(
    seed: int,
    config: Optional[str],
    device: str,
    env_steps: Optional[int],
    updates: Optional[int],
    episodes: Optional[int],
    hours: Optional[float],
    exp_name: Optional[str],
    changes: Tuple[str, ...],
    threads: Optional[int],
    overlap: bool,
    resume: Optional[str],
) -> str:
    """The experiment folder."""
    entry = _entry()
    device = _device(device)
    config = config or str(shipped(CONFIGS[device]))
    values = {'policy.cuda': device == 'cuda', **dict(_read_change(text) for text in changes)}
    values['exp_name'] = _exp_name(config, exp_name, values)
    if threads is not None:
        torch.set_num_threads(threads)
    budget = Budget(env_steps, updates, episodes, hours)
    if budget == Budget():
        budget = Budget(env_steps=ENV_STEPS[device])
    try:
        resume = run_to_resume(resume, values['exp_name'])
        return entry.train(config, seed, budget, resume, overlap, values)
    except DamagedFile as error:  # there are saves, but all of them are damaged
        raise click.ClickException(str(error)) from None
    except (ValueError, OSError) as error:
        if _is_a_users(error):
            raise click.ClickException(str(error)) from None
        raise


def _is_a_users(error: Exception) -> bool:
    """Whether an error is a sentence of this package, or about a file; a traceback is to show where others are from."""
    raised_in = Path(traceback.extract_tb(error.__traceback__)[-1].filename).resolve()
    return getattr(error, 'filename', None) is not None or Path(__file__).resolve().parent.parent in raised_in.parents


def _device(device: str) -> str:
    """``'cpu'`` or ``'cuda'``."""
    has_gpu = torch.cuda.is_available()
    if device == 'cuda' and not has_gpu:
        raise click.UsageError(
            '--device is cuda, and PyTorch finds no GPU; expected cpu or auto (see `breakout doctor`)'
        )
    return 'cuda' if has_gpu and device != 'cpu' else 'cpu'


@lru_cache(maxsize=None)
def _entry() -> ModuleType:
    """The pipeline, which is a file to read and to change rather than a module of the package."""
    spec = importlib.util.spec_from_file_location('breakout_dqn_main', shipped(ENTRY))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _read_change(text: str) -> Tuple[str, Any]:
    """``key=value``; what is no Python literal is a string."""
    key, separator, value = text.partition('=')
    if not separator or not all(part.isidentifier() for part in key.split('.')):
        raise click.UsageError(f'--set is {text!r}; expected KEY=VALUE, such as policy.learn.learning_rate=0.00025')
    try:
        return key, ast.literal_eval(value)
    except (ValueError, SyntaxError, RecursionError, MemoryError):  # the last two by brackets in brackets
        return key, value


def _exp_name(config: str, exp_name: Optional[str], changes: Mapping[str, Any]) -> str:
    """The run's name: by --exp-name, by --set, or the config's. All of DI-engine takes it as below this folder."""
    option = 'exp_name' if exp_name is None else '--exp-name'
    if exp_name is None:
        exp_name = changes.get('exp_name', read_config_file(config)[0].get('exp_name', 'default_experiment'))
    return folder_below_here(exp_name, option)


def _command_line(ctx: click.Context, **changes: Any) -> List[str]:
    """The options of this call, some of them changed (None leaves one out), as one would type them."""
    words = []
    for option in ctx.command.params:
        value = {**ctx.params, **changes}[option.name]
        if value is None or value == option.get_default(ctx):
            continue
        for each in value if option.multiple else (value,):
            # a flag has no value, and --resume need not have one
            words += [option.opts[0]] if option.is_flag or each == '' else [option.opts[0], str(each)]
    return words


def _one_after_the_other(ctx: click.Context, seeds: Tuple[int, ...], options: Mapping[str, Any]) -> int:
    """
    A process for each seed, so that a run leaves nothing to the next; the exit code of the first that fails.

    The runs are named ``<exp_name>_seed<seed>``, which ``breakout plot`` takes for one experiment.
    """
    if options['resume']:
        raise click.UsageError('--resume with a folder goes on with one run; expected no folder, or one --seed')
    config = options['config'] or str(shipped(CONFIGS[_device(options['device'])]))
    name = _exp_name(config, options['exp_name'], dict(_read_change(text) for text in options['changes']))
    names = {seed: f'{name}_seed{seed}' for seed in seeds}
    # with --resume, a seed that has no save yet begins
    saved = [seed for seed in seeds if options['resume'] is not None and saved_runs(names[seed])]
    if options['resume'] is not None and not saved:
        raise click.UsageError(f'--resume found no saved run in {", ".join(names.values())}')
    stopped: List[int] = []
    run: Optional[subprocess.Popen] = None

    def stop(number: int, frame: Any) -> None:
        stopped.append(number)
        if number == signal.SIGHUP:
            signals.leave_terminal()
        if run is not None and len(stopped) == 1:
            run.terminate()  # Ctrl-C in a terminal reaches it as well, and only the first request counts

    before = {number: signal.signal(number, stop) for number in signals.STOPPING if signals.is_free(number)}
    try:
        for seed in seeds:
            words = _command_line(ctx, seeds=(seed,), exp_name=names[seed], resume='' if seed in saved else None)
            click.echo(f'Seed {seed}:')
            run = subprocess.Popen([sys.executable, '-m', 'breakout_env', 'train', *words])
            code = run.wait()
            if stopped:
                return 128 + stopped[0]
            if code:
                return code if code > 0 else 128 - code
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return 0
