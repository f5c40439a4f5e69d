"""The installed wheel needs nothing else of the clone."""

import shutil
import sys
import zipfile

from helpers.processes import ROOT, run


def test_the_wheel_alone_trains_by_its_own_recipe_and_records_a_game_of_its_own_agent(tmp_path):
    source, site = tmp_path / 'source', tmp_path / 'installed'
    source.mkdir()
    for name in ('setup.py', 'README.md', 'breakout_command.py'):
        shutil.copy(ROOT / name, source)
    for name in ('breakout_env', 'configs', 'entry'):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns('__pycache__'))
    run([sys.executable, '-m', 'pip', 'wheel', '-q', '--no-deps', '-w', tmp_path, source], tmp_path)
    with zipfile.ZipFile(next(tmp_path.glob('*.whl'))) as wheel:
        wheel.extractall(site)
    there = {path.name for path in site.iterdir() if not path.name.endswith('.dist-info')}
    assert there == {'breakout_command.py', 'breakout_env'}
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
