"""``breakout eval``: games that anyone can play again, and figures that say no more than the games do."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import psutil
import pytest
import scipy.stats
import torch
from click.testing import CliRunner

from breakout_env import BreakoutEnv, PixelDQN
from breakout_env.agent.agent import load_agent, save_agent
from breakout_env.agent.evaluation import BATCH_SIZE, Game, Report, evaluate
from breakout_env.cli import eval_command, main
from helpers.processes import wait_until
from helpers.resources import children

FRAMES = 600  # some 150 steps a game at most


class Rule(object):
    """Plays by a rule on whole numbers, so that nothing depends on rounding."""

    name, card = 'rule', {}
    env_options = dict(frame_stack=4, screen_size=84, full_action_space=False, obs_dtype='uint8')

    def act(self, obs):
        assert len(obs) == BATCH_SIZE and obs.dtype == np.uint8
        return obs.reshape(len(obs), -1).sum(axis=1, dtype=np.int64) % 4


class Idle(Rule):
    def act(self, obs):
        return np.zeros(len(obs), dtype=np.int64)


@pytest.fixture(scope='module')
def network_file(tmp_path_factory):
    torch.manual_seed(1)
    path = tmp_path_factory.mktemp('agent') / 'small.safetensors'
    save_agent(path, PixelDQN([4, 84, 84], 4, encoder_hidden_size_list=[4, 4, 4, 8]).state_dict(), {})
    return str(path)


def outcomes(report):
    return [(game.game, game.seed, game.score, game.steps, game.frames, game.digest) for game in report.games]


# ---- games


@pytest.mark.parametrize('protocol', ['nature', 'sticky', 'greedy'])
def test_a_seed_gives_the_same_games_however_many_are_played_at_once(protocol, network_file):
    agent = load_agent(network_file)
    one, three = (evaluate(agent, protocol, 6, 5, env_num=n, max_episode_frames=FRAMES) for n in (1, 3))
    assert outcomes(one) == outcomes(three)
    # and the first ones of a longer evaluation
    assert outcomes(evaluate(agent, protocol, 3, 5, max_episode_frames=FRAMES)) == outcomes(one)[:3]
    assert {game.env for game in one.games} == {0} and {game.env for game in three.games} == {0, 1, 2}


def test_another_seed_gives_other_games():
    first, second = (evaluate(Rule(), 'nature', 4, seed, max_episode_frames=FRAMES) for seed in (0, 1))
    assert not {game.digest for game in first.games} & {game.digest for game in second.games}


@pytest.mark.parametrize('protocol', ['nature', 'sticky'])
def test_a_game_can_be_played_again_from_its_record(protocol):
    report = evaluate(Rule(), protocol, 3, 0, max_episode_frames=FRAMES)
    for game in report.games:
        env = BreakoutEnv(report.env_options)
        env.seed(game.seed, dynamic_seed=False)
        obs, steps, done = env.reset(), 0, False
        while not done:
            obs, _, done, info = env.step(int(obs.sum(dtype=np.int64) % 4))
            steps += 1
        env.close()
        assert (game.score, game.steps) == (info['eval_episode_return'], steps)
        assert (game.frames, game.truncated) == (info['episode_frame_number'], info['TimeLimit.truncated'])


@pytest.mark.parametrize('frames', [FRAMES, 10_000])  # most games are cut off, or none
def test_greedy_play_is_at_most_four_games_and_gets_no_interval(frames):
    report = evaluate(Rule(), 'greedy', 12, 0, max_episode_frames=frames)
    assert (report.truncated_games > 0) == (frames == FRAMES)
    assert 2 <= report.distinct_games <= 4
    assert report.interval_95 is None and report.summary()['interval_95'] is None
    assert f'only {report.distinct_games} different games' in report.too_few_different


@pytest.mark.parametrize('protocol, least', [('nature', 12), ('sticky', 20)])
def test_the_other_protocols_give_different_games(protocol, least):
    """In 150 steps, one in five games of the first meets no random action; whole games are ten times as long."""
    assert evaluate(Rule(), protocol, 20, 0, max_episode_frames=FRAMES).distinct_games >= least


@pytest.mark.parametrize(
    'protocol, epsilon, sticky, idle_frames', [('nature', 0.01, 0, 30), ('sticky', 0, 0.25, 0), ('greedy', 0, 0, 30)]
)
def test_a_protocol_is_what_its_name_says(protocol, epsilon, sticky, idle_frames):
    options = evaluate(Idle(), protocol, 1, 0, max_episode_frames=FRAMES).env_options
    assert options['random_action_probability'] == epsilon
    assert options['repeat_action_probability'] == sticky
    assert options['noop_max'] == idle_frames
    assert options['fire_on_life_loss'] is True and options['is_train'] is False


def test_without_fire_who_never_presses_it_idles_until_the_game_is_cut_off():
    with_fire, without = (evaluate(Idle(), 'greedy', 1, 0, fire, max_episode_frames=2000) for fire in (True, False))
    assert (with_fire.truncated_games, without.truncated_games) == (0, 1)
    assert without.games[0].frames >= 2000 > with_fire.games[0].frames


def test_the_limit_of_a_game_is_half_an_hour_unless_told_otherwise():
    assert evaluate(Idle(), 'greedy', 1, 0).env_options['max_episode_frames'] == 108_000


def test_a_lost_process_costs_no_game_and_changes_none():
    killed = []

    def kill_one(steps, games):
        if steps > 40 and not killed:
            killed.append(children()[0])
            killed[0].kill()

    undisturbed = evaluate(Rule(), 'nature', 6, 0, env_num=4, max_episode_frames=FRAMES)
    disturbed = evaluate(Rule(), 'nature', 6, 0, env_num=4, max_episode_frames=FRAMES, on_step=kill_one)
    assert killed and outcomes(disturbed) == outcomes(undisturbed)
    assert not children()


def test_processes_that_die_again_and_again_are_an_error():
    def kill_one(steps, games):
        children()[0].kill()

    with pytest.raises(RuntimeError, match='lost its process'):
        evaluate(Rule(), 'nature', 1, 0, max_episode_frames=FRAMES, on_step=kill_one)
    assert not children()


@pytest.mark.parametrize(
    'wrong', [dict(protocol='mine'), dict(episodes=0), dict(seed=-1), dict(env_num=True), dict(max_episode_frames=3)]
)
def test_a_wrong_argument_is_a_sentence_that_names_it(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong)).split('_')[0]):
        evaluate(Rule(), **wrong)
    assert not children()


# ---- figures


def report_of(scores, different=True, **options):
    games = [Game(i, i, 0, float(score), 10, 40, False, str(i if different else 0)) for i, score in enumerate(scores)]
    options = {'fire_on_life_loss': True, 'max_episode_frames': 108_000, **options}
    return Report('agent', 'nature', options, 0, tuple(games), 1.0)


def test_mean_deviation_and_interval_are_the_textbooks():
    scores = np.random.default_rng(0).normal(30, 10, 25)
    report = report_of(scores)
    assert report.mean == pytest.approx(np.mean(scores)) and report.std == pytest.approx(np.std(scores, ddof=1))
    expected = scipy.stats.t.interval(0.95, 24, loc=np.mean(scores), scale=scipy.stats.sem(scores))
    assert report.interval_95 == pytest.approx(expected)


def test_the_interval_covers_the_mean_19_times_in_20():
    rng = np.random.default_rng(0)
    intervals = [report_of(rng.exponential(30, 100)).interval_95 for _ in range(1000)]
    assert sum(low < 30 < high for low, high in intervals) == pytest.approx(950, abs=25)


@pytest.mark.parametrize(
    'games, different, given', [(20, 20, True), (19, 19, False), (100, 50, True), (100, 49, False)]
)
def test_an_interval_takes_twenty_different_games_and_half_of_all(games, different, given):
    scores = np.arange(games)
    report = report_of(scores)
    same = [Game(**{**vars(game), 'digest': str(min(game.game, different - 1))}) for game in report.games]
    report = Report('agent', 'nature', report.env_options, 0, tuple(same), 1.0)
    assert report.distinct_games == different
    assert (report.interval_95 is not None) == given == (report.too_few_different is None)


def card_of(report):
    return dict(scores=dict(nature=report.summary()))


def test_a_result_agrees_with_a_card_or_does_not():
    rng = np.random.default_rng(0)
    stated, same, worse = (report_of(rng.normal(mean, 10, 100)) for mean in (300, 300, 290))
    agrees, text = same.agreement(card_of(stated))
    assert agrees and text.startswith('agrees with the card') and f'{stated.mean:.1f}' in text
    agrees, text = worse.agreement(card_of(stated))
    assert not agrees and text.startswith('does not agree')


def test_what_can_not_be_compared_with_a_card_is_not():
    scores = np.arange(100)
    stated = card_of(report_of(scores))
    assert report_of(scores).agreement(stated)[0]
    assert report_of(scores).agreement({}) is None
    assert report_of(scores, fire_on_life_loss=False).agreement(stated) is None
    assert report_of(scores, max_episode_frames=1000).agreement(stated) is None
    assert report_of(scores, different=False).agreement(stated) is None
    assert report_of(scores).agreement(card_of(report_of(scores, different=False))) is None


# ---- the command


def test_the_command_prints_the_figures_and_writes_each_game(network_file, tmp_path):
    path = tmp_path / 'new folder' / 'games.json'
    arguments = ['eval', '--checkpoint', network_file, '-n', '5', '--protocol', 'greedy', '--seed', '3']
    result = CliRunner().invoke(main, [*arguments, '--device', 'cpu', '--json', str(path)])
    assert result.exit_code == 0, result.output
    written = json.loads(path.read_text())
    assert [game['game'] for game in written['games']] == list(range(5))
    assert written['mean'] == np.mean([game['score'] for game in written['games']])
    assert f'mean             {written["mean"]:.2f}' in result.output
    assert 'FIRE pressed after a lost life' in result.output and 'would mean nothing' in result.output


@pytest.mark.parametrize('mean, says', [(300, 'The mean agrees with the card'), (200, 'The mean does not agree')])
def test_the_command_says_whether_the_agent_is_what_its_card_says(mean, says, tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    card = card_of(report_of(rng.normal(300, 30, 100)))
    save_agent(tmp_path / 'a', load_agent().model.state_dict(), card)
    # an agent that scores this much takes minutes
    monkeypatch.setattr(eval_command, 'evaluate', lambda *args, **kwargs: report_of(rng.normal(mean, 30, 100)))
    result = CliRunner().invoke(main, ['eval', '--checkpoint', str(tmp_path / 'a'), '--device', 'cpu'])
    assert result.exit_code == 0 and says in result.output


@pytest.mark.parametrize('name', ['no_such_file', 'text'])
def test_a_file_that_is_no_agent_is_a_line(name, tmp_path):
    (tmp_path / 'text').write_text('text')
    result = CliRunner().invoke(main, ['eval', '--checkpoint', str(tmp_path / name)])
    assert result.exit_code == (2 if name == 'no_such_file' else 1)
    assert result.output.strip().splitlines()[-1].startswith('Error: ') and 'Traceback' not in result.output


def test_ctrl_c_ends_the_workers_and_the_command_with_130(network_file):
    command = [sys.executable, '-m', 'breakout_env', 'eval', '--checkpoint', network_file, '-n', '100000']
    environ = {**os.environ, 'OMP_NUM_THREADS': '1'}
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True, env=environ)
    try:

        def workers():  # unlike what libraries start while they are imported, they stay
            return [
                child for child in psutil.Process(process.pid).children() if time.time() - child.create_time() > 1.5
            ]

        assert wait_until(workers, 60)
        started = workers()
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        _, error = process.communicate(timeout=30)
        assert process.returncode == 130 and 'Traceback' not in error, error
        assert not [worker for worker in started if worker.is_running()]
    finally:
        process.kill()
        process.communicate()
