"""``breakout train``: train an agent, by this machine's recipe or a config."""

import ast
import importlib.util
import os
import re
import shlex
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import click

from .common import COUNT, SEED, device_of, device_option
from .program import CONTEXT, Program

if TYPE_CHECKING:
    from breakout_env.run.budget import Budget


class CollectorCount(click.IntRange):
    """How many collectors; ``'auto'`` for as many as the cluster has CPUs."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """As click's."""
        return value if value == 'auto' else super().convert(value, param, ctx)


def _checked_changes(ctx: click.Context, option: click.Parameter, texts: tuple[str, ...]) -> tuple[str, ...]:
    for text in texts:
        if not re.match(r'[\w.]+=', text):
            ctx.fail(f'--set is {text!r}; expected KEY=VALUE, such as policy.learn.learning_rate=0.00025')
    return texts


def _change(text: str) -> tuple[str, Any]:
    """The path of an option and its new value, from ``key=value``; a value that is not a Python literal is a string."""
    key, _, value = text.partition('=')
    try:
        return key, ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return key, value


def _refuse_contradictions(ctx: click.Context) -> None:
    given = ctx.params
    if given['collectors'] is None:
        if given['ray_address'] is not None:
            ctx.fail(f'--ray is {given["ray_address"]}, without --collectors; expected a number of them, or auto')
    elif importlib.util.find_spec('ray') is None:
        ctx.fail("--collectors needs Ray; expected pip install 'ray>=2.54'")
    elif given['overlap']:
        ctx.fail('--overlap and --collectors exclude each other; expected one of them')
    if given['auto_resume'] and given['resume'] is not None:
        ctx.fail('--resume and --auto-resume exclude each other; expected one of them')
    if given['resume'] is not None and given['begin_with'] is not None:
        ctx.fail(f'--from is {given["begin_with"]}, beside --resume, which has its own weights; expected one of them')
    if given['resume'] and given['exp_name'] is not None:
        ctx.fail(f'--exp-name is {given["exp_name"]}, beside --resume {given["resume"]}; expected one folder')


