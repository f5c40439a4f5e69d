"""
Options, configs, names and command lines that are wrong: each gets a sentence, and nothing is left behind. The suite of
ten thousand is reliability/fuzz.py; a few hundred of them are tried here, with what it has found so far.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import click
import numpy as np
import pytest
from click.testing import CliRunner
from ding.config import read_config
from easydict import EasyDict

from breakout_env import BreakoutEnv, FrameBuffer
from breakout_env.cli import main
from breakout_env.cluster.data_parallel import Ranks
from breakout_env.env_manager.manager import GroupEnvManager
from breakout_env.env_manager.options import EnvManagerOptions
from breakout_env.policy.lean_dqn import LeanDQNPolicy
from breakout_env.policy.pixel_models import PixelDQN
from breakout_env.policy.r2d2 import R2D2SlicesPolicy
from breakout_env.replay.buffer import FrameReplayBuffer
from breakout_env.replay.torchrl.buffer import TorchRLReplayBuffer
from breakout_env.run.budget import Budget
from breakout_env.run.config import merged_config
from breakout_env.run.config import check_config, merge, read_config_file
from breakout_env.run.folder import folder_below_here
from breakout_env.run.progress import ProgressHook
from breakout_env.run.saver import ResumeHook
from breakout_env.utils.option_checks import shortened
from helpers.processes import BIN, ROOT

CONFIG = ROOT / 'configs' / 'breakout_dqn_cpu_config.py'
FUZZ = ROOT / 'reliability' / 'fuzz.py'
BUDGET = Budget(env_steps=10**6)


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    folder = tmp_path / 'outside' / 'here'
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder)
    return folder


def files_below(folder: Path) -> list:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob('*'))


# ---------------------------------------------------------------- the suite, small


@pytest.mark.timeout(600)
def test_a_few_hundred_odd_inputs_get_what_they_ask_for_or_a_sentence(tmp_path):
    command = [sys.executable, str(FUZZ), '--examples', '700', '--seed', '7', '--out', str(tmp_path / 'fuzz.json')]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr[-6000:]
    found = json.loads((tmp_path / 'fuzz.json').read_text())
    assert found['all']['failures'] == 0 and found['all']['examples'] >= 700
    for name, row in found['surfaces'].items():
        assert row['accepted'] + row['refused'] == row['examples'], name
    assert found['surfaces']['env']['refused'] and found['surfaces']['env']['accepted']


def test_the_suite_finds_an_option_that_is_not_checked(tmp_path):
    """With one check taken out, it fails, shows the shortest input that does it, and says how to see it again."""
    program = (
        'import sys\n'
        f'sys.path.insert(0, {str(FUZZ.parent)!r})\n'
        f"sys.argv = ['fuzz.py', '--examples', '300', '--only', 'hook resume']\n"
        'import breakout_env.utils.option_checks\n'
        'import breakout_env.run.saver\n'
        "breakout_env.run.saver._CHECKS['save_every_s'] = lambda value: value + 1\n"
        'import fuzz\n'
        'fuzz.main()\n'
    )
    done = subprocess.run([sys.executable, '-c', program], capture_output=True, text=True, timeout=250)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "failed on {'save_every_s': " in done.stderr and 'TypeError in place of a sentence' in done.stderr
    assert "Again: python reliability/fuzz.py --only 'hook resume' --examples" in done.stderr


# ---------------------------------------------------------------- what it has found


@pytest.mark.parametrize(
    'build, said',
    [
        (lambda: FrameReplayBuffer(3), 'the config of the replay buffer is 3 (int); expected a dict'),
        (lambda: FrameReplayBuffer(dict(thruput_controller=3)), '`thruput_controller` is 3 (int); expected a dict'),
        (
            lambda: FrameReplayBuffer(dict(thruput_controller=dict(sample_min_limit_ratio='1'))),
            "sample_min_limit_ratio` is '1' (str); expected a number",
        ),
        (lambda: FrameReplayBuffer(dict(storage=np.array(['ring', 'x']))), '`storage` is array('),
        (lambda: FrameReplayBuffer(dict(folder='a\x00b')), '`folder` is '),
        (lambda: FrameReplayBuffer(dict(save_path='x' * 300)), '`save_path` is '),
        (lambda: FrameReplayBuffer(dict(alpha=10**5000)), '`alpha` is a value that can not be printed'),
        (lambda: FrameBuffer(2**31), '`replay_buffer_size` is 2147483648'),
        (lambda: GroupEnvManager([BreakoutEnv], 3), 'expected a dict of options'),
        (lambda: GroupEnvManager([BreakoutEnv], dict(step_timeout='60')), "`step_timeout` is '60' (str)"),
        (lambda: GroupEnvManager([BreakoutEnv], dict(retry_type='again')), "`retry_type` is 'again' (str)"),
        (lambda: GroupEnvManager([BreakoutEnv], dict(worker_nun=2)), '`worker_nun` is unknown; did you mean'),
        (lambda: GroupEnvManager([BreakoutEnv], dict(worker_num=10**9)), '`worker_num` is 1000000000 (int)'),
        (lambda: GroupEnvManager([BreakoutEnv], {3: 4}), '`3` is unknown'),
        (lambda: hook(ProgressHook, 3), 'is 3 (int); expected a dict of options'),
        (lambda: hook(ProgressHook, dict(max_hours=float('inf'))), '`max_hours` is inf (float)'),
        (lambda: hook(ProgressHook, dict(max_env_step=10**5000)), '`max_env_step` is a value that can not be printed'),
        (lambda: hook(ResumeHook, dict(save_every_s='900')), "`save_every_s` is '900' (str); expected a number"),
        (lambda: hook(ResumeHook, dict(save_every_s=float('nan'))), '`save_every_s` is nan (float)'),
        (lambda: hook(ResumeHook, [1]), 'is [1] (list); expected a dict of options'),
        (lambda: policy(LeanDQNPolicy, learn=dict(autocast=['bfloat16'])), "`learn.autocast` is ['bfloat16'] (list)"),
        (lambda: policy(LeanDQNPolicy, learn=dict(log_every_updates=True)), '`learn.log_every_updates` is True (bool)'),
        (lambda: policy(R2D2SlicesPolicy, priority=np.zeros(2)), '`priority` is array('),
        (lambda: PixelDQN(84, 4), '`obs_shape` is 84 (int); expected three whole numbers'),
        (lambda: PixelDQN([4, 84, 84], 10**12), '`action_shape` is 1000000000000 (int)'),
        (lambda: PixelDQN([4, 84, 84], 4, [32, 64]), '`encoder_hidden_size_list` is [32, 64] (list)'),
        (lambda: PixelDQN([4, 1024, 1024], 4, [64, 64, 2048, 16384]), 'make a network of about'),
        (lambda: BreakoutEnv.create_collector_env_cfg(dict(collector_env_num=10**9)), '`collector_env_num` is 10000'),
        (lambda: BreakoutEnv(dict(frame_skip='x' * 100_000)), 'characters) (str); expected a whole number'),
        (lambda: BreakoutEnv({'\x1b[2J': 1}), r'`'),
        (lambda: BreakoutEnv(EasyDict(items=3)), '`items` is unknown'),
    ],
)
def test_what_was_a_traceback_is_a_sentence(build, said, here):
    with pytest.raises(ValueError) as error:
        build()
    message = str(error.value)
    assert said in message and 'expected' in message or 'did you mean' in message, message
    assert len(message) < 2500 and message.isprintable()
    assert not files_below(here)


def hook(kind, ext_args):
    return kind('name', 100, position='before_run', ext_args=ext_args)


def policy(kind, **changes):
    cfg = kind.default_config()
    cfg.cuda, cfg.model = False, EasyDict(obs_shape=[4, 84, 84], action_shape=4)
    for name, value in changes.items():
        if isinstance(value, dict):
            for inner, content in value.items():
                object.__setattr__(cfg[name], inner, content)
                dict.__setitem__(cfg[name], inner, content)
        else:
            object.__setattr__(cfg, name, value)
            dict.__setitem__(cfg, name, value)
    return kind(cfg, model=None, enable_field=['learn'])


@pytest.mark.parametrize(
    'options, said',
    [
        (dict(folder='a\x00b'), '`folder` is '),
        (dict(sampler=np.array(['slice', 'x'])), '`sampler` is array('),
        (dict(stroage='memmap'), '`stroage` is unknown; did you mean `storage`?'),
        (dict(replay_buffer_size=10**30), '`replay_buffer_size` is 1000'),
    ],
)
def test_torchrls_options_too(options, said):
    pytest.importorskip('torchrl')
    with pytest.raises(ValueError) as error:
        TorchRLReplayBuffer(options)
    assert said in str(error.value)


def test_a_prioritised_buffer_of_torchrls_takes_no_memory_before_there_is_something_in_it():
    pytest.importorskip('torchrl')
    before = Path('/proc/self/statm').read_text().split()[0]
    buffer = TorchRLReplayBuffer(dict(replay_buffer_size=2**31 - 1, sampler='prioritized'))
    pages = int(Path('/proc/self/statm').read_text().split()[0]) - int(before)
    assert pages * os.sysconf('SC_PAGE_SIZE') < 2**30
    buffer.close()


@pytest.mark.parametrize(
    'environ, said',
    [
        (dict(RANK='x'), '`RANK` is '),
        (dict(RANK='2'), '`RANK` is 2 (int); expected a whole number from 0 to 1'),
        (dict(WORLD_SIZE='0'), '`WORLD_SIZE` is 0 (int)'),
        (dict(WORLD_SIZE=''), "`WORLD_SIZE` is '' (str)"),
        (dict(LOCAL_WORLD_SIZE='3'), '`LOCAL_WORLD_SIZE` is 3 (int)'),
        (dict(MASTER_PORT='99999'), '`MASTER_PORT` is 99999 (int)'),
    ],
)
def test_an_environment_that_is_none_of_torchruns_gets_a_sentence(environ, said, monkeypatch):
    usual = dict(RANK='0', WORLD_SIZE='2', MASTER_ADDR='127.0.0.1', MASTER_PORT='29500', LOCAL_WORLD_SIZE='2')
    for name, value in {**usual, **environ}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ValueError) as error:
        Ranks(False)
    assert said in str(error.value)


def test_every_option_of_the_env_manager_has_a_check():
    assert set(EnvManagerOptions.model_fields) == set(GroupEnvManager.config)


def test_what_can_not_be_shown_is_shown_all_the_same():
    class Odd(object):
        def __repr__(self) -> str:
            raise RuntimeError

    assert shortened(Odd()) == 'a value that can not be printed'
    assert shortened(10**5000) == 'a value that can not be printed'
    assert shortened('a\x1b[2J\n') == r"'a\x1b[2J\n'" and len(shortened('x' * 10**6)) < 200


# ---------------------------------------------------------------- config files


CONFIG_FILES = {
    'gone.txt': ('main_config = 1', 'is no config: KeyError'),
    'syntax.py': ('main_config = dict(', 'is no config: SyntaxError'),
    'raises.py': ('raise RuntimeError("no\\nway")', 'is no config: RuntimeError'),
    'empty.py': ('', 'is no config: AssertionError'),
    'numbers.py': ('main_config = create_config = 3', 'main_config is 3 (int); expected a dict of options'),
    'bare.py': ('main_config = create_config = {}', 'create_config.env is {} (dict); expected a dict with its `type`'),
    'section.py': ('main_config = dict(policy=3); create_config = {}', 'main_config.policy is 3 (int)'),
    'items.py': ('main_config = dict(items=3); create_config = {}', "main_config has an option 'items' (str)"),
    'key.py': ('main_config = {3: 4}; create_config = {}', 'main_config has an option 3 (int)'),
    'types.py': (
        'main_config = {}; create_config = dict.fromkeys(["env", "env_manager", "policy"], dict(type="nothing"))',
        'can not be merged with the defaults of DI-engine',
    ),
}


@pytest.mark.parametrize('name', CONFIG_FILES)
def test_a_config_that_is_none_gets_a_sentence_with_its_name(name, here):
    content, said = CONFIG_FILES[name]
    Path(name).write_text(content)
    result = CliRunner().invoke(main, ['train', '--device', 'cpu', '-c', name])
    assert result.exit_code in (1, 2) and isinstance(result.exception, SystemExit), result.exception
    output = ' '.join(result.output.split())
    assert f'{name} ' in output and said in output, output
    assert files_below(here) == [name]


@pytest.mark.parametrize(
    'change, said',
    [
        ('policy.learn.batch_size=0', '`policy.learn.batch_size` is 0 (int); expected a whole number from 1'),
        ('policy.learn.batch_size=1e400', '`policy.learn.batch_size` is inf (float)'),
        ('policy.learn.update_per_collect=-1', '`policy.learn.update_per_collect` is -1 (int)'),
        ('policy.random_collect_size=-5', '`policy.random_collect_size` is -5 (int)'),
        ('policy.cuda=1', 'policy.cuda is 1; expected a value like'),
        ('policy.learn.learning_rate=[1]', 'policy.learn.learning_rate is [1]; expected a value like'),
        ('policy.learn=None', 'policy.learn is a section of the config'),
        ('env.collector_env_num=1000000000', '`collector_env_num` is 1000000000 (int)'),
        ('env.frame_skip=0', 'env option `frame_skip` is 0 (int)'),
        ('policy.other.replay_buffer.stroage=1', '`stroage` is unknown; did you mean `storage`?'),
        ('policy.learn.autocast=8', '`policy.learn.autocast` is 8 (int)'),
        ('policy.learn.learner.hook.progress=3', 'policy.learn.learner.hook.progress is a section'),
        ('policy.learn.learner.hook.resume.ext_args.save_every_s=-1', '`save_every_s` is -1 (int)'),
        ('policy.model.obs_shape=84', '`obs_shape` is 84 (int)'),
        ('env.manager.step_timeout=0', '`step_timeout` is 0 (int)'),
        ('policy.get=3', 'policy.get is 3; expected a value like'),
        ('policy.learn.learner.hook.resume.type=[]', 'policy.learn.learner.hook.resume.type is [] (list)'),
        ('policy.model.import_names=3', 'policy.model.import_names is 3 (int)'),
        ('policy.learn.learner=None', 'policy.learn.learner is a section of the config'),
        (f'env.frame_skip={"(" * 400}', 'env option `frame_skip` is '),
    ],
)
def test_a_change_that_will_not_do_gets_a_sentence_and_no_folder(change, said, here):
    result = CliRunner().invoke(main, ['train', '--device', 'cpu', '--set', change])
    assert result.exit_code == 2 and isinstance(result.exception, SystemExit), (result.output, result.exception)
    assert said in ' '.join(result.output.split()), result.output
    assert not files_below(here)


def test_a_node_that_serves_a_learner_looks_at_the_config_too():
    cfg, create = read_config_file(str(CONFIG))
    cfg.env.frame_skip = 0
    with pytest.raises(click.UsageError, match='env option `frame_skip` is 0'):
        check_config(str(CONFIG), merge(str(CONFIG), cfg, create, save_cfg=False))


def test_all_our_own_configs_pass():
    for path in sorted((ROOT / 'configs').glob('*.py')):
        check_config(str(path), merge(str(path), *read_config_file(str(path)), save_cfg=False))
        main_config, _ = read_config(str(path))
        assert folder_below_here(main_config.exp_name) == main_config.exp_name


# ---------------------------------------------------------------- names of runs


ESCAPES = [
    '../x', '..', '.', '', '/tmp/x', 'a/../../x', './..', 'a/b/../../..', 'x' * 300, 'a/' * 2000, 'a\x00b', 'a\nb',
    '\x1b[2Jx', '\ud800', 'file/x', 'file', 'dangling', 3, None, ['a'], b'a',
]  # fmt: skip


@pytest.mark.parametrize('name', ESCAPES, ids=lambda name: shortened(name)[:30])
def test_a_name_that_leaves_the_folder_gets_a_sentence_and_nothing_is_written(name, here):
    Path('dangling').symlink_to(here.parent / 'not there')
    Path('file').touch()
    before = files_below(here.parent)
    with pytest.raises(click.UsageError, match='exp_name is .*expected'):
        folder_below_here(name)
    Path('config.py').write_text(f'{CONFIG.read_text()}\nmain_config["exp_name"] = {name!r}\n')
    with pytest.raises(click.ClickException):
        merged_config('config.py', 0, BUDGET)
    os.unlink('config.py')
    words = [['train', '--device', 'cpu', '--set', f'exp_name={name!r}']]
    if isinstance(name, str):
        words.append(['train', '--device', 'cpu', '--exp-name', name])
    for arguments in words:
        result = CliRunner().invoke(main, arguments)
        assert result.exit_code == 2 and 'expected' in result.output, (arguments, result.output, result.exception)
    assert files_below(here.parent) == before


def test_the_pipeline_of_many_processes_takes_no_other_names_either(here):
    program = [sys.executable, str(ROOT / 'entry' / 'breakout_dqn_dist.py'), '-c', str(CONFIG)]
    for words in (['--exp-name', '../x'], ['--exp-name', '../x', '--auto-resume'], ['--exp-name', '']):
        command = [*program, '--parallel-workers', '2', *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert done.returncode == 2 and 'expected' in done.stderr and 'Traceback' not in done.stderr, done.stderr
    assert files_below(here.parent) == ['here']


@pytest.mark.parametrize('name', ['x', 'a/b/c', './x', 'a/../x', 'ünï cödé', '随机', 'x.y'])
def test_a_name_below_the_folder_is_taken(name, here):
    assert (here / folder_below_here(name)).resolve() == (here / name).resolve()
    assert folder_below_here(str(here / name)) == folder_below_here(name)


def test_runs_may_lie_on_another_disk_behind_a_link(here):
    Path('experiments').symlink_to(here.parent)
    assert folder_below_here('experiments/x') == 'experiments/x'


# ---------------------------------------------------------------- command lines


@pytest.mark.parametrize(
    'words, said',
    [
        (['train', '--hours', 'nan'], "'nan' is no finite number"),
        (['train', '--hours', 'inf'], 'inf'),
        (['train', '--seed', str(2**31)], '2147483648 is not in the range'),
        (['train', '--env-steps', '1' + '0' * 30], 'is not in the range'),
        (['train', '--threads', '1000000'], 'is not in the range'),
        (['train', '--resume', 'a_file'], 'no saved run is there'),
        (['eval', '-n', '1' + '0' * 12], 'is not in the range'),
        (['play', '--speed', 'nan'], "'nan' is no finite number"),
        (['play', '--epsilon', 'nan'], "'nan' is no finite number"),
        (['record', '--out', 'x.gif', '--max-seconds', 'inf'], 'inf'),
    ],
    ids=lambda value: ' '.join(value)[:30] if isinstance(value, list) else '',
)
def test_a_number_that_is_none_gets_a_sentence(words, said, here):
    Path('a_file').touch()
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 2 and said in ' '.join(result.output.split()), (result.output, result.exception)
    assert files_below(here) == ['a_file']


@pytest.mark.parametrize('address', ['x' * 300, 'not an address', '256.0.0.1', '\udcff'])
def test_an_address_that_is_none_of_this_machines_gets_a_sentence(address, here):
    command = [sys.executable, str(ROOT / 'entry' / 'breakout_dqn_dist.py'), '-c', str(CONFIG), '--address', address]
    done = subprocess.run([*command, '--parallel-workers', '2'], capture_output=True, text=True, timeout=120)
    assert done.returncode == 2 and '--address' in done.stderr and 'Traceback' not in done.stderr, done.stderr


# ---------------------------------------------------------------- secrets

SECRETS = {
    'AWS_SECRET_ACCESS_KEY': 'aws-5f1d6c0e',
    'WANDB_API_KEY': 'wandb-77ab20',
    'HF_TOKEN': 'hf_Qq3kLm9',
    'REDIS_PASSWORD': 'redis-pw-41c9',
    'REDIS_URL': 'redis://user:redis-url-9e2b@127.0.0.1:6379/0',
    'BREAKOUT_DIST_PASSWORD': 'dist-pw-d00d',
    'GIT_ASKPASS_TOKEN': 'ghp_0123abcd',
}
TINY = """
exec(open({config!r}).read())
main_config.exp_name = 'run'
main_config.env.update(collector_env_num=1, evaluator_env_num=1, n_evaluator_episode=1)
main_config.env.evaluator.max_episode_frames = 400
main_config.env.max_episode_frames = 400
main_config.policy.random_collect_size = 64
main_config.policy.learn.update_per_collect = 2
main_config.policy.learn.batch_size = 8
main_config.policy.collect.n_sample = 32
main_config.policy.other.replay_buffer.replay_buffer_size = 500
main_config.policy.model.encoder_hidden_size_list = [4, 4, 4, 8]
"""


@pytest.mark.timeout(600)
def test_neither_logs_nor_saves_nor_the_screen_have_a_secret_of_the_environment(here):
    Path('tiny.py').write_text(TINY.format(config=str(CONFIG)))
    environ = {**os.environ, **SECRETS}
    train = ['train', '-c', 'tiny.py', '--device', 'cpu', '--env-steps', '200', '--threads', '1']
    for words in (train, ['doctor', '--json'], ['train', '--resume', 'nothing'], ['plot', 'run', '--out', 'x.svg']):
        done = subprocess.run(
            [str(BIN / 'breakout'), *words], env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=400
        )
        Path(f'{words[0]}{len(words)}.screen').write_bytes(done.stdout)
    written = [path for path in here.rglob('*') if path.is_file()]
    names = {path.name for path in written}
    assert {'total_config.py', 'progress.jsonl', 'pairs.json'} <= names and any('events' in name for name in names)
    hidden = [value for name, value in SECRETS.items() if name != 'REDIS_URL'] + ['redis-url-9e2b']
    for secret in hidden:
        assert not [str(path) for path in written if secret.encode() in path.read_bytes()], secret
