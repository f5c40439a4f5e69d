"""One run in many processes: nothing is lost or counted twice without a word, whoever dies, and nobody is left."""

import contextlib
import json
import multiprocessing
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Iterator, List

import psutil
import pytest
import torch
from ding.framework import Task
from ding.framework.parallel import Parallel
from easydict import EasyDict
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboardX import SummaryWriter

from breakout_env.agent.agent import load_agent
from breakout_env.distributed import compact
from breakout_env.distributed.collectors import Collectors
from breakout_env.distributed.launcher import Launcher
from breakout_env.distributed.link import ElasticTask
from breakout_env.distributed.members import Members
from breakout_env.distributed.node import LearnerGone, Node, Refused, fingerprint
from breakout_env.distributed.remote_evaluator import RemoteEvaluator
from breakout_env.distributed.weights import from_bytes
from breakout_env.run.config import config_of_node
from breakout_env.run.log import RunLog
from breakout_env.run.saver import pairs_in
from helpers.processes import ENVIRON, ROOT, Command, free_port, wait_until
from helpers.runs import NAME, RANDOM, UPDATES, as_before, config_in, saved_transitions  # noqa: F401

PROGRAM = [sys.executable, str(ROOT / 'entry' / 'breakout_dqn_dist.py')]
PIECE = 32
FULL_GAMES = (
    r"evaluator=dict\(type='resumable', import_names=\['breakout_env'\]\)",
    "evaluator=dict(type='resumable', import_names=['breakout_env']), "
    "collector=dict(type='full_games', import_names=['breakout_env'])",
)


# ---------------------------------------------------------------- the protocol, over a queue that promises nothing


class Bus(object):
    """What stands for DI-engine's queues: it loses messages, sends them twice, and mixes up their order."""

    def __init__(self, seed: int, loss: float, twice: float) -> None:
        self._random = random.Random(seed)
        self._loss, self._twice = loss, twice
        self._takers = []
        self._pool = []
        self.lost = 0
        self._lock = threading.Lock()

    def link(self, name: str) -> 'BusLink':
        return BusLink(self, name)

    def send(self, sender: 'BusLink', kind: str, message: dict) -> None:
        with self._lock:
            takers = [take for link, its_kind, take in self._takers if its_kind == kind and link is not sender]
            for take in takers:
                if sender.is_cut or self._random.random() < self._loss:
                    self.lost += 1
                    continue
                for _ in range(1 + (self._random.random() < self._twice)):
                    threading.Timer(self._random.random() * 0.05, take, [message]).start()

    def on(self, link: 'BusLink', kind: str, take) -> None:
        self._takers.append((link, kind, take))


class BusLink(object):
    """A ``Link`` on it."""

    where, attached = 'the bus', ()

    def check(self) -> None:
        pass

    def __init__(self, bus: Bus, name: str) -> None:
        self.name = name
        self.is_cut = False
        self._bus = bus

    def on(self, kind: str, take) -> None:
        self._bus.on(self, kind, lambda message: None if self.is_cut else take(message))

    def send(self, kind: str, message: dict) -> None:
        self._bus.send(self, kind, message)


class Players(object):
    """A learner's side and a few nodes that play numbers instead of games, all in threads."""

    def __init__(self, tmp_path: Path, loss: float, twice: float, count: int, **timeouts: float) -> None:
        self.bus = Bus(0, loss, twice)
        self.said: List[str] = []
        self.members = Members(self.bus.link('learner'), 'same', self.said.append, timeouts.get('lost_after_s', 10))
        link = self.bus.link('learner')
        self.collectors = Collectors(link, self.members, str(tmp_path), 4, self.said.append)
        self.closing = threading.Event()
        self.links = {}
        self.threads = []
        for i in range(count):
            self.join(f'{i}')

    def join(self, name: str) -> None:
        self.links[name] = self.bus.link(name)
        thread = threading.Thread(target=self._play, args=(self.links[name],), daemon=True)
        thread.start()
        self.threads.append(thread)

    def _play(self, link: BusLink) -> None:
        node = Node(link, 'collector', 'same', 60, self.said.append, self.closing.is_set)
        number = 0
        while not node.should_end():
            order = node.next_order(lambda order: '')
            if order is None or link.is_cut:
                continue
            transitions = []
            for _ in range(4):
                number += 1
                transitions.append(dict(reward=float(number), name=node.name))
            answer = dict(
                payload=compact.pack(transitions), env_steps=4, episodes=1, games=[1.0], weights=0, records=[]
            )
            node.answer(order, 'piece', answer)
        node.leave('the run is over')

    def close(self) -> None:
        self.members.finish()
        self.closing.set()
        self.members.close()
        for thread in self.threads:
            thread.join()


def test_each_env_step_counts_once_over_a_queue_that_loses_and_repeats_messages(tmp_path):
    players = Players(tmp_path, loss=0.3, twice=0.3, count=3)
    players.collectors.open(random_steps=0, step_limit=200)
    seen = []
    end_s = time.monotonic() + 60
    while players.collectors.envstep < 200 and time.monotonic() < end_s:
        piece = players.collectors.next_piece(1.0)
        if piece is not None:
            seen += [(transition['name'], transition['reward']) for transition in piece.transitions]
    players.collectors.close()
    players.close()
    assert players.collectors.envstep == len(seen) == 200 and players.collectors.games == 50
    assert len(set(seen)) == 200
    # a player's transitions have no holes: none was lost
    for name in players.links:
        mine = sorted(reward for its_name, reward in seen if its_name == name)
        assert mine == list(range(1, len(mine) + 1)) and mine
    assert players.bus.lost > 30


