"""A run that was stopped or killed is resumed: nothing is lost, nothing is done twice."""

import json
import logging
import os
import random
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from ding.worker import create_buffer

from breakout_env.run.folder import run_to_resume
from breakout_env.run.paths import SAVE_LIST, newest_checkpoint, saves_in, write_best_score
from breakout_env.utils.atomic_file import DamagedFile
from helpers.runs import N_SAMPLE, NAME, RANDOM, UPDATES, config_in, expected_transitions
from helpers.serial_run import SerialRun, check_saves, flat, stopped_run


def random_numbers() -> tuple:
    return random.random(), np.random.rand(), torch.rand(1).item()


def test_resume_restores_weights_buffer_counters_and_random_states(config):
    first = stopped_run(config)
    next_numbers = random_numbers()
    next_sample = first.buffer.sample(8, 0).collated()
    # another process would have other random numbers at first: another seed here
    second = SerialRun(config, seed=1)
    assert random_numbers() == next_numbers and flat(second.state()) == flat(first.state())
    assert list(second.state()) == ['model', 'target_model', 'optimizer']
    assert second.learner.train_iter == first.learner.train_iter == 5 * UPDATES
    assert second.collector.envstep == first.collector.envstep == RANDOM + 5 * N_SAMPLE
    assert second.epsilon == first.epsilon < 1 and second.evaluator.state() == first.evaluator.state()
    assert second.buffer.push_count == second.buffer.count() == expected_transitions(second.learner.train_iter)
    sample = second.buffer.sample(8, 0).collated()
    assert all(torch.equal(sample[key], next_sample[key]) for key in ('obs', 'reward'))


def test_target_network_is_updated_by_the_updates_of_the_whole_run(config):
    """Every 25 updates here; a run that is stopped more often would never update it otherwise."""
    stopped_run(config, collections=10)
    second = SerialRun(config)
    assert second.learner.train_iter == 20
    is_updated = []
    for _ in range(6):
        second.update()
        is_updated.append(flat(second.state()['model']) == flat(second.state()['target_model']))
    assert is_updated == [False] * 4 + [True, False]


def test_learning_rate_changed_in_the_config_replaces_the_saved_one(config):
    stopped_run(config)

    def rates(run: SerialRun) -> list:
        return [group['lr'] for group in run.policy.learn_mode.get_attribute('optimizer').param_groups]

    assert rates(SerialRun(config)) == [0.0001]
    config.write_text(re.sub(r'learning_rate=[\d.]+', 'learning_rate=0.002', config.read_text()))
    assert rates(SerialRun(config)) == [0.002]


def test_best_checkpoint_is_not_overwritten_by_a_worse_one_after_a_kill(config):
    first = SerialRun(config)
    first.evaluate(5)
    first.train(2)
    first.save()
    first.evaluate(7)  # and killed after that
    best = Path(NAME, 'ckpt', 'ckpt_best.pth.tar').read_bytes()
    second = SerialRun(config)
    second.evaluate(6)
    assert second.best_score == 7 and Path(NAME, 'ckpt', 'ckpt_best.pth.tar').read_bytes() == best
    second.update()
    second.evaluate(8)
    assert second.best_score == 8 and Path(NAME, 'ckpt', 'ckpt_best.pth.tar').read_bytes() != best


def test_an_untrained_network_is_not_the_best_checkpoint_of_a_run(config):
    run, best = SerialRun(config), Path(NAME, 'ckpt', 'ckpt_best.pth.tar')
    run.evaluate(9)
    assert best.exists() and run.best_score == -np.inf
    run.train(1)
    run.save()
    assert newest_checkpoint(NAME) == Path(NAME, 'ckpt', f'resume_{UPDATES}.pth.tar')
    run.evaluate(3)
    assert newest_checkpoint(NAME) == best and run.best_score == 3


def test_a_second_buffer_of_the_same_name_is_not_saved_with_the_run(config):
    run = SerialRun(config)
    demonstrations = create_buffer(run.policy.learn_mode.get_attribute('cfg').other.replay_buffer, exp_name=NAME)
    run.train(1)
    assert run.learner.run_saver.buffer is run.buffer is not demonstrations


