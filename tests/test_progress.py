"""What a person sees while it trains: a line on a terminal, a log that curves are drawn from, TensorBoard."""

import datetime
import fcntl
import io
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from easydict import EasyDict
from PIL import Image
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from breakout_env.cli import main
from breakout_env.run.budget import Budget
from breakout_env.run.folder import new_folder
from breakout_env.run.log import RunLog
from breakout_env.run.progress import ProgressHook, RunProgress
from breakout_env.run.saver import pairs_in
from breakout_env.worker.evaluator import ResumableEvaluator
from breakout_env.worker.held_out import held_out_states
from helpers.processes import ENVIRON, Command, run, wait_until
from helpers.runs import NAME, RANDOM, as_before, config_in, ding_serial, entry  # noqa: F401

PROGRESS = (
    r'log_show_after_iter=1,',
    "log_show_after_iter=1, progress=dict(type='progress', name='progress', position='before_run', "
    'ext_args=dict(max_env_step=3000, log_every_s=0.5)),',
)
FULL_GAMES = (r"evaluator=dict\(type='resumable'", "collector=dict(type='full_games'), evaluator=dict(type='resumable'")
COMMAND = [sys.executable, '-m', 'breakout_env', 'train']


def rows_of(folder: Path, kind: str = None) -> list:
    rows = [json.loads(line) for line in (folder / 'log' / 'progress.jsonl').read_text().splitlines()]
    return [row for row in rows if kind in (None, row['kind'])]


def scalars(folder: Path, tag: str) -> list:
    log = EventAccumulator(str(folder / 'log' / 'serial'), size_guidance={'scalars': 0, 'images': 0})
    log.Reload()
    return log.Scalars(tag)


class Terminal(object):
    """A command in a pseudo-terminal of 150 columns, and what it draws there."""

    def __init__(self, command: list, folder: Path) -> None:
        self._screen, terminal = pty.openpty()
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack('HHHH', 40, 150, 0, 0))
        environ = {**ENVIRON, 'TERM': 'xterm-256color'}
        self.process = subprocess.Popen(
            command, cwd=folder, stdin=terminal, stdout=terminal, stderr=terminal, start_new_session=True, env=environ
        )
        os.close(terminal)
        self.text = ''

    def read(self) -> str:
        while select.select([self._screen], [], [], 0.05)[0]:
            try:
                self.text += os.read(self._screen, 65536).decode(errors='replace')
            except OSError:  # the other side is closed
                break
        return self.text

    def wait_for(self, pattern: str, timeout_s: float = 120) -> None:
        assert wait_until(lambda: re.search(pattern, self.read()) or self.process.poll() is not None, timeout_s), (
            self.text
        )
        assert re.search(pattern, self.read()), self.text

    def end(self) -> int:
        code = self.process.wait(120)
        self.read()
        os.close(self._screen)
        return code


@pytest.fixture(scope='module')
def stopped_and_resumed(tmp_path_factory):
    """`breakout train` in a terminal, stopped by Ctrl-C and gone on with; its folder and what both drew."""
    folder = tmp_path_factory.mktemp('terminal')
    config = config_in(folder, 900, PROGRESS, FULL_GAMES)
    first = Terminal([*COMMAND, '-c', str(config), '-s', '7', '--env-steps', '100000'], folder)
    first.wait_for(r'updates/s.*GB')
    first.process.send_signal(signal.SIGINT)
    assert first.end() == 0, first.text
    stopped_at = rows_of(folder / NAME)[-1]
    again = re.search(r'go on: +(breakout .*?)\r?\n', first.text)[1]
    further = str(stopped_at['env_step'] + 1600)  # several whole games, however busy the machine is
    command = [*COMMAND[:3], *again.replace('100000', further).replace('-s 7 ', '').split()[1:]]
    second = Terminal(command, folder)
    assert second.end() == 0, second.text
    return folder, first.text, second.text, stopped_at


def test_a_line_in_the_terminal_says_where_the_run_stands(stopped_and_resumed):
    _, text, _, _ = stopped_and_resumed
    line = re.findall(r'[^\r\n]*updates/s[^\r\n]*', text)[-1]
    # percent, env steps of all, time so far and left, speed
    assert re.search(r'\d+%.*[\d.]+k?/100k \[\d+:\d+<.*env steps/s', line), line
    assert re.search(r'\d+ updates/s, score [\d.]+ \(best [\d.]+\)(, playing [\d.]+)?, \d\.\d GB', line), line


