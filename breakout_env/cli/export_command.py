"""``breakout export``: an agent for programs that have neither DI-engine nor this package."""

import os
from typing import Optional

import click

from ..agent.agent import Agent
from ..agent.export import CHECK_OBSERVATIONS, export_onnx
from .common import with_agent


@click.command('export')
@with_agent
@click.option(
    '-o', '--output', type=click.Path(dir_okay=False), help="The file to write; by default the agent's name, here."
)
@click.option('--force', is_flag=True, help='Replace an existing file.')
def command(agent: Agent, output: Optional[str], force: bool) -> None:
    """
    Write an agent as ONNX, for other programs.

    It takes uint8 pixels of shape (batch, 4, 84, 84), the newest screen last, and gives a number for each action: of
    DQN a value, of which the highest is the one to play; of PPO a logit, of which to draw. The file is compared with
    its source first, and kept only if they agree.

    \b
    Examples:
      breakout export --pretrained -o breakout.onnx
      breakout export --checkpoint RUN/ckpt/ckpt_best.pth.tar
    """
    output = output or f'{agent.name.replace(os.sep, "_")}.onnx'
    if os.path.exists(output) and not force:
        raise FileExistsError(f'{output} exists already; expected another --output, or --force')
    difference = export_onnx(agent, output)
    click.echo(f'wrote {output} ({os.path.getsize(output) / 1e6:.1f} MB)')
    click.echo(
        f'pixels uint8 (batch, {agent.frame_stack}, {agent.screen_size}, {agent.screen_size}) -> '
        f'q_values float32 (batch, {agent.action_count}); '
        f'largest difference from the source over {CHECK_OBSERVATIONS} random observations: {difference:.1e}'
    )
