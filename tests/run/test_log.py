"""A run's log can be read after stops, crashes and full disks."""

import gzip
import json
import logging
import math

import numpy as np
import pytest
import torch

from breakout_env.run.log import RunLog, RunLogWriter


def lines_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture
def path(tmp_path):
    return tmp_path / 'dqn' / 'log' / 'progress.jsonl'


@pytest.fixture
def writer(path):
    return RunLogWriter(path)


def write_a_run(writer):
    writer.write('run', run_s=0.0, env_step=0, updates=0, seed=3, exp_name='experiments/dqn', version='1', commit='abc')
    writer.write('progress', run_s=10.0, env_step=100, updates=0, loss=None, train_return=None, memory_bytes=10**9)
    writer.write('progress', run_s=3600.0, env_step=200, updates=25, loss=0.5, train_return=1.5, memory_bytes=2 * 10**9)
    writer.write('evaluation', run_s=3610.0, env_step=200, updates=25, returns=[1.0, 4.0])


def test_rows_are_read_as_arrays(writer, path):
    write_a_run(writer)
    log = RunLog.read(path)
    assert dict(exp_name='experiments/dqn', seed=3, version='1', commit='abc').items() <= log.starts[-1].items()
    np.testing.assert_array_equal(log.progress['env_step'], [100, 200])
    np.testing.assert_array_equal(log.progress['loss'], [np.nan, 0.5])
    np.testing.assert_array_equal(log.progress['epsilon'], [np.nan, np.nan])  # never written
    np.testing.assert_array_equal(log.progress['hours'], [10 / 3600, 1])
    np.testing.assert_array_equal(log.evaluation['score'], [2.5])
    assert all(column.dtype == np.float64 for column in log.progress.values())


def test_a_run_is_read_from_its_folder_its_file_and_a_gzipped_file(writer, path):
    write_a_run(writer)
    zipped = path.with_name('progress.jsonl.gz')
    zipped.write_bytes(gzip.compress(path.read_bytes()))
    for place in (path.parent.parent, str(path), zipped):
        assert len(RunLog.read(place).progress['run_s']) == 2
    path.unlink()
    assert len(RunLog.read(path.parent.parent).progress['run_s']) == 2


def test_numbers_of_numpy_and_torch_are_written_and_nan_is_null(writer, path):
    values = dict(loss=np.float32(0.5), q_value=torch.tensor(1.5), epsilon=float('nan'), learning_rate=-math.inf)
    writer.write('progress', env_step=np.int64(7), **values)
    writer.write('evaluation', env_step=1, returns=np.array([1.0, np.nan]))
    first, second = lines_of(path)
    assert first['time'] > 1e9 and (first['env_step'], first['loss'], first['q_value']) == (7, 0.5, 1.5)
    assert first['epsilon'] is first['learning_rate'] is None and second['returns'] == [1.0, None]
    assert RunLog.read(path).evaluation['score'] == [1.0]


def test_rows_beyond_the_save_that_a_run_resumed_from_are_left_out(writer, path):
    def rows(kind, *env_steps, **values):
        for env_step in env_steps:
            writer.write(kind, env_step=env_step, **values)

    rows('run', 0, seed=0)
    rows('progress', 100, 200, 300, 400, loss=1.0)
    rows('evaluation', 200, 390, returns=[1.0])
    rows('run', 200, seed=0)  # after a crash: 300, 390 and 400 are lost
    rows('progress', 290, 380, loss=2.0)
    rows('run', 380, seed=0)  # after a graceful stop: nothing is lost
    rows('progress', 470, loss=3.0)
    rows('evaluation', 470, returns=[2.0])
    log = RunLog.read(path)
    np.testing.assert_array_equal(log.progress['env_step'], [100, 200, 290, 380, 470])
    np.testing.assert_array_equal(log.progress['loss'], [1, 1, 2, 2, 3])
    np.testing.assert_array_equal(log.evaluation['env_step'], [200, 470])
    assert [start['env_step'] for start in log.starts] == [0, 200, 380]


@pytest.mark.parametrize('cut', [1, 5, 30])
def test_an_incomplete_last_line_is_left_out_and_damages_no_other(writer, path, cut):
    write_a_run(writer)
    path.write_bytes(path.read_bytes()[:-cut])
    log = RunLog.read(path)
    assert len(log.progress['env_step']) == 2
    assert len(log.evaluation['score']) == (cut == 1)  # only the newline was missing
    RunLogWriter(path).write('progress', env_step=300)
    np.testing.assert_array_equal(RunLog.read(path).progress['env_step'], [100, 200, 300])


@pytest.mark.parametrize('damage', ['{"kind": "progress", "env_st', '{"env_step": 3}'])
def test_a_damaged_line_in_the_middle_is_named(writer, path, damage):
    write_a_run(writer)
    lines = path.read_text().splitlines()
    lines[1] = damage
    path.write_text('\n'.join(lines) + '\n')
    with pytest.raises(ValueError, match=f'{path}, line 2 is damaged, .*; expected a JSON object') as caught:
        RunLog.read(path)
    assert '\n' not in str(caught.value)


def test_a_path_that_is_no_run_gets_an_error_message(tmp_path):
    with pytest.raises(FileNotFoundError, match='is not a run; expected .* its log/progress.jsonl'):
        RunLog.read(tmp_path)
    cut = tmp_path / 'cut.jsonl.gz'
    cut.write_bytes(gzip.compress(b'{}' * 1000)[:30])
    with pytest.raises(ValueError, match='cut.jsonl.gz, line 1 is damaged'):
        RunLog.read(cut)


def test_a_log_that_can_not_be_written_is_one_warning_and_no_error(caplog):
    writer = RunLogWriter('/dev/full')
    with caplog.at_level(logging.WARNING, 'breakout_env'):
        for env_step in range(3):
            writer.write('progress', env_step=env_step)
    assert len(caplog.records) == 1
    assert '/dev/full misses lines, the training continues' in caplog.text and 'No space left' in caplog.text