def test_beside_the_line_logs_stay_in_their_files(stopped_and_resumed):
    folder, text, _, _ = stopped_and_resumed
    assert 'Training Iteration' not in text
    assert 'Training Iteration' in (folder / NAME / 'log' / 'learner' / 'learner_logger.txt').read_text()


def test_ctrl_c_saves_and_says_how_to_go_on_and_that_works(stopped_and_resumed):
    folder, first, second, stopped_at = stopped_and_resumed
    assert 'Stopping: finishing what is under way' in first
    assert re.search(r'Going on with .* at [\d,]+ updates', second), second
    runs, rows = rows_of(folder / NAME, 'run'), rows_of(folder / NAME, 'progress')
    assert [run['env_step'] for run in runs][0] < [run['env_step'] for run in runs][1]
    assert runs[1]['env_step'] == stopped_at['env_step']
    # the clock goes on where it was, without the pause
    assert runs[1]['run_s'] == pytest.approx(stopped_at['run_s'], abs=15)
    assert rows[-1]['run_s'] > stopped_at['run_s'] and rows[-1]['games'] >= stopped_at['games']
    assert 'budget' in second and rows[-1]['env_step'] >= stopped_at['env_step'] + 400


def test_the_log_has_all_that_a_curve_needs(stopped_and_resumed):
    folder, _, _, _ = stopped_and_resumed
    rows = rows_of(folder / NAME, 'progress')
    last = rows[-1]
    for name in ('loss', 'q_value', 'learning_rate', 'epsilon', 'env_steps_per_s', 'updates_per_s', 'train_return'):
        assert isinstance(last[name], float), name
    # pages that workers share are counted once in one and in each of them in the other
    assert (
        100e6 < last['memory_bytes'] < last['resident_bytes']
        and last['transitions'] >= RANDOM
        and last['replay_bytes'] > 0
    )
    assert all(a['env_step'] <= b['env_step'] and a['run_s'] < b['run_s'] for a, b in zip(rows, rows[1:]))
    for row in rows_of(folder / NAME, 'evaluation'):
        assert len(row['returns']) == 1 and isinstance(row['held_out_q'], float)
    # the random numbers of a run go on, whichever seed is named when it is resumed
    assert [row['seed'] for row in rows_of(folder / NAME, 'run')] == [7, 7]


def test_tensorboard_has_full_games_memory_resources_and_held_out_q_values(stopped_and_resumed):
    folder, _, _, _ = stopped_and_resumed
    rows = rows_of(folder / NAME, 'progress')
    for name in ('resident_bytes', 'memory_bytes', 'descriptors', 'transitions', 'replay_bytes'):
        written = [(event.step, event.value) for event in scalars(folder / NAME, f'progress_step/{name}')]
        assert sorted(written) == sorted((row['env_step'], float(np.float32(row[name]))) for row in rows), name
    evaluations = rows_of(folder / NAME, 'evaluation')
    q_values = scalars(folder / NAME, 'evaluator_step/held_out_q')
    assert [event.value for event in q_values] == pytest.approx([row['held_out_q'] for row in evaluations])
    assert scalars(folder / NAME, 'collector_step/game_return_mean')


def test_tensorboard_shows_a_game_that_moves(stopped_and_resumed):
    folder, _, _, _ = stopped_and_resumed
    log = EventAccumulator(str(folder / NAME / 'log' / 'serial'), size_guidance={'images': 0})
    log.Reload()
    gif = Image.open(io.BytesIO(log.Images('evaluator/sample_game')[0].encoded_image_string))
    assert gif.format == 'GIF' and gif.size == (168, 168) and gif.n_frames > 10
    pictures = []
    for i in range(gif.n_frames):
        gif.seek(i)
        pictures.append(np.array(gif.convert('L')))
    assert pictures[0].max() > 100  # the wall
    assert len({picture.tobytes() for picture in pictures}) > 5


def test_under_ding_serial_it_is_silent_without_a_terminal_and_logs_all_the_same(tmp_path):
    config = config_in(tmp_path, 900, PROGRESS, FULL_GAMES)
    command = Command(ding_serial(config, 400), tmp_path)
    assert command.process.wait(120) == 0, command.text
    assert 'updates/s' not in command.text and 'Training Iteration' in command.text
    assert rows_of(tmp_path / NAME, 'progress')[-1]['updates'] > 0
    assert rows_of(tmp_path / NAME, 'evaluation')


