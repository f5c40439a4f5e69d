"""A run that is stopped, killed or damaged goes on: checkpoint and buffer of one moment, nothing lost or twice."""

import hashlib
import json
import logging
import math
import os
import random
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest
import torch
import xxhash
from click.testing import CliRunner
from ding.config import compile_config, read_config
from ding.entry import serial_pipeline
from ding.envs import BaseEnvTimestep
from ding.policy import create_policy
from ding.utils import set_pkg_seed
from ding.worker import BaseLearner, BaseSerialCommander, create_buffer, create_serial_evaluator
from easydict import EasyDict
from tensorboardX import SummaryWriter

from breakout_env.run.saver import pairs_in
from breakout_env.utils import run_registry, signals
from breakout_env.utils.atomic_file import DamagedFile
from helpers.processes import ENVIRON, ROOT, Command, run
from helpers.runs import (
    DEMO,
    ENTRY,
    N_SAMPLE,
    NAME,
    RANDOM,
    UPDATES,
    check_pairs,
    config_in,
    curves,
    cut_off,
    ding_serial,
    entry,
    expected_transitions,
)

# ---------------------------------------------------------------- real processes


def test_a_run_stopped_before_a_time_limit_goes_on_with_the_same_command(tmp_path):
    """A scheduler's SIGTERM reaches the env workers, too."""
    folder = tmp_path / NAME
    config = config_in(tmp_path, 0.5)
    first = Command(ding_serial(config, 1_000_000), tmp_path)
    first.wait_for(lambda: pairs_in(folder))
    assert first.end(signal.SIGTERM, whole_group=True) == 128 + signal.SIGTERM
    stopped = check_pairs(folder)[0]
    moment = f'{stopped["iteration"]:,} updates and {stopped["env_step"]:,} env steps'
    said = f'Saved at {moment}. To go on: the same command'
    assert said in first.text and NAME in first.text.split(said)[1].splitlines()[0]

    output = run(ding_serial(config, stopped['env_step'] + 50), tmp_path, OMP_NUM_THREADS='1')
    transitions = expected_transitions(stopped['iteration'])
    assert f'Going on with {NAME} at {moment}, {transitions:,} transitions.' in output
    ended = check_pairs(folder)[0]
    assert ended['env_step'] >= stopped['env_step'] + 50 > ended['env_step'] - 3 * N_SAMPLE
    before, after = curves(folder)
    assert before == list(range(stopped['iteration']))
    assert after == list(range(stopped['iteration'], ended['iteration']))
    checkpoint = folder / ended['checkpoint']
    command = ['ding', '-m', 'eval', '-c', str(config), '-s', '0', '--load-path', str(checkpoint)]
    output = run(command, tmp_path, OMP_NUM_THREADS='1')
    assert re.search(r'The performance of your RL policy is \d', output)


def test_a_run_killed_at_random_moments_ends_as_if_it_was_not(tmp_path):
    """It saves all the time, so that most kills come in the midst of a save."""
    rng = random.Random(0)
    folder = tmp_path / NAME
    config = config_in(tmp_path, 0)
    resumed_at = []
    for _ in range(3):
        command = Command(ding_serial(config, 1_000_000), tmp_path)
        saved = folder / 'resume' / 'pairs.json'
        listed = saved.stat().st_mtime_ns if saved.exists() else 0
        command.wait_for(lambda: saved.exists() and saved.stat().st_mtime_ns > listed)  # noqa: B023
        time.sleep(rng.uniform(0, 1))
        assert command.end(signal.SIGKILL, whole_group=True) == -signal.SIGKILL
        resumed_at.append(check_pairs(folder)[0]['iteration'])
    assert resumed_at == sorted(set(resumed_at))
    run(ding_serial(config, check_pairs(folder)[0]['env_step'] + 60), tmp_path, OMP_NUM_THREADS='1')
    ended = check_pairs(folder)[0]
    found = curves(folder)
    assert [steps[0] for steps in found] == [0, *resumed_at]
    assert all(steps == list(range(steps[0], steps[0] + len(steps))) for steps in found)
    # no gap, but for what TensorBoard's own thread had not taken yet
    assert all(steps[-1] >= until - 1 - 2 * UPDATES for steps, until in zip(found, resumed_at))
    assert found[-1][-1] == ended['iteration'] - 1
    left = {path.name for path in (folder / 'resume').iterdir()}
    assert left == {'pairs.json', 'best_score.json', *(Path(pair['buffer']).name for pair in pairs_in(folder))}


