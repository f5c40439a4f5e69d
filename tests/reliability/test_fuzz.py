"""
Odd input is accepted and works, or is refused with an error message that names the option and what is allowed.

The options are read from the package: from every ``Options`` model, from the parameters of every command, and from the
paths of a config. So a new option is tried without a change here. The default tests try few inputs, always the same;
``HYPOTHESIS_PROFILE=release`` tries many.
"""

import contextlib
import importlib
import importlib.util
import logging
import os
import pkgutil
import shutil
import signal
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence
from unittest import mock

import click
import pytest
import torch
from click.testing import CliRunner
from ding.config import read_config
from hypothesis import given
from hypothesis import strategies as st

import breakout_env
from breakout_env import BreakoutEnv, FrameReplayBuffer, PixelDQN, TorchRLReplayBuffer, cli
from breakout_env.agent.agent import save_agent
from breakout_env.cli import doctor_command, eval_command, export_command, play_command, plot_command, train_command
from breakout_env.env_manager import GroupEnvManager
from breakout_env.policy.pixel_models import PixelModelOptions
from breakout_env.run.config import checked_config, read_config_file
from breakout_env.run.log import RunLogWriter
from breakout_env.utils.options import Options
from helpers.odd_values import FLOATS, NUMBERS, Shown, near, one_of, texts, values
from helpers.processes import ROOT, wait_until

pytestmark = pytest.mark.fuzz
CONFIG, PPO = (str(ROOT / 'configs' / f'breakout_{name}_config.py') for name in ('dqn_cpu', 'ppo'))
EXPECTATIONS = ('expected', 'did you mean', 'it is called', 'has to be', 'remove the option', 'choose')
# What click itself says about a wrong option.
CLICKS = ('invalid value', 'no such option', 'missing', 'requires', 'unexpected extra', 'does not take')
# A message that lists all options is long; one that shows a value in full would be longer.
LONGEST_MESSAGE = 2500
DEADLINE_S = 30


# ---------------------------------------------------------------- the judgement


def open_now() -> Counter:
    """How many descriptors and children this process has."""
    children = sum((len(path.read_text().split()) for path in Path('/proc/self/task').glob('*/children')), 0)
    return Counter(descriptors=len(os.listdir('/proc/self/fd')), children=children)


@contextlib.contextmanager
def place(folder: Path, prepare: Callable[[Path], Any] = lambda here: None) -> Iterator[List[bool]]:
    """An empty current folder, an alarm, and a look at what is left; ``keeps_files[0]`` says whether files may be."""
    here = folder.joinpath(*'abcdefgh')
    here.mkdir(parents=True)
    prepare(here)
    before, there, keeps_files = open_now(), set(here.rglob('*')), [False]
    work, handler = os.getcwd(), signal.signal(signal.SIGALRM, signal.default_int_handler)
    os.chdir(here)
    signal.alarm(DEADLINE_S)
    try:
        yield keeps_files
        assert wait_until(lambda: open_now() <= before, 3), f'descriptors or processes are left: {open_now() - before}'
        left = [path for path in folder.rglob('*') if path not in {*there, *here.parents, here}]
        assert all(here in path.parents for path in left), f'files are outside of the folder: {left[:5]}'
        assert keeps_files[0] or not left, f'files are left: {left[:5]}'
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, handler)
        os.chdir(work)
        shutil.rmtree(folder / 'a')


def check_message(text: str, names: Optional[Sequence[Any]]) -> None:
    """A person can read it: it says what is expected, and names one of the options that were set."""
    assert len(text) <= LONGEST_MESSAGE and text.replace('\n', '').isprintable(), text[:1000]
    assert any(word in text.lower() for word in EXPECTATIONS), text
    if names:
        shown = [word for name in names for word in (str(name)[:40], repr(name)[1:40])]
        assert any(word in text for word in shown), f'{text}\nnames none of {shown}'


