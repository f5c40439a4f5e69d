"""
What it costs a learner that many take part: the real protocol, with players that have played already.

    python benchmarks/swarm.py --role players --number 64 --port 50700 --seconds 20
    python benchmarks/swarm.py --role learner --number 64 --port 50700 --seconds 5 --out FILE

The learner's side is that of entry/breakout_dqn_dist.py without the learning: it takes pieces and drops them. The
players, all in one process, are nodes of the same kind as collectors, and answer each order with the same recorded
piece. So what the learner's process takes of the CPU is for signs of life, orders, and taking pieces in. A player says
so little that the others, who are told the same, cost nothing but copies of it on the wire, which are not made here.
"""

import json
import threading
import time
from pathlib import Path

# first, as it keeps from the screen what DI-engine prints while it is imported
import breakout_env  # noqa: F401

# isort: split
import click
import psutil
from ding.framework import Parallel
from processes import Processes
from recorded_pieces import record

from breakout_env.distributed import compact
from breakout_env.distributed.collectors import Collectors
from breakout_env.distributed.link import Link
from breakout_env.distributed.members import Members
from breakout_env.distributed.node import Node

CHANNEL = 'swarm'
EXPECTED = 'the same'  # stands for what learner and players would have to agree on


def learn(number: int, seconds: float, out: str) -> None:
    """
    Overview:
        Wait until all are there, look at the CPU while nothing is ordered, and then while pieces come.
    """
    link = Link(CHANNEL)
    members = Members(link, EXPECTED, say=lambda text: None)
    collectors = Collectors(link, members, CHANNEL, n_sample=256, say=lambda text: None)
    while collectors.number < number:
        time.sleep(0.1)
    this = psutil.Process()
    time.sleep(1)
    before_s = Processes.cpu_s([this])
    time.sleep(seconds)
    idle_cpus = (Processes.cpu_s([this]) - before_s) / seconds

    collectors.open(random_steps=10**9, step_limit=None)
    begin_s = counted_from_s = time.monotonic()
    pieces, before_s = 0, None
    while time.monotonic() - begin_s < seconds + 2:
        piece = collectors.next_piece(timeout_s=0.5)
        pieces += piece is not None
        if before_s is None and time.monotonic() - begin_s > 2:  # the first orders to all are over
            before_s, pieces, counted_from_s = Processes.cpu_s([this]), 0, time.monotonic()
    elapsed_s = time.monotonic() - counted_from_s
    cpus = (Processes.cpu_s([this]) - before_s) / elapsed_s
    figures = dict(number=number, idle_cpus=idle_cpus, cpus=cpus, pieces_per_s=pieces / elapsed_s)
    Path(out).write_text(json.dumps(figures))
    collectors.close()
    members.finish()
    members.close()


def play(number: int, seconds: float) -> None:
    """
    Overview:
        Be all the players.
    """
    payload = compact.pack(record(2, 1.0, False, CHANNEL)[-1])
    end_s = time.monotonic() + seconds

    def player() -> None:
        node = Node(Link(CHANNEL), 'collector', EXPECTED, 60.0, lambda text: None, lambda: False)
        while not node.should_end() and time.monotonic() < end_s:
            order = node.next_order(lambda order: '')
            if order is not None:
                answer = dict(payload=payload, env_steps=256, episodes=0, games=[], weights=0, records=[], play_s=0.0)
                node.answer(order, 'piece', answer)
        node.leave('the time is up')

    players = [threading.Thread(target=player) for _ in range(number)]
    for thread in players:
        thread.start()
        time.sleep(1.0 / number)  # signs of life are spread over the second, as others' are
    for thread in players:
        thread.join()


@click.command(context_settings=dict(show_default=True, help_option_names=['-h', '--help']))
@click.option('--role', required=True, type=click.Choice(['learner', 'players']))
@click.option('--number', default=64, type=click.IntRange(min=1), help='Players.')
@click.option('--port', required=True, type=int, help='Of the learner, on this machine.')
@click.option('--seconds', default=5.0, type=click.FloatRange(min=0.1), help='To look, or to play at most.')
@click.option('--out', type=click.Path(dir_okay=False), help='JSON that the learner writes.')
def main(role: str, number: int, port: int, seconds: float, out: str) -> None:
    """Take part in a swarm."""
    if role == 'learner':
        queue = dict(protocol='tcp', address='127.0.0.1', ports=port)
        Parallel.runner(n_parallel_workers=1, **queue)(learn, number, seconds, out)
    else:
        queue = dict(protocol='ipc', attach_to=[f'tcp://127.0.0.1:{port}'])
        Parallel.runner(n_parallel_workers=1, **queue)(play, number, seconds)


if __name__ == '__main__':
    main()
