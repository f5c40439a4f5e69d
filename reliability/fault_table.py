"""
What is promised for each fault: a class of faults on a role, what becomes of the run, and what it says.

The suite fails where something else is seen. The table in docs/reliability.md is printed from here:

    python reliability/fault_table.py [--chinese]
"""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Dict, List, Optional

# Each text of the table in Chinese.
CHINESE = Path(__file__).with_name('fault_table.zh-CN.json')
CONTINUES, RESUMES, STOPS = 'continues', 'resumes', 'stops'


@dataclass(frozen=True)
class Promise:
    """
    Overview:
        A row of the table.

        - ``fault``, ``role``: What happens to what.
        - ``outcome``: ``continues``: the run, or the game, goes to its end by itself. ``resumes``: it is gone, or a \
          file of it is, and ``--resume`` goes on from a whole save. ``stops``: it ends by itself and says why. With \
          ``or`` between them where the details of the fault decide.
        - ``promise``: The same in a sentence.
        - ``message``: Regular expression of what is said; None if nothing has to be.
        - ``silent``: Regular expression of what must not be said.
        - ``times``: How often it is tried, compared to the others.
    """

    fault: str
    role: str
    outcome: str
    promise: str
    message: Optional[str] = None
    silent: Optional[str] = None
    times: int = 1


_SAVED_ALWAYS = 'Gone on with from the last whole save: updates, env steps and transitions are of one moment.'
_LOST = 'The games in it are lost, the steps it had not handed over are played again by a new process.'
_SENTENCE_AND_SAVE = 'It says that it stops, finishes what is under way, saves, and ends; nothing is lost.'
_GIVEN_UP = r'the recording of this game is given up|may be incomplete'
_VIDEO = 'The video of this game is given up, the game goes on, and the next game is recorded whole.'
_WINDOW_GIVEN_UP = r'the window is given up, the game goes on without it'
_WINDOW = 'The window is given up, the game goes on without it; a new game may open another.'
_DISPLAY = 'The window is given up, the game goes on without it; another window is refused in a sentence.'
_BEFORE = 'That it can not be used is said, and the save before it is gone on with.'
_REFUSED = 'It is refused in a sentence, and all files stay as they are.'
_ERROR = 'The error of the environment ends the run, which saves first; gone on with, it goes to its end.'