def test_make_train_goes_on_where_it_was_stopped(tmp_path):
    config = config_in(tmp_path, 900, (r'resume_training=True', 'resume_training=False'))
    # another experiment, saved later, whose name begins like that of this one
    other = tmp_path / f'{NAME}_other' / 'resume'
    other.mkdir(parents=True)
    recipe = subprocess.run(
        ['make', '-C', str(ROOT), '-n', 'train', 'ARGS=--resume'], capture_output=True, text=True
    ).stdout
    assert re.search(r'bin/breakout train --resume$', recipe, re.M)

    first = Command([*ENTRY, '-c', str(config)], tmp_path)
    folder = tmp_path / NAME
    first.wait_for((folder / 'ckpt' / 'iteration_0.pth.tar').exists)  # which DI-engine writes after the first update
    assert first.end(signal.SIGINT, whole_group=True) == 0
    stopped = check_pairs(folder)[0]
    assert f'--resume {NAME}' in first.text
    (other / 'pairs.json').write_text((folder / 'resume' / 'pairs.json').read_text())

    def goes_on(env_step: int, *arguments) -> str:
        command = [*ENTRY, '-c', str(config), '--env-step', str(env_step), *arguments]
        return run(command, tmp_path, OMP_NUM_THREADS='1')

    output = goes_on(stopped['env_step'] + 40, '--resume')
    assert f'Going on with {NAME} at {stopped["iteration"]:,} updates' in output
    ended = check_pairs(folder)[0]
    assert ended['env_step'] >= stopped['env_step'] + 40 > ended['env_step'] - 3 * N_SAMPLE
    assert [path.name for path in (tmp_path / 'experiments').iterdir() if path != other.parent] == [folder.name]

    # with a folder, named from the root; all its env steps have been taken
    output = goes_on(stopped['env_step'], '--resume', str(folder))
    assert f'Going on with {NAME} at {ended["iteration"]:,} updates' in output
    assert check_pairs(folder)[0] == ended and os.listdir(tmp_path).count('experiments') == 1
    assert len(curves(folder)) == 3 and curves(folder)[2] == []


# ---------------------------------------------------------------- the parts of a run, without environments


class ScriptedGames(object):
    """Games of one step whose scores are given."""

    env_num = 1

    def __init__(self) -> None:
        self.scores = []
        self.closed = False

    def launch(self) -> None:
        pass

    reset = close = launch

    @property
    def ready_obs(self) -> dict:
        return {0: np.zeros((4, 84, 84), np.uint8)}

    def step(self, actions: dict) -> dict:
        score = np.array([self.scores.pop(0)], np.float32)
        return {0: BaseEnvTimestep(self.ready_obs[0], score, True, {'eval_episode_return': score})}


