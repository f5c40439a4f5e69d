"""Nobody reads what a program says: the pipe's reader has ended, a stream is closed or full. The run is saved."""

import signal

import pytest

from breakout_env.agent.agent import save_agent
from breakout_env.run.paths import saves_in
from helpers.agents import SMALL_CONFIG, small_network
from helpers.processes import BIN, Command, completed
from helpers.runs import NAME, OURS, config_in, has_learned, training

pytestmark = pytest.mark.process

BREAKOUT = str(BIN / 'breakout')


def in_shell(words: list[str], line: str) -> list[str]:
    """A command in a line of the shell, which outlives the signal and passes on the command's exit code."""
    return ['bash', '-c', f'trap : INT TERM; "$@" {line}; exit ${{PIPESTATUS[0]}}', 'bash', *words]


@pytest.mark.parametrize(
    'program, line, number, code',
    [
        ('serial', '2>&1 | tee log', signal.SIGINT, 0),
        ('overlap', '>/dev/full 2>&-', signal.SIGTERM, 0),
        ('ding', '>&- 2>&-', signal.SIGTERM, 143),
    ],
)
def test_run_is_saved_whoever_reads_along(program, line, number, code, tmp_path):
    command = Command(in_shell(training(program, config_in(tmp_path, 900, OURS)), line), tmp_path)
    command.wait_for(has_learned(tmp_path))
    assert command.end(number, whole_group=True) == code, command.text
    assert saves_in(tmp_path / NAME) and 'Traceback' not in command.text


@pytest.mark.parametrize('line, code', [('2>&-', 0), ('>/dev/full', 1)])
def test_evaluation_fails_only_if_its_result_is_lost(line, code, tmp_path):
    save_agent(tmp_path / 'agent', small_network().state_dict(), {}, SMALL_CONFIG)
    words = [BREAKOUT, 'eval', '--checkpoint', 'agent', '-n', '1', '--json', 'report']
    done = completed(in_shell(words, line), tmp_path)
    assert done.returncode == code and (tmp_path / 'report').exists()
    assert 'Traceback' not in done.stderr and ('lost' in done.stderr) == bool(code)
