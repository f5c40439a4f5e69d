"""``breakout eval``: reproducible games, and figures that say no more than the games do."""

import json
import re

import numpy as np
import pytest
import scipy.stats
import torch
from click.testing import CliRunner

from breakout_cli import main
from breakout_env import BreakoutEnv, PixelActorCritic
from breakout_env.agent.agent import load_agent, save_agent
from breakout_env.agent.evaluation import BATCH_SIZE, Game, Report, evaluate
from helpers.agents import SMALL, SMALL_CONFIG, config_of, small_network
from helpers.resources import children

FRAMES = 600  # at most about 150 steps a game


class Rule:
    """An agent that computes with whole numbers, so that nothing depends on rounding."""

    name, card = 'rule', {}
    env_options = dict(frame_stack=4, screen_size=84, full_action_space=False, obs_dtype='uint8')

    def act(self, obs):
        assert len(obs) == BATCH_SIZE and obs.dtype == np.uint8
        return obs.reshape(len(obs), -1).sum(axis=1, dtype=np.int64) % 4


class Idle(Rule):
    """An agent that never moves."""

    def act(self, obs):
        return np.zeros(len(obs), dtype=np.int64)


def outcomes(report):
    return [(game.game, game.seed, game.score, game.steps, game.frames, game.digest) for game in report.games]


@pytest.mark.parametrize('protocol, card', [('nature', {}), ('sticky', {}), ('greedy', dict(temperature=0.2))])
def test_seed_gives_the_same_games_for_any_number_of_environments(protocol, card, tmp_path):
    torch.manual_seed(1)
    network = PixelActorCritic(**SMALL, orthogonal=False)
    save_agent(tmp_path / 'agent', network.state_dict(), card, config_of('pixel_actor_critic'))
    agent = load_agent(tmp_path / 'agent')
    one, three = (evaluate(agent, protocol, 4, 5, env_num=n, max_episode_frames=FRAMES) for n in (1, 3))
    assert outcomes(one) == outcomes(three)
    # a shorter evaluation plays the first games of a longer one
    assert outcomes(evaluate(agent, protocol, 2, 5, max_episode_frames=FRAMES)) == outcomes(one)[:2]


def test_game_can_be_replayed_from_its_record():
    report = evaluate(Rule(), 'sticky', 3, 0, max_episode_frames=FRAMES)
    assert report.distinct_games == 3
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
def test_greedy_play_has_at_most_four_games_and_no_interval(frames):
    report = evaluate(Rule(), 'greedy', 12, 0, max_episode_frames=frames)
    assert (report.truncated_games > 0) == (frames == FRAMES) and 2 <= report.distinct_games <= 4
    assert report.interval_95 is None and report.summary()['interval_95'] is None
    assert report.too_few_different == (
        'no 95% interval is given: it needs at least 20 different games, and at least half of all games must be '
        f'different. Here {report.distinct_games} of 12 are different'
    )


@pytest.mark.parametrize(
    'protocol, epsilon, sticky, no_ops', [('nature', 0.01, 0, 30), ('sticky', 0, 0.25, 0), ('greedy', 0, 0, 30)]
)
def test_protocols_have_the_published_parameters(protocol, epsilon, sticky, no_ops):
    options = evaluate(Idle(), protocol, 1, 0).env_options
    assert options['random_action_probability'] == epsilon
    assert (options['repeat_action_probability'], options['noop_max']) == (sticky, no_ops)
    assert options['max_episode_frames'] == 108_000  # half an hour
    assert options['fire_on_life_loss'] is True and options['is_train'] is False


def test_without_fire_an_agent_that_never_presses_it_idles_to_the_limit():
    with_fire, without = (evaluate(Idle(), 'greedy', 1, 0, fire, max_episode_frames=2000) for fire in (True, False))
    assert (with_fire.truncated_games, without.truncated_games) == (0, 1)
    assert without.games[0].frames >= 2000 > with_fire.games[0].frames


def test_game_of_a_killed_process_is_played_again():
    killed = []

    def kill_one(steps, games):
        if steps > 40 and not killed:
            killed.append(children()[0])
            killed[0].kill()

    whole = evaluate(Rule(), 'nature', 6, 0, env_num=4, max_episode_frames=FRAMES)
    killed_once = evaluate(Rule(), 'nature', 6, 0, env_num=4, max_episode_frames=FRAMES, on_step=kill_one)
    assert killed and outcomes(killed_once) == outcomes(whole) and not children()


def report_of(scores, different=1000):
    games = [Game(i, i, float(score), 10, 40, False, str(i % different)) for i, score in enumerate(scores)]
    return Report('agent', 'nature', {}, 0, tuple(games), 1.0)


def test_mean_deviation_and_interval_agree_with_scipy():
    scores = np.random.default_rng(0).normal(30, 10, 25)
    report = report_of(scores)
    assert report.mean == pytest.approx(np.mean(scores)) and report.std == pytest.approx(np.std(scores, ddof=1))
    expected = scipy.stats.t.interval(0.95, 24, loc=np.mean(scores), scale=scipy.stats.sem(scores))
    assert report.interval_95 == pytest.approx(expected)


@pytest.mark.parametrize('games, different, given', [(19, 19, False), (100, 50, True), (100, 49, False)])
def test_interval_needs_twenty_different_games_and_half_of_all(games, different, given):
    report = report_of(np.arange(games), different)
    assert report.distinct_games == different
    assert (report.interval_95 is not None) == given == (report.too_few_different is None)


def test_an_agent_of_another_frame_skip_is_evaluated_with_it(tmp_path):
    config = config_of(env=dict(frame_skip=9))
    save_agent(tmp_path / 'agent', small_network(1).state_dict(), {}, config)
    arguments = ['--checkpoint', str(tmp_path / 'agent'), '-n', '1', '--device', 'cpu', '--json', 'games.json']
    result = CliRunner().invoke(main, ['eval', *arguments])
    assert ', 9 frames a step as in its training, not 4\n' in result.output
    report = json.loads((tmp_path / 'games.json').read_text())
    (game,) = report['games']
    assert report['env_options']['frame_skip'] == 9 and game['frames'] > 8 * game['steps']


def test_eval_command_prints_progress_and_figures_and_writes_each_game(tmp_path):
    save_agent(tmp_path / 'agent', small_network(1).state_dict(), {}, SMALL_CONFIG)
    path = tmp_path / 'new folder' / 'games.json'
    arguments = ['eval', '--checkpoint', str(tmp_path / 'agent'), '-n', '5', '--protocol', 'greedy', '--seed', '3']
    result = CliRunner().invoke(main, [*arguments, '--device', 'cpu', '--json', str(path)])
    assert result.exit_code == 0, result.output
    written = json.loads(path.read_text())
    assert [game['game'] for game in written['games']] == list(range(5))
    assert written['mean'] == np.mean([game['score'] for game in written['games']])
    assert f'mean             {written["mean"]:.2f}' in result.output
    assert (
        'FIRE pressed after a lost life' in result.output
        and 'Note: no 95% interval is given: it needs at least 20 ' in result.output
    )
    assert re.search('95% interval +none\n', result.output)