def test_who_is_cut_off_is_given_up_with_a_word_and_taken_again(tmp_path):
    players = Players(tmp_path, loss=0, twice=0, count=2, lost_after_s=2)
    players.collectors.open(random_steps=0, step_limit=None)

    def collect(seconds: float) -> set:
        end_s = time.monotonic() + seconds
        names = set()
        while time.monotonic() < end_s:
            piece = players.collectors.next_piece(0.2)
            names |= {transition['name'] for transition in piece.transitions} if piece else set()
            time.sleep(0.02)
        return names

    assert collect(2.5) == {'0', '1'}
    players.links['0'].is_cut = True
    collect(3.5)
    assert any(
        'collector 0' in text and 'no word from it' in text and '1 collector now' in text for text in players.said
    )
    assert collect(1) == {'1'}
    players.links['0'].is_cut = False
    assert wait_until(lambda: players.collectors.number == 2, 5)
    assert collect(1) == {'0', '1'}
    players.collectors.close()
    players.close()
    text = '\n'.join(players.said)
    played = re.findall(r'collector \d .*Of (\d+) env steps that it said it played, (\d+) came', text)
    assert len(played) == 3 and all(int(said) >= int(came) > 0 for said, came in played)
    late = sum(map(int, re.findall(r'(\d+) env steps came too late', text)))
    assert sum(int(came) for _, came in played) == players.collectors.envstep + late


def test_a_damaged_piece_is_told_and_costs_nothing_else(tmp_path):
    players = Players(tmp_path, loss=0, twice=0, count=0)
    players.collectors.open(random_steps=0, step_limit=8)
    link = players.bus.link('x')
    sent = []

    def answer(message: dict) -> None:
        for order in message['orders'].get('x', []):
            if order['number'] not in sent:
                sent.append(order['number'])
                payload = b'broken' if len(sent) == 1 else compact.pack([dict(reward=1.0)] * 4)
                link.send(
                    'piece',
                    dict(
                        name='x',
                        session=message['session'],
                        number=order['number'],
                        payload=payload,
                        env_steps=4,
                        played_steps=4 * len(sent),
                        episodes=0,
                        games=[],
                        weights=0,
                        records=[],
                    ),
                )

    link.on('orders', answer)
    hello = dict(name='x', role='collector', place='here', fingerprint='same', session=None, weights=None)
    link.send('hello', dict(hello, lacking=[], played_steps=0))
    pieces = [players.collectors.next_piece(5) for _ in range(3)]
    assert sum(piece is not None for piece in pieces) == 2 and players.collectors.envstep == 8
    assert any('is lost, 4 env steps: a piece of play can not be read' in text for text in players.said)
    players.members.finish()
    players.close()


def test_another_config_is_refused_in_a_sentence(tmp_path):
    players = Players(tmp_path, loss=0, twice=0, count=0)
    node = Node(players.bus.link('x'), 'collector', 'other', 60, print, lambda: False)

    def refused() -> bool:
        try:
            node.next_order(lambda order: '')
        except Refused as error:
            return "(other) is not the learner's (same); expected the same version" in str(error)
        return False

    assert wait_until(refused, 5) and players.collectors.number == 0
    assert sum('is refused' in text for text in players.said) == 1
    node.leave('refused')
    players.close()


def test_a_second_learner_on_the_channel_is_told(tmp_path):
    players = Players(tmp_path, loss=0, twice=0, count=0)
    other = Members(players.bus.link('other'), 'same', print)
    assert wait_until(lambda: any('Another learner' in text for text in players.said), 5)
    time.sleep(2.5)
    assert sum('Another learner' in text for text in players.said) == 1
    other.close()
    players.close()


def test_a_learner_that_is_gone_is_waited_for_so_long_and_no_longer():
    said = []
    node = Node(Bus(0, 0, 0).link('x'), 'collector', 'same', 6, said.append, lambda: False)
    begin_s = time.monotonic()
    with pytest.raises(LearnerGone, match='no word from a learner at the bus for 6 seconds; expected one there'):
        while True:
            node.next_order(lambda order: '')
    assert 6 <= time.monotonic() - begin_s < 8
    assert said == ['No word from the learner yet; waiting 6 seconds for it.']
    node.leave('gone')


class Scripted(object):
    """A node that does what a test says: it hears orders, and answers when it is told to."""

    def __init__(self, bus: Bus, name: str, role: str = 'collector') -> None:
        self.link, self.name, self.session, self.orders, self.weights = bus.link(name), name, None, {}, {}
        self._role = role
        self.link.on('orders', self._hear)
        self.link.on('weights', lambda message: self.weights.update({message['purpose']: message['payload']}))
        self.hello()

    def _hear(self, message: dict) -> None:
        self.session = message['session']
        self.orders.update({order['number']: order for order in message['orders'].get(self.name, [])})

    def hello(self) -> None:
        hello = dict(name=self.name, role=self._role, place='here', fingerprint='same', session=self.session)
        self.link.send('hello', dict(hello, weights=0, lacking=[], played_steps=0))

    def answer(self, kind: str, number: int, **more) -> None:
        whose = dict(name=self.name, session=self.session, number=number, played_steps=0)
        self.link.send(kind, dict(whose, **more))

    def play(self, number: int) -> None:
        payload = compact.pack([dict(reward=1.0)] * 4)
        self.answer('piece', number, payload=payload, env_steps=4, episodes=0, games=[], weights=0, records=[])

    def bye(self) -> None:
        self.link.send('bye', dict(name=self.name, session=self.session, played_steps=0, reason='it is gone'))