def test_under_ding_serial_it_draws_in_a_terminal(tmp_path):
    config = config_in(tmp_path, 900, PROGRESS, FULL_GAMES)
    terminal = Terminal(ding_serial(config, 1500), tmp_path)
    terminal.wait_for(r'/3\.00k \[.*updates/s')  # the total is the hook's max_env_step
    assert terminal.end() == 0
    assert 'Training Iteration' not in terminal.text


def test_the_line_of_a_resumed_run_has_the_speed_of_this_process_and_the_time_left(tmp_path, monkeypatch):
    screen, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack('HHHH', 40, 200, 0, 0))
    monkeypatch.setattr('breakout_env.run.progress.LINE_EVERY_S', 0.0)
    policy = SimpleNamespace(get_attribute=lambda name: EasyDict(learn={}))
    learner = SimpleNamespace(
        exp_name=str(tmp_path), collector_envstep=0, last_iter=SimpleNamespace(val=250_000), policy=policy,
        log_buffer={'scalar': {}}, tb_logger=None, info=print,
    )  # fmt: skip
    with os.fdopen(terminal, 'w') as stderr, monkeypatch.context() as patch:
        patch.setattr(sys, 'stderr', stderr)
        progress = RunProgress(learner, 2_000_000, 3.0, 10.0, 5.0)
        progress.look()
        progress.load_state(dict(run_s=3600.0, scores={}))
        for step in range(1_000_000, 1_000_500, 50):
            learner.collector_envstep = step
            time.sleep(0.2)
            progress.look()
        progress.close()
        written = b''
        while select.select([screen], [], [], 0.2)[0]:
            written += os.read(screen, 4096)
    os.close(screen)
    assert written.endswith(b'\n')  # what the shell writes next is not written into it
    drawn = [line for line in written.decode().split('\r') if line.strip()][-1]
    speed, unit = re.search(r'([\d.]+)(k?) env steps/s', drawn).groups()
    assert not unit and 100 < float(speed) < 400, drawn
    left = datetime.datetime.strptime(re.search(r'<([\d:]+)', drawn)[1], '%H:%M:%S')
    assert left.hour * 3600 + left.minute * 60 + left.second == pytest.approx(1_000_000 / float(speed), rel=0.02), drawn
    assert re.search(r' 50%.*1\.00M/2\.00M', drawn) and 'at most 1:59:5' in drawn, drawn


def test_a_row_has_the_loss_of_the_newest_update_whoever_gives_the_turn(tmp_path, monkeypatch):
    """DI-engine empties the values after each update, and most turns come from who plays."""
    monkeypatch.setattr('breakout_env.run.progress.LINE_EVERY_S', 0.0)
    policy = SimpleNamespace(get_attribute=lambda name: EasyDict(learn={}))
    learner = SimpleNamespace(
        exp_name=str(tmp_path), collector_envstep=0, last_iter=SimpleNamespace(val=0), policy=policy,
        log_buffer={'scalar': {}}, tb_logger=None, info=print,
    )  # fmt: skip
    progress = RunProgress(learner, None, None, 1e-9, 5.0)
    for loss in (3.0, 2.0):
        learner.log_buffer['scalar'].update(total_loss=loss, q_value=1.0, cur_lr=0.1)
        progress.after_update()
        learner.log_buffer['scalar'].clear()
        progress.look()
    rows = rows_of(tmp_path, 'progress')
    assert [row['loss'] for row in rows[-2:]] == [2.0, 2.0]
    # what no part of the run tells is unknown, not 0
    assert rows[-1]['replay_bytes'] is rows[-1]['games'] is rows[-1]['epsilon'] is None