class Run(object):
    """What the pipelines are made of, put together as they do it; a collection is made up."""

    def __init__(self, config: Path, seed: int = 0) -> None:
        cfg, create_cfg = read_config(str(config))
        create_cfg.policy.type += '_command'
        cfg = compile_config(cfg, seed=seed, auto=True, create_cfg=create_cfg, save_cfg=False, renew_dir=False)
        set_pkg_seed(seed, use_cuda=False)
        self.policy = create_policy(cfg.policy, enable_field=['learn', 'collect', 'eval', 'command'])
        logger = SummaryWriter(os.path.join(cfg.exp_name, 'log', 'serial'))
        self.learner = BaseLearner(cfg.policy.learn.learner, self.policy.learn_mode, logger, exp_name=cfg.exp_name)
        self.games = ScriptedGames()
        self.evaluator = create_serial_evaluator(
            cfg.policy.eval.evaluator,
            env=self.games,
            policy=self.policy.eval_mode,
            tb_logger=logger,
            exp_name=cfg.exp_name,
        )
        self.buffer = create_buffer(cfg.policy.other.replay_buffer, tb_logger=logger, exp_name=cfg.exp_name)
        self.collector = EasyDict(envstep=0)
        self.commander = BaseSerialCommander(
            cfg.policy.other.commander, self.learner, self.collector, self.evaluator, self.buffer,
            self.policy.command_mode,
        )  # fmt: skip
        self.learner.call_hook('before_run')
        self.collector.envstep = self.learner.collector_envstep
        if cfg.policy.random_collect_size:
            self.push(cfg.policy.random_collect_size)

    @property
    def saver(self):
        return self.learner.run_saver

    def push(self, count: int) -> None:
        screens = torch.randint(255, (count + 4, 84, 84), dtype=torch.uint8)
        self.buffer.push(
            [
                dict(
                    obs=screens[i : i + 4],
                    next_obs=screens[i + 1 : i + 5],
                    action=torch.tensor([i % 4]),
                    reward=torch.full((3,), float(i)),
                    done=False,
                    value_gamma=torch.tensor([0.9]),
                    collect_iter=0,
                )
                for i in range(count)
            ],
            cur_collector_envstep=self.collector.envstep,
        )
        self.collector.envstep += count

    def update(self) -> None:
        self.learner.train(self.buffer.sample(8, self.learner.train_iter), self.collector.envstep)

    def collections(self, count: int) -> None:
        for _ in range(count):
            if self.evaluator.should_eval(self.learner.train_iter):
                self.evaluate()
            self.push(N_SAMPLE)
            for _ in range(UPDATES):
                self.update()

    def evaluate(self, score: float = 0.0) -> None:
        self.games.scores.append(score)
        self.evaluator.eval(self.learner.save_checkpoint, self.learner.train_iter, self.collector.envstep)

    @property
    def best_score(self) -> float:
        return self.evaluator.state()['best_score']

    @property
    def epsilon(self) -> float:
        return self.commander.step()['eps']