def test_random_play_comes_first_and_that_of_a_lost_collector_again(tmp_path):
    players = Players(tmp_path, loss=0, twice=0, count=0)
    slow, other = Scripted(players.bus, 'slow'), Scripted(players.bus, 'other')
    assert wait_until(lambda: players.collectors.number == 2)
    players.collectors.settings = dict(eps=0.5)
    players.collectors.open(random_steps=8, step_limit=None)
    assert wait_until(lambda: len(slow.orders) + len(other.orders) == 2)
    time.sleep(0.3)  # for an order that must not come
    orders = [*slow.orders.values(), *other.orders.values()]
    assert [order['is_random'] for order in orders] == [True, True]
    lost = slow if slow.orders else other
    kept = other if lost is slow else slow
    for number in list(kept.orders):
        kept.play(number)
    before = set(kept.orders)
    lost.bye()
    assert wait_until(lambda: set(kept.orders) - before, 5)
    again = [kept.orders[number] for number in sorted(set(kept.orders) - before)]
    assert again[0]['is_random'] and again[0]['settings'] == {}
    done = 0
    while players.collectors.envstep < 8:
        for number in sorted(kept.orders)[done:]:
            kept.play(number)
            done += 1
        players.collectors.next_piece(0.2)
    assert wait_until(lambda: any(not order['is_random'] for order in kept.orders.values()))
    first = next(order for order in kept.orders.values() if not order['is_random'])
    assert first['settings'] == dict(eps=0.5) and first['env_step'] >= 4
    kept.bye()
    players.collectors.close()
    players.close()


def test_no_more_play_lies_ready_than_a_piece_for_each_collector_and_two(tmp_path):
    players = Players(tmp_path, loss=0, twice=0, count=6)
    players.collectors.open(random_steps=0, step_limit=None)
    most = 0
    for _ in range(40):  # a learner that is slower than they are
        players.collectors.next_piece(5)
        time.sleep(0.1)
        most = max(most, len(players.collectors._ready))
    assert 2 <= most <= 6 + 2
    players.collectors.close()
    players.close()


def evaluator_of(players: Players, tmp_path: Path, network: torch.nn.Module) -> RemoteEvaluator:
    mode = SimpleNamespace(state_dict=lambda: dict(model=network.state_dict()))
    policy = SimpleNamespace(learn_mode=mode, eval_mode=mode)
    cfg = EasyDict(eval_freq=10, stop_value=1000)
    writer = SummaryWriter(str(tmp_path / 'log'))
    return RemoteEvaluator(cfg, players.bus.link('learner'), players.members, str(tmp_path), policy, writer, print)


def test_the_best_checkpoint_is_what_was_evaluated_whoever_did_it(tmp_path):
    players = Players(tmp_path, loss=0, twice=0, count=0)
    network = torch.nn.Linear(2, 1)
    evaluator = evaluator_of(players, tmp_path, network)
    asked = {name: value.clone() for name, value in network.state_dict().items()}
    evaluator.begin(7, 28)
    first = Scripted(players.bus, 'first', 'evaluator')
    assert wait_until(lambda: first.orders and first.weights)
    (number,) = first.orders
    assert from_bytes(first.weights[str(number)])['weight'].equal(asked['weight'])
    with torch.no_grad():
        network.weight += 1  # the learner goes on
    first.bye()
    second = Scripted(players.bus, 'second', 'evaluator')
    assert wait_until(lambda: second.orders and second.weights)
    first.answer('evaluated', number, returns=[100.0], records=[])  # it was given up
    time.sleep(0.3)
    assert evaluator.look() is False and evaluator.is_under_way
    (number,) = second.orders
    assert from_bytes(second.weights[str(number)])['weight'].equal(asked['weight'])
    second.answer('evaluated', number, returns=[3.0, 5.0], records=[])
    assert wait_until(lambda: evaluator.look() or not evaluator.is_under_way)
    best = torch.load(tmp_path / 'ckpt' / 'ckpt_best.pth.tar', weights_only=True)
    assert best['model']['weight'].equal(asked['weight']) and (best['last_iter'], best['last_step']) == (7, 28)
    assert evaluator.state() == dict(best_score=4.0, last_iteration=7)
    second.bye()
    players.close()


@pytest.mark.parametrize('option', ['nstep=3', 'frame_stack=4', 'n_sample=256'])
def test_a_config_that_plays_otherwise_has_another_fingerprint(tmp_path, option):
    text = (ROOT / 'configs' / 'breakout_dqn_cpu_config.py').read_text()
    assert option in text
    prints = []
    for name, changed in (
        ('same', text.replace('collector_env_num=8', 'collector_env_num=4')),
        ('as_it_is', text),
        (
            'other',
            text.replace(option, option[:-1] + '1').replace(
                'obs_shape=[4,', 'obs_shape=[1,' if 'stack' in option else 'obs_shape=[4,'
            ),
        ),
    ):
        (tmp_path / f'{name}.py').write_text(changed)
        prints.append(fingerprint(config_of_node(str(tmp_path / f'{name}.py'), 0)))
    assert prints[0] == prints[1] != prints[2]


# ---------------------------------------------------------------- what is worked around, upstream


