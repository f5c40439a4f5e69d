"""The start of a run: one error for whatever ends it, and a run that did not begin leaves no folder."""

import pytest

from breakout_env.run.start import environments_start, remove_unless_begun
from breakout_env.utils.child_process import HelperError


@pytest.mark.parametrize(
    'error, cause',
    [
        (OSError(11, 'Resource temporarily unavailable'), r'\[Errno 11\] Resource temporarily unavailable'),
        (AssertionError(), r'AssertionError\(\)'),
        (RuntimeError('it did not answer.'), 'it did not answer'),
        (ValueError('\n  File "env.py", line 3\nValueError(\'no ROM\')'), r"ValueError\('no ROM'\)"),
    ],
)
def test_an_error_of_the_start_is_one_line_with_cause_and_load(error, cause, monkeypatch):
    monkeypatch.setattr('os.getloadavg', lambda: (12.5, 3.0, 1.0))
    busy = r'\. The load average is 12\.5 on \d+ cores'
    with pytest.raises(HelperError, match=f'^the environments did not start: {cause}{busy}$'), environments_start():
        raise error


@pytest.mark.parametrize('begun', [False, True])
def test_only_a_run_that_has_not_begun_gives_its_folder_back(begun, tmp_path):
    (tmp_path / 'run' / 'log').mkdir(parents=True)
    if begun:
        (tmp_path / 'run' / 'total_config.py').touch()
    remove_unless_begun(str(tmp_path / 'run'))
    assert (tmp_path / 'run').exists() == begun