@pytest.fixture
def config(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return config_in(tmp_path)


def stopped_run(config: Path, collections: int = 5) -> Run:
    """A run with two saves, of which the newest is of its end."""
    first = Run(config)
    first.collections(collections - 2)
    first.saver.save(first.learner.train_iter, wait=True)
    first.collections(2)
    first.learner.call_hook('after_run')
    return first


def flat(state) -> list:
    """The numbers in a state dict, in order."""
    if isinstance(state, dict):
        return [number for key in state for number in flat(state[key])]
    if isinstance(state, (list, tuple)):
        return [number for part in state for number in flat(part)]
    return [state.tolist() if isinstance(state, torch.Tensor) else state]


def drawn() -> tuple:
    return random.random(), np.random.rand(), torch.rand(1).item()


def test_everything_comes_back(config):
    first = stopped_run(config)
    next_draws = drawn()
    next_sample = first.buffer.sample(8, 0).collated()
    # another process would have other numbers at first: another seed here
    second = Run(config, seed=1)
    assert drawn() == next_draws
    assert flat(second.policy.learn_mode.state_dict()) == flat(first.policy.learn_mode.state_dict())
    assert list(second.policy.learn_mode.state_dict()) == ['model', 'target_model', 'optimizer']
    assert second.learner.train_iter == first.learner.train_iter == 5 * UPDATES
    assert second.collector.envstep == first.collector.envstep == RANDOM + 5 * N_SAMPLE
    assert second.epsilon == first.epsilon < 1
    assert second.evaluator.state() == first.evaluator.state()
    assert second.buffer.push_count == second.buffer.count() == expected_transitions(second.learner.train_iter)
    sample = second.buffer.sample(8, 0).collated()
    assert all(torch.equal(sample[key], next_sample[key]) for key in ('obs', 'reward'))


def test_the_target_network_is_updated_when_it_would_have_been(config):
    """Every 25 updates of the run, not of the process: else one that is stopped more often would never update it."""
    stopped_run(config, 10)
    second = Run(config)
    assert second.learner.train_iter == 20

    def target_is_online() -> bool:
        state = second.policy.learn_mode.state_dict()
        return flat(state['model']) == flat(state['target_model'])

    assert [(second.update(), target_is_online())[1] for _ in range(6)] == [False] * 4 + [True, False]


def test_a_learning_rate_that_was_changed_since_is_taken(config):
    """The optimizer's own state has the one before."""
    stopped_run(config)

    def rates(run: Run) -> list:
        return [group['lr'] for group in run.policy.learn_mode.get_attribute('optimizer').param_groups]

    assert rates(Run(config)) == [0.0001]
    config.write_text(re.sub(r'learning_rate=[\d.]+', 'learning_rate=0.002', config.read_text()))
    assert rates(Run(config)) == [0.002]


def test_a_run_of_another_network_is_not_gone_on_with(config):
    stopped_run(config)
    config.write_text(config.read_text().replace('[4, 4, 4, 8]', '[4, 4, 4, 16]'))
    with pytest.raises(ValueError, match=f'the run in {NAME} is one of another network .*size mismatch'):
        Run(config)


def test_the_best_checkpoint_is_not_overwritten_by_a_worse_one(config):
    first = Run(config)
    first.evaluate(5)
    first.collections(2)
    first.saver.save(first.learner.train_iter, wait=True)
    first.evaluate(7)  # and killed after that
    best = Path(NAME, 'ckpt', 'ckpt_best.pth.tar').read_bytes()
    second = Run(config)
    second.evaluate(6)
    assert second.best_score == 7 and Path(NAME, 'ckpt', 'ckpt_best.pth.tar').read_bytes() == best
    second.update()
    second.evaluate(8)
    assert second.best_score == 8 and Path(NAME, 'ckpt', 'ckpt_best.pth.tar').read_bytes() != best


@pytest.mark.parametrize('content', ['', 'null', '[9]', '"9 points"', 'NaN', 'Infinity', '1' + 400 * '0', 9999 * '['])
def test_a_best_score_that_is_no_number_is_done_without(config, content):
    stopped_run(config)
    Path(NAME, 'resume', 'best_score.json').write_text(content)
    second = Run(config)
    second.evaluate(3)
    assert second.best_score == 3


def test_a_resumed_run_is_evaluated_once_and_then_as_before(config):
    """DI-engine's pipeline fails at its end if it never evaluated."""
    first = stopped_run(config)
    second = Run(config)
    assert [second.evaluator.should_eval(second.learner.train_iter) for _ in range(3)] == [True, False, False]
    assert second.evaluator.should_eval(499) is first.evaluator.should_eval(499) is False
    assert second.evaluator.should_eval(500) is first.evaluator.should_eval(500) is True


# ---------------------------------------------------------------- signals, at moments that are chosen


def interrupt(number: int) -> None:
    os.kill(os.getpid(), number)
    time.sleep(0)  # a signal is handled between two steps of the interpreter


@pytest.mark.parametrize('number', [signal.SIGTERM, signal.SIGINT])
def test_between_updates_a_signal_saves_at_once(config, capsys, number):
    first = Run(config)
    first.collections(3)
    with pytest.raises(SystemExit) as ended:
        interrupt(number)
    assert ended.value.code == 128 + number
    assert check_pairs(Path(NAME))[0]['iteration'] == 3 * UPDATES
    assert 'Stopping: saving the run first' in capsys.readouterr().out


@pytest.mark.parametrize('moment', ['pushed', 'sampled', 'updated'])
def test_in_the_midst_of_a_collections_work_a_signal_waits_for_its_end(config, moment):
    """Else the collection would be in the buffer, and be made again."""
    first = Run(config)
    first.collections(3)
    first.push(N_SAMPLE)
    if moment == 'pushed':
        interrupt(signal.SIGTERM)
    elif moment == 'sampled':
        forward = first.buffer._draw

        def interrupted(*args, **kwargs):
            interrupt(signal.SIGTERM)
            return forward(*args, **kwargs)

        first.buffer._draw = interrupted
    first.update()
    if moment == 'updated':
        interrupt(signal.SIGTERM)
    assert not pairs_in(Path(NAME))
    with pytest.raises(SystemExit):
        first.update()
    assert check_pairs(Path(NAME))[0]['iteration'] == 4 * UPDATES


def test_in_the_midst_of_a_save_a_signal_saves_the_same_moment(config):
    """The learner counts an update after the hooks that save it."""
    first = Run(config)
    first.collections(3)
    first.saver._save_every_s = 0
    start = first.buffer.start_saving

    def interrupted(*args):
        interrupt(signal.SIGTERM)
        return start(*args)

    first.buffer.start_saving = interrupted
    first.push(N_SAMPLE)
    first.update()
    with pytest.raises(SystemExit):
        first.update()
    assert [pair['iteration'] for pair in check_pairs(Path(NAME))] == [4 * UPDATES]


def test_in_the_midst_of_an_evaluation_a_signal_saves_and_the_evaluation_is_done_again(config):
    first = Run(config)
    first.collections(3)
    assert first.evaluator.should_eval(500)
    first.games.step = lambda actions: interrupt(signal.SIGTERM)
    with pytest.raises(SystemExit):
        first.evaluate()
    assert check_pairs(Path(NAME))[0]['iteration'] == 3 * UPDATES
    second = Run(config)
    second.evaluator._is_resumed = False
    assert second.evaluator.should_eval(500)


def test_the_best_checkpoint_is_written_whole_before_a_signal_stops_the_run(config, monkeypatch):
    first = Run(config)
    first.collections(3)
    monkeypatch.setattr('ding.worker.learner.learner_hook.save_file', lambda path, state: (
        interrupt(signal.SIGTERM), torch.save(state, path)
    ))  # fmt: skip
    with pytest.raises(SystemExit):
        first.evaluate(5)
    assert torch.load(Path(NAME, 'ckpt', 'ckpt_best.pth.tar'), weights_only=True)['last_iter'] == 3 * UPDATES


def test_before_the_first_update_a_signal_says_that_there_is_nothing_to_save(config, capsys):
    Run(config)
    with pytest.raises(SystemExit):
        interrupt(signal.SIGTERM)
    assert 'nothing to save: the same command begins the run again' in capsys.readouterr().out
    assert not pairs_in(Path(NAME))
    assert Run(config).buffer.push_count == RANDOM


def test_ctrl_c_twice_stops_at_once_and_saves_nothing_half_done(config):
    first = Run(config)
    first.collections(1)
    first.push(N_SAMPLE)
    first.update()
    interrupt(signal.SIGINT)
    with pytest.raises(SystemExit, match='130'):
        interrupt(signal.SIGINT)
    first.learner.call_hook('after_run')  # as our entry does in any case
    assert not pairs_in(Path(NAME))


def test_a_finished_run_listens_to_signals_no_more(config):
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    stopped_run(config)
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_a_buffer_that_saves_itself_does_not_keep_the_run_from_being_saved(config, tmp_path):
    config_in(tmp_path, 900, (r'replay_buffer_size=\d+', 'replay_buffer_size=8000, save_every_s=900'))
    first = Run(config)
    first.collections(1)
    with pytest.raises(SystemExit):
        interrupt(signal.SIGTERM)
    assert check_pairs(Path(NAME))[0]['iteration'] == UPDATES


# ---------------------------------------------------------------- damaged files


def files(folder: Path) -> dict:
    return {
        path: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob('*'))
        if path.is_file() and 'log' not in path.parts
    }


def flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.write_bytes(content)


@pytest.mark.parametrize('part', ['checkpoint', 'buffer'])
@pytest.mark.parametrize('damage', [cut_off, flip_a_bit, Path.unlink])
def test_the_save_before_a_damaged_one_is_used_and_that_is_said(config, caplog, part, damage):
    stopped_run(config)
    newest, older = pairs_in(Path(NAME))
    damage(Path(NAME, newest[part]))
    with caplog.at_level(logging.WARNING):
        second = Run(config, seed=1)
    assert Path(newest[part]).name in caplog.text and 'trying the save before it' in caplog.text
    assert second.learner.train_iter == older['iteration'] == 3 * UPDATES
    assert second.buffer.push_count == expected_transitions(3 * UPDATES)
    # what can not be used does not push out what can
    second.collections(1)
    second.learner.call_hook('after_run')
    assert [pair['iteration'] for pair in check_pairs(Path(NAME))] == [4 * UPDATES, 3 * UPDATES]


def test_without_a_save_that_can_be_used_it_says_so_and_leaves_all_as_it_is(config):
    stopped_run(config)
    for pair in pairs_in(Path(NAME)):
        cut_off(Path(NAME, pair['checkpoint']))
    before = files(Path(NAME))
    with pytest.raises(DamagedFile, match='no save of the run in .* can be used: .*; .*Expected a readable pair'):
        Run(config)
    assert files(Path(NAME)) == before
    result = subprocess.run([*ENTRY, '-c', str(config), '--resume'], capture_output=True, text=True, env=ENVIRON)
    assert result.returncode == 2 and 'can be used' in result.stderr and 'Traceback' not in result.stderr
    kept = files(Path(NAME))
    assert {path: kept[path] for path in before} == before