def refusal(build: Callable[[], Any], names: Optional[Sequence[Any]]) -> bool:
    """Whether something cannot be built from options; an error is a ValueError, or click's, with such a message."""
    try:
        build()
    except (ValueError, click.ClickException) as error:
        assert not isinstance(error, UnicodeError), error
        check_message(error.format_message() if isinstance(error, click.ClickException) else str(error), names)
        return True
    return False


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.disable(logging.ERROR)
    yield
    logging.disable(logging.NOTSET)


# ---------------------------------------------------------------- options of our parts

for _module in pkgutil.walk_packages(breakout_env.__path__, 'breakout_env.'):
    if '.configs' not in _module.name and '.entry' not in _module.name and not _module.name.endswith('__main__'):
        importlib.import_module(_module.name)


def models(base: type = Options) -> List[type]:
    ours = [model for model in base.__subclasses__() if model.__module__.startswith('breakout_env')]
    return [each for model in ours for each in (model, *models(model))]


SMALL = dict(obs_shape=[4, 84, 84], action_shape=4, encoder_hidden_size_list=[4, 4, 4, 8])
# What is built from the options of a model that were accepted.
PARTS: Dict[str, Callable[[Any], Any]] = {
    'BreakoutOptions': BreakoutEnv,
    'ReplayOptions': lambda cfg: FrameReplayBuffer(cfg, exp_name='run'),
    'TorchRLOptions': lambda cfg: TorchRLReplayBuffer(cfg, exp_name='run'),
    'EnvManagerOptions': lambda cfg: GroupEnvManager([lambda: BreakoutEnv({})] * 2, cfg),
}


def sections(model: type) -> st.SearchStrategy:
    """A dict of options, some of them misspelled, or something in its place."""
    fields = model.model_fields
    right = st.sampled_from(sorted(fields))
    misspelled = st.tuples(right, st.integers(0, 20), st.sampled_from(['', '_', 's', 'é'])).map(
        lambda t: t[0][: t[1]] + t[2] + t[0][t[1] + 1 :]
    )
    names = st.one_of(*[right] * 12, misspelled, texts(), one_of([None, 0, True, (1, 2), b'key', 'items', 'type']))
    pairs = names.flatmap(
        lambda name: st.tuples(
            st.just(name), values(near(fields[name]) if isinstance(name, str) and name in fields else ())
        )
    )
    return st.one_of(*[st.lists(pairs, max_size=3).map(dict)] * 15, values())


def promise(on: str, *values: Any) -> Any:
    words = 'is accepted and works, or is refused with an error message that names the option and what is allowed'
    return pytest.param(*values, id=on, marks=pytest.mark.promise('fuzz', on, 'odd input', words))


@pytest.mark.parametrize('model', [promise(model.__name__, model) for model in models()])
def test_odd_options_work_or_are_explained(model, tmp_path, record_property):
    outcomes: Counter = Counter()
    TorchRLReplayBuffer({}).close()  # the first one starts a process of multiprocessing's that stays

    @given(sections(model).map(Shown))
    def attempt(shown: Shown) -> None:
        cfg = shown.value

        def build() -> None:
            if model is PixelModelOptions:
                PixelDQN(**{**SMALL, **(cfg if isinstance(cfg, Mapping) and cfg.keys() <= SMALL.keys() else {})})
                return
            getattr(model, 'from_config', model.read)(cfg)
            if model.__name__ in PARTS:
                PARTS[model.__name__](cfg).close()

        with place(tmp_path) as keeps_files:
            is_refused = refusal(build, list(cfg) if isinstance(cfg, Mapping) else None)
            keeps_files[0] = not is_refused
        outcomes['refused' if is_refused else 'accepted'] += 1

    attempt()
    record_property('figures', dict(outcomes))


# ---------------------------------------------------------------- whole configs


def paths(section: Mapping, before: str = '') -> Iterator[str]:
    for name, value in section.items():
        yield f'{before}{name}'
        if isinstance(value, Mapping):
            yield from paths(value, f'{before}{name}.')


