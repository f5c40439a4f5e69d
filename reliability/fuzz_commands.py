"""Command lines: of ``breakout`` with all its commands, and of the pipelines in ``entry/``."""

import contextlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, Dict, Iterator, List, Mapping, Sequence, Tuple
from unittest import mock

import click
import torch
from click.testing import CliRunner
from fuzz_config import SAVES
from fuzz_judge import EXPECTATIONS, ROOT, Failure, Refused, TookTooLong, _where
from fuzz_values import texts
from hypothesis import strategies as st

from breakout_env import cli
from breakout_env.agent.agent import save_agent
from breakout_env.cli import doctor_command, eval_command, export_command, play_command, plot_command, train_command
from breakout_env.policy.pixel_models import PixelDQN
from breakout_env.run.log import RunLogWriter

# What click says itself where an option is wrong.
CLICKS = (
    'Invalid value',
    'No such option',
    'no such option',
    'Missing',
    'requires',
    'unexpected extra',
    'does not take',
)
NUMBERS = [
    '0',
    '1',
    '2',
    '8',
    '-1',
    '1.5',
    '1e3',
    'nan',
    'inf',
    '-inf',
    '1e400',
    '1e-320',
    '9' * 30,
    '9' * 5000,
    '0x10',
]


class Started(Exception):
    """The work would begin now."""


def start(*args: Any, **kwargs: Any) -> None:
    """In place of the work."""
    raise Started


def entry(name: str) -> ModuleType:
    """A pipeline, which is a file rather than a module of the package."""
    spec = importlib.util.spec_from_file_location(f'fuzzed_{name}', ROOT / 'entry' / f'{name}.py')
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


COMMANDS: Dict[str, click.Command] = {name: cli.main.get_command(None, name) for name in cli.COMMANDS}
ENTRIES: Dict[str, ModuleType] = {name: entry(f'breakout_dqn_{name}') for name in ('main', 'dist', 'ddp', 'eval')}
PROGRAMS: Dict[str, click.Command] = {
    name: module.program if name == 'dist' else module.main for name, module in ENTRIES.items()
}


def make_files(folder: Path) -> None:
    """
    Overview:
        Files of every kind that an option may name, in the folder that a command runs in.
    """
    kwargs = dict(obs_shape=[4, 84, 84], action_shape=4, encoder_hidden_size_list=[4, 4, 4, 8])
    torch.manual_seed(0)
    state = PixelDQN(**kwargs).state_dict()
    save_agent(str(folder / 'agent.safetensors'), state, dict(name='small'))
    (folder / 'run' / 'ckpt').mkdir(parents=True)
    torch.save(dict(model=state), folder / 'run' / 'ckpt' / 'iteration_10.pth.tar')
    torch.save(dict(model=state), folder / 'run' / 'ckpt' / 'ckpt_best.pth.tar')
    log = RunLogWriter(folder / 'run' / 'log' / 'progress.jsonl')
    log.write('run', env_step=0, updates=0, run_s=0.0, exp_name='run', seed=0)
    for step in range(3):
        log.write('progress', env_step=step * 100, updates=step, run_s=float(step), loss=0.1)
    log.write('evaluation', env_step=300, updates=3, run_s=3.0, returns=[1.0, 2.0])
    (folder / 'config.py').write_text((ROOT / 'configs' / 'breakout_dqn_cpu_config.py').read_text())
    (folder / 'broken.py').write_text('main_config = dict(\n')
    (folder / 'empty.py').write_text('')
    (folder / 'numbers.py').write_text('main_config = 3\ncreate_config = None\n')
    (folder / 'raises.py').write_text('raise SystemError("no")\n')
    (folder / 'text.txt').write_text('hello\n')
    (folder / 'picture.png').write_bytes(b'\x89PNG\r\n\x1a\n' + bytes(100))
    (folder / 'nothing').write_bytes(b'')
    (folder / 'constants.json').write_text('{"constants": {}}')


PATHS = [
    'agent.safetensors', 'run', 'run/ckpt/iteration_10.pth.tar', 'run/log/progress.jsonl', 'config.py', 'broken.py',
    'empty.py', 'numbers.py', 'raises.py', 'text.txt', 'picture.png', 'nothing', 'constants.json', 'out.png',
    'out.mp4', 'out.gif', 'out.svg', 'out.safetensors', 'new/out.png', 'text.txt/x', 'experiments/mine', '/dev/null',
    '/proc/self/mem', '..', '../elsewhere', '/dev/full',
]  # fmt: skip
CHANGES = [
    'policy.learn.learning_rate=0.1', 'policy.learn.learning_rate=x', 'env.frame_skip=0', 'exp_name=../x', 'exp_name=',
    'exp_name="a\\x00b"', 'policy=3', 'a=', '=', '==', 'x.y.z=1', 'env.items=1', 'policy.cuda=1',
    f'env.frame_skip={"(" * 300}', f'policy.learn.batch_size={"9" * 400}', 'policy.learn.batch_size=nan',
    "policy.other.replay_buffer.storage='disk'", 'policy.learn.learner.hook.progress=3', "env.obs_dtype='float32'",
]  # fmt: skip


