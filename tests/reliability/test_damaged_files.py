"""Damaged files of a run's folder: the save before is resumed, or an error message names the file."""

import io
import os
import pickle
import random
import re
import subprocess
from pathlib import Path
from typing import Any, Callable, Dict, List

import numpy as np
import pytest
import xxhash

from helpers.faulty_runs import (
    NAME,
    UNENDING,
    FaultyRun,
    check_resumed_from,
    check_saves,
    check_tidy,
    promise,
)

REFUSED = 'An error message names the file; all files stay as they are.'
OLDER = 'A warning names the damaged file; the save before it is used.'


def truncate(path: Path, rng: random.Random) -> None:
    os.truncate(path, rng.randrange(path.stat().st_size))


def flip_bytes(path: Path, rng: random.Random) -> None:
    content = bytearray(path.read_bytes())
    for place in rng.sample(range(len(content)), min(16, len(content))):
        content[place] ^= rng.randrange(1, 256)
    path.write_bytes(content)


def replace(path: Path, rng: random.Random) -> None:
    """A file of something else: an archive, a pickle, JSON, text, or random bytes."""
    array = io.BytesIO()
    np.savez(array, frames=np.zeros(3))
    others = [array.getvalue(), pickle.dumps({'model': [1]}), rng.randbytes(3000), b'', b'[]', b'7', b'no JSON\n']
    path.write_bytes(rng.choice(others))


DAMAGES = {'truncated': truncate, 'flipped bytes': flip_bytes, 'foreign': replace}


def damages(on: str, outcome: str, words: str, *values: Any) -> List[Any]:
    return [promise(on, fault, outcome, words, damage, *values) for fault, damage in DAMAGES.items()]


@pytest.fixture(scope='module')
def completed_run(tmp_path_factory) -> Path:
    """The folder of a run that has completed, with two saves."""
    folder = tmp_path_factory.mktemp('completed')
    FaultyRun(folder).completes()
    return folder / NAME


@pytest.fixture
def two_saves(place, completed_run) -> List[Any]:
    """A copy of that run in the test's folder; its saves, the newest first."""
    subprocess.run(['cp', '-r', completed_run, place.folder / NAME], check=True)
    saves = check_saves(place.folder / NAME)
    assert len(saves) == 2
    return saves


def refused(place: Any, run: FaultyRun, before: Dict[Path, str]) -> None:
    """It ended with an error message, and changed no file."""
    assert run.wait() in (1, 2) and 'Traceback' not in run.text, run.text
    assert digests(place.folder / NAME) == before


def digests(folder: Path) -> Dict[Path, str]:
    files = [path for path in folder.rglob('*') if path.is_file() and 'log' not in path.parts and path.suffix != '.py']
    return {path: xxhash.xxh3_128_hexdigest(path.read_bytes()) for path in files}


@pytest.mark.parametrize(
    'damage, part',
    [
        *damages('checkpoint', 'Is resumed', OLDER, 'checkpoint'),
        *damages('buffer', 'Is resumed', OLDER, 'buffer'),
    ],
)
def test_the_save_before_a_damaged_one_is_resumed(place, two_saves, seed, damage: Callable, part):
    newest, older = two_saves
    damage(place.folder / NAME / newest[part], place.rng)
    run = FaultyRun(place.folder, newest['env_step'] + 40, resume=True)
    run.completes(newest['env_step'] + 40)
    assert 'trying the save before it' in run.text
    check_resumed_from(older, run.text)


@pytest.mark.parametrize(
    'part',
    [
        promise('checkpoints', 'all damaged', 'Stops', REFUSED, 'checkpoint'),
        promise('buffers', 'all damaged', 'Stops', REFUSED, 'buffer'),
    ],
)
def test_without_a_usable_save_nothing_is_changed(place, two_saves, seed, part):
    for save in two_saves:
        DAMAGES[place.rng.choice(sorted(DAMAGES))](place.folder / NAME / save[part], place.rng)
    before = digests(place.folder / NAME)
    run = FaultyRun(place.folder, UNENDING, resume=True)
    refused(place, run, before)
    assert re.search('no save of the run in .* can be used', run.text), run.text


@pytest.mark.parametrize(
    'damage', damages('list of saves', 'Stops', f'{REFUSED} A save of a readable list is used if its digest is right.')
)
def test_a_damaged_list_of_saves_is_refused_or_still_right(place, two_saves, seed, damage):
    newest, older = two_saves
    damage(place.folder / NAME / 'resume' / 'pairs.json', place.rng)
    before, env_steps = digests(place.folder / NAME), newest['env_step'] + 40
    run = FaultyRun(place.folder, env_steps, resume=True)
    if run.wait() == 0:
        check_resumed_from(newest if 'trying the save before it' not in run.text else older, run.text)
        check_tidy(run.folder)
    else:
        refused(place, run, before)


@pytest.mark.parametrize('damage', damages('best score', 'Is resumed', 'Resumed without it.'))
def test_a_run_is_resumed_without_a_damaged_file_beside_its_saves(place, two_saves, seed, damage):
    damage(place.folder / NAME / 'resume/best_score.json', place.rng)
    env_steps = two_saves[0]['env_step'] + 40
    run = FaultyRun(place.folder, env_steps, resume=True)
    run.completes(env_steps)
    check_resumed_from(two_saves[0], run.text)
