"""The guide's own network and environment train and play by its commands, as printed."""

import re
import shutil

from helpers.processes import ROOT, run
from helpers.runs import check_trained, shortened

SHORT = (
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
    'ding': '--env-step 150',
}


def test_an_own_network_and_an_own_environment_train_and_play(tmp_path):
    guide, folder = (ROOT / 'docs' / 'own_network.md').read_text(), ROOT / 'examples' / 'own_parts'
    shortened(folder / 'config.py', tmp_path, *SHORT)
    shutil.copy(folder / 'my_parts.py', tmp_path)
    lines = [line for block in re.findall(r'```bash\n(.*?)```', guide, re.S) for line in block.splitlines()]
    assert lines.pop(0) == f'cd {folder.relative_to(ROOT)}' and len(lines) == 4
    for line in lines:
        (budget,) = [budget for command, budget in BUDGETS.items() if command in line]
        run(['bash', '-c', f'{line.partition("#")[0]} {budget}'], tmp_path)
    first, second = sorted((tmp_path / 'experiments').iterdir())  # by `breakout` and by `ding`
    assert check_trained(first) and check_trained(second) and (tmp_path / 'best.mp4').exists()
    run(['breakout', 'average', first], tmp_path, PYTHONPATH='.')
