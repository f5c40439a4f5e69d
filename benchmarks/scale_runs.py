"""Trainings in one process or in many, run for a while and looked at from outside, for benchmarks."""

import contextlib
import json
import statistics
import time
from typing import Any, Callable, Dict, List, Optional, Sequence

import counted_queue
import psutil
from processes import COUNTED_DIST, SCALE_CONFIG, Processes, free_port

SINGLE = ('serial', 'overlapped')
LOOK_EVERY_S = 0.25
# more than any of these runs comes to
ENDLESS_STEPS = 10**8


class Training(object):
    """
    Overview:
        A training that runs: in one process (``breakout train``), or a learner and those who serve it, each started \
        by itself, in a context of ``Processes``.
    Interfaces:
        ``window``, ``rows``, ``wait_for_updates``.
    """

    def __init__(
        self,
        processes: Processes,
        mode: str,
        collectors: int = 0,
        evaluators: int = 0,
        launched: bool = False,
        **changes: Any,
    ) -> None:
        """
        Arguments:
            - processes (:obj:`Processes`): Where it runs.
            - mode (:obj:`str`): 'serial', 'overlapped' or 'distributed'.
            - collectors, evaluators (:obj:`int`): Of these so many.
            - launched (:obj:`bool`): Whether the collectors are kept running by the entry's launcher.
            - changes (:obj:`Any`): Variables of scale_config.py.
        """
        self._processes = processes
        self._log = processes.folder / 'run' / 'log' / 'progress.jsonl'
        self.names: List[str] = ['learner']
        if mode in SINGLE:
            options = ['--env-steps', ENDLESS_STEPS, '--exp-name', 'run', '--threads', 1, '--device', 'cpu']
            options += ['--overlap'] if mode == 'overlapped' else ['--serial']
            processes.start('learner', ['-m', 'breakout_env', 'train', '-c', SCALE_CONFIG, *options], **changes)
            return
        common = [COUNTED_DIST, '-c', SCALE_CONFIG, '--threads', 1, '--env-step', ENDLESS_STEPS]
        changes['BREAKOUT_COUNTS'] = processes.folder
        port = free_port()
        attach = ['--attach-to', f'tcp://127.0.0.1:{port}']
        learner = ['--role', 'learner', '--port', port, '--exp-name', 'run']
        processes.start('learner', [*common, *learner], **changes)
        for role, count in dict(collector=collectors, evaluator=evaluators).items():
            together = count if launched and role == 'collector' and count > 1 else 1
            for number in range(1, count // together + 1):
                self.names.append(f'{role} {number}')
                options = ['--role', role, *attach, '--parallel-workers', together]
                processes.start(self.names[-1], [*common, *options], **changes)

    def rows(self) -> List[Dict[str, Any]]:
        """The progress that the run has logged, a row about every half second."""
        rows = []
        with contextlib.suppress(FileNotFoundError):
            for line in self._log.read_text().splitlines():
                with contextlib.suppress(json.JSONDecodeError):  # it is being written
                    rows.append(json.loads(line))
        return [row for row in rows if row['kind'] == 'progress']

    def wait_for_updates(self, warm_up_s: float) -> None:
        """Wait until random play is over, and a little longer."""
        self._processes.wait_until(
            lambda: any(row['updates'] > 0 for row in self.rows()), 'update of the training', timeout_s=240
        )
        time.sleep(warm_up_s)

    def window(self, seconds: float, while_waiting: Any = None) -> Dict[str, Any]:
        """
        Overview:
            Look at the training at the beginning and the end of a time, and at what was done between.
        Arguments:
            - seconds (:obj:`float`): The time.
            - while_waiting (:obj:`Callable`): Called again and again meanwhile.
        Returns:
            - figures (:obj:`Dict[str, Any]`): ``env_steps_per_s``, ``updates_per_s``; ``memory_bytes`` of all \
                processes and by name; ``cpus`` busy by name, and with other programs (``others_cpus``); with many \
                processes, ``wire``: messages and bytes a second by topic.
        """
        begin_s, end_s = time.time(), time.time() + seconds
        before = self._look()
        while time.time() < end_s:
            if while_waiting is not None:
                while_waiting()
            time.sleep(LOOK_EVERY_S)
        after = self._look()
        elapsed_s = after['time'] - before['time']
        trees = {name: self._processes.tree(name) for name in self.names}
        memory = {name: self._processes.memory_bytes(tree) for name, tree in trees.items()}
        figures = speeds([row for row in self.rows() if begin_s <= row['time'] <= end_s])
        figures.update(
            seconds=elapsed_s,
            memory_bytes=sum(memory.values()),
            memory_by_process={name: self._processes.memory_parts(tree) for name, tree in trees.items()},
            cpus={name: (after['cpu_s'][name] - before['cpu_s'][name]) / elapsed_s for name in self.names},
        )
        busy_cpus = (after['busy_s'] - before['busy_s']) / elapsed_s
        figures['others_cpus'] = max(0.0, busy_cpus - sum(figures['cpus'].values()))
        if after['counts']:
            figures['wire'] = wire(before['counts'], after['counts'])
        return figures

    def _look(self) -> Dict[str, Any]:
        counts = {path.name: counted_queue.read(path) for path in self._processes.folder.glob('[0-9]*.json')}
        cpu_s = {name: self._processes.cpu_s(self._processes.tree(name)) for name in self.names}
        return dict(time=time.time(), busy_s=busy_s(), cpu_s=cpu_s, counts=counts)

    def counts_of(self, process: psutil.Process) -> Dict[str, Any]:
        """What one process has sent and received so far."""
        return counted_queue.read(self._processes.folder / f'{process.pid}.json')

    def weights_age_updates(self) -> Optional[float]:
        """Updates between the weights that play was made with and those that learned from it, the mean of the run."""
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

        events = EventAccumulator(str(self._log.parent / 'serial'))
        events.Reload()
        name = 'distributed_step/weights_age'
        if name not in events.Tags()['scalars']:
            return None
        ages = [event.value for event in events.Scalars(name)]
        return statistics.mean(ages[len(ages) // 2 :])  # of the first, play was at random


def busy_s() -> float:
    """Seconds that all CPUs together were busy since the machine was started."""
    times = psutil.cpu_times()
    return sum(times) - times.idle - times.iowait - times.guest - times.guest_nice  # guests are in the users' as well


def wait_for_quiet(others_cpus: float, at_most_s: float, seconds: float = 3.0) -> None:
    """
    Overview:
        Wait until other programs leave the machine alone, but not for ever.
    Arguments:
        - others_cpus (:obj:`float`): Cores that they may take.
        - at_most_s (:obj:`float`): To wait.
        - seconds (:obj:`float`): To look at that.
    """
    end_s = time.monotonic() + at_most_s
    while time.monotonic() < end_s:
        before_s, begin_s = busy_s(), time.monotonic()
        time.sleep(seconds)
        if (busy_s() - before_s) / (time.monotonic() - begin_s) <= others_cpus:
            return


def undisturbed(run: Callable[[int], Dict[str, Any]], others_cpus: float, wait_s: float) -> Dict[str, Any]:
    """
    Overview:
        Make a run when other programs leave the machine alone, and again if they did not meanwhile, three times at \
        most.
    Arguments:
        - run (:obj:`Callable[[int], Dict[str, Any]]`): Makes it, given how often that was tried, and returns figures \
            with ``others_cpus`` among them.
        - others_cpus (:obj:`float`): Cores that others may take.
        - wait_s (:obj:`float`): To wait for it at most, each time.
    Returns:
        - figures (:obj:`Dict[str, Any]`): Of the run that was disturbed least.
    """
    tried: List[Dict[str, Any]] = []
    while len(tried) < 3 and not any(figures['others_cpus'] <= others_cpus for figures in tried):
        wait_for_quiet(others_cpus, wait_s)
        tried.append(run(len(tried)))
    return min(tried, key=lambda figures: figures['others_cpus'])


def speeds(rows: Sequence[Dict[str, Any]]) -> Dict[str, float]:
    """
    Overview:
        Env steps and updates a second. Env steps come a piece at a time, so they are counted from one arrival to \
        another, the first and the last in these rows.
    Arguments:
        - rows (:obj:`Sequence[Dict[str, Any]]`): Of a run's log.
    """
    arrivals = [row for row, before in zip(rows[1:], rows) if row['env_step'] > before['env_step']]
    if len(arrivals) < 2:
        return dict(env_steps_per_s=float('nan'), updates_per_s=float('nan'))
    first, last = arrivals[0], arrivals[-1]
    updates = (rows[-1]['updates'] - rows[0]['updates']) / (rows[-1]['time'] - rows[0]['time'])
    steps = (last['env_step'] - first['env_step']) / (last['time'] - first['time'])
    return dict(env_steps_per_s=steps, updates_per_s=updates)


def wire(before: Dict[str, Any], after: Dict[str, Any]) -> Dict[str, Dict[str, float]]:
    """
    Overview:
        Messages and bytes a second by topic; what goes to several processes counts as often.
    """
    totals: Dict[str, Dict[str, float]] = {}
    for name, then in before.items():
        now = after[name]
        elapsed_s = now['time'] - then['time']
        for topic, sent in now['sent'].items():
            total = totals.setdefault(topic.rsplit('.', 1)[-1], dict(messages_per_s=0.0, bytes_per_s=0.0))
            earlier = then['sent'].get(topic, dict(messages=0, copies_bytes=0))
            if elapsed_s > 0:
                total['messages_per_s'] += (sent['messages'] - earlier['messages']) / elapsed_s
                total['bytes_per_s'] += (sent['copies_bytes'] - earlier['copies_bytes']) / elapsed_s
    return totals
