"""Which processes of an environment leave Ctrl-C to their parent; run/test_terminal.py presses it at a terminal."""

import contextlib
import multiprocessing
import signal

import pytest
from ding.envs import get_env_manager_cls
from easydict import EasyDict

from breakout_env import BreakoutEnv
from helpers.managers import GameEnv


def handle_in_own_way(number, frame):
    """A handler of the user's program."""


def name_of_handler():
    handler = signal.getsignal(signal.SIGINT)
    return handler.name if isinstance(handler, signal.Handlers) else handler.__name__


class OfUpstream(GameEnv):
    handler = property(lambda self: name_of_handler())


class OfThisPackage(BreakoutEnv):
    handler = property(lambda self: name_of_handler())


@contextlib.contextmanager
def ctrl_c(handler):
    before = signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def in_workers(env_class, manager='subprocess'):
    """The handler in the workers of one of DI-engine's managers."""
    cls = get_env_manager_cls(EasyDict(type=manager))
    manager = cls([lambda: env_class({})] * 2, EasyDict(cls.default_config()))
    manager.launch()
    with contextlib.closing(manager):
        (handler,) = set(manager.handler)
        return handler


def test_workers_of_upstream_still_end_by_ctrl_c():
    with ctrl_c(signal.default_int_handler):
        assert in_workers(OfUpstream) == 'default_int_handler', 'remove the workaround'


@pytest.mark.parametrize('manager', ['subprocess', 'async_subprocess'])
def test_workers_leave_ctrl_c_to_the_process_of_their_manager(manager):
    with ctrl_c(signal.default_int_handler):
        assert in_workers(OfThisPackage, manager) == 'SIG_IGN'
        assert name_of_handler() == 'default_int_handler', 'in the process of the manager'


def test_workers_keep_the_handler_of_the_users_program():
    with ctrl_c(handle_in_own_way):
        assert in_workers(OfThisPackage) == 'handle_in_own_way'


def test_daemons_of_other_libraries_keep_theirs():
    """gymnasium's AsyncVectorEnv would wait for ever for workers that outlive a Ctrl-C."""
    context = multiprocessing.get_context('fork')
    answers = context.SimpleQueue()
    with ctrl_c(signal.default_int_handler):
        process = context.Process(target=lambda: answers.put(OfThisPackage({}).handler), daemon=True)
        process.start()
    assert answers.get() == 'default_int_handler'
    process.join()
