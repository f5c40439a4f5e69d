"""
A whole training in small: ``breakout train`` itself, with a tiny network and a few hundred env steps.

It saves all the time, so that a fault at a random moment often meets a save. What is left of it is looked at with
numbers that are known beforehand: with each save go so many updates, env steps and transitions.
"""

import json
import os
import re
import sys
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional

import numpy as np
import torch
import xxhash
from fault_case import Case, Forked, Seen, expect, wait_until
from yapf.yapflib import yapf_api

from breakout_env.cli import main as breakout
from breakout_env.cli import train_command
from breakout_env.env_manager import GroupEnvManager
from breakout_env.replay.buffer import FrameReplayBuffer
from breakout_env.run.saver import pairs_in

NAME = 'run'
RANDOM, N_SAMPLE, UPDATES = 32, 8, 2  # steps of random play, transitions and updates of a collection
CHANGES = {
    'env.collector_env_num': 2,
    'env.evaluator_env_num': 1,
    'env.n_evaluator_episode': 1,
    'env.max_episode_frames': 80,
    'policy.model.encoder_hidden_size_list': [4, 4, 4, 8],
    'policy.random_collect_size': RANDOM,
    'policy.learn.update_per_collect': UPDATES,
    'policy.learn.batch_size': 8,
    'policy.learn.target_update_freq': 25,
    'policy.learn.learner.hook.log_show_after_iter': 10,
    'policy.learn.learner.hook.save_ckpt_after_iter': 100,
    'policy.learn.learner.hook.resume.ext_args': {'save_every_s': 0},
    'policy.learn.learner.hook.progress.ext_args': {'log_every_s': 0.2},
    'policy.collect.n_sample': N_SAMPLE,
    'policy.eval.evaluator.eval_freq': 24,
    'policy.other.replay_buffer.replay_buffer_size': 20000,
}
ENV_STEPS = 160
UNENDING = 10**9


def warm_up() -> None:
    """
    Overview:
        Import what a run imports late, so that runs that are forked from this process have it. PyTorch's optimizers \
        bring ``torch._dynamo`` with the first of them.
    """
    torch.set_num_threads(1)  # before the first computation: threads would not be there after a fork
    train_command._entry()
    torch.optim.Adam([torch.nn.Parameter(torch.zeros(1))])


def words(env_steps: int, resume: bool = False, overlap: bool = False, **changes: Any) -> List[str]:
    """
    Overview:
        The command line of a run.
    Arguments:
        - env_steps (:obj:`int`): Its budget.
        - resume (:obj:`bool`): Whether it goes on.
        - overlap (:obj:`bool`): Whether it collects while it learns.
        - changes (:obj:`Any`): Values of the config, with ``__`` for the points in their paths.
    """
    values = {**CHANGES, **{name.replace('__', '.'): value for name, value in changes.items()}}
    options = [option for path, value in values.items() for option in ('--set', f'{path}={value!r}')]
    return [
        *('train', '--device', 'cpu', '--threads', '1', '--exp-name', NAME, '--env-steps', str(env_steps)),
        *(['--overlap'] if overlap else []),
        *(['--resume'] if resume else []),
        *options,
    ]


def start(
    case: Case,
    env_steps: int = ENV_STEPS,
    arm: Callable[[], None] = lambda: None,
    folder: Optional[Path] = None,
    command: bool = False,
    **options: Any,
) -> Forked:
    """
    Overview:
        Begin a run, or go on with it.
    Arguments:
        - case (:obj:`Case`): Whose.
        - env_steps (:obj:`int`): Its budget.
        - arm (:obj:`Callable`): Called in its process before it begins, to plant something.
        - folder (:obj:`Optional[Path]`): Where; the folder of the case by default.
        - command (:obj:`bool`): Whether it is a new interpreter, as a user starts it, instead of a fork of this one.
        - options (:obj:`Any`): As of ``words``.
    """
    arguments = words(env_steps, **options)

    def run() -> None:
        arm()
        if command:
            os.environ['OMP_NUM_THREADS'] = '1'
            os.execv(sys.executable, [sys.executable, '-m', 'breakout_env', *arguments])
        # DI-engine has yapf format the config that it saves, which takes as long as all the rest of such a run
        yapf_api.FormatCode = lambda text: (text, True)
        breakout(arguments, prog_name='breakout')

    return case.fork(run, folder)


