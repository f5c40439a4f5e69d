"""The start of a run: one error for whatever ends it, and a run that did not begin leaves no folder."""

import os
from pathlib import Path

import pytest

from breakout_env.run.start import NewFolder, StartError, environments_start


@pytest.mark.parametrize(
    'error, cause',
    [
        (RuntimeError('it did not answer (env.manager.connect_timeout)'), r'it did not answer \(env.*_timeout\)'),
        (OSError(11, 'Resource temporarily unavailable'), r'\[Errno 11\] Resource temporarily unavailable'),
        (AssertionError(), r'AssertionError\(\)'),
        (
            ValueError('\nEnv Process Exception:\n  File "env.py", line 3\nValueError(\'no ROM.\')'),
            r"ValueError\('no ROM.'\)",
        ),
    ],
)
def test_an_error_of_the_start_is_one_line_with_cause_and_load(error, cause, monkeypatch):
    monkeypatch.setattr(os, 'getloadavg', lambda: (8.26, 0.0, 0.0))
    monkeypatch.setattr(os, 'sched_getaffinity', lambda pid: {0, 1})
    with pytest.raises(
        StartError, match=f'^the environments did not start: {cause}. The load average is 8.3 on 2 cores$'
    ):
        with environments_start():
            raise error


@pytest.mark.parametrize('begun', [False, True])
@pytest.mark.parametrize('error', [StartError, KeyboardInterrupt])
def test_only_a_run_that_has_not_begun_gives_its_folder_back(begun, error, tmp_path):
    folder = Path(tmp_path, 'run')
    (folder / 'log').mkdir(parents=True)
    with pytest.raises(error), NewFolder(str(folder), begun=False) as new_folder:
        new_folder.begun = begun
        raise error
    assert folder.exists() == begun
