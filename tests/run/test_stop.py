"""A signal at any moment stops a run with a save of one moment; a library user's process keeps its handlers."""

import signal
from pathlib import Path

import click
import pytest
import torch

from breakout_cli.program import Program
from breakout_env.run import stop_request
from breakout_env.run.paths import saves_in
from breakout_env.utils import run_registry, signals
from helpers import serial_run
from helpers.runs import N_SAMPLE, NAME, RANDOM, UPDATES, config_in, saved_transitions
from helpers.serial_run import SerialRun, check_saves, interrupt


def handlers() -> list:
    return [signal.getsignal(number) for number in signals.STOPPING]


@pytest.mark.parametrize('number', signals.STOPPING)
def test_signal_sets_a_flag_until_the_updates_of_a_collection_are_done(config, capsys, number):
    before = handlers()
    run = SerialRun(config)
    run.train(3)
    run.push(N_SAMPLE)
    interrupt(number)
    run.update()
    assert not saves_in(Path(NAME)) and 'Stopping' not in capsys.readouterr().out
    with pytest.raises(SystemExit) as ended:
        run.update()
    assert ended.value.code == 128 + number and check_saves(Path(NAME))[0]['iteration'] == 4 * UPDATES
    assert 'Stopping: saving the run' in capsys.readouterr().out
    run.end()
    assert handlers() == before


def test_signal_during_a_save_saves_the_same_moment(config, monkeypatch):
    """The learner counts an update after the hooks that save it."""
    config_in(config.parent, 0)
    run = SerialRun(config)
    save = run.buffer.save_data
    monkeypatch.setattr(run.buffer, 'save_data', lambda path: (interrupt(signal.SIGTERM), save(path)))
    run.push(N_SAMPLE)
    run.update()
    with pytest.raises(SystemExit):
        run.update()
    assert [save['iteration'] for save in check_saves(Path(NAME))] == [UPDATES]


@pytest.mark.parametrize('workers_end', [False, True])
def test_signal_during_an_evaluation_saves_and_the_evaluation_is_repeated(config, workers_end):
    """A signal to all processes of a run ends its workers, too."""
    run = SerialRun(config)
    run.train(3)
    assert run.evaluator.should_eval(500)
    step = run.games.step

    def stopped_step(actions):
        interrupt(signal.SIGTERM)
        if workers_end:
            raise BrokenPipeError
        return step(actions)

    run.games.step = stopped_step
    with pytest.raises(SystemExit):
        run.evaluate()
    assert check_saves(Path(NAME))[0]['iteration'] == 3 * UPDATES
    resumed = SerialRun(config)
    assert resumed.evaluator.should_eval(resumed.learner.train_iter) and resumed.evaluator.should_eval(500)


def test_signal_while_the_best_checkpoint_is_written_does_not_cut_it(config, monkeypatch):
    run = SerialRun(config)
    run.train(3)
    monkeypatch.setattr('breakout_env.compat.ding_checkpoint_files.write_bytes', lambda path, content: (
        interrupt(signal.SIGTERM), path.write_bytes(content)
    ))  # fmt: skip
    run.evaluate(5)
    assert torch.load(Path(NAME, 'ckpt', 'ckpt_best.pth.tar'), weights_only=True)['last_iter'] == 3 * UPDATES


def test_collection_without_updates_is_saved_too(config):
    """While a buffer has too few transitions to sample from, the learner does not update."""
    run = SerialRun(config)
    run.train(1)
    run.push(N_SAMPLE)
    interrupt(signal.SIGTERM)
    with pytest.raises(SystemExit):
        run_registry.after_env_step(NAME)  # of the next collection
    (save,) = saves_in(Path(NAME))
    assert saved_transitions(Path(NAME, save['buffer'])) == RANDOM + 2 * N_SAMPLE


def test_signal_before_the_first_update_has_nothing_to_save(config, capsys):
    run = SerialRun(config)
    interrupt(signal.SIGTERM)
    with pytest.raises(SystemExit):
        run.evaluate()
    assert 'nothing to save: the same command begins the run again' in capsys.readouterr().out
    assert not saves_in(Path(NAME)) and SerialRun(config).buffer.push_count == RANDOM


@pytest.mark.parametrize('number', signals.STOPPING)
def test_signal_while_environments_start_stops_a_command(config, monkeypatch, capsys, number):
    """DI-engine's managers fork then, and a KeyboardInterrupt that comes while a process is forked is lost."""
    create = serial_run.create_serial_evaluator
    monkeypatch.setattr(
        serial_run, 'create_serial_evaluator', lambda *args, **kwargs: (interrupt(number), create(*args, **kwargs))[1]
    )
    with click.Context(click.Command('ding')), pytest.raises(SystemExit) as ended:
        SerialRun(config)
    assert ended.value.code == 128 + number and not saves_in(Path(NAME))
    assert 'nothing to save: the same command begins the run again' in capsys.readouterr().out


def test_second_ctrl_c_stops_at_once_and_saves_no_half_done_moment(config, monkeypatch):
    run = SerialRun(config)
    run.train(1)
    run.push(N_SAMPLE)
    run.update()
    monkeypatch.setattr(stop_request, 'TWICE_S', 3600.0)
    interrupt(signal.SIGINT)
    interrupt(signal.SIGINT)  # the same one: `timeout -s INT` sends it twice
    monkeypatch.setattr(stop_request, 'TWICE_S', 0.0)
    with pytest.raises(SystemExit, match='130'):
        try:
            interrupt(signal.SIGINT)
        finally:
            run.end()  # as our entry does in any case
    assert not saves_in(Path(NAME))


def test_handlers_of_the_users_program_are_left_alone(config):
    ours = [signal.signal(number, lambda *args: None) for number in signals.STOPPING] and handlers()
    run = SerialRun(config)
    assert handlers() == ours
    run.train(1)
    interrupt(signal.SIGTERM)
    assert not saves_in(Path(NAME))


def test_command_called_by_a_program_leaves_its_handlers_alone():
    seen = []
    command = Program('test', callback=lambda: seen.append(handlers()))
    before = handlers()
    command.main([], standalone_mode=False)
    assert seen == [before] and handlers() == before