def arguments(command: click.Command) -> st.SearchStrategy:
    """A command line of words, for a command: its own options with odd values, and some that are none."""
    odd = texts().map(_as_handed_over)
    # DNS is not ours to try, and would be waited for
    addresses = st.sampled_from(['tcp://127.0.0.1:1', 'tcp://127.0.0.1:99999', 'ipc:///x', 'tcp://', 'x', '127.0.0.1'])
    words = []
    for param in command.params:
        names = st.sampled_from([*param.opts, *param.secondary_opts])
        if isinstance(param, click.Argument):
            value = st.one_of(st.sampled_from(PATHS), odd)
            words.append(st.lists(value, min_size=1, max_size=3))
            continue
        if param.is_flag:
            words.append(names.map(lambda name: [name]))
            continue
        kinds = [st.sampled_from(PATHS), st.sampled_from(NUMBERS), odd]
        if isinstance(param.type, click.Choice):
            kinds += [st.sampled_from(list(map(str, param.type.choices)))] * 3
        elif isinstance(param.type, (click.types.IntRange, click.types.FloatRange)) or param.type in (
            click.INT,
            click.FLOAT,
        ):
            kinds += [st.sampled_from(NUMBERS)] * 4
        elif param.name in ('changes',):
            kinds = [st.sampled_from(CHANGES), odd]
        elif param.name in ('attach_to', 'address', 'redis_host'):
            kinds = [addresses, st.sampled_from(['', 'a b', 'x' * 300, '\udcff', 'tcp://[::1]:5', 'tcp://é:1'])]
        elif param.name in ('checkpoint', 'load_path', 'config'):
            kinds = [st.sampled_from(PATHS)] * 4 + [odd]
        value = st.one_of(*kinds)
        words.append(st.tuples(names, value).map(_option))
    unknown = st.one_of(odd.map(lambda text: [f'--{text}']), odd.map(lambda text: [text]))
    several = st.lists(st.one_of(*words, *([st.one_of(words)] * 3), unknown) if words else unknown, max_size=4)
    return several.map(lambda groups: [word for group in groups for word in group])


def _as_handed_over(text: str) -> str:
    """A word as Python has it from the system: bytes without a NUL, not too many, of which some may be no text."""
    word = text.replace('\x00', '').encode(errors='surrogatepass')[:100_000]
    return word.decode(errors='surrogateescape')


def _option(pair: Tuple[str, str]) -> List[str]:
    name, value = pair
    return [f'{name}={value}'] if name.startswith('--') else [name, value]


def environments(program: click.Command) -> st.SearchStrategy:
    """What the environment says for a program, by click's rule: some of its options, or torchrun's."""
    names = [f'BREAKOUT_DIST_{param.name.upper()}' for param in program.params]
    names += ['RANK', 'WORLD_SIZE', 'MASTER_ADDR', 'MASTER_PORT', 'LOCAL_WORLD_SIZE']
    # what an environment can hold at all
    odd = st.one_of(texts(), st.sampled_from(NUMBERS)).map(
        lambda text: text.replace('\x00', '').encode(errors='ignore').decode()[:1000]
    )
    return st.dictionaries(st.sampled_from(names), odd, max_size=2)


def attempt_command(words: Sequence[str]) -> None:
    """``breakout WORDS``, up to where it would train, play, draw or write much."""
    with _no_work():
        _invoke(cli.main, words)


def attempt_entry(name: str, words: Sequence[str], environ: Mapping[str, str] = {}) -> None:
    """``python entry/breakout_dqn_NAME.py WORDS``, up to where it would train or play."""
    with _no_work():
        _invoke(PROGRAMS[name], words, environ)


@contextlib.contextmanager
def _no_work() -> Iterator[None]:
    """All that takes long, replaced by one thing that says that it would begin; what is before it is the real thing."""
    train = train_command._entry()
    with contextlib.ExitStack() as patches:
        for where, name in (
            *((module, 'get_vec_env_setting') for module in (train, *map(ENTRIES.get, ('main', 'ddp', 'eval')))),
            (train_command, 'subprocess'),
            (eval_command, 'evaluate'),
            (export_command, 'export_agent'),
            (play_command, 'open_window'),
            (play_command, 'record'),
            (plot_command, 'draw_curves'),
        ):
            double = SimpleNamespace(Popen=start) if name == 'subprocess' else start
            patches.enter_context(mock.patch.object(where, name, double))
        patches.enter_context(mock.patch.object(doctor_command, 'run_checks', lambda checks: iter(())))
        dist = ENTRIES['dist']
        patches.enter_context(mock.patch.object(dist.Parallel, 'runner', start))
        patches.enter_context(mock.patch.object(dist.Launcher, 'run', start))
        check = dist.check_address
        patches.enter_context(mock.patch.object(dist, 'check_address', lambda address, wait_s: check(address, 0.0)))
        patches.enter_context(mock.patch.object(torch, 'set_num_threads', lambda number: None))
        for save in SAVES:
            patches.enter_context(mock.patch(save))
        yield


def _invoke(program: click.Command, words: Sequence[str], environ: Mapping[str, str] = {}) -> None:
    result = CliRunner().invoke(program, list(words), env=dict(environ), prog_name='program')
    error = result.exception
    if isinstance(error, TookTooLong):
        raise Failure(str(error))
    if isinstance(error, Started) or result.exit_code == 0:
        return
    if error is not None and not isinstance(error, SystemExit):
        raise Failure(f'{type(error).__name__} in place of a sentence: {error!s:.300}\n{_where(error)}')
    output = result.output
    if result.exit_code not in (1, 2):
        raise Failure(f'exit code {result.exit_code}: {output[-500:]}')
    said = output[output.rfind('Error: ') :] if 'Error: ' in output else ''
    if not said:
        raise Failure(f'exit code {result.exit_code}, and no error is said: {output[-500:]!r}')
    if 'Traceback' in output:
        raise Failure(output[-1500:])
    if not any(word in said for word in (*EXPECTATIONS, *CLICKS)) and ': ' not in said[7:]:
        raise Failure(f'it does not say what is wrong: {said}')
    raise Refused(said)