class Router(object):
    """DI-engine's router, as far as a task uses it."""

    def __init__(self) -> None:
        self.is_active, self.node_id, self.labels, self.sent = True, 1, set(), []

    def on(self, event: str, take) -> None:
        pass

    def off(self, event: str) -> None:
        pass

    def emit(self, event: str, *args) -> None:
        self.sent.append(event)


@pytest.mark.parametrize('kind, says_finish', [(Task, True), (ElasticTask, False)])
def test_a_process_that_leaves_does_not_end_the_others(kind, says_finish):
    """DI-engine's own task does; when it no longer does, ``ElasticTask`` can go."""
    task = kind()
    task.router = Router()
    with task.start():
        pass
    assert ('task.finish' in task.router.sent) is says_finish


def test_an_error_in_a_listener_ends_the_listening_upstream():
    """When this no longer holds, ``Link`` need not catch errors."""
    loop = Parallel()._event_loop
    loop.on('broken', lambda: 1 / 0)
    loop.emit('broken')
    try:
        assert wait_until(lambda: loop._exception is not None)
        with pytest.raises(ZeroDivisionError):
            loop.emit('broken')
    finally:
        loop._exception = None
        loop.off('broken')


# ---------------------------------------------------------------- the launcher


def script(folder: Path, name: str, text: str) -> list:
    path = folder / f'{name}.py'
    path.write_text(text)
    return [sys.executable, str(path)]


WAIT = 'import time\nopen("{0}", "a").write("x")\ntime.sleep(60)\n'


@contextlib.contextmanager
def launched(commands: dict, said: list) -> Iterator[multiprocessing.Process]:
    """The launcher in a process of its own; it must leave nobody."""
    context = multiprocessing.get_context('fork')
    queue = context.Queue()

    def launch() -> None:
        learner = 'learner' if 'learner' in commands else None
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # ignored where the tests themselves run under nohup
        sys.exit(Launcher(commands, lambda text: (queue.put(text), None)[1], learner).run())

    process = context.Process(target=launch)
    process.start()
    children = []
    try:
        yield process
        process.join(30)
    finally:
        with contextlib.suppress(psutil.NoSuchProcess):
            children = psutil.Process(process.pid).children(recursive=True)
        process.kill()
        process.join()
        while not queue.empty():
            said.append(queue.get())
        for child in children:
            child.kill()


def test_a_process_that_is_killed_is_started_again(tmp_path):
    said = []
    commands = dict(learner=script(tmp_path, 'learner', WAIT.format(tmp_path / 'l')))
    commands['collector 1'] = script(tmp_path, 'collector', WAIT.format(tmp_path / 'c'))
    with launched(commands, said) as process:

        def lives(name: str) -> int:
            return len((tmp_path / name).read_text()) if (tmp_path / name).exists() else 0

        def child(name: str) -> psutil.Process:
            return next(c for c in psutil.Process(process.pid).children() if name in ' '.join(c.cmdline()))

        assert wait_until(lambda: lives('l') == lives('c') == 1)
        for name in 'lc':
            child('learner.py' if name == 'l' else 'collector.py').kill()
            assert wait_until(lambda name=name: lives(name) == 2)
        left = psutil.Process(process.pid).children()
        for _ in range(2):  # as Slurm does
            os.kill(process.pid, signal.SIGTERM)  # this learner does not save, so it ends at once
        assert wait_until(lambda: not process.is_alive(), 30)
        assert not any(c.is_running() for c in left)
    assert process.exitcode == 128 + signal.SIGTERM
    assert said[:2] == [
        'The learner was killed by SIGKILL; it is started again.',
        'The collector 1 was killed by SIGKILL; it is started again.',
    ]


def test_a_learner_that_is_ending_after_its_terminal_is_gone_is_not_killed(tmp_path):
    ends = 'import signal, time\nfor number in (1, 15): signal.signal(number, lambda *_: exec("""\n'
    ends += 'signal.signal(15, signal.SIG_DFL)\ntime.sleep(1)\nraise SystemExit"""))\n'
    with launched(dict(learner=script(tmp_path, 'learner', ends + WAIT.format(tmp_path / 'l'))), []) as process:
        assert wait_until((tmp_path / 'l').exists)
        os.kill(process.pid, signal.SIGHUP)
        process.join(20)
    assert process.exitcode == 0


def test_an_error_of_the_learner_is_the_end_and_its_exit_code_the_runs(tmp_path):
    said = []
    commands = dict(learner=script(tmp_path, 'learner', 'import sys, time; time.sleep(1); sys.exit(7)'))
    commands['collector 1'] = script(tmp_path, 'collector', 'import time; time.sleep(3)')
    with launched(commands, said) as process:
        process.join(20)
        assert process.exitcode == 7


def test_collectors_of_a_learner_elsewhere_do_not_end_with_the_first_of_them(tmp_path):
    said = []
    commands = {
        'collector 1': script(tmp_path, 'one', 'import time; time.sleep(1)'),
        'collector 2': script(tmp_path, 'two', 'import sys, time; time.sleep(4); sys.exit(2)'),
    }
    begin_s = time.monotonic()
    with launched(commands, said) as process:
        process.join(20)
    assert process.exitcode == 2 and time.monotonic() - begin_s > 4


def test_options_in_the_environment_are_the_launchers_alone(tmp_path, monkeypatch):
    """A number of processes in the environment would make each of them start as many."""
    monkeypatch.setenv('BREAKOUT_DIST_PARALLEL_WORKERS', '2')
    path = tmp_path / 'environment.json'
    text = f'import json, os; json.dump(dict(os.environ), open({str(path)!r}, "w"))'
    with launched(dict(learner=script(tmp_path, 'learner', text)), []) as process:
        process.join(20)
    names = [name for name in json.loads(path.read_text()) if name.startswith('BREAKOUT_DIST')]
    assert names == ['BREAKOUT_DIST_PARENT']