@click.command('train', cls=Program, may_lose_output=True, context_settings=CONTEXT)
@click.option(
    '-c',
    '--config',
    type=click.Path(exists=True, dir_okay=False),
    help="Config file, as for `ding -m serial -c`; by default the package's own for the device.",
)
@click.option('-s', '--seed', default=0, show_default=True, type=SEED, help='Seed of everything random.')
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
@click.option('--hours', type=click.FloatRange(0, 1_000_000, min_open=True), help='End after this many hours.')
@click.option('--exp-name', metavar='FOLDER', help="Folder of the run, in place of the config's exp_name.")
@click.option(
    '--set',
    'changes',
    multiple=True,
    callback=_checked_changes,
    metavar='KEY=VALUE',
    help='Another value than the one in the config, such as policy.learn.learning_rate=0.00025; may be repeated.',
)
@click.option(
    '--threads',
    type=click.IntRange(1, 1024),
    help="PyTorch's threads; by default one a core, half of that if it collects meanwhile.",
)
@click.option(
    '--overlap/--serial',
    default=None,
    help='Collect while learning, or one after the other; by default the former for PPO on several cores.',
)
@click.option(
    '--from',
    'begin_with',
    type=click.Path(exists=True, dir_okay=False),
    help='Begin with the weights of an agent or a checkpoint (RUN/ckpt/*.pth.tar) of the same network.',
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
    type=CollectorCount(1, 4096),
    metavar='NUMBER|auto',
    help='Collect in this many processes on Ray; auto for as many as the cluster has CPUs.',
)
@click.option('--ray', 'ray_address', metavar='ADDRESS', help='Ray cluster to collect on; without it, this machine.')
@click.pass_context
def command(
    ctx: click.Context,
    seed: int,
    config: str | None,
    device: str,
    exp_name: str | None,
    changes: tuple[str, ...],
    threads: int | None,
    overlap: bool | None,
    begin_with: str | None,
    resume: str | None,
    auto_resume: bool,
    collectors: int | Literal['auto'] | None,
    ray_address: str | None,
    **limits: Any,
) -> None:
    """Train an agent on Breakout.

    That is by PPO, or as a config says. Whichever of --env-steps, --updates, --episodes and --hours
    comes first ends the run; the default is ten million env steps. The run is saved when it ends, also by Ctrl-C or
    SIGTERM.

    \b
    Examples:
      breakout train                          the recipe for this machine
      breakout train --hours 48 --env-steps 20000000
      breakout train --resume                 resume the last run
      breakout train --set policy.learn.learning_rate=0.0005
      breakout train --from RUN/averaged.safetensors
      breakout train --collectors auto --ray auto --auto-resume --exp-name RUN
    """
    _refuse_contradictions(ctx)

    import torch
    from ding.utils import POLICY_REGISTRY

    from breakout_env.agent.agent import initial_weights
    from breakout_env.run.budget import DEFAULT_ENV_STEPS, Budget
    from breakout_env.run.config import read_config_file
    from breakout_env.run.folder import folder_below_here, run_to_resume
    from breakout_env.run.pipeline import train
    from breakout_env.run.recipes import RECIPES, shipped
    from breakout_env.utils.command_line import process_as_found

    with process_as_found():
        device = device_of(device)
        if config is None:
            recipe = RECIPES[device == 'cuda']
            click.echo(f'The config for this machine: {recipe}')
        file = read_config_file(config or str(shipped(recipe)))
        values = {'policy.cuda': device == 'cuda', **dict(map(_change, changes))}
        if exp_name is None:
            exp_name = values.get('exp_name', file.main.exp_name)
        values['exp_name'] = folder_below_here(exp_name)
        run = values['exp_name'] if auto_resume else run_to_resume(resume, values['exp_name'])
        if overlap is None and collectors is None and len(os.sched_getaffinity(0)) > 1:
            trained = dict(POLICY_REGISTRY).get(f'{file.create.policy.type}_command')
            overlap = getattr(trained, 'overlaps', False)
        plays_here = overlap or (collectors is not None and ray_address is None)
        if threads is None and plays_here and device == 'cpu':  # half of the cores are for the collectors
            threads = max(1, torch.get_num_threads() // 2)
        if threads is not None:
            torch.set_num_threads(threads)
        initial = None if begin_with is None else initial_weights(begin_with)
        budget = Budget(**limits) if any(limits.values()) else Budget(env_steps=DEFAULT_ENV_STEPS)
        try:
            source = None
            if collectors is not None:
                from breakout_env.cluster.ray_source import OnRay

                source = partial(OnRay, collectors=collectors, address=ray_address)
            folder = train(file, seed, budget, run, bool(overlap), values, source=source, initial=initial)
        except (torch.OutOfMemoryError, MemoryError) as error:
            raise click.ClickException(
                f'{(str(error) or "The memory is full.").splitlines()[0]} If the run had learned, it was saved: resume '
                'it by --resume, with a smaller policy.learn.batch_size or replay buffer'
            ) from None
    again: dict[str, object] = {} if auto_resume else dict(exp_name=None, begin_with=None, resume=folder)
    _say_what_is_next(ctx, folder, budget, again)


def _say_what_is_next(ctx: click.Context, folder: str, budget: 'Budget', again: dict[str, object]) -> None:
    """Print at the end of a run how to resume it, with ``again`` as the options that change, and what else to do."""
    from breakout_env.run.next_steps import larger_budget, next_steps
    from breakout_env.utils.command_line import shell_command

    from .next_commands import run_commands

    again.update(vars(larger_budget(folder, budget)))
    program = shell_command('breakout', ctx.info_name) if ctx.parent else ctx.command_path
    click.echo(next_steps(folder, f'{program} {shlex.join(_command_line(ctx, **again))}', run_commands(folder)))


def _command_line(ctx: click.Context, **changes: object) -> list[str]:
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
