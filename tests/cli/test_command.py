"""The ``breakout`` command as a whole: help, wrong names, and what the import prints."""

import os
import re
import sys

import click
import pytest
from click.testing import CliRunner

from breakout_command import COMMANDS
from breakout_command import main as front_door
from breakout_env.cli import main
from breakout_env.utils.command_line import Program
from helpers.processes import BIN, completed


@pytest.mark.parametrize('name', [None, *COMMANDS])
def test_help_has_examples_and_fits_into_80_columns(name):
    command, words = (main, [name, '-h']) if name else (front_door, ['-h'])
    result = CliRunner().invoke(command, words, terminal_width=80)
    assert result.exit_code == 0
    assert re.search(rf'Examples:\n +breakout {name or ""}', result.output), result.output
    assert not [line for line in result.output.splitlines() if len(line) > 80]
    # what the front door says of each command is what the command says of itself
    described = ' '.join(main.get_command(click.Context(main), name or 'train').help.split())
    assert name is None or described.startswith(COMMANDS[name])


def test_the_front_door_knows_all_commands():
    assert sorted(COMMANDS) == main.list_commands(click.Context(main))


def test_unknown_command_is_an_error_with_the_known_ones():
    result = CliRunner().invoke(front_door, ['trian'])
    assert result.exit_code == 2 and "there is no command 'trian'; expected one of train, eval" in result.output


def test_an_error_of_the_system_is_a_line_and_one_of_another_library_keeps_its_traceback():
    result = CliRunner().invoke(Program('read', callback=lambda: os.read(10**6, 1)))
    assert result.exit_code == 1 and result.output == 'Error: [Errno 9] Bad file descriptor\n'
    assert isinstance(CliRunner().invoke(Program('number', callback=lambda: int('x'))).exception, ValueError)


@pytest.mark.parametrize('option, expected', [('--version', r'breakout, version [\d.]+\n'), ('-h', r'Usage.*')])
def test_installed_command_answers_at_once_as_it_imports_neither_torch_nor_di_engine(option, expected):
    done = completed([sys.executable, '-X', 'importtime', BIN / 'breakout', option])
    assert re.fullmatch(expected, done.stdout, re.S)
    assert {'ding', 'torch', 'gym', 'breakout_env'}.isdisjoint(re.findall(r'\| +(\w+)$', done.stderr, re.M))


def test_import_is_quiet_and_later_warnings_are_shown():
    code = "import breakout_env, logging; logging.getLogger('breakout_env').warning('the disk is full')"
    done = completed([sys.executable, '-c', code])
    assert 'the disk is full' in done.stderr and len(done.stderr.splitlines()) == 1 and not done.stdout