def open_locks() -> list:
    """Of runs below this folder; those of earlier tests, which nobody has ended, lie elsewhere."""
    links = [f'/proc/self/fd/{number}' for number in os.listdir('/proc/self/fd')]
    targets = [os.readlink(link) for link in links if os.path.lexists(link)]
    return [target for target in targets if target.startswith(os.getcwd()) and target.endswith('/log/lock')]


def test_a_run_that_has_ended_or_can_not_go_on_does_not_hold_its_folder(config):
    run = Run(config)
    assert len(open_locks()) == 1
    run.collections(1)
    run.learner.call_hook('after_run')
    assert not open_locks() and run.learner is not None  # a notebook may keep it
    for pair in pairs_in(Path(NAME)):
        cut_off(Path(NAME, pair['checkpoint']))
    with pytest.raises(DamagedFile) as caught:
        Run(config)
    assert caught.value is not None and not open_locks()


@pytest.mark.parametrize('content', ['', '[{"iteration": 3', '{}', '[{"iteration": 3}]', '[3]', 'null', '\x00'])
def test_a_damaged_list_of_saves_gets_a_sentence(config, content):
    Path(NAME, 'resume').mkdir(parents=True)
    Path(NAME, 'resume', 'pairs.json').write_text(content)
    before = files(Path(NAME))
    with pytest.raises(DamagedFile, match='pairs.json is damaged: '):
        Run(config)
    assert files(Path(NAME)) == before
    for arguments in (['--resume'], ['--resume', NAME]):
        result = CliRunner().invoke(entry().main, ['-c', str(config), *arguments])
        assert result.exit_code == 2 and 'pairs.json is damaged' in result.output


class RunsCode(object):
    def __reduce__(self) -> tuple:
        return os.mkdir, ('it_ran',)


def test_a_checkpoint_that_would_run_code_is_refused(config):
    stopped_run(config)
    pairs = pairs_in(Path(NAME))
    for pair in pairs:
        path = Path(NAME, pair['checkpoint'])
        torch.save(dict(torch.load(path, weights_only=True), more=RunsCode()), path)
        pair['checkpoint_digest'] = xxhash.xxh3_128_hexdigest(path.read_bytes())
    Path(NAME, 'resume', 'pairs.json').write_text(json.dumps(pairs))
    with pytest.raises(DamagedFile, match='is no checkpoint of a run'):
        Run(config)
    assert not Path('it_ran').exists()


# ---------------------------------------------------------------- files


def test_two_saves_are_kept_and_nothing_else(config):
    first = Run(config)
    (Path(NAME) / 'resume').mkdir(parents=True)
    Path(NAME, 'ckpt').mkdir()
    # what a kill leaves in the midst of a save, and what is not ours
    left = ['resume/buffer_2.npz', 'resume/buffer_9.npz.12-3.unfinished', 'ckpt/resume_3.pth.tar.123.unfinished']
    left += [f'resume/{name}.json.{os.getpid() + 1}-2.unfinished' for name in ('pairs', 'best_score')]
    mine = ['ckpt/mine_resume_3.pth.tar', 'ckpt/iteration_3.pth.tar', 'resume/notes', 'resume/buffer_3.npz.copy']
    for name in left + mine:
        Path(NAME, name).touch()
    for _ in range(4):
        first.collections(1)
        first.saver.save(first.learner.train_iter, wait=True)
    pairs = check_pairs(Path(NAME))
    assert [pair['iteration'] for pair in pairs] == [4 * UPDATES, 3 * UPDATES]
    expected = {'resume/pairs.json', 'resume/best_score.json', *mine}
    expected |= {'ckpt/ckpt_best.pth.tar', 'ckpt/iteration_0.pth.tar'}  # DI-engine's
    expected |= {pair[part] for pair in pairs for part in ('checkpoint', 'buffer')}
    assert {str(path.relative_to(NAME)) for path in files(Path(NAME))} == expected