def config_paths(file: str, learner: str) -> List[str]:
    found = [*paths(read_config(file)[0])]
    for place, model in (
        ('env', 'BreakoutOptions'),
        ('env.manager', 'EnvManagerOptions'),
        ('policy.learn', learner),
        ('policy.other.replay_buffer', 'ReplayOptions'),
    ):
        (fields,) = [each.model_fields for each in models() if each.__name__ == model]
        found += [f'{place}.{name}' for name in fields]
    return found


@pytest.mark.parametrize(
    'file, learner',
    [
        promise('changes of a config', CONFIG, 'LeanDQNOptions'),
        promise('changes of the one of PPO', PPO, 'LeanPPOOptions'),
    ],
)
def test_odd_changes_of_a_config_work_or_are_explained(file, learner, tmp_path, record_property):
    outcomes: Counter = Counter()
    config, there = read_config_file(file), config_paths(file, learner)
    invented = st.lists(st.sampled_from(['policy', 'env', 'learn', 'items', 'x', '__class__', 'get']), min_size=1)
    literals = st.one_of(
        st.none(), st.booleans(), one_of(NUMBERS), one_of(FLOATS), texts(), st.lists(st.integers(), max_size=3)
    )

    @given(st.one_of(*[st.sampled_from(there)] * 5, invented.map('.'.join)), literals.map(Shown))
    def attempt(path: str, shown: Shown) -> None:
        with place(tmp_path):
            is_refused = refusal(lambda: checked_config(config, 0, {path: shown.value}), None)
        outcomes['refused' if is_refused else 'accepted'] += 1

    attempt()
    record_property('figures', dict(outcomes))


# ---------------------------------------------------------------- command lines


class Started(Exception):
    """The work would begin now."""


def start(*args: Any, **kwargs: Any) -> None:
    raise Started


def entry(name: str) -> Any:
    """A pipeline, which is a file and not a module of the package."""
    spec = importlib.util.spec_from_file_location(f'fuzzed_{name}', ROOT / 'entry' / f'{name}.py')
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


WORK = [
    (train_command, '_entry', lambda name: SimpleNamespace(train=start)),
    (train_command, '_train_each', start),
    (eval_command, 'evaluate', start),
    (export_command, 'export_agent', start),
    (play_command, 'open_window', start),
    (play_command, 'record', start),
    (plot_command, 'draw_curves', start),
    (doctor_command, 'run_checks', lambda checks: iter(())),
    (torch, 'set_num_threads', lambda number: None),
]
PROGRAMS: Dict[str, click.Command] = {
    f'breakout {name}': cli.main.get_command(None, name) for name in cli.main.list_commands(None)
}
for _path in sorted((ROOT / 'entry').glob('*.py')):
    _module = entry(_path.stem)
    WORK.append((_module, 'train' if hasattr(_module, 'train') else 'evaluate', start))
    PROGRAMS[f'entry/{_path.name}'] = _module.main

WORDS = ['0', '1', '8', '-1', '1.5', '1e3', 'nan', 'inf', '1e400', '9' * 30, '9' * 5000, '0x10', 'auto']
FILES = [
    *('agent.safetensors', 'run', 'run/ckpt/iteration_10.pth.tar', 'run/log/progress.jsonl', 'config.py', 'broken.py'),
    *('empty.py', 'numbers.py', 'raises.py', 'text.txt', 'nothing', 'out.png', 'out.mp4', 'out.safetensors', '..'),
    *('new/out.png', 'text.txt/x', 'experiments/mine', '/dev/null', '/proc/self/mem', '../elsewhere', '/dev/full'),
]
CHANGES = [
    *('policy.learn.learning_rate=0.1', 'policy.learn.learning_rate=x', 'env.frame_skip=0', 'exp_name=../x', 'a='),
    *(
        'exp_name=',
        'exp_name="a\\x00b"',
        'policy=3',
        '=',
        '==',
        'x.y.z=1',
        'env.items=1',
        f'env.frame_skip={"(" * 300}',
    ),
]
CONTENTS = {
    'broken.py': 'main_config = dict(\n',
    'empty.py': '',
    'numbers.py': 'main_config = create_config = 3\n',
    'raises.py': 'raise SystemError("no")\n',
    'text.txt': 'hello\n',
    'nothing': '',
}


