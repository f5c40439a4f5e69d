"""The ``breakout`` command as a whole: help, wrong names, what the import prints, and what `train` passes on."""

import os
import re
import sys
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

from breakout_cli import eval, main, play, plot
from breakout_cli.next_commands import run_commands
from breakout_cli.program import Program
from breakout_env.agent.evaluation import PROTOCOLS
from breakout_env.agent.play import EPSILON
from breakout_env.run.plotting import X_AXES
from breakout_env.utils.command_line import shell_command
from helpers.agents import config_of, write_checkpoint
from helpers.processes import BIN, ROOT, completed


@pytest.mark.parametrize('name', [None, *main.commands])
def test_help_has_examples_and_fits_into_80_columns(name):
    result = CliRunner().invoke(main, [name, '-h'] if name else ['-h'], terminal_width=80)
    assert result.exit_code == 0
    assert re.search(rf'Examples:\n +breakout {name or ""}', result.output), result.output
    assert not [line for line in result.output.splitlines() if len(line) > 80]


def test_an_error_of_the_system_is_a_line_and_others_keep_their_traceback():
    result = CliRunner().invoke(Program('read', callback=lambda: os.read(10**6, 1)))
    assert result.exit_code == 1 and result.output == 'Error: [Errno 9] Bad file descriptor\n'
    assert isinstance(CliRunner().invoke(Program('number', callback=lambda: int('x'))).exception, ValueError)


@pytest.mark.parametrize(
    'words, expected',
    [
        ('--version', r'breakout, version [\d.]+\n'),
        ('-h', 'Usage.*'),
        ('train -h', 'Usage.*'),
        ('eval --protocol mine', ''),
        ('train --set x', ''),
    ],
)
def test_help_and_wrong_options_come_without_importing_the_package(words, expected):
    done = completed([sys.executable, '-X', 'importtime', BIN / 'breakout', *words.split()])
    assert re.fullmatch(expected, done.stdout, re.S) and bool(done.returncode) is not bool(expected)
    assert {'ding', 'torch', 'gym', 'breakout_env'}.isdisjoint(re.findall(r'\| +(\w+)$', done.stderr, re.M))


def test_choices_and_defaults_are_those_of_the_package():
    options = {option.name: option for module in (eval, play, plot) for option in module.command.params}
    assert list(options['protocol'].type.choices) == list(PROTOCOLS) and options['epsilon'].default == EPSILON
    assert list(options['x'].type.choices) == list(X_AXES)


def test_import_is_quiet_and_later_warnings_are_shown():
    code = "import breakout_env, logging; logging.getLogger('breakout_env').warning('the disk is full')"
    done = completed([sys.executable, '-c', code])
    assert 'the disk is full' in done.stderr and len(done.stderr.splitlines()) == 1 and not done.stdout


def in_shell(limits: str, *words: str) -> str:
    """What a command that fails says under limits of the shell, and nothing but its error message."""
    done = completed(['bash', '-c', f'{limits}; exec "$@"', 'bash', *words], merged=True)
    assert done.returncode == 1 and 'Traceback' not in done.stdout, done.stdout
    return done.stdout.splitlines()[-1]


def test_limits_of_the_shell_are_named_where_they_end_a_command(tmp_path):
    """OpenBLAS, which numpy loads, sends itself Ctrl-C's signal where it cannot start a thread."""
    no_threads = 'export OPENBLAS_NUM_THREADS=2; ulimit -s 100000000; ulimit -v 30000000'
    assert in_shell(no_threads, BIN / 'breakout', 'eval', '-n', '1').startswith('Error: no thread can be started: ')
    small_files = in_shell('ulimit -f 1', BIN / 'breakout', 'train', '-c', ROOT / 'configs/breakout_ppo_config.py')
    assert re.match(r"Error: .*too large: .*ppo_config.py'.* 1,024 bytes \(ulimit -f\)", small_files)


@pytest.mark.parametrize(
    'config, options, overlap, threads',
    [
        ('ppo', [], True, 4),
        ('ppo', ['--threads', '3', '--serial'], False, 3),
        ('ppo', ['--collectors', '2'], False, 4),
        ('dqn_cpu', [], False, 8),
    ],
)
def test_ppo_collects_while_it_learns_on_half_the_threads(monkeypatch, config, options, overlap, threads):
    started, used = [], [8]
    monkeypatch.setattr('os.sched_getaffinity', lambda pid: set(range(8)))
    monkeypatch.setattr('torch.get_num_threads', lambda: used[-1])
    monkeypatch.setattr('torch.set_num_threads', used.append)
    path = ROOT / 'configs' / f'breakout_{config}_config.py'

    def train(file, seed, budget, resume, overlap, changes, **others):
        started.append((overlap, used[-1]))
        return file.main.exp_name

    monkeypatch.setattr('breakout_env.run.pipeline.train', train)
    CliRunner().invoke(main, ['train', '--device', 'cpu', '-c', str(path), *options])
    assert started == [(overlap, threads)]
    assert used[-1] == 8, 'as before, for a program that calls the command'


def test_the_end_of_a_run_names_the_commands_for_its_agents(tmp_path, monkeypatch):
    recurrent = config_of('pixel_drqn')
    recurrent['policy']['burnin_step'] = 4
    monkeypatch.chdir(tmp_path)
    for folder, config in dict(pixels=config_of(), recurrent=recurrent).items():
        for updates in range(3):
            # what is in it is not read
            write_checkpoint(Path(folder, 'ckpt', f'iteration_{updates}.pth.tar'), torch.nn.Linear(1, 1), config)
    agent = Path('pixels', 'ckpt', 'iteration_2.pth.tar')
    words = [('eval', '--checkpoint', agent), ('play', '--checkpoint', agent), ('average', 'pixels')]
    assert list(run_commands('pixels').values()) == [shell_command('breakout', *each) for each in words]
    assert run_commands('recurrent') == run_commands('no_run') == {}
