"""The commands to use next, for an agent's file or a run. Importing this module imports the package."""

from pathlib import Path

from breakout_env.agent.network import network_of_run
from breakout_env.run.paths import newest_checkpoint, numbered_checkpoints
from breakout_env.utils.command_line import shell_command


def agent_commands(file: str | Path) -> dict[str, str]:
    """What to do with an agent's file, by what it is for."""
    commands = {'its score': 'eval', 'watch it': 'play'}
    return {what: shell_command('breakout', command, '--checkpoint', file) for what, command in commands.items()}


def run_commands(folder: str | Path) -> dict[str, str]:
    """What to do with the agents of a run: nothing without a checkpoint, or if only its policy plays its network."""
    best = newest_checkpoint(folder)
    if not best.exists():
        return {}
    try:
        network_of_run(best)
    except ValueError:  # `ding -m eval` plays it
        return {}
    commands = agent_commands(best)
    if len(numbered_checkpoints(folder)) > 2:  # the first is that of the untrained network
        commands['a better agent'] = shell_command('breakout', 'average', folder)
    return commands
