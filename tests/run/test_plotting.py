"""`breakout plot`: the curves are the logs, and the figure can be read."""

import os
import re

import cv2
import numpy as np
import pytest
from click.testing import CliRunner

from breakout_cli import main
from breakout_env.run.log import RunLog, RunLogWriter
from breakout_env.run.plotting import COLORS, PANELS, draw_curves
from breakout_env.utils.command_line import shell_command
from helpers.agents import small_network, write_checkpoint


def write_run(folder, rows=100):
    """A run of a million env steps whose scores lie around 10 points, over three hours."""
    rng = np.random.default_rng(0)
    writer = RunLogWriter(folder / 'log' / 'progress.jsonl')
    writer.write('run', run_s=0, env_step=0, updates=0, seed=0, exp_name=folder.name)
    for row in range(1, rows + 1):
        at = dict(run_s=10800 * row / rows, env_step=10**6 * row // rows, updates=10**6 * row // rows // 4)
        jitter = rng.standard_normal()
        learned = dict(dict.fromkeys(('q_value', 'value', 'entropy'), row / rows), loss=0.5 + 0.1 * jitter)
        writer.write(
            'progress',
            **at,
            **(learned if row > 2 else dict.fromkeys(learned)),
            env_steps_per_s=500 + 20 * jitter,
            epsilon=1 - row / rows,
            train_return=5 + jitter,
            memory_bytes=1.5e9 + row,
        )
        if row % 10 == 0:
            writer.write('evaluation', **at, returns=[9, 11])
    return folder


def plot(*args):
    return CliRunner().invoke(main, ['plot', *map(str, args)])


def texts_of(tmp_path, *args):
    """What a figure says."""
    done = plot(*args, '--out', tmp_path / 'figure.svg')
    assert done.exit_code == 0, done.output
    return set(re.findall(r'<text[^>]*>([^<]*)</text>', (tmp_path / 'figure.svg').read_text()))


def test_a_picture_of_every_panel_or_of_those_that_are_named_is_drawn(tmp_path):
    run = write_run(tmp_path / 'dqn')
    done = plot(run, '--out', tmp_path / 'a.png')
    assert (done.exit_code, done.output.strip()) == (0, str(tmp_path / 'a.png'))
    picture = cv2.imread(str(tmp_path / 'a.png'))
    assert (picture[[0, 0, -1, -1], [0, -1, 0, -1]] == 255).all()  # a light background to the corners
    blue = [int(COLORS[0][start : start + 2], 16) for start in (5, 3, 1)]
    assert (picture == blue).all(axis=2).sum() > 1000
    titles, texts = {panel.title for panel in PANELS.values()}, texts_of(tmp_path, run)
    assert titles <= texts
    assert {str(run), 'points a game', '1 GB', 'env steps', '1M', 'human, 31.8 (Mnih et al. 2015)'} <= texts
    texts = texts_of(tmp_path, run, '--what', 'loss', '--what', 'memory', '--x', 'hours')
    assert titles & texts == {'Loss', PANELS['memory'].title} and 'hours of training' in texts


def test_plot_ends_with_the_next_command_for_each_run_that_has_an_agent(tmp_path):
    runs = [write_run(tmp_path / name) for name in ('young', 'one', 'more')]
    for run, count in zip(runs, (0, 2, 3)):
        for updates in range(count):
            write_checkpoint(run / 'ckpt' / f'iteration_{updates}.pth.tar', small_network())
    lines = plot(*runs).output.splitlines()
    newest = runs[1] / 'ckpt' / 'iteration_1.pth.tar'
    expected = [
        shell_command('breakout', 'eval', '--checkpoint', newest),
        shell_command('breakout', 'average', runs[2]),
    ]
    assert lines == ['curves.png', *(f'  next:              {command}' for command in expected)]


@pytest.mark.parametrize('x, end', [('env_step', 1e6), ('hours', 3), ('updates', 250_000)])
def test_a_curve_has_the_values_of_the_log(tmp_path, x, end):
    log = RunLog.read(write_run(tmp_path / 'dqn'))
    axes, noisy_axes = draw_curves({'dqn': log}, ['epsilon', 'loss'], x).axes
    (line,), (smooth,) = axes.lines, noisy_axes.lines
    np.testing.assert_array_equal(line.get_xdata(), log.progress[x])
    np.testing.assert_array_equal(line.get_ydata(), log.progress['epsilon'])
    assert line.get_xdata()[-1] == end
    np.testing.assert_array_equal(smooth.get_xdata(), log.progress[x][2:])  # the first two have no loss yet
    assert smooth.get_ydata().std() < log.progress['loss'][2:].std()


@pytest.mark.parametrize(
    'options, code, error',
    [
        (['--out', 'figure.txt'], 2, "--out figure.txt: Format 'txt' is not supported (supported formats: "),
        (['--out', 'nowhere/figure.png'], 2, "No such file or directory: 'nowhere/figure.png'"),
        (['--what', 'score'], 1, 'no run has values of score over env_step yet; there are values of train_return, '),
    ],
)
def test_what_can_not_be_drawn_is_said_in_one_line(tmp_path, options, code, error):
    done = plot(write_run(tmp_path / 'dqn', rows=9), *options)  # before the first evaluation
    assert done.exit_code == code and error in done.output.splitlines()[-1] and os.listdir(tmp_path) == ['dqn']