class Moment(object):
    """
    Overview:
        A run says when it has made so many steps of its env managers, through a pipe; evaluations count, too. So the
        moment of a fault is one of the run, on a fast machine and on a slow one.
    Interfaces:
        ``arm``, ``wait``.
    """

    def __init__(self, steps: int) -> None:
        self._steps = steps
        self._read, self._write = os.pipe()

    def arm(self) -> None:
        """In the run's process."""
        step, count = GroupEnvManager.step, [0]

        def counted(manager: GroupEnvManager, actions: Any) -> Any:
            count[0] += 1
            if count[0] == self._steps:
                os.write(self._write, b'.')
            return step(manager, actions)

        GroupEnvManager.step = counted

    def wait(self, run: Forked) -> None:
        """Until it has come."""
        os.set_blocking(self._read, False)

        def has_come() -> bool:
            try:
                return bool(os.read(self._read, 1))
            except BlockingIOError:
                return False

        expect(wait_until(lambda: has_come() or run.ended, 90) and not run.ended, 'the run ended before the fault')
        for end in (self._read, self._write):
            os.close(end)


def random_moment(case: Case) -> Moment:
    """In the first half of a run that goes to its end, evaluations and random play included."""
    steps = case.facts['manager_steps'] = case.rng.randrange(5, 70)
    return Moment(steps)


# ---------------------------------------------------------------------------------------------------- looking at it


def expected_transitions(iteration: int) -> int:
    """Those that were pushed by an update."""
    return RANDOM + N_SAMPLE * iteration // UPDATES


def check_saves(folder: Path) -> List[Dict[str, Any]]:
    """
    Overview:
        All saves that are listed are whole, and of one moment each; the newest first.
    Raises:
        - NotAsPromised: If one is not.
    """
    pairs = pairs_in(folder)
    for pair in pairs:
        path = folder / pair['checkpoint']
        content = path.read_bytes()
        expect(xxhash.xxh3_128_hexdigest(content) == pair['checkpoint_digest'], f'{path.name} is not what was listed')
        state = torch.load(path, weights_only=True)
        found = (state['last_iter'], state['last_step'], _pushed(folder / pair['buffer']))
        expected = (pair['iteration'], pair['env_step'], expected_transitions(pair['iteration']))
        expect(found == expected, f'{path.name} has (updates, env steps, transitions) {found}; expected {expected}')
        expect(pair['iteration'] % UPDATES == 0, f'{path.name} is of the midst of a collection')
    if pairs:
        _check_transitions(folder / pairs[0]['buffer'])
    return pairs


def _pushed(path: Path) -> int:
    """Transitions ever pushed into a saved buffer."""
    with np.load(path) as arrays:
        return json.loads(bytes(arrays['meta']))['next_ticket']


def _check_transitions(path: Path) -> None:
    """The screens of each transition follow each other: what is learned from has been played."""
    buffer = FrameReplayBuffer(dict(FrameReplayBuffer.default_config(), replay_buffer_size=20000))
    try:
        buffer.load_data(str(path))
        for transition in buffer.sample(buffer.count(), 0):
            obs, after = np.asarray(transition['obs']), np.asarray(transition['next_obs'])
            follows = any(np.array_equal(obs[k:], after[: 4 - k]) for k in (1, 2, 3))
            expect(follows or transition['done'], f'a transition in {path.name} is put together wrongly')
            expect(obs.shape == (4, 84, 84) and obs.dtype == np.uint8 and obs.any(), f'{path.name} has empty screens')
    finally:
        buffer.close()