def test_an_impatient_user_ends_everybody(tmp_path):
    deaf = 'import signal, time\nfor number in (2, 15): signal.signal(number, signal.SIG_IGN)\n' + WAIT
    said = []
    commands = dict(learner=script(tmp_path, 'learner', deaf.format(tmp_path / 'l')))
    commands['collector 1'] = script(tmp_path, 'collector', deaf.format(tmp_path / 'c'))
    with launched(commands, said) as process:
        assert wait_until(lambda: (tmp_path / 'l').exists() and (tmp_path / 'c').exists())
        left = psutil.Process(process.pid).children()
        for _ in range(6):
            os.kill(process.pid, signal.SIGINT)
            time.sleep(0.02)
        assert wait_until(lambda: not process.is_alive(), 10)
        assert ended(left)
    assert process.exitcode == 128 + signal.SIGINT


def test_who_does_not_end_with_the_run_is_killed(tmp_path, monkeypatch):
    monkeypatch.setattr('breakout_env.distributed.launcher._END_S', 2.0)
    deaf = 'import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n' + WAIT
    wait_for_them = 'import os, time\nwhile not os.path.exists({!r}): time.sleep(0.1)'
    commands = {}
    commands['collector 1'] = script(tmp_path, 'collector', deaf.format(tmp_path / 'c'))
    note = f'open({str(tmp_path / "asked")!r}, "w")'
    asked = f'import signal, sys\nsignal.signal(signal.SIGTERM, lambda *_: ({note}, sys.exit()))\n'
    commands['evaluator'] = script(tmp_path, 'evaluator', asked + WAIT.format(tmp_path / 'e'))
    commands['learner'] = script(tmp_path, 'learner', wait_for_them.format(str(tmp_path / 'go')))
    with launched(commands, []) as process:
        assert wait_until(lambda: (tmp_path / 'c').exists() and (tmp_path / 'e').exists(), 20)
        left = psutil.Process(process.pid).children()
        (tmp_path / 'go').touch()
        assert wait_until(lambda: not process.is_alive(), 30)
        assert len(left) == 3 and ended(left) and (tmp_path / 'asked').exists()
    assert process.exitcode == 0


def test_a_learner_that_does_not_stop_in_its_time_is_killed(tmp_path, monkeypatch):
    monkeypatch.setattr('breakout_env.distributed.launcher._SAVE_S', 1.0)
    deaf = 'import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n' + WAIT
    with launched(dict(learner=script(tmp_path, 'learner', deaf.format(tmp_path / 'l'))), []) as process:
        assert wait_until(lambda: (tmp_path / 'l').exists(), 20)
        os.kill(process.pid, signal.SIGTERM)
        assert wait_until(lambda: not process.is_alive(), 20)
    assert process.exitcode == 128 + signal.SIGKILL


def test_a_process_that_never_is_of_use_is_given_up(tmp_path):
    said = []
    commands = dict(learner=script(tmp_path, 'learner', 'import time; time.sleep(20)'))
    commands['evaluator'] = script(tmp_path, 'evaluator', 'import sys; sys.exit(2)')
    commands['collector 1'] = script(tmp_path, 'collector', 'import os; os.kill(os.getpid(), 6)')
    with launched(commands, said) as process:
        process.join(26)
    assert sum('collector 1 was killed by SIGABRT; it is started again' in text for text in said) >= 2
    assert not any('evaluator' in text for text in said)


# ---------------------------------------------------------------- real runs


def small_config(folder: Path, *changes) -> Path:
    """
    Two environments, a tiny network, a save each second, games that are cut short. With the manager that the README
    advises: the workers of DI-engine's end with a traceback each when their manager is killed.
    """
    return config_in(
        folder,
        1.0,
        FULL_GAMES,
        (r"type='subprocess', shared_memory=True, reset_inplace=True", "type='breakout'"),
        (r'n_sample=\d+', f'n_sample={PIECE}'),
        (r'eval_freq=\d+', 'eval_freq=200'),
        (r'env=dict\(\n', 'env=dict(\n        max_episode_frames=1200,\n'),
        *changes,
    )


