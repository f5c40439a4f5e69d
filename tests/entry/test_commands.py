"""The real commands in a user's folder, as the guides print them: train, evaluate, record; task; make; a wheel."""

import os
import re
import runpy
import shutil
import sys
import zipfile
from pathlib import Path

import av
import pytest

from breakout_env.agent.agent import load_agent
from helpers.processes import BIN, ROOT, completed, run
from helpers.runs import DQN, NAME, check_trained, shortened, weights

pytestmark = pytest.mark.process

SHORT = (
    (r'random_collect_size=\d+', 'random_collect_size=200'),
    (r'(\w+)_env_num=8', r'\1_env_num=4'),
    (r'n_evaluator_episode=8', 'n_evaluator_episode=4'),
    (r'eval_freq=\d+', 'eval_freq=100'),
    (r'replay_buffer_size=\d+', 'replay_buffer_size=8000'),
    (r'max_env_step=int\(1e7\)', 'max_env_step=500'),
)


def test_a_config_trains_as_a_program_and_ding_evaluates_and_records_it(tmp_path):
    config = shortened(DQN, tmp_path, *SHORT)
    lines = re.search(r'^import wandb\n.*\n', (ROOT / 'docs' / 'training.md').read_text(), re.M)[0]
    config.write_text(lines + config.read_text())
    run([sys.executable, config], tmp_path, WANDB_MODE='offline')
    check_trained(tmp_path / NAME)
    (log,) = tmp_path.glob('wandb/offline-run-*/*.wandb')
    assert b'learner_step/total_loss' in log.read_bytes()

    options = ['--load-path', tmp_path / NAME / 'ckpt' / 'ckpt_best.pth.tar', '--replay-path', 'video']
    command = ['ding', '-m', 'eval', '-c', config, '-s', '0', *options]
    output = run(command, tmp_path, WANDB_MODE='disabled')  # which the config would log to
    assert re.search(r'The performance of your RL policy is \d', output)
    videos = sorted((tmp_path / 'video').glob('*-score*.mp4'))
    assert len(videos) >= 4 and not list((tmp_path / 'video').glob('*.part.mp4'))
    with av.open(str(videos[0])) as container:
        pictures = [frame.to_ndarray(format='rgb24') for frame in container.decode(video=0)]
    assert len(pictures) > 50 and pictures[0].shape == (630, 480, 3) and pictures[-1].std() > 20


@pytest.mark.parametrize('program', ['python', 'ditask'])
def test_task_pipeline_of_the_examples_trains_in_one_process_and_in_three(tmp_path, program):
    example = Path(shutil.copy(ROOT / 'examples' / 'task_pipeline.py', tmp_path))
    command = re.search(rf'^    ({program} .*)', example.read_text(), re.M)[1].replace('python ', f'{sys.executable} ')
    output = run(command.split(), tmp_path, BREAKOUT_ENV_STEPS='200')
    # lines are wrapped where the terminal ends
    assert all(re.search(line, output, re.S) for line in (r'Evaluation: .*Env Step\(0\)', r'Training: .*Loss\(0\.'))
    (checkpoint,) = tmp_path.glob('experiments/task_pipeline*/ckpt/final.pth.tar')
    assert all(value.isfinite().all() for value in weights(checkpoint).values())


def test_the_agent_api_trains_deploys_and_evaluates(tmp_path):
    sizes = (r'_env_num=8', '_env_num=2'), (r'env_num=8,', 'env_num=2,'), (r'(size=)20000', r'\g<1>200')
    times = (r'eval_freq=\d+', 'eval_freq=100'), (r'(episode_frames=)\d+', r'\g<1>400')
    example = shortened(ROOT / 'examples' / 'agent_api.py', tmp_path, *sizes, *times)
    output = run([sys.executable, example], tmp_path, BREAKOUT_ENV_STEPS='600')
    assert re.search(r'8 games: EvalReturn.*1 game: EvalReturn', output, re.S)
    assert all(value.isfinite().all() for value in weights(tmp_path / 'breakout_agent/ckpt/eval.pth.tar').values())


# of each of the four trainings
SMALL_PPO = {
    'env.collector_env_num': 4,
    'env.evaluator_env_num': 1,
    'env.n_evaluator_episode': 1,
    'env.evaluator.max_episode_frames': 200,
    'policy.collect.n_sample': 64,
    'policy.learn.batch_size': 32,
    'policy.learn.update_per_collect': 4,
    'policy.model.encoder_hidden_size_list': '[4,8,8,8,8,16]',
}


def test_the_shipped_agents_trainings_begin_with_each_others_weights(tmp_path):
    more = ' '.join(['--env-steps 128', *(f'--set {path}={value}' for path, value in SMALL_PPO.items())])
    path = f'{BIN}:{os.environ["PATH"]}'
    output = run([ROOT / 'tools' / 'train_shipped_agent.sh'], tmp_path, MORE=more, OUT='runs', PATH=path)
    begun = re.findall(r'begins with the weights of runs/(\w+).safetensors\nTraining in runs/(\w+)\n', output)
    assert begun == [('first', 'second'), ('second', 'third'), ('third', 'fourth')]
    agent = load_agent(tmp_path / 'runs' / 'fourth.safetensors')
    assert agent.temperature == 1 and agent.card['return_scale']['count'] == 4 * 8, 'minibatches of all trainings'
    policy = runpy.run_path(str(tmp_path / 'runs' / 'fourth' / 'total_config.py'))['exp_config']['policy']
    assert (policy['discount_factor'], policy['learn']['discount_end']) == (0.9992, 0.9994)


