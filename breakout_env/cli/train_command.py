"""``breakout train``: train an agent, by this machine's recipe or a config."""

import ast
import importlib.util
import os
import shlex
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import click
import torch
from ding.utils import POLICY_REGISTRY

from ..cluster.ray_source import train_on_ray
from ..run.budget import DEFAULT_ENV_STEPS, Budget
from ..run.config import read_config_file
from ..run.folder import folder_below_here, run_to_resume
from ..run.next_steps import larger_budget, larger_stop_value, next_steps
from ..run.pipeline import train
from ..run.recipes import RECIPES, RECIPES_ON_RAY, shipped
from ..utils import output
from ..utils.command_line import Program, process_as_found, shell_command
from ..utils.options import COLLECTORS, COUNT, SEED, Between, CommandLineType
from .common import device_of, device_option, run_commands


@click.command('train', cls=Program, context_settings=dict(help_option_names=['-h', '--help']))
@click.option(
    '-c',
    '--config',
    type=click.Path(exists=True, dir_okay=False),
    help="Config file, as for `ding -m serial -c`; by default the package's own for the device.",
)
@click.option(
    '-s',
    '--seed',
    default=0,
    show_default=True,
    type=SEED,
    help='Seed of everything random.',
)
@device_option('Where to learn; auto is the GPU if there is one.')
@click.option(
    '--env-steps',
    '--env-step',  # as ding calls it
    'env_steps',
    type=COUNT,
    help="End after this many env steps, 4 emulator frames each; more than the config's random_collect_size.",
)
@click.option('--updates', type=COUNT, help='End after this many updates.')
@click.option('--episodes', type=COUNT, help='End after this many full games.')
@click.option(
    '--hours', type=CommandLineType(Annotated[float, Between(0, 1e6, above=True)]), help='End after this many hours.'
)
@click.option('--exp-name', metavar='FOLDER', help="Folder of the run, in place of the config's exp_name.")
@click.option(
    '--set',
    'changes',
    multiple=True,
    metavar='KEY=VALUE',
    help='Another value than the one in the config, such as policy.learn.learning_rate=0.00025; may be repeated.',
)
@click.option(
    '--threads',
    type=CommandLineType(Annotated[int, Between(1, 1024)]),
    help="PyTorch's threads; by default one a core, half of that if it overlaps.",
)
@click.option(
    '--overlap/--serial',
    default=None,
    help='Collect while learning, or one after the other; by default the former for PPO on several cores.',
)
@click.option(
    '--resume',
    is_flag=False,
    flag_value='',
    metavar='[FOLDER]',
    help='Resume the run in a folder; without a folder, the last saved one of this exp_name.',
)
@click.option(
    '--auto-resume',
    is_flag=True,
    help='Resume the run in --exp-name, or begin it there: one command for job schedulers.',
)
@click.option(
    '--collectors',
    type=COLLECTORS,
    metavar='NUMBER|auto',
    help='Collect in this many processes on Ray; auto for as many as the cluster has CPUs.',
)
@click.option('--ray', 'ray_address', metavar='ADDRESS', help='Ray cluster to collect on; without it, this machine.')
@click.pass_context
@process_as_found()
def command(
    ctx: click.Context,
    seed: int,
    config: str | None,
    device: str,
    exp_name: str | None,
    changes: tuple[str, ...],
    threads: int | None,
    overlap: bool | None,
    resume: str | None,
    auto_resume: bool,
    collectors: int | Literal['auto'] | None,
    ray_address: str | None,
    **limits: Any,
) -> None:
    """Train an agent on Breakout.

    That is by PPO, on Ray by DQN, or as a config says. Whichever of --env-steps, --updates, --episodes and --hours
    comes first ends the run; the default is ten million env steps. The run is saved when it ends, also by Ctrl-C or
    SIGTERM.

    \b
    Examples:
      breakout train                          the recipe for this machine
      breakout train --hours 48 --env-steps 20000000
      breakout train --resume                 resume the last run
      breakout train --set policy.learn.learning_rate=0.0005
      breakout train --collectors auto --ray auto --auto-resume --exp-name RUN
    """
    output.ignore_lost_output()
    if collectors is None and ray_address is not None:
        raise click.UsageError(f'--ray is {ray_address}, without --collectors; expected a number of them, or auto')
    if collectors is not None and importlib.util.find_spec('ray') is None:
        raise click.UsageError("--collectors needs Ray; expected pip install 'ray>=2.54'")
    if collectors is not None and overlap:
        raise click.UsageError('--overlap and --collectors exclude each other; expected one of them')
    if auto_resume and resume is not None:
        raise click.UsageError('--resume and --auto-resume exclude each other; expected one of them')
    if resume and exp_name is not None:
        raise click.UsageError(f'--exp-name is {exp_name}, beside --resume {resume}; expected one folder')
    device = device_of(device)
    if config is None:
        default = (RECIPES if collectors is None else RECIPES_ON_RAY)[device == 'cuda']
        click.echo(f'The config for this machine: {default}')
    file = read_config_file(config or str(shipped(default)))
    values = {'policy.cuda': device == 'cuda', **dict(_read_change(text) for text in changes)}
    if exp_name is not None:
        values['exp_name'] = folder_below_here(exp_name, '--exp-name')
    else:
        values['exp_name'] = folder_below_here(values.get('exp_name', file.main.exp_name))
    if overlap is None:
        overlap = collectors is None and _overlaps(file.create.policy) and len(os.sched_getaffinity(0)) > 1
    if threads is None and overlap and device == 'cpu':  # the other half is the collector's
        threads = max(1, torch.get_num_threads() // 2)
    if threads is not None:
        torch.set_num_threads(threads)
    budget = Budget(**limits) if any(limits.values()) else Budget(env_steps=DEFAULT_ENV_STEPS)
    run = values['exp_name'] if auto_resume else run_to_resume(resume, values['exp_name'])
    try:
        if collectors is not None:
            folder = train_on_ray(file, seed, budget, run, collectors, ray_address, values)
        else:
            folder = train(file, seed, budget, run, overlap, values)
    except (torch.OutOfMemoryError, MemoryError) as error:
        raise click.ClickException(
            f'{(str(error) or "The memory is full.").splitlines()[0]} If the run had learned, it was saved: resume it '
            f'by {shell_command("breakout", "train", "--resume")}, with a smaller policy.learn.batch_size or replay '
            'buffer'
        ) from None
    again: dict[str, Any] = {} if auto_resume else dict(exp_name=None, resume=folder)
    limits = vars(larger_budget(folder, budget))
    again.update({name: limit for name, limit in limits.items() if limit != getattr(budget, name)})
    stop_value = larger_stop_value(folder, values.get('env.stop_value', file.main.env.get('stop_value')))
    if stop_value is not None:
        again['changes'] = (*changes, f'env.stop_value={stop_value:g}')
    program = shell_command('breakout', ctx.info_name) if ctx.parent else ctx.command_path
    _summarise(folder, f'{program} {shlex.join(_command_line(ctx, **again))}', config)


def _summarise(folder: str, resume_command: str, config: str | None) -> None:
    """Print at the end of a run how to resume it, if there is a save, and what else to do with it."""
    # the module of a network may be beside the config
    others = run_commands(folder, config and (os.path.dirname(config) or os.curdir))
    click.echo(next_steps(folder, {'resume': resume_command}, others))


def _overlaps(policy: Mapping) -> bool:
    """Whether collecting and learning overlap by default."""
    return getattr(dict(POLICY_REGISTRY).get(f'{policy["type"]}_command'), 'overlaps', False)  # what trains


def _read_change(text: str) -> tuple[str, Any]:
    """``key=value``; a value that is not a Python literal is a string."""
    key, separator, value = text.partition('=')
    if not separator or not all(part.isidentifier() for part in key.split('.')):
        raise click.UsageError(f'--set is {text!r}; expected KEY=VALUE, such as policy.learn.learning_rate=0.00025')
    try:
        return key, ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return key, value


def _command_line(ctx: click.Context, **changes: Any) -> list[str]:
    """The options of this call as a user would type them, some of them changed (None leaves one out)."""
    words: list[str] = []
    for option in ctx.command.params:
        value = {**ctx.params, **changes}[option.name or '']
        if value is None or value == option.get_default(ctx):
            continue
        for each in value if option.multiple else (value,):
            # a flag has no value, and --resume need not have one
            name = option.secondary_opts[0] if each is False else option.opts[0]
            words += [name] if isinstance(each, bool) or each == '' else [name, str(each)]
    return words
