"""Which processes of an environment leave Ctrl-C to their parent; run/test_terminal.py presses it at a terminal."""

import signal
from functools import partial

import pytest

from breakout_env import BreakoutEnv
from helpers.managers import GameEnv, launched


def handle_in_own_way(number, frame):
    """A handler of the user's program."""


def handler_now():
    handler = signal.getsignal(signal.SIGINT)
    return handler.name if isinstance(handler, signal.Handlers) else handler.__name__


class OfUpstream(GameEnv):
    handler = property(lambda self: handler_now())


class OfThisPackage(BreakoutEnv):
    handler = property(lambda self: handler_now())


@pytest.mark.parametrize(
    'manager, env_class, handler, in_workers',
    [
        ('subprocess', OfUpstream, signal.default_int_handler, 'default_int_handler'),  # else remove the workaround
        ('subprocess', OfThisPackage, signal.default_int_handler, 'SIG_IGN'),
        ('async_subprocess', OfThisPackage, signal.default_int_handler, 'SIG_IGN'),
        ('subprocess', OfThisPackage, handle_in_own_way, 'handle_in_own_way'),
    ],
)
def test_workers_leave_ctrl_c_to_the_process_of_their_manager(manager, env_class, handler, in_workers, request):
    request.addfinalizer(partial(signal.signal, signal.SIGINT, signal.signal(signal.SIGINT, handler)))
    with launched(manager, env_class, 2) as manager:
        assert set(manager.handler) == {in_workers} and handler_now() == handler.__name__
