"""The progress hook: its line on a terminal, its rows in the log and TensorBoard, its clock, its options."""

import io
import json
import os
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest
from easydict import EasyDict

from breakout_env.run.folder import new_folder
from breakout_env.run.progress import ProgressOptions, RunProgress
from breakout_env.utils import run_registry


class ProgressRun:
    """A learner, and a clock that is set by hand."""

    def __init__(self, folder: Path, **options) -> None:
        self.now_s, self.folder, self.scalars = 0.0, folder, []
        self.learner = SimpleNamespace(
            exp_name=str(folder),
            collector_envstep=0,
            last_iter=SimpleNamespace(val=0),
            policy=SimpleNamespace(
                get_attribute=lambda name: EasyDict(learn=dict(learning_rate=0.1)), set_attribute=self.set
            ),
            log_buffer={'scalar': {}},
            tb_logger=SimpleNamespace(add_scalar=lambda *event: self.scalars.append(event)),
            info=lambda text: None,
        )
        self.progress = RunProgress(self.learner, ProgressOptions(**options), lambda: self.now_s)

    def set(self, name: str, value: float) -> None:
        setattr(self, name, value)

    def look(self, now_s: float, env_step: int = 0, updates: int = 0) -> None:
        self.now_s, self.learner.collector_envstep, self.learner.last_iter.val = now_s, env_step, updates
        self.progress.poll()

    def rows(self, kind: str = 'progress') -> list:
        lines = (self.folder / 'log' / 'progress.jsonl').read_text().splitlines()
        return [row for row in map(json.loads, lines) if row['kind'] == kind]


@pytest.fixture
def screen(monkeypatch):
    """A terminal of 200 columns in place of stderr, and what is drawn on it."""
    drawn = io.StringIO()
    drawn.isatty, drawn.fileno = lambda: True, lambda: -1
    streams = SimpleNamespace(stdout=io.StringIO(), stderr=drawn)
    for module in ('breakout_env.run.progress_line', 'tqdm.std'):
        monkeypatch.setattr(f'{module}.sys', streams)
    set_columns(200, monkeypatch)
    return drawn


def set_columns(columns: int, monkeypatch) -> None:
    monkeypatch.setattr('os.get_terminal_size', lambda descriptor: os.terminal_size((columns, 40)))
    monkeypatch.setenv('COLUMNS', str(columns))
    monkeypatch.setenv('LINES', '40')


def test_the_line_of_a_resumed_run_has_scores_speed_and_time_left(tmp_path, screen):
    run = ProgressRun(tmp_path, max_env_step=2_000_000, max_hours=3.0)
    collector = EasyDict(envstep=0, game_return_mean=3.5, epsilon=0.5, games=7)
    run_registry.register(str(tmp_path), 'collector', collector)
    run.look(0.0)
    assert 'before the first update, ' in screen.getvalue()
    run.look(0.0, 0, 250_000)
    run.progress.load_state(dict(run_s=3600.0, scores=dict(last=2.0, best=5.0)))
    for i in range(10):
        run.look(1.0 + i, 1_000_000 + 250 * i, 250_000)
    line = [line for line in screen.getvalue().split('\r') if line.strip()][-1]
    assert re.search(r' 50%.*1\.00M/2\.00M \[\d+:\d+<1:06:3\d, 250 env steps/s', line), line
    assert 'evaluation score 2.0 (best 5.0), training score 3.5, ' in line and 'at most 1:59:50 left' in line
    run.progress.close()
    assert screen.getvalue().endswith('\n')  # the shell's prompt starts in a new line


def last_line(screen) -> str:
    return [line for line in screen.getvalue().split('\r') if line.strip()][-1]


PLAY, EVALUATION = 'random play, 90 of 200 env steps', 'evaluating, game 3 of 8'


@pytest.mark.parametrize(
    'on_a_terminal, role, activity, line',
    [
        (True, 'collector', PLAY, rf'{PLAY} \[00:\d\d, [\d.]+ GB\]'),
        (True, 'evaluator', EVALUATION, rf'{EVALUATION}:  50%\|.*500/1.*'),
        (True, 'evaluator', None, r'50%\|.*'),
        (False, 'collector', PLAY, rf'{PLAY}, [\d.]+ GB'),
        (False, 'evaluator', EVALUATION, rf'{EVALUATION}, 500 of 1,000 env steps.*'),
        (False, 'evaluator', None, r'500 of 1,000 env steps \(50%\).*'),
    ],
)
def test_a_line_says_what_a_run_does_while_it_does_not_learn(
    on_a_terminal, role, activity, line, tmp_path, request, capsys
):
    """Random play is no progress of learning."""
    screen = request.getfixturevalue('screen') if on_a_terminal else None
    run = ProgressRun(tmp_path, max_env_step=1000, print_every_s=2.0)
    run_registry.register(str(tmp_path), role, part := EasyDict(activity=activity))
    run.look(0.0, 500, 1)
    said = capsys.readouterr().out
    assert part and re.fullmatch(line, last_line(screen).strip() if screen else said.splitlines()[1])
    assert not (screen and said)


def test_a_message_is_printed_above_the_line(tmp_path, capsys, screen):
    run = ProgressRun(tmp_path, max_env_step=1000)
    run.look(0.0, 500, 1)
    before, length = last_line(screen), len(screen.getvalue())
    run.progress.warn('the memory is full')
    assert capsys.readouterr().out == 'the memory is full\n'
    assert re.search(r'\r +\r', screen.getvalue()[length:]) and last_line(screen) == before, 'cleared and drawn again'