def test_make_names_the_python_versions_that_it_needs(tmp_path):
    fake = tmp_path / 'python3.13'
    fake.write_text('#!/bin/sh\n[ "$1" = --version ] && echo Python 3.13.0 && exit 0\nexit 1\n')
    fake.chmod(0o755)
    result = completed(['make', '-C', ROOT, f'PYTHON={fake}', f'VENV={tmp_path / "venv"}', 'train'])
    assert result.returncode != 0 and not (tmp_path / 'venv').exists()
    assert 'breakout_env needs Python 3.10, 3.11 or 3.12; found Python 3.13.0. Install one of them' in result.stdout


# budgets shortened, nothing else
SHORT_README = """
main_config.policy.update(random_collect_size=100)
main_config.env.update(n_evaluator_episode=8)
main_config.env.evaluator.max_episode_frames = 400
"""


@pytest.mark.parametrize('parts', ['stock', 'ours'])
def test_config_of_the_readme_trains_and_is_saved(tmp_path, parts):
    readme = (ROOT / 'README.md').read_text()
    config, *_ = re.findall(r'```python\n(.*?)```', readme, re.S)
    faster = re.search(r'`(create_config\.update\([^`]*)`', readme)[1]
    (tmp_path / 'my_config.py').write_text(config + (faster if parts == 'ours' else '') + SHORT_README)
    run([str(BIN / 'ding'), '-m', 'serial', '-c', 'my_config.py', '-s', '0', '--env-step', '200'], tmp_path)
    assert list(tmp_path.glob('experiments/my_breakout/ckpt/resume_*.pth.tar'))


SHORT_OWN_PARTS = (
    (r'collector_env_num=8, evaluator_env_num=8, n_evaluator_episode=8', r'collector_env_num=2, evaluator_env_num=1, '
     r'n_evaluator_episode=1, max_episode_frames=400'),
    (r'random_collect_size=\d+', 'random_collect_size=32'),
    (r'n_sample=\d+', 'n_sample=16'),
    (r'hook=dict\(', 'hook=dict(save_ckpt_after_iter=20, '),
)  # fmt: skip
BUDGETS = {
    'breakout train -c config.py': '--env-steps 150',
    'breakout eval': '-n 1',
    'breakout record': '--max-seconds 2',
    'breakout average': '',
    'ding': '--env-step 150',
}


def test_an_own_network_and_an_own_environment_train_and_play(tmp_path):
    guide, folder = (ROOT / 'docs' / 'own_network.md').read_text(), ROOT / 'examples' / 'own_parts'
    shortened(folder / 'config.py', tmp_path, *SHORT_OWN_PARTS)
    shutil.copy(folder / 'my_parts.py', tmp_path)
    lines = [line for block in re.findall(r'```bash\n(.*?)```', guide, re.S) for line in block.splitlines()]
    assert lines.pop(0) == f'cd {folder.relative_to(ROOT)}' and len(lines) == 5
    for line in lines:
        (budget,) = [budget for command, budget in BUDGETS.items() if command in line]
        run(['bash', '-c', f'{line.partition("#")[0]} {budget}'], tmp_path)
    first, second = sorted((tmp_path / 'experiments').iterdir())  # by `breakout` and by `ding`
    assert check_trained(first) and check_trained(second) and (tmp_path / 'best.mp4').exists()
    assert (tmp_path / 'agent.safetensors').exists()


def test_the_wheel_alone_trains_and_records_a_game(tmp_path):
    source, site = tmp_path / 'source', tmp_path / 'installed'
    source.mkdir()
    for name in ('setup.py', 'README.md'):
        shutil.copy(ROOT / name, source)
    for name in ('breakout_cli', 'breakout_env', 'configs', 'entry'):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns('__pycache__'))
    run([sys.executable, '-m', 'pip', 'wheel', '-q', '--no-deps', '-w', tmp_path, source], tmp_path)
    with zipfile.ZipFile(next(tmp_path.glob('*.whl'))) as wheel:
        wheel.extractall(site)
    there = {path.name for path in site.iterdir() if not path.name.endswith('.dist-info')}
    assert there == {'breakout_cli', 'breakout_env'}
    for folder in ('configs', 'entry'):
        ours = {path.name for path in (ROOT / folder).glob('*.py')}
        assert {path.name for path in (site / 'breakout_env' / folder).iterdir()} == ours

    breakout, alone = [sys.executable, '-m', 'breakout_env'], dict(cwd=tmp_path, PYTHONPATH=str(site))
    options = ['--updates', '5', '--device', 'cpu', '--set', 'env.evaluator.max_episode_frames=400']
    for change in ('learn.update_per_collect=5', 'learn.batch_size=64', 'collect.n_sample=64'):
        options += ['--set', f'policy.{change}']
    options += ['--set', 'env.collector_env_num=4']
    output = run([*breakout, 'train', *options], **alone)
    assert (tmp_path / 'experiments' / 'breakout_ppo' / 'ckpt' / 'ckpt_best.pth.tar').exists()
    assert 'INFO' not in output  # DI-engine's logs stay in their files
    run([*breakout, 'record', '--pretrained', '--out', 'game.gif', '--max-seconds', '3'], **alone)
    assert (tmp_path / 'game.gif').read_bytes()[:3] == b'GIF'