def test_after_a_kill_clock_and_games_go_back_to_the_save(tmp_path):
    folder = tmp_path / NAME
    command = Command(ding_serial(config_in(tmp_path, 1, PROGRESS, FULL_GAMES), 1_000_000), tmp_path)

    def stopped_beyond_a_save():
        os.killpg(command.process.pid, signal.SIGSTOP)  # or the next save could come before the kill
        if pairs_in(folder) and rows_of(folder)[-1]['env_step'] > pairs_in(folder)[0]['env_step']:
            return True
        os.killpg(command.process.pid, signal.SIGCONT)

    command.wait_for(stopped_beyond_a_save)
    assert command.end(signal.SIGKILL, whole_group=True) == -signal.SIGKILL
    pair = pairs_in(folder)[0]
    saved = torch.load(folder / pair['checkpoint'], weights_only=True)['resume']
    lost = rows_of(folder)[-1]
    config_in(tmp_path, 900, PROGRESS, FULL_GAMES)
    started_at = time.time()
    run(ding_serial(tmp_path / 'breakout_dqn_demo_config.py', pair['env_step'] + 50), tmp_path, OMP_NUM_THREADS='1')
    again = rows_of(folder, 'run')[1]
    assert again['env_step'] == pair['env_step'] < lost['env_step']
    # the time from the save to the kill and the pause are not in it
    assert 0 <= again['run_s'] - saved['progress']['run_s'] < again['time'] - started_at
    following = [row for row in rows_of(folder, 'progress') if row['time'] > again['time']]
    assert following[0]['games'] == saved['collector']['games']
    steps = RunLog.read(folder).progress['env_step']
    assert (np.diff(steps) >= 0).all() and steps[-1] >= pair['env_step'] + 50


def test_a_budget_ends_at_whichever_comes_first():
    budget = Budget(env_steps=1000, updates=50, episodes=5000, hours=48)
    assert budget.reached(999, 49, 4999, 47.99) is None
    assert budget.reached(1000, 0, 0, 0) == '1,000 env steps'
    assert budget.reached(0, 50, 0, 0) == '50 updates'
    assert budget.reached(0, 0, 5000, 0) == '5,000 episodes'
    assert budget.reached(0, 0, 0, 48.0) == '48 hours'
    assert Budget().reached(10**12, 10**12, 10**12, 1e9) is None


@pytest.mark.parametrize(
    'option, row', [('--updates=40', 'updates'), ('--episodes=3', 'games'), ('--hours=0.003', 'run_s')]
)
def test_each_budget_ends_the_run_with_a_save(tmp_path, option, row):
    config = config_in(tmp_path, 900, PROGRESS, FULL_GAMES)
    command = Command([*COMMAND, '-c', str(config), option], tmp_path)
    assert command.process.wait(120) == 0, command.text
    limit = float(option.split('=')[1]) * (3600 if row == 'run_s' else 1)
    assert limit <= rows_of(tmp_path / NAME)[-1][row] < limit * 1.2 + 12
    assert re.search(r'The budget of .* is used up', command.text)
    assert re.search(r'go on: +breakout train .*--resume', command.text)


BEGINS = (r'resume_training=True', 'resume_training=False')


def test_several_seeds_are_runs_of_their_own_which_one_ctrl_c_stops_all_and_resume_goes_on_with(tmp_path):
    config = config_in(tmp_path, 900, PROGRESS, FULL_GAMES, BEGINS)
    seeds = [*COMMAND, '-c', str(config), '-s', '3', '-s', '5']
    command = Command(seeds, tmp_path)
    first, second = (tmp_path / f'{NAME}_seed{seed}' for seed in (3, 5))
    command.wait_for((first / 'ckpt' / 'iteration_0.pth.tar').exists)
    assert command.end(signal.SIGINT, whole_group=True) == 128 + signal.SIGINT
    assert command.text.count('Stopping') == 1 and pairs_in(first) and not second.exists()
    command = Command([*seeds, '--updates', '10', '--resume'], tmp_path)
    assert command.process.wait(120) == 0, command.text
    assert f'Going on with {NAME}_seed3' in command.text
    assert [[row['seed'] for row in rows_of(folder, 'run')] for folder in (first, second)] == [[3, 3], [5]]


def test_a_scheduler_that_stops_several_seeds_stops_the_run_of_the_one_that_is_trained(tmp_path):
    """It tells the command alone; Ctrl-C in a terminal comes to the run as well."""
    config = config_in(tmp_path, 900, PROGRESS, FULL_GAMES, BEGINS)
    command = Command([*COMMAND, '-c', str(config), '-s', '3', '-s', '5'], tmp_path)
    first, second = (tmp_path / f'{NAME}_seed{seed}' for seed in (3, 5))
    command.wait_for((first / 'ckpt' / 'iteration_0.pth.tar').exists)
    assert command.end(signal.SIGTERM) == 128 + signal.SIGTERM
    assert command.text.count('Stopping') == 1 and pairs_in(first) and not second.exists()