def check_finished(case: Case, run: Forked, env_steps: int = ENV_STEPS, folder: Optional[Path] = None) -> None:
    """
    Overview:
        A run has gone to the end of its budget, and saved that.
    """
    code = run.wait()
    expect(code == 0, f'the run ended with exit code {code}; expected 0, at the end of its budget')
    expect('is used up' in run.text, 'the run has not gone to the end of its budget')
    saved = check_saves((folder or case.folder) / NAME)
    expect(saved and saved[0]['env_step'] >= env_steps, 'the end of the run was not saved')


def continues(case: Case, run: Forked, env_steps: int = ENV_STEPS) -> Seen:
    """
    Overview:
        See a run through that a fault was not to end.
    """
    check_finished(case, run, env_steps)
    check_tidy(case.folder / NAME)
    return Seen('continues', run.text)


def resumed(case: Case, text: str, outcome: str = 'resumes', folder: Optional[Path] = None, **options: Any) -> Seen:
    """
    Overview:
        Go on with a run that has ended, from its last whole save to the end of a budget.
    Arguments:
        - case (:obj:`Case`): Whose.
        - text (:obj:`str`): What the run has said.
        - outcome (:obj:`str`): What the table calls what was seen.
        - folder (:obj:`Optional[Path]`): Where; the folder of the case by default.
        - options (:obj:`Any`): As of ``start``.
    """
    folder = folder or case.folder
    saved = check_saves(folder / NAME)
    if not saved:  # it has ended before its first update
        again = start(case, folder=folder, resume=True, **options)
        expect(again.wait() == 2 and 'found no saved run' in again.text, 'a run without a save was gone on with')
        return Seen(outcome, f'{text}\n{again.text}')
    env_steps = saved[0]['env_step'] + 40
    again = start(case, env_steps, folder=folder, resume=True, **options)
    check_finished(case, again, env_steps, folder)
    check_gone_on(again.text, saved[0])
    check_tidy(folder / NAME)
    return Seen(outcome, f'{text}\n{again.text}')


def check_gone_on(text: str, pair: Dict[str, Any]) -> None:
    """
    Overview:
        A run has gone on from a save: all updates, env steps and transitions of it are there.
    """
    expected = (
        f'at {pair["iteration"]:,} updates and {pair["env_step"]:,} env steps, '
        f'{expected_transitions(pair["iteration"]):,} transitions.'
    )
    found = re.findall(rf'Going on with {NAME} (.*)', text)
    expect(found == [expected], f'the run went on {found or "from nowhere"}; expected {expected}')


def see_saving(case: Case, run: Forked, folder: Optional[Path] = None) -> None:
    """
    Overview:
        A run goes on and saves: a save that is newer than the newest of now.
    """
    path = (folder or case.folder) / NAME / 'resume' / 'pairs.json'
    before = path.stat().st_mtime_ns
    expect(wait_until(lambda: run.ended or path.stat().st_mtime_ns > before, 60), 'it does not save any more')
    expect(not run.ended, f'the run has ended with exit code {run.code}; expected that it goes on')


def check_tidy(folder: Path) -> None:
    """
    Overview:
        No file of a save that was not finished, or is not listed any more.
    """
    listed = {name for pair in pairs_in(folder) for name in (pair['checkpoint'], pair['buffer'])}
    pattern = re.compile(r'resume_\d+\.pth\.tar|buffer_\d+\.npz|.*unfinished')
    files = [path for part in ('ckpt', 'resume') for path in (folder / part).iterdir()]
    left = [path.name for path in files if pattern.match(path.name) and str(path.relative_to(folder)) not in listed]
    expect(not left, f'left in the folder of the run: {", ".join(left)}')


def wait_for_save(case: Case, run: Forked, folder: Optional[Path] = None) -> None:
    """
    Overview:
        Until a save is listed.
    """
    path = (folder or case.folder) / NAME / 'resume' / 'pairs.json'
    expect(wait_until(lambda: path.exists() or run.ended, 120) and not run.ended, 'the run ended before its first save')


def wait_for_text(run: Forked, text: str) -> None:
    """
    Overview:
        Until a run has said something.
    """
    found = wait_until(lambda: text in run.text or run.ended, 60) and text in run.text
    expect(found, f'the run has not said {text!r}')
