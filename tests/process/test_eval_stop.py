"""Ctrl-C in a real ``breakout eval``."""

import signal
import time

import psutil

from breakout_env.agent.agent import save_agent
from helpers.agents import small_network
from helpers.processes import BIN, Command


def test_ctrl_c_ends_eval_and_its_workers_with_exit_code_130(tmp_path):
    save_agent(tmp_path / 'agent', small_network().state_dict(), {})
    command = Command([BIN / 'breakout', 'eval', '--checkpoint', 'agent', '-n', '100000'], tmp_path)

    def workers():  # they stay, unlike processes that libraries start for a moment while they are imported
        children = psutil.Process(command.pid).children()
        return [child for child in children if time.time() - child.create_time() > 1.5]

    command.wait_for(workers)
    assert command.end(signal.SIGINT, whole_group=True) == 130  # as a terminal does
    assert 'stopped' in command.text and 'Traceback' not in command.text