@pytest.mark.parametrize('unwritable, kept', [('ckpt/ckpt_best.pth.tar', -np.inf), ('resume/best_score.json', 7.0)])
def test_training_continues_if_the_best_checkpoint_cannot_be_saved(config, unwritable, kept, caplog):
    run, path = SerialRun(config), Path(NAME, unwritable)
    path.mkdir(parents=True)  # a folder is in the place of the file
    run.train(1)
    run.evaluate(7)
    assert 'ckpt_best or its score was not saved, the training continues' in caplog.text
    assert run.best_score == kept, 'a score counts as the best if ckpt_best has it'
    path.rmdir()
    run.evaluate(8)
    assert run.best_score == 8 and path.is_file()


def test_resumed_run_is_evaluated_once_and_then_on_schedule(config):
    """DI-engine's pipeline fails at its end if it never evaluated."""
    first = stopped_run(config)
    second = SerialRun(config)
    assert [second.evaluator.should_eval(second.learner.train_iter) for _ in range(3)] == [True, False, False]
    assert second.evaluator.should_eval(499) is first.evaluator.should_eval(499) is False
    assert second.evaluator.should_eval(500) is first.evaluator.should_eval(500) is True


def test_an_evaluation_says_which_game_is_under_way(config):
    run, said = SerialRun(config), []
    step = run.games.step
    run.games.step = lambda actions: said.append(run.evaluator.activity) or step(actions)
    run.games.scores += [1.0] * 3
    run.evaluator.eval(None, 0, 0, n_episode=3)
    assert said == [f'evaluating, game {number} of 3' for number in (1, 2, 3)] and run.evaluator.activity is None
    with pytest.raises(IndexError):  # there are no more games
        run.evaluator.eval(None, 0, 0)
    assert run.evaluator.activity is None


def contents(folder: Path) -> dict:
    files = [path for path in sorted(folder.rglob('*')) if path.is_file() and 'log' not in path.parts]
    return {path: path.read_bytes() for path in files}


