import click
from ding.entry.cli import cli as ding

from breakout_env.compat.ding_command_line import is_command, options_of_ding


def test_the_options_of_ding_are_those_that_upstream_declares():
    with click.Context(ding).scope() as context:
        ding.parse_args(context, ['-m', 'serial', '-c', 'config.py', '-s', '7', '--env-step', '1e3'])
        options = options_of_ding()
        assert is_command()
    assert (options['mode'], options['config'], list(options['seed'])) == ('serial', 'config.py', [7])
    assert options['env_step'] == '1e3' and 'train_iter' in options


def test_other_commands_and_programs_have_no_options_of_ding():
    with click.Context(click.Command('breakout')):
        assert is_command() and options_of_ding() == {}
    assert not is_command() and options_of_ding() == {}