@pytest.mark.parametrize('activity', [None, 'random play, 90 of 200 env steps'])
def test_no_line_is_wider_than_its_terminal_and_wraps(activity, tmp_path, screen, monkeypatch):
    set_columns(60, monkeypatch)
    run = ProgressRun(tmp_path)  # without a limit in env steps
    run_registry.register(str(tmp_path), 'collector', part := EasyDict(game_return_mean=3.5, activity=activity))
    run.progress.note_evaluation([1.0])
    run.look(0.0, 5, 1)
    assert part and len(re.sub(r'\x1b\[A|\n', '', last_line(screen))) == 59


def test_a_log_file_gets_the_folder_and_a_line_every_ten_seconds(tmp_path, capsys):
    run = ProgressRun(tmp_path, max_env_step=1000, print_every_s=10.0)
    for second in range(25):
        run.look(float(second), 10 * second, second // 2)
    first, *lines = capsys.readouterr().out.splitlines()
    assert first == f'Training in {tmp_path}' and len(lines) == 3
    assert re.fullmatch(r'200 of 1,000 .* \(20%\), 10 env steps/s, 0:01:20 left .*, 0.50 updates/s, .* GB', lines[2])


def test_speeds_are_those_of_the_last_minute(tmp_path):
    run = ProgressRun(tmp_path, log_every_s=1e-9)
    for second in range(0, 200, 5):
        run.look(float(second), min(second, 100) * 10 + max(second - 100, 0) * 50)
    speeds = [row['env_steps_per_s'] for row in run.rows()]
    assert speeds[0] is None and speeds[10] == 10 and speeds[-1] == 50


def test_a_row_is_written_when_it_is_due_and_at_the_end(tmp_path):
    run = ProgressRun(tmp_path, log_every_s=10.0)
    for i in range(50):
        run.look(i / 2, 5 * i)
    run.progress.close()
    run.look(60.0)
    assert [row['env_step'] for row in run.rows()] == [0, 100, 200, 245]


def test_a_row_has_the_values_of_the_newest_update(tmp_path):
    """DI-engine empties the learner's values after each update, and most looks come from the collector."""
    run = ProgressRun(tmp_path, log_every_s=1e-9)
    for second, loss in enumerate((3.0, 2.0)):
        run.now_s = float(2 * second)
        run.learner.log_buffer['scalar'].update(total_loss=loss, value=1.0, entropy=0.5, cur_lr=0.1)
        run.progress.after_update()
        run.learner.log_buffer['scalar'].clear()
        run.look(2 * second + 1.0, env_step=50)
    assert [row['loss'] for row in run.rows()] == [3.0, 3.0, 2.0, 2.0]
    run.learner.log_buffer['scalar'].update(total_loss=float('nan'))  # of any policy
    with pytest.raises(ValueError, match='the loss is infinite or not a number.*policy.learn.learning_rate'):
        run.progress.after_update()
    # values that no part of the run provides are unknown, not 0
    last = run.rows()[-1]
    assert (last['value'], last['entropy'], last['q_value']) == (1.0, 0.5, None)
    assert last['replay_bytes'] is last['games'] is last['epsilon'] is None and last['memory_bytes'] > 10**7
    # TensorBoard has curves of the rest, but for those that the learner writes
    assert ('progress_step/memory_bytes', last['memory_bytes'], 50) in run.scalars
    names = ('memory_bytes', 'env_steps_per_s', 'updates_per_s')
    assert {name for name, _, _ in run.scalars} == {f'progress_step/{name}' for name in names}


def test_a_run_and_its_evaluations_have_rows_of_their_own(tmp_path):
    run = ProgressRun(tmp_path)
    run.learner.collector_envstep = 40
    run.progress.note_evaluation([1.0, 4.0])
    run.progress.note_evaluation([1.0], updates=3, env_step=30)
    (start,) = run.rows('run')
    assert (start['exp_name'], start['learning_rate'], start['env_step']) == (str(tmp_path), 0.1, 40)
    first, second = run.rows('evaluation')
    assert (first['returns'], first['env_step']) == ([1.0, 4.0], 40)
    assert (second['returns'], second['updates'], second['env_step']) == ([1.0], 3, 30)
    assert run.progress.state()['scores'] == dict(last=1.0, best=2.5)


def test_runs_that_start_side_by_side_get_folders_of_their_own(tmp_path):
    with ThreadPoolExecutor(4) as threads:
        names = set(threads.map(new_folder, [str(tmp_path / 'run')] * 4))
    assert len(names) == 4 and all(re.fullmatch(r'.*/run(_\d{6}_\d{6})?', name) for name in names)


def test_the_used_share_is_that_of_the_limit_that_is_nearest(tmp_path):
    run = ProgressRun(tmp_path / 'run', max_env_step=1000, max_hours=2.0)
    shares = []
    for now_s, env_step in ((0.0, 0), (3600.0, 100), (3600.0, 900), (3600.0, 2000)):
        run.look(now_s, env_step, 5)
        shares.append(run.progress.budget_used)
    assert shares == [0.0, 0.5, 0.9, 1.0]
    run.learner.collector_envstep = 700
    run.progress.load_state(dict(run_s=900.0, scores={}))  # a resumed run collects before it updates
    assert run.budget_used == 0.7
    by_updates = ProgressRun(tmp_path / 'updates', max_updates=20)
    by_updates.look(0.0, 100, 5)
    assert by_updates.progress.budget_used == 0.25
    collector = EasyDict(envstep=0, games=15)
    run_registry.register(str(tmp_path / 'games'), 'collector', collector)
    assert ProgressRun(tmp_path / 'games', max_games=20).progress.budget_used == 0.75
    assert ProgressRun(tmp_path / 'other').progress.budget_used is None