def processes_of(port: int, role: str = '') -> List[psutil.Process]:
    """The processes of a run, by the port in their commands; without the workers that they forked."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            command = process.cmdline()
            is_ours = any(str(port) in argument for argument in command) and 'breakout_dqn_dist.py' in ' '.join(command)
            parent = process.parent()
            is_fork = parent is not None and parent.cmdline() == command
            if is_ours and not is_fork and (not role or f'--role {role}' in ' '.join(command)):
                found.append(process)
    return found


def ended(processes: List[psutil.Process], within_s: float = 20) -> bool:
    return wait_until(lambda: not any(p.is_running() and p.status() != 'zombie' for p in processes), within_s)


def with_workers(processes: List[psutil.Process]) -> List[psutil.Process]:
    return processes + [child for process in processes for child in process.children(recursive=True)]


def counted(text: str) -> dict:
    """What the learner said of env steps: those that came, and those of them that did not count."""
    return dict(
        came=sum(map(int, re.findall(r'it said it played, (\d+) came', text))),
        late=sum(map(int, re.findall(r'(\d+) env steps came too late', text))),
    )


def test_a_run_in_four_processes_does_what_one_process_does(tmp_path):
    """And does not end when a collector and the evaluator are killed."""
    port = free_port()
    config = small_config(tmp_path)
    command = Command(
        [*PROGRAM, '-c', config.name, '--parallel-workers', '4', '--port', str(port), '--env-step', '12000'], tmp_path
    )
    folder = tmp_path / NAME
    command.wait_for(lambda: '2 collectors now' in command.text and 'updates and' in command.text)
    processes_of(port, 'collector')[0].kill()
    processes_of(port, 'evaluator')[0].kill()
    assert command.process.wait(120) == 0, command.text
    assert not processes_of(port), command.text
    text = command.text
    assert 'The collector 1 was killed by SIGKILL; it is started again.' in text
    # the new ones join before or after the silence of the old ones is noticed
    for role, count in (('collector', 2), ('evaluator', 1)):
        assert len(re.findall(rf'{role} \w+ \(.*\) has joined', text)) == count + 1, text
        assert len(re.findall(rf'{role} \w+ \(.*\) is gone \(no word from it', text)) == 1, text
    assert re.search(r'collector .* is gone \(no word from it .*\d+ env steps .* came\.', text), text
    assert 'The budget of 12,000 env steps is used up.' in text and 'Traceback' not in text

    pair = check_pairs_of_pieces(folder)[0]
    assert 12000 <= pair['env_step'] < 12000 + 2 * PIECE
    sums = counted(text)
    # a killed collector's last hello may have been before its last piece; what came is exact
    assert sums['came'] == pair['env_step'] + sums['late'], (sums, pair)
    evaluation = RunLog.read(folder).evaluation
    assert len(evaluation['score']) >= 3 and evaluation['updates'][-1] == pair['iteration']
    best = torch.load(folder / 'ckpt' / 'ckpt_best.pth.tar', weights_only=True)
    scores = dict(zip(evaluation['updates'], evaluation['score']))
    assert scores[best['last_iter']] == max(scores.values())
    load_agent(str(folder / 'ckpt' / 'ckpt_best.pth.tar'))
    events = EventAccumulator(str(folder / 'log' / 'serial'))
    events.Reload()
    tags = events.Tags()
    expected = ['evaluator_step/reward_mean', 'evaluator_step/held_out_q', 'collector_step/reward_mean']
    expected += ['distributed_step/collectors', 'distributed_step/weights_age', 'learner_iter/total_loss_avg']
    assert not set(expected) - set(tags['scalars']), tags
    # three, where the new one has joined before the silence of the killed one was noticed
    assert max(event.value for event in events.Scalars('distributed_step/collectors')) in (2, 3)
    assert 'evaluator/sample_game' in tags['images']


def check_pairs_of_pieces(folder: Path) -> list:
    """All saves can be loaded, and each is between two pieces."""
    pairs = pairs_in(folder)
    assert pairs
    for pair in pairs:
        state = torch.load(folder / pair['checkpoint'], weights_only=True)
        assert (state['last_iter'], state['last_step']) == (pair['iteration'], pair['env_step'])
        assert pair['iteration'] % UPDATES == 0
        transitions = RANDOM + PIECE * pair['iteration'] // UPDATES
        assert saved_transitions(folder / pair['buffer']) == transitions
    return pairs


def test_a_killed_learner_goes_on_from_its_save_and_a_stopped_run_with_resume(tmp_path):
    port = free_port()
    config = small_config(tmp_path)
    folder = tmp_path / NAME
    options = ['-c', config.name, '--parallel-workers', '2', '--port', str(port)]
    command = Command([*PROGRAM, *options, '--env-step', '1000000'], tmp_path)
    command.wait_for(lambda: pairs_in(folder))
    processes_of(port, 'learner')[0].kill()
    command.wait_for(lambda: 'A learner has been started anew' in command.text and 'Going on with' in command.text)
    assert 'The learner was killed by SIGKILL; it is started again.' in command.text
    saved = pairs_in(folder)[0]['env_step']
    command.wait_for(lambda: pairs_in(folder)[0]['env_step'] > saved)
    everybody = with_workers(processes_of(port))
    command.process.terminate()
    assert command.process.wait(60) == 0, command.text
    assert ended(everybody), command.text
    text = command.text
    assert 'Stopping: finishing what is under way' in text and 'Traceback' not in text, text
    stopped = check_pairs_of_pieces(folder)[0]
    # what the last learner said of its session, and what the one before had saved
    begun = int(re.findall(r'Going on with .* updates and ([\d,]+) env steps', text)[-1].replace(',', ''))
    sums = counted(text)
    assert begun + sums['came'] - sums['late'] == stopped['env_step'], (begun, sums, stopped)

    more = ['--resume', NAME, '--env-step', str(stopped['env_step'] + 200)]
    command = Command([*PROGRAM, *options, *more], tmp_path)
    assert command.process.wait(120) == 0, command.text
    at = f'{stopped["iteration"]:,} updates and {stopped["env_step"]:,} env steps'
    assert f'Going on with {NAME} at {at}' in command.text
    last = check_pairs_of_pieces(folder)[0]
    assert stopped['env_step'] + 200 <= last['env_step'] < stopped['env_step'] + 200 + 2 * PIECE
    assert last['iteration'] > stopped['iteration'] and not processes_of(port)


def test_nobody_outlives_a_launcher_that_is_killed(tmp_path):
    port = free_port()
    config = small_config(tmp_path)
    command = Command([*PROGRAM, '-c', config.name, '--parallel-workers', '3', '--port', str(port)], tmp_path)
    command.wait_for(lambda: pairs_in(tmp_path / NAME) and '1 evaluator now' in command.text)
    everybody = with_workers(processes_of(port))
    assert len(everybody) > 5
    command.process.kill()
    assert ended(everybody, 30), [p.cmdline() for p in everybody if p.is_running()]
    check_pairs_of_pieces(tmp_path / NAME)


def test_without_a_learner_a_collector_ends_in_time_and_says_why(tmp_path):
    config = small_config(tmp_path)
    where = f'tcp://127.0.0.1:{free_port()}'
    collect = ['--role', 'collector', '--attach-to', where, '--learner-timeout', '10']
    command = Command([*PROGRAM, '-c', config.name, *collect], tmp_path)
    assert command.process.wait(60) == 1
    lines = command.text.splitlines()
    assert re.fullmatch(rf'Error: no word from a learner at {where} for 1\d seconds; expected one there, .*', lines[-1])
    assert 'Traceback' not in command.text


def test_a_learner_whose_name_nobody_knows_is_waited_for(tmp_path):
    config = small_config(tmp_path)
    collect = ['--role', 'collector', '--attach-to', 'tcp://learner.invalid:50515', '--learner-timeout', '10']
    command = Command([*PROGRAM, '-c', config.name, *collect], tmp_path)
    assert command.process.wait(60) == 1
    assert re.fullmatch(
        r'Error: --attach-to tcp://learner.invalid:50515: .*; expected the .*', command.text.splitlines()[-1]
    )


def test_ditask_starts_it_with_options_in_the_environment(tmp_path):
    config, port = small_config(tmp_path), free_port()
    ditask = [
        str(Path(sys.executable).parent / 'ditask'),
        '--package',
        str(ROOT),
        '--main',
        'entry.breakout_dqn_dist.main',
    ]
    workers = ['--parallel-workers', '2', '--topology', 'star', '--ports', str(port), '--startup-interval', '0']
    environ = dict(ENVIRON, BREAKOUT_DIST_CONFIG=str(config), BREAKOUT_DIST_ENV_STEP='600')

    def run_ditask(*more: str) -> subprocess.CompletedProcess:
        return subprocess.run(
            [*ditask, *more],
            cwd=tmp_path,
            env=environ,
            capture_output=True,
            text=True,
            timeout=150,
            start_new_session=True,
        )

    result = run_ditask(*workers, '--address', '127.0.0.1')
    assert result.returncode == 0, result.stdout + result.stderr
    assert 'The budget of 600 env steps is used up.' in result.stdout
    assert check_pairs_of_pieces(tmp_path / NAME)[0]['env_step'] >= 600
    if Parallel.get_ip() != '127.0.0.1':  # else ditask's own choice is loopback
        result = run_ditask('--ports', str(port))
        assert result.returncode != 0
        assert 'where other machines reach it' in result.stderr.splitlines()[-1]
        assert 'Expected --address 127.0.0.1' in result.stderr.splitlines()[-1]


@pytest.fixture
def redis_port(tmp_path) -> Iterator[int]:
    if shutil.which('redis-server') is None:
        pytest.skip("there is no redis-server; Debian's package of that name has it")
    port = free_port()
    options = ['--port', str(port), '--bind', '127.0.0.1', '--save', '', '--appendonly', 'no']
    server = subprocess.Popen(['redis-server', *options], stdout=subprocess.DEVNULL, cwd=tmp_path)
    try:
        yield port
    finally:
        server.kill()
        server.wait()


def test_it_runs_over_redis(tmp_path, redis_port):
    config = small_config(tmp_path)
    queue = ['--mq-type', 'redis', '--redis-port', str(redis_port)]
    command = Command([*PROGRAM, '-c', config.name, '--parallel-workers', '2', *queue, '--env-step', '600'], tmp_path)
    assert command.process.wait(120) == 0, command.text
    assert 'The budget of 600 env steps is used up.' in command.text and 'Traceback' not in command.text
    sums = counted(command.text)
    assert sums['came'] == check_pairs_of_pieces(tmp_path / NAME)[0]['env_step'] + sums['late']


@pytest.mark.parametrize(
    'options, message',
    [
        (['--parallel-workers', '1'], 'expected at least 2, a learner and a collector, or a --role'),
        (['--role', 'learner', '--parallel-workers', '2'], 'expected one learner'),
        (['--role', 'player'], "'player' is not one of"),
        (['--role', 'learner', '--env-step', '10'], 'expected more than the 64 steps of random play'),
        (['--role', 'learner', '--resume', 'nowhere'], '--resume nowhere: no saved run is there'),
        (['--role', 'learner', '--mq-type', 'redis', '--redis-port', '1'], 'no Redis server answers at 127.0.0.1:1'),
        (['--role', 'collector', '--attach-to', '127.0.0.1:50515'], "is '127.0.0.1:50515'; expected tcp://HOST:PORT"),
        (['--role', 'learner', '--address', '203.0.113.7'], 'can not listen on tcp://203.0.113.7:50515'),
    ],
)
def test_bad_options_get_a_sentence(tmp_path, options, message):
    config = small_config(tmp_path)
    result = subprocess.run(
        [*PROGRAM, '-c', config.name, *options], cwd=tmp_path, env=ENVIRON, capture_output=True, text=True, timeout=60
    )
    assert result.returncode == 2, result.stderr
    assert message in result.stderr.splitlines()[-1]


# ---------------------------------------------------------------- several hosts


class Hosts(object):
    """Machines with addresses of their own, on one bridge: network namespaces."""

    def __init__(self, count: int) -> None:
        self._name = f'bk{os.getpid() % 10000}'
        self.hosts = [f'{self._name}h{i}' for i in range(count)]
        self._ip('netns', 'add', self._name)
        self._ip('-n', self._name, 'link', 'add', 'bridge', 'type', 'bridge')
        self._ip('-n', self._name, 'link', 'set', 'bridge', 'up')
        for i, host in enumerate(self.hosts):
            self._ip('netns', 'add', host)
            self._ip('-n', self._name, 'link', 'add', f'v{i}', 'type', 'veth', 'peer', 'name', 'eth0', 'netns', host)
            self._ip('-n', self._name, 'link', 'set', f'v{i}', 'master', 'bridge', 'up')
            self._ip('-n', host, 'address', 'add', f'{self.address(i)}/24', 'dev', 'eth0')
            for device in ('lo', 'eth0'):
                self._ip('-n', host, 'link', 'set', device, 'up')

    @staticmethod
    def _ip(*arguments: str) -> None:
        subprocess.run(['ip', *arguments], check=True, capture_output=True)

    @staticmethod
    def address(i: int) -> str:
        return f'10.97.13.{i + 1}'

    def inside(self, i: int) -> list:
        return ['ip', 'netns', 'exec', self.hosts[i]]

    def set_link(self, i: int, state: str) -> None:
        self._ip('-n', self._name, 'link', 'set', f'v{i}', state)

    def close(self) -> None:
        for name in [*self.hosts, self._name]:
            subprocess.run(['ip', 'netns', 'delete', name], capture_output=True)


@pytest.fixture
def hosts() -> Iterator[Hosts]:
    made = None
    try:
        made = Hosts(3)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f'network namespaces can not be made here (root and iproute2 can): {error}')
    try:
        yield made
    finally:
        made.close()


def has_played_on(folder: Path, seconds: float = 2.0) -> bool:
    """Whether there are more env steps in the save than so many seconds before."""
    before = pairs_in(folder)
    time.sleep(seconds)
    return bool(before) and pairs_in(folder)[0]['env_step'] > before[0]['env_step']


def test_three_hosts_train_and_one_that_is_cut_off_comes_back(tmp_path, hosts):
    config, port = small_config(tmp_path), free_port()
    learner_at = f'tcp://{hosts.address(0)}:{port}'
    learn = ['--role', 'learner', '--address', hosts.address(0), '--port', str(port)]
    learner = Command([*hosts.inside(0), *PROGRAM, '-c', config.name, *learn], tmp_path)
    collect = [*PROGRAM, '-c', config.name, '--role', 'collector', '--attach-to', learner_at]
    others = [Command([*hosts.inside(i), *collect], tmp_path) for i in (1, 2)]
    again = learner
    try:
        learner.wait_for(lambda: '2 collectors now' in learner.text)
        learner.wait_for(lambda: has_played_on(tmp_path / NAME))
        hosts.set_link(2, 'down')
        learner.wait_for(lambda: 'no word from it for 1' in learner.text)
        learner.wait_for(lambda: has_played_on(tmp_path / NAME))  # the other one
        hosts.set_link(2, 'up')
        learner.wait_for(lambda: learner.text.count('2 collectors now') == 2)
        learner.wait_for(lambda: has_played_on(tmp_path / NAME))
        assert 'No word from the learner; waiting' in others[1].text
        learner.process.terminate()
        assert learner.process.wait(60) == 0, learner.text
        stopped = check_pairs_of_pieces(tmp_path / NAME)[0]
        # they wait for it to go on, wherever a scheduler starts it again, and end with it
        assert all(other.process.poll() is None for other in others)
        assert wait_until(lambda: all('The run is stopped; waiting 120 seconds' in other.text for other in others))
        more = ['--auto-resume', '--exp-name', NAME, '--env-step', str(stopped['env_step'] + 300)]
        again = Command([*hosts.inside(0), *PROGRAM, '-c', config.name, *learn, *more], tmp_path)
        assert again.process.wait(60) == 0, again.text
        assert [other.process.wait(30) for other in others] == [0, 0], [other.text for other in others]
    finally:
        for command in (learner, *others, again):
            if command.process.poll() is None:
                os.killpg(command.process.pid, signal.SIGKILL)
    lives = re.findall(r'(\d+) came\.', learner.text)
    assert len(lives) == 3 and all(int(steps) > 0 for steps in lives), learner.text
    sums = counted(learner.text)
    assert sums['came'] == stopped['env_step'] + sums['late']
    sums = counted(again.text)
    assert sums['came'] - sums['late'] == check_pairs_of_pieces(tmp_path / NAME)[0]['env_step'] - stopped['env_step']


def test_a_process_that_was_asleep_does_not_take_the_others_for_gone(tmp_path):
    port = free_port()
    config = small_config(tmp_path)
    command = Command([*PROGRAM, '-c', config.name, '--parallel-workers', '2', '--port', str(port)], tmp_path)
    command.wait_for(lambda: has_played_on(tmp_path / NAME))
    (learner,) = processes_of(port, 'learner')
    learner.suspend()
    time.sleep(14)
    learner.resume()
    command.wait_for(lambda: has_played_on(tmp_path / NAME))
    command.process.terminate()
    assert command.process.wait(60) == 0 and not processes_of(port), command.text
    assert 'no word from it' not in command.text and command.text.count('has joined') == 1, command.text
    check_pairs_of_pieces(tmp_path / NAME)