def test_a_full_disk_is_told_and_does_not_end_the_training(config, monkeypatch, caplog, capsys):
    first = Run(config)
    first.collections(1)
    first.saver.save(first.learner.train_iter, wait=True)

    def full(path, content):
        raise OSError(28, 'No space left on device')

    monkeypatch.setattr('breakout_env.run.saver.write_bytes', full)
    first.saver._save_every_s = 0
    first.collections(2)
    first.buffer.wait_for_saving()
    assert 'No space left on device' in caplog.text
    with pytest.raises(SystemExit):
        interrupt(signal.SIGTERM)
    assert 'could not be saved ([Errno 28] No space left on device)' in capsys.readouterr().out
    assert check_pairs(Path(NAME))[0]['iteration'] == UPDATES


def test_a_handler_of_ours_that_somebody_put_back_does_not_keep_a_run_from_listening(config):
    """As a library does that handles signals for a while."""
    signals.exit_in_order()
    before = signal.getsignal(signal.SIGTERM)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signals.exit_in_order()
    signal.signal(signal.SIGTERM, before)
    first = Run(config)
    first.collections(1)
    with pytest.raises(SystemExit):
        interrupt(signal.SIGTERM)
    assert check_pairs(Path(NAME))[0]['iteration'] == UPDATES


# ---------------------------------------------------------------- other buffers, wrong arguments


@pytest.mark.parametrize('buffer', ['advanced', 'torchrl'])
def test_with_another_buffer_all_but_the_buffer_comes_back(tmp_path, monkeypatch, buffer):
    """Random play fills it again."""
    if buffer == 'torchrl':
        pytest.importorskip('torchrl', reason="TorchRL is not installed (pip install 'breakout-env[torchrl]')")
    monkeypatch.chdir(tmp_path)
    config = config_in(
        tmp_path,
        900,
        (r"type='frame'", f"type='{buffer}'"),
        (r"type='subprocess', shared_memory=True, reset_inplace=True", "type='base'"),
    )
    counts = []
    for max_env_step in (100, 200):
        policy = serial_pipeline(str(config), seed=0, max_env_step=max_env_step)
        pairs = pairs_in(Path(NAME))
        assert pairs[0]['buffer'] is None and pairs[0]['env_step'] >= max_env_step
        counts.append(pairs[0]['iteration'])
        state = torch.load(Path(NAME, pairs[0]['checkpoint']), weights_only=True)
        assert flat(state['model']) == flat(policy.learn_mode.state_dict()['model'])
    first, second = curves(Path(NAME))
    assert first == list(range(counts[0])) and second == list(range(*counts))
    assert run_registry.look_up(NAME, 'buffer') is None


def test_a_buffer_of_another_kind_starts_empty(config, tmp_path):
    """The save has one of ours, the run goes on with DI-engine's; and back."""
    stopped_run(config)
    text = config.read_text()
    config.write_text(text.replace("type='frame'", "type='advanced'"))
    second = Run(config)
    assert second.learner.train_iter == 5 * UPDATES and second.buffer.count() == RANDOM
    second.collections(1)
    second.learner.call_hook('after_run')
    config.write_text(text)
    third = Run(config)
    assert third.learner.train_iter == 6 * UPDATES and third.buffer.count() == RANDOM


def test_what_can_not_be_resumed_gets_a_sentence(config, tmp_path):
    def said(*arguments) -> str:
        result = CliRunner().invoke(entry().main, ['-c', str(config), *arguments])
        assert result.exit_code == 2, result.output
        return result.output

    assert f'--resume found no saved run in {NAME}; expected {NAME}/resume/pairs.json' in said('--resume')
    assert '--resume nowhere: no saved run is there' in said('--resume', 'nowhere')
    stopped_run(config)
    shutil.copy(DEMO, config)  # has no hook
    assert 'has no hook that could; expected one of type `resume`' in said('--resume', NAME)


def test_unknown_options_of_the_hook_are_named(config):
    config.write_text(config.read_text().replace('save_every_s', 'save_every'))
    with pytest.raises(ValueError, match='option `save_every` is unknown; did you mean `save_every_s`'):
        Run(config)


def test_the_best_score_is_a_number_from_the_start(config):
    assert Run(config).best_score == -math.inf
