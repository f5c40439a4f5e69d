"""README's configs, as printed, train by the command that is printed beside them, in an empty folder."""

import re

import pytest

from helpers.processes import BIN, ROOT, run


@pytest.mark.parametrize('parts', ['stock', 'ours'])
def test_config_of_the_readme_trains_and_is_saved(tmp_path, parts):
    config, faster, *_ = re.findall(r'```python\n(.*?)```', (ROOT / 'README.md').read_text(), re.S)
    (tmp_path / 'my_config.py').write_text(config + (faster if parts == 'ours' else ''))
    with (tmp_path / 'my_config.py').open('a') as file:  # budgets shortened, nothing else
        file.write(
            'main_config.policy.update(random_collect_size=100)\nmain_config.env.update(n_evaluator_episode=8)\n'
        )
        file.write('main_config.env.evaluator.max_episode_frames = 400\n')
    run([str(BIN / 'ding'), '-m', 'serial', '-c', 'my_config.py', '-s', '0', '--env-step', '200'], tmp_path)
    assert list(tmp_path.glob('experiments/my_breakout/ckpt/resume_*.pth.tar'))