@pytest.fixture(scope='module')
def files(tmp_path_factory) -> Path:
    """Files of every kind that an option may name."""
    folder = tmp_path_factory.mktemp('files')
    torch.manual_seed(0)
    state = PixelDQN(**SMALL).state_dict()
    save_agent(str(folder / 'agent.safetensors'), state, dict(name='small'))
    (folder / 'run' / 'ckpt').mkdir(parents=True)
    for name in ('iteration_10', 'ckpt_best'):
        torch.save(dict(model=state), folder / 'run' / 'ckpt' / f'{name}.pth.tar')
    log = RunLogWriter(folder / 'run' / 'log' / 'progress.jsonl')
    log.write('run', env_step=0, updates=0, run_s=0.0, exp_name='run', seed=0)
    log.write('progress', env_step=100, updates=1, run_s=1.0, loss=0.1)
    log.write('evaluation', env_step=300, updates=3, run_s=3.0, returns=[1.0, 2.0])
    shutil.copy(CONFIG, folder / 'config.py')
    for name, text in CONTENTS.items():
        (folder / name).write_text(text)
    return folder


def command_lines(command: click.Command) -> st.SearchStrategy:
    """The options of a command with odd values, and some that it does not have."""
    odd = texts().map(lambda text: text.replace('\x00', '').encode(errors='replace')[:100_000].decode())
    words = []
    for param in command.params:
        kinds = [st.sampled_from(FILES), st.sampled_from(WORDS), odd]
        if isinstance(param.type, click.Choice):
            kinds += [st.sampled_from([str(choice) for choice in param.type.choices])] * 3
        elif param.name == 'changes':
            kinds = [st.sampled_from(CHANGES), odd]
        elif isinstance(param.type, click.Path):
            kinds += [st.sampled_from(FILES)] * 3
        value = st.one_of(*kinds)
        if isinstance(param, click.Argument):
            words.append(st.lists(value, min_size=1, max_size=2))
        elif param.is_flag:
            words.append(st.sampled_from([*param.opts, *param.secondary_opts]).map(lambda name: [name]))
        else:
            words.append(st.tuples(st.sampled_from(param.opts), value).map(list))
    unknown = odd.map(lambda text: [f'--{text}'])
    several = st.lists(st.one_of(*words * 3, unknown, odd.map(lambda text: [text])), max_size=4)
    return several.map(lambda groups: [word for group in groups for word in group])


@pytest.mark.parametrize('program', [promise(f'`{name}`', program) for name, program in PROGRAMS.items()])
def test_odd_command_lines_work_or_are_explained(program, files, tmp_path, record_property):
    outcomes: Counter = Counter()

    @given(command_lines(program))
    def attempt(words: List[str]) -> None:
        with contextlib.ExitStack() as patches:
            for owner, name, double in WORK:
                patches.enter_context(mock.patch.object(owner, name, double))
            keeps_files = patches.enter_context(
                place(tmp_path, lambda here: shutil.copytree(files, here, dirs_exist_ok=True))
            )
            result = CliRunner().invoke(program, words, prog_name='program')
            keeps_files[0] = is_accepted = isinstance(result.exception, Started) or result.exit_code == 0
        outcomes['accepted' if is_accepted else 'refused'] += 1
        if is_accepted:
            return
        assert result.exception is None or isinstance(result.exception, SystemExit), repr(result.exception)
        assert result.exit_code in (1, 2) and 'Traceback' not in result.output, result.output
        message = result.output[result.output.index('Error: ') :].lower()
        assert any(word in message for word in (*EXPECTATIONS, *CLICKS)) or ': ' in message[len('error: ') :], message

    attempt()
    record_property('figures', dict(outcomes))
