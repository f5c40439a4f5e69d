"""Secrets in the environment reach no file and no screen."""

import re

from helpers.processes import BIN, Command, environ_now
from helpers.runs import config_in

SECRETS = {
    'AWS_SECRET_ACCESS_KEY': 'aws-5f1d6c0e',
    'WANDB_API_KEY': 'wandb-77ab20',
    'HF_TOKEN': 'hf_Qq3kLm9',
    'REDIS_URL': 'redis://user:redis-url-9e2b@127.0.0.1:6379/0',
    'GIT_ASKPASS_TOKEN': 'ghp_0123abcd',
}
HIDDEN = re.compile(rb'aws-5f1d6c0e|wandb-77ab20|hf_Qq3kLm9|redis-url-9e2b|ghp_0123abcd')


def test_neither_logs_nor_saves_nor_the_screen_hold_a_secret_of_the_environment(tmp_path):
    config = config_in(tmp_path, 900, (r'resume_training=True', 'resume_training=False'))
    train = ['train', '-c', str(config), '--device', 'cpu', '--env-steps', '200', '--exp-name', 'run']
    for words in (train, ['doctor', '--json'], ['train', '--resume', 'nothing'], ['plot', 'run', '--out', 'x.svg']):
        command = Command([BIN / 'breakout', *words], tmp_path, {**environ_now(), **SECRETS})
        command.process.wait(300)
    written = [path for path in tmp_path.rglob('*') if path.is_file()]
    names = {path.name for path in written}
    assert {'total_config.py', 'progress.jsonl', 'pairs.json'} <= names and any('events' in name for name in names)
    assert not [str(path) for path in written if HIDDEN.search(path.read_bytes())]
