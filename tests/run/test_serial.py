"""A real training by DI-engine's command that a scheduler stops: the same command resumes it, and it has learned."""

import signal

from breakout_env.run.paths import saves_in
from helpers.processes import Command, run
from helpers.runs import (
    N_SAMPLE,
    NAME,
    check_saves,
    check_trained,
    config_in,
    curves,
    ding_serial,
    expected_transitions,
)


def test_run_stopped_by_sigterm_is_resumed_by_the_same_command(tmp_path):
    """A scheduler's SIGTERM reaches the env workers, too."""
    folder = tmp_path / NAME
    config = config_in(tmp_path, 0.2)
    first = Command(ding_serial(config, 1_000_000), tmp_path)
    first.wait_for(lambda: saves_in(folder))
    assert first.end(signal.SIGTERM, whole_group=True) == 128 + signal.SIGTERM
    stopped = check_saves(folder)[0]
    moment = f'{stopped["iteration"]:,} updates and {stopped["env_step"]:,} env steps'
    message = f'Saved at {moment}. To resume it: the same command'
    assert message in first.text and NAME in first.text.split(message)[1].splitlines()[0]

    output = run(ding_serial(config, stopped['env_step'] + 50), tmp_path)
    transitions = expected_transitions(stopped['iteration'])
    assert f'Resuming {NAME} at {moment}, {transitions:,} transitions.' in output
    ended = check_saves(folder)[0]
    assert ended['env_step'] >= stopped['env_step'] + 50 > ended['env_step'] - 3 * N_SAMPLE
    before, after = curves(folder)
    assert before == list(range(stopped['iteration']))
    assert after == list(range(stopped['iteration'], ended['iteration']))
    check_trained(folder)
