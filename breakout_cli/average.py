"""``breakout average``: one agent out of a run's last checkpoints."""

from pathlib import Path

import click

from .common import COUNT
from .program import Program


@click.command('average', cls=Program)
@click.argument('run', type=click.Path(exists=True, file_okay=False))
@click.option(
    '--last', type=COUNT, help='How many of its last checkpoints; by default the last eighth of them, 2 to 16.'
)
@click.option('--until', type=COUNT, help='Take only checkpoints of up to this many updates.')
@click.option(
    '--temperature',
    type=click.FloatRange(0.01, 100),
    help='For PPO only: draw actions from its policy, the logits divided by this. By default the most probable ones.',
)
@click.option(
    '-o', '--output', type=click.Path(dir_okay=False), help='The file to write; by default averaged.safetensors in RUN.'
)
def command(run: str, last: int | None, until: int | None, temperature: float | None, output: str | None) -> None:
    """Make one agent out of a run's last checkpoints.

    RUN is its folder. The mean of their weights usually plays better than the last of them. The interval between
    checkpoints is the config's save_ckpt_after_iter.

    \b
    Examples:
      breakout average experiments/breakout_ppo
      breakout eval --checkpoint experiments/breakout_ppo/averaged.safetensors
      breakout average RUN --last 1 -o last.safetensors      a checkpoint alone
      breakout average RUN --temperature 0.5   a PPO that draws its actions
    """
    from breakout_env.agent.agent import initial_weights, save_agent
    from breakout_env.agent.network import build_network, network_of_run
    from breakout_env.agent.weights_file import average_weights, checkpoints_of, last_eighth
    from breakout_env.run.paths import AVERAGED_AGENT, updates_of
    from breakout_env.utils.command_line import listed_commands

    from .next_commands import agent_commands

    output = output or str(Path(run, AVERAGED_AGENT))
    paths = checkpoints_of(run, until)
    paths = last_eighth(paths) if last is None else paths[-last:]
    first, newest = updates_of(paths[0]), updates_of(paths[-1])
    card: dict[str, object] = dict(name=f'average_{newest}', updates=newest)
    if scale := initial_weights(paths[-1]).return_scale:
        card['return_scale'] = scale  # so that a training can begin with the critic
    weights, network = average_weights(paths), network_of_run(paths[-1])
    if temperature is not None:
        if build_network(network, weights).output_name != 'logits':
            raise click.UsageError(
                f'--temperature is {temperature:g}, and {run} is the run of a network that gives Q values, not the '
                'logits of a policy; expected the run of an actor-critic such as PPO, or no --temperature'
            )
        card['temperature'] = temperature
    save_agent(output, weights, card, network)
    click.echo(f'wrote {output}: the mean of {len(paths)} checkpoints, after {first:,} to {newest:,} updates')
    click.echo('\n'.join(listed_commands(agent_commands(output))))