TABLE: List[Promise] = [
    Promise('SIGKILL', 'env worker', CONTINUES, _LOST, r'lost a step: worker process \d+ has ended \(signal 9\)'),
    Promise('SIGTERM', 'env worker', CONTINUES, _LOST, r'lost a step: worker process \d+ has ended \(signal 15\)'),
    Promise(
        'SIGSTOP',
        'env worker',
        CONTINUES,
        f'After `step_timeout` it is killed. {_LOST}',
        r'lost a step: worker process \d+ did not answer within',
    ),
    Promise(
        'SIGSTOP, SIGCONT',
        'env worker',
        CONTINUES,
        'All wait for it; within `step_timeout` nothing is lost.',
        silent='lost a step',
    ),
    Promise('SIGKILL', "evaluator's env worker", CONTINUES, _LOST),
    Promise('SIGKILL', 'env worker, overlapped run', CONTINUES, _LOST, r'lost a step: worker process \d+ has ended'),
    Promise(
        'SIGSTOP',
        'env worker, overlapped run',
        CONTINUES,
        f'After `step_timeout` it is killed. {_LOST}',
        r'lost a step: worker process \d+ did not answer within',
    ),
    Promise('SIGKILL', 'learner', RESUMES, f'Its workers end by themselves. {_SAVED_ALWAYS}', 'Going on with'),
    Promise('SIGTERM', 'learner', STOPS, _SENTENCE_AND_SAVE, r'Stopping: '),
    Promise(
        'SIGSTOP',
        'learner',
        RESUMES,
        'Nothing inside a run can tell that its learner stands still: it waits until somebody lets it go on or kills '
        f'it. {_SAVED_ALWAYS}',
        'Going on with',
    ),
    Promise('SIGSTOP, SIGCONT', 'learner', CONTINUES, 'Nothing is lost.', silent='lost a step'),
    Promise('SIGKILL', 'learner, overlapped run', RESUMES, _SAVED_ALWAYS, 'Going on with'),
    Promise('SIGTERM', 'learner, overlapped run', STOPS, _SENTENCE_AND_SAVE, r'Stopping: '),
    Promise('SIGKILL', 'whole run', RESUMES, _SAVED_ALWAYS, 'Going on with', times=5),
    Promise('SIGTERM', 'whole run', STOPS, _SENTENCE_AND_SAVE, r'Stopping: '),
    Promise('SIGINT', 'whole run', STOPS, _SENTENCE_AND_SAVE, r'Stopping: '),
    Promise('SIGSTOP, SIGCONT', 'whole run', CONTINUES, 'Nothing is lost.', silent='lost a step'),
    Promise(
        'SIGKILL',
        'background saver',
        RESUMES,
        'A save that is not whole is as if it was never begun, and is removed by the next.',
        'Going on with',
    ),
    Promise(
        'exception',
        'background saver',
        CONTINUES,
        'The save that fails is told, the save before it is kept, the next one is tried.',
        r'was not saved.*The save before it is kept',
    ),
    Promise('exception', 'emulator step', STOPS, _ERROR, 'planted'),
    Promise('exception', 'emulator reset in a step', STOPS, _ERROR, 'planted'),
    Promise(
        'exception',
        'first emulator reset',
        STOPS,
        'The run does not begin: tries and error are told.',
        r'reset has exceeded max retries\(1\), and the latest exception is: (.|\n)*planted',
    ),
    Promise('exception', 'resize', STOPS, _ERROR, 'planted'),
    Promise('hang', 'emulator step', CONTINUES, f'After `step_timeout` it is killed. {_LOST}', 'did not answer within'),
    Promise(
        'hang',
        'emulator reset in a step',
        CONTINUES,
        f'After `step_timeout` it is killed. {_LOST}',
        'did not answer within',
    ),
    Promise(
        'hang',
        'first emulator reset',
        STOPS,
        'After `reset_timeout` it is killed; after `max_retry` tries the run ends and says so.',
        r'reset has exceeded max retries\(1\), and the latest exception is: .*did not answer within',
    ),
    Promise(
        'hang',
        'first emulator reset, two tries',
        CONTINUES,
        'After `reset_timeout` it is killed; with `max_retry=2` a new process begins the game.',
    ),
    Promise('hang', 'resize', CONTINUES, f'After `step_timeout` it is killed. {_LOST}', 'did not answer within'),
    Promise('exception', 'recorder', CONTINUES, _VIDEO, _GIVEN_UP),
    Promise('exception', 'encoder', CONTINUES, _VIDEO, _GIVEN_UP),
    Promise('hang', 'encoder', CONTINUES, _VIDEO, _GIVEN_UP),
    Promise('SIGKILL', 'encoder', CONTINUES, _VIDEO, _GIVEN_UP),
    Promise('SIGTERM', 'encoder', CONTINUES, _VIDEO, _GIVEN_UP),
    Promise('SIGSTOP', 'encoder', CONTINUES, _VIDEO, _GIVEN_UP),
    Promise('SIGSTOP, SIGCONT', 'encoder', CONTINUES, 'Both videos are whole.', silent=_GIVEN_UP),
    Promise('full', 'disk of the videos', CONTINUES, _VIDEO, _GIVEN_UP),
    Promise('read-only', 'disk of the videos', CONTINUES, _VIDEO, _GIVEN_UP),
    Promise('exception', 'window', CONTINUES, _WINDOW, _WINDOW_GIVEN_UP),
    Promise('hang', 'window', CONTINUES, _WINDOW, _WINDOW_GIVEN_UP),
    Promise('SIGKILL', 'window', CONTINUES, _WINDOW, _WINDOW_GIVEN_UP),
    Promise('SIGTERM', 'window', CONTINUES, _WINDOW, _WINDOW_GIVEN_UP),
    Promise('SIGSTOP', 'window', CONTINUES, _WINDOW, _WINDOW_GIVEN_UP),
    Promise('SIGSTOP, SIGCONT', 'window', CONTINUES, 'The window stays.', silent='given up'),
    Promise('SIGKILL', 'display', CONTINUES, _DISPLAY, _WINDOW_GIVEN_UP),
    Promise('SIGTERM', 'display', CONTINUES, _DISPLAY, _WINDOW_GIVEN_UP),
    Promise('SIGSTOP', 'display', CONTINUES, _DISPLAY, _WINDOW_GIVEN_UP),
    Promise(
        'full',
        'disk of the run',
        CONTINUES,
        'Saves that fail are told, the save before them is kept; with room again, it saves again.',
        r'No space left on device',
    ),
    Promise(
        'full',
        'disk of the run, at its end',
        STOPS,
        'That the end was not saved is told, and the save before it is gone on with.',
        r'No space left on device',
    ),
    Promise(
        'read-only',
        'disk of the run',
        CONTINUES,
        'Saves that fail are told, the save before them is kept; when it can be written to, it saves again.',
        r'Read-only file system',
    ),
    Promise('slow', 'disk of the run', CONTINUES, 'Saves take longer; playing and learning do not wait for them.'),
    Promise('slow', 'copies for saves', CONTINUES, 'Fewer saves; none is written over one that is listed.'),
    Promise('clock set back', 'whole run', CONTINUES, 'Saves and timeouts go by another clock; nothing is lost.'),
    Promise('clock set on', 'whole run', CONTINUES, 'Saves and timeouts go by another clock; nothing is lost.'),
    Promise(
        'second run',
        'folder of a run',
        STOPS,
        'The second says which process has the folder, and ends; the first goes on.',
        r'process \d+ trains in .* already; expected to go on with a run that was stopped',
    ),
    *[
        Promise(fault, role, RESUMES, _BEFORE, 'trying the save before it')
        for role in ('checkpoint', 'buffer')
        for fault in ('truncated', 'flipped bytes', 'emptied', 'foreign')
    ],
    Promise('all damaged', 'checkpoints', STOPS, _REFUSED, r'no save of the run in .* can be used'),
    Promise('all damaged', 'buffers', STOPS, _REFUSED, r'no save of the run in .* can be used'),
    *[
        Promise(fault, 'list of saves', STOPS, _REFUSED, r'pairs.json is damaged')
        for fault in ('truncated', 'emptied', 'foreign')
    ],
    Promise(
        'flipped bytes',
        'list of saves',
        f'{STOPS} or {RESUMES}',
        f'{_REFUSED} Where the list can still be read, a save is used if it is what was listed, byte for byte.',
        r'pairs.json is damaged|can be used|Going on with',
    ),
    *[
        Promise(fault, role, RESUMES, 'It is done without.', 'Going on with')
        for role in ('best score', 'log of the run')
        for fault in ('truncated', 'flipped bytes', 'emptied', 'foreign')
    ],
]


def as_markdown(words: Optional[Dict[str, str]] = None) -> str:
    """
    Overview:
        The table for the guide, a row for all faults on a role that have the same promise.
    Arguments:
        - words (:obj:`Optional[Dict[str, str]]`): Another language's for each text of the table.
    """
    say = (lambda text: text) if words is None else words.__getitem__
    faults: Dict[tuple, List[str]] = {}
    for p in TABLE:
        faults.setdefault((p.role, p.outcome, p.promise), []).append(p.fault)
    lines = [
        f'| {" | ".join(map(say, ("on", "fault", "what becomes of it", "in words")))} |',
        '| --- | --- | --- | --- |',
    ]
    for (role, outcome, promise), names in faults.items():
        lines.append(f'| {say(role)} | {"; ".join(map(say, names))} | {say(outcome)} | {say(promise)} |')
    return '\n'.join(lines)


if __name__ == '__main__':
    print(as_markdown(json.loads(CHINESE.read_text()) if '--chinese' in sys.argv[1:] else None))