def test_each_seed_gets_the_options_of_all(tmp_path, monkeypatch):
    """On a machine with a GPU, where --device=cpu is another recipe than the default."""
    commands = []

    def start(command: list) -> SimpleNamespace:
        commands.append(command[command.index('train') + 1 :])
        return SimpleNamespace(wait=lambda: 0)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr('torch.cuda.is_available', lambda: True)
    monkeypatch.setattr('subprocess.Popen', start)
    options = ['--device', 'cpu', '--threads', '2', '--hours', '1.5', '--overlap', '--set', 'exp_name=mine/x']
    result = CliRunner().invoke(main, ['train', '-s', '1', *options, '-s', '2'])
    assert result.exit_code == 0, result.output
    for seed, command in zip((1, 2), commands):
        at = [command[command.index(option) + 1] for option in ('-s', '--exp-name', '--device', '--threads', '--hours')]
        assert at == [str(seed), f'mine/x_seed{seed}', 'cpu', '2', '1.5'] and '--overlap' in command
    CliRunner().invoke(main, ['train', '-s', '1', '-s', '2', '--device', 'cpu'])
    assert 'experiments/breakout_dqn_cpu_seed1' in commands[2]


def test_the_line_that_says_how_to_go_on_can_be_pasted(tmp_path):
    config = config_in(tmp_path, 900, PROGRESS, FULL_GAMES, BEGINS)
    options = ['--exp-name', 'it\'s "mine" $HOME', '--set', 'policy.learn.note=a = b']
    command = Command([*COMMAND, '-c', config.name, *options, '--updates', '6', '--serial'], tmp_path)
    assert command.process.wait(120) == 0, command.text
    again = re.search(r'go on: +(breakout train .*)', command.text)[1]
    done = subprocess.run(again, shell=True, cwd=tmp_path, capture_output=True, text=True, env=ENVIRON, timeout=120)
    assert done.returncode == 0, done.stderr
    assert 'Going on with it\'s "mine" $HOME at 6 updates' in done.stdout
    assert re.search(r'go on: +(breakout train .*)', done.stdout)[1] == again


@pytest.mark.parametrize('mode', ['--serial', '--overlap'])
def test_a_stop_does_not_wait_for_the_end_of_an_evaluation(tmp_path, mode):
    """This one would take half a minute: nobody serves the ball."""
    idle = (r'random_action_probability=[\d.]+', 'random_action_probability=0.0, fire_on_life_loss=False')
    config = config_in(tmp_path, 900, PROGRESS, FULL_GAMES, idle)
    command = Command([*COMMAND, '-c', str(config), mode], tmp_path)
    log = tmp_path / NAME / 'log' / 'progress.jsonl'
    command.wait_for(lambda: log.exists() and rows_of(tmp_path / NAME)[-1]['env_step'] == RANDOM)
    assert command.end(signal.SIGTERM) == 0, command.text
    assert 'Traceback' not in command.text and not rows_of(tmp_path / NAME, 'evaluation')


def test_runs_that_start_side_by_side_get_folders_of_their_own(tmp_path):
    names = []
    start = threading.Barrier(4)

    def begin() -> None:
        start.wait()
        names.append(new_folder(str(tmp_path / 'run')))

    threads = [threading.Thread(target=begin) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(names)) == 4 and all(re.fullmatch(r'.*/run(_\d{6}_\d{6})?', name) for name in names)


STOCK = (  # DI-engine's collector, evaluator and buffer
    (r"evaluator=dict\(type='resumable', import_names=\['breakout_env'\]\), ", ''),
    (r"type='frame', import_names=\['breakout_env'\]", "type='advanced'"),
)


def test_with_parts_of_di_engine_alone_it_trains_and_logs_what_they_tell(tmp_path):
    config = config_in(tmp_path, 900, PROGRESS, *STOCK)
    command = Command([*COMMAND, '-c', str(config), '--updates', '4'], tmp_path)
    assert command.process.wait(120) == 0, command.text
    last = rows_of(tmp_path / NAME, 'progress')[-1]
    assert last['updates'] == 4 and last['loss'] > 0 and last['games'] is last['replay_bytes'] is None
    done = subprocess.run(
        [*COMMAND, '-c', config, '--episodes', '3'], cwd=tmp_path, capture_output=True, text=True, env=ENVIRON
    )
    assert done.returncode == 2 and "the collector 'sample' counts no whole games; expected one of" in done.stderr


