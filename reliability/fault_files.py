"""Files of a run that are damaged when it goes on, and a second run in its folder."""

import hashlib
import io
import os
import pickle
import random
import shutil
import signal
import zipfile
from pathlib import Path
from typing import Callable, Dict, Tuple

import numpy as np
from fault_case import Case, Forked, Seen, expect
from fault_runs import (
    NAME,
    UNENDING,
    check_finished,
    check_gone_on,
    check_saves,
    check_tidy,
    resumed,
    see_saving,
    start,
    wait_for_save,
)

FLIPPED_BYTES = 16


def truncate(path: Path, rng: random.Random) -> None:
    """Cut off anywhere."""
    os.truncate(path, rng.randrange(1, path.stat().st_size))


def flip(path: Path, rng: random.Random) -> None:
    """Some bytes are others."""
    content = bytearray(path.read_bytes())
    for place in rng.sample(range(len(content)), min(FLIPPED_BYTES, len(content))):
        content[place] ^= rng.randrange(1, 256)
    path.write_bytes(content)


def empty(path: Path, rng: random.Random) -> None:
    """Nothing in it."""
    os.truncate(path, 0)


def replace(path: Path, rng: random.Random) -> None:
    """A file of something else: an array, an archive, a pickle, JSON, text, or no text."""
    array, archive = io.BytesIO(), io.BytesIO()
    np.savez(array, frames=np.zeros(3))
    with zipfile.ZipFile(archive, 'w') as file:
        file.writestr('data.pkl', pickle.dumps([1, 2]))
    path.write_bytes(
        rng.choice(
            [array.getvalue(), archive.getvalue(), pickle.dumps({'model': [1]}), b'[]', b'{}', b'7', b'"text"', b'null']
            + [b'no JSON\n', rng.randbytes(3000), b'\xff\xfe\x00']
        )
    )


DAMAGES = {'truncated': truncate, 'flipped bytes': flip, 'emptied': empty, 'foreign': replace}


def _saved(case: Case) -> list:
    """A run that has ended, with two saves."""
    template = case.template
    if template is None:
        check_finished(case, start(case))
    else:
        shutil.copytree(template / NAME, case.folder / NAME)
    pairs = check_saves(case.folder / NAME)
    expect(len(pairs) == 2, f'{len(pairs)} saves are listed; expected 2')
    return pairs


def _digests(folder: Path) -> Dict[str, str]:
    files = [path for path in sorted(folder.rglob('*')) if path.is_file() and 'log' not in path.parts]
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files if path.suffix != '.py'}


def one_of_two(part: str, damage: Callable) -> Callable[[Case], Seen]:
    """
    Overview:
        The newest checkpoint, or the newest buffer, is damaged: the save before it is gone on with.
    """

    def fault(case: Case) -> Seen:
        newest, older = _saved(case)
        damage(case.folder / NAME / newest[part], case.rng)
        env_steps = newest['env_step'] + 40
        run = start(case, env_steps, resume=True)
        check_finished(case, run, env_steps)
        check_gone_on(run.text, older)
        check_tidy(case.folder / NAME)
        return Seen('resumes', run.text)

    return fault


def all_of_them(part: str) -> Callable[[Case], Seen]:
    """
    Overview:
        All saves are damaged, each in a way of its own: a sentence, and all files stay as they are.
    """

    def fault(case: Case) -> Seen:
        for pair in _saved(case):
            name = case.rng.choice(sorted(DAMAGES))
            DAMAGES[name](case.folder / NAME / pair[part], case.rng)
        return _refused(case)

    return fault


def _refused(case: Case) -> Seen:
    before = _digests(case.folder / NAME)
    run = start(case, UNENDING, resume=True)
    _check_refused(case, run, before)
    return Seen('stops', run.text)


def _check_refused(case: Case, run: Forked, before: Dict[str, str]) -> None:
    expect(run.wait() in (1, 2), f'the run ended with exit code {run.code}; expected 1 or 2')
    expect('Traceback' not in run.text, 'a traceback, for a damaged file')
    expect(_digests(case.folder / NAME) == before, 'a file was changed')


def the_list(damage: Callable) -> Callable[[Case], Seen]:
    """
    Overview:
        The list of saves is damaged: it is refused, or what it still says is right.
    """

    def fault(case: Case) -> Seen:
        newest, older = _saved(case)
        path = case.folder / NAME / 'resume' / 'pairs.json'
        damage(path, case.rng)
        case.facts['list'] = path.read_bytes()[:80]
        before, env_steps = _digests(case.folder / NAME), newest['env_step'] + 40
        run = start(case, env_steps, resume=True)
        if run.wait() != 0:
            _check_refused(case, run, before)
            return Seen('stops', run.text)
        check_finished(case, run, env_steps)
        check_gone_on(run.text, newest if 'trying the save before it' not in run.text else older)
        return Seen('resumes', run.text)

    return fault


def beside(name: str, damage: Callable) -> Callable[[Case], Seen]:
    """
    Overview:
        A file that a run can do without is damaged.
    """

    def fault(case: Case) -> Seen:
        _saved(case)
        path = case.folder / NAME / name
        damage(path, case.rng)
        case.facts['content'] = path.read_bytes()[:80]
        return resumed(case, '')

    return fault


def second_run(case: Case) -> Seen:
    """Another process goes on with a run that is under way."""
    first = start(case, UNENDING)
    wait_for_save(case, first)
    second = start(case, UNENDING, resume=True)
    expect(second.wait() in (1, 2), f'the second run ended with exit code {second.code}; expected 1 or 2')
    expect('Traceback' not in second.text, 'a traceback, for a second run')
    expect(f'process {first.pid} trains in' in second.text, 'the second run does not name the first')
    see_saving(case, first)
    first.send(signal.SIGTERM)
    first.wait()
    resumed(case, first.text)
    return Seen('stops', second.text)


CASES: Dict[Tuple[str, str], Callable[[Case], Seen]] = {
    ('second run', 'folder of a run'): second_run,
    ('all damaged', 'checkpoints'): all_of_them('checkpoint'),
    ('all damaged', 'buffers'): all_of_them('buffer'),
}
for _name, _damage in DAMAGES.items():
    CASES[_name, 'checkpoint'] = one_of_two('checkpoint', _damage)
    CASES[_name, 'buffer'] = one_of_two('buffer', _damage)
    CASES[_name, 'list of saves'] = the_list(_damage)
    CASES[_name, 'best score'] = beside('resume/best_score.json', _damage)
    CASES[_name, 'log of the run'] = beside('log/progress.jsonl', _damage)