def cut_off(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.write_bytes(content)


@pytest.mark.parametrize(
    'part, damage',
    [
        ('checkpoint', flip_a_bit),
        ('checkpoint', Path.unlink),
        ('buffer', cut_off),
    ],
)
def test_damaged_save_is_reported_and_the_one_before_it_used(config, caplog, part, damage):
    stopped_run(config)
    newest, older = saves_in(Path(NAME))
    damage(Path(NAME, newest[part]))
    with caplog.at_level(logging.WARNING):
        second = SerialRun(config, seed=1)
    assert Path(newest[part]).name in caplog.text and 'trying the save before it' in caplog.text
    assert second.learner.train_iter == older['iteration'] == 3 * UPDATES
    assert second.buffer.push_count == expected_transitions(3 * UPDATES)
    # the usable save is kept, not the damaged one
    second.train(1)
    second.end()
    assert [save['iteration'] for save in check_saves(Path(NAME))] == [4 * UPDATES, 3 * UPDATES]


def test_run_without_a_usable_save_is_refused_and_its_files_are_kept(config):
    stopped_run(config)
    for save in saves_in(Path(NAME)):
        cut_off(Path(NAME, save['checkpoint']))
    before = contents(Path(NAME))
    with pytest.raises(DamagedFile, match='no save of the run in .* can be used: .*; .*Expected a readable save'):
        SerialRun(config)
    assert contents(Path(NAME)) == before


def test_run_of_another_network_is_refused(config):
    stopped_run(config)
    config.write_text(config.read_text().replace('[4, 4, 4, 8]', '[4, 4, 4, 16]'))
    with pytest.raises(ValueError, match=f'the run in {NAME} is one of another network .*size mismatch'):
        SerialRun(config)


def test_lack_of_memory_is_not_taken_for_a_damaged_save(config, monkeypatch):
    stopped_run(config)
    for place, error in (('load_state_dict', torch.OutOfMemoryError('GPU')), ('load', MemoryError('RAM'))):

        def fail(*args, error=error, **kwargs):
            raise error

        with monkeypatch.context() as patched, pytest.raises(type(error)):
            patched.setattr(torch.nn.Module if place == 'load_state_dict' else torch, place, fail)
            SerialRun(config)


def test_run_that_diverges_ends_and_keeps_its_last_good_save(config):
    run = SerialRun(config)
    run.train(2)
    run.save()
    for group in run.policy.learn_mode.get_attribute('optimizer').param_groups:
        group['lr'] = 1e38
    with pytest.raises(ValueError, match='is infinite or not a number.*policy.learn.learning_rate'):
        run.train(2)
        run.save()
    run.buffer.close()
    run.evaluator.close()
    resumed = SerialRun(config)
    assert resumed.learner.train_iter == 2 * UPDATES
    assert all(weight.isfinite().all() for weight in resumed.state()['model'].values())


def test_a_last_save_that_fails_is_an_error_and_the_one_before_is_kept(config):
    run = SerialRun(config)
    run.train(2)
    run.save()
    before = saves_in(Path(NAME))
    run.train(1)
    Path(NAME, f'ckpt/resume_{3 * UPDATES}.pth.tar').mkdir()  # a folder is in the place of the file
    with pytest.raises(OSError, match=f'the last save of {NAME} failed .*; the one before is kept'):
        run.end()
    assert saves_in(Path(NAME)) == before


def test_a_save_that_fails_is_a_warning_and_later_ones_succeed(config, caplog):
    config_in(config.parent, 0)  # saves all the time
    run = SerialRun(config)
    run.train(1)
    in_place = Path(NAME, f'resume/buffer_{2 * UPDATES}.npz')
    in_place.mkdir()
    run.train(1)
    assert 'the run was not saved' in caplog.text and in_place.name in caplog.text
    assert [save['iteration'] for save in check_saves(Path(NAME))] == [UPDATES]
    run.train(2)
    assert [save['iteration'] for save in check_saves(Path(NAME))] == [4 * UPDATES, 3 * UPDATES]


def test_a_run_that_ends_between_two_updates_is_saved(config):
    run = SerialRun(config)
    run.train(3)
    run.push(N_SAMPLE)
    run.update()
    run.end()
    assert saves_in(Path(NAME))[0]['iteration'] == 3 * UPDATES + 1


def test_two_saves_are_kept_and_unfinished_files_removed(config):
    first = SerialRun(config)
    Path(NAME, 'resume').mkdir()
    Path(NAME, 'ckpt').mkdir()
    unfinished = ['resume/buffer_2.npz', 'resume/buffer_9.npz.12-3.unfinished', 'ckpt/resume_3.pth.tar.123.unfinished']
    # of a process with the same id, too: in a container it is always 1
    unfinished += [f'resume/{name}.json.{os.getpid()}-2.unfinished' for name in ('pairs', 'best_score')]
    users = ['ckpt/mine_resume_3.pth.tar', 'ckpt/iteration_3.pth.tar', 'resume/notes', 'resume/buffer_3.npz.copy']
    for name in unfinished + users:
        Path(NAME, name).touch()
    for _ in range(4):
        first.train(1)
        first.save()
    saves = check_saves(Path(NAME))
    assert [save['iteration'] for save in saves] == [4 * UPDATES, 3 * UPDATES]
    expected = {'resume/pairs.json', *users, 'ckpt/ckpt_best.pth.tar', 'ckpt/iteration_0.pth.tar'}
    expected |= {save[part] for save in saves for part in ('checkpoint', 'buffer')}
    assert {str(path.relative_to(NAME)) for path in contents(Path(NAME))} == expected


def saved_run(folder: str, time: float) -> Path:
    """A run that was saved at a time, by its list of saves."""
    save = dict(iteration=3, env_step=9, checkpoint='ckpt/resume_3.pth.tar', checkpoint_digest='', buffer=None)
    path = Path(folder)
    (path / SAVE_LIST).parent.mkdir(parents=True)
    (path / SAVE_LIST).write_text(json.dumps([dict(save, time=time)]))
    return path


def test_resume_takes_the_run_that_was_saved_last():
    saved_run('runs/dqn', 3e9)
    saved_run('runs/dqn_260101_120000', 2e9)  # copied later, so that its files are newer
    shutil.copytree('runs', 'copy')
    os.utime('copy/dqn_260101_120000/resume/pairs.json')
    assert run_to_resume('', 'copy/dqn') == 'copy/dqn'


def test_the_newest_checkpoint_is_the_best_or_that_of_the_most_updates():
    Path('ckpt').mkdir()
    for name in ('iteration_900', 'iteration_1000', 'resume_950', 'iteration_50'):
        Path('ckpt', f'{name}.pth.tar').touch()
    Path('ckpt', 'ckpt_best.pth.tar').touch()  # of the untrained network, without a score
    assert newest_checkpoint('.').name == 'iteration_1000.pth.tar'
    write_best_score('.', 3.0)
    assert newest_checkpoint('.').name == 'ckpt_best.pth.tar'