def test_an_option_that_nobody_knows_is_told(tmp_path):
    """But not those that are only in DI-engine's defaults, or looked at elsewhere."""
    known = ['policy.learn.learner.hook.save_ckpt_after_iter=5', 'env.evaluator.noop_max=3', 'policy.model.new=1']
    changes = [*known, 'policy.learn.lerning_rate=0.1', 'policy.learn.batch_size=none']
    options = [word for change in changes for word in ('--set', change)]
    done = subprocess.run([*COMMAND, *options], cwd=tmp_path, capture_output=True, text=True, env=ENVIRON, timeout=120)
    first, *rest = done.stderr.splitlines()
    assert first == 'policy.learn.lerning_rate is set, but neither the config nor DI-engine knows such an option.'
    assert 'is set' not in '\n'.join(rest)


@pytest.mark.parametrize('model', [None, {}, dict(obs_shape=4, action_shape=2)])
def test_policies_with_other_models_have_no_held_out_q_values(model):
    evaluator = SimpleNamespace(_policy_cfg=EasyDict() if model is None else EasyDict(model=model))
    assert ResumableEvaluator._held_out_q(evaluator) is None


@pytest.mark.parametrize(
    'options, message',
    [
        (['--env-steps', '0'], "Invalid value for '--env-steps' / '--env-step': 0 is not in the range 1<=x"),
        (['--seed', 'x'], "Invalid value for '-s' / '--seed': 'x' is not a valid integer range."),
        (['-c', 'nowhere.py'], "File 'nowhere.py' does not exist"),
        (['--set', 'learning_rate'], "--set is 'learning_rate'; expected KEY=VALUE"),
        (['--set', 'polcy.learn.batch_size=3'], 'there is no section polcy in the config; expected one of env, policy'),
        (['--exp-name', '../elsewhere'], "--exp-name is '../elsewhere'; expected a folder below the current one"),
        (['--resume', 'nowhere'], '--resume nowhere: no saved run is there'),
        (['--set', 'env.frame_stak=3'], 'did you mean `frame_stack`?'),
        (['--set', 'policy.learn=3'], 'policy.learn is a section of the config; expected one of its options: '),
        (['--set', 'policy.learn.batch_size=many'], "policy.learn.batch_size is 'many'; expected a value like 32"),
        (['--set', 'exp_name=/tmp/x'], "exp_name is '/tmp/x'; expected a folder below the current one"),
        (['-s', '1', '-s', '2', '--resume', 'x'], '--resume with a folder goes on with one run'),
        (['-s', '1', '-s', '2', '--resume'], '--resume found no saved run in experiments/'),
        (['--exp-name', 'a_file/run'], "'a_file/run', and a_file is no folder; expected another name"),
    ],
)
def test_a_wrong_option_gets_a_line(tmp_path, options, message):
    (tmp_path / 'a_file').touch()
    done = subprocess.run([*COMMAND, *options], cwd=tmp_path, capture_output=True, text=True, env=ENVIRON, timeout=120)
    assert done.returncode in (1, 2)
    assert message in done.stderr and 'Traceback' not in done.stderr
    assert done.stderr.strip().splitlines()[-1].startswith('Error: ')


@pytest.mark.parametrize(
    'options, message',
    [
        (dict(log_every=3), 'hook `progress`: option `log_every` is unknown; did you mean `log_every_s`?'),
        (dict(log_every_s=0), 'hook `progress`: option `log_every_s` is 0 (int); expected a number above 0'),
        (
            dict(max_env_step='1e6'),
            "option `max_env_step` is '1e6' (str); expected None or a whole number from 1",
        ),
    ],
)
def test_wrong_options_of_the_hook_are_named(options, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        ProgressHook('progress', 100, position='before_run', ext_args=options)


def test_held_out_states_are_there_for_the_usual_screens_only():
    states = held_out_states([4, 84, 84], 4)
    assert states.shape == (256, 4, 84, 84) and states.dtype == np.uint8
    assert (
        len({state.tobytes() for state in states}) >= 240
    )  # a ball that is not served yet looks the same in two games
    assert held_out_states([4, 64, 64], 4) is None and held_out_states([4, 84, 84], 18) is None
