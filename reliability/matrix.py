"""
Which Pythons and which versions of its packages this project runs on: each set in an environment of its own.

    python reliability/matrix.py --out docs/results/matrix.json

For each Python that setup.py admits: the lowest versions that its bounds admit of everything it asks for, and the
highest; and on one Python each package that runs the game or the network at its lowest, the rest at its highest. In
each: the wheel is installed (the tree is nowhere to be seen), ``pip check``, every command used from an empty folder
(installed.py), and tests of all rooms. Takes up to 20 GB on the disk, most of it CUDA libraries that PyTorch brings
(with uv's cache on the same disk they are there once), and downloads them the first time.
"""

import contextlib
import importlib.util
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
import zipfile
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from email.parser import Parser
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import click
from installed import LIMIT_S, run_with_all_it_starts, try_all, where_it_lies
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from tabulate import tabulate

ROOT = Path(__file__).resolve().parent.parent
# What runs the game and the network; each is tried alone at its lowest, too.
MAIN = ('ale-py', 'gymnasium', 'torch', 'opencv-python')
# What is told of an environment besides what setup.py asks for.
ALSO_TOLD = ('numpy', 'gym', 'setuptools')
# DI-engine and what it asks for come as source, too; of old versions of ours only wheels are tried, as whether an old
# source compiles is a question about compilers.
SOURCE_ALLOWED = ('di-engine',)
# What the tests below import besides.
TEST_PACKAGES = ('pytest', 'pytest-timeout', 'hypothesis', 'av')
# Tests of all rooms that look at the installed package, not at the tree, and take two minutes together.
TESTS = (
    'tests/test_options.py',
    'tests/test_agent.py',
    'tests/test_env.py::test_di_engines_own_checks_pass',
    'tests/test_env.py::test_reset_reuses_the_emulator_and_close_ends_it',
    'tests/test_env.py::test_a_life_ends_the_episode_and_not_the_game',
    'tests/test_env.py::test_evaluation_plays_the_whole_game_and_fire_brings_the_next_ball',
    'tests/test_env.py::test_rewards_points_signs_and_penalties',
    'tests/test_env.py::test_same_seed_same_games_whatever_was_before',
    'tests/test_env.py::test_a_bad_action_gets_a_sentence_and_leaves_the_game_as_it_was',
    'tests/test_env.py::test_the_picture_as_di_engine_asks_for_it',
    'tests/test_close.py::test_before_the_first_reset_and_twice_and_again',
    'tests/test_close.py::test_a_failed_reset_leaves_nothing_open_and_the_next_one_works',
    'tests/test_close.py::test_one_failing_release_does_not_keep_the_others_from_theirs',
    'tests/test_close.py::test_garbage_collection_closes',
    'tests/test_managers.py::test_launch_close_and_launch_again',
    'tests/test_model.py::test_it_is_the_template_on_scaled_pixels',
    'tests/test_model.py::test_collector_and_evaluator_see_the_same_numbers',
    'tests/test_model.py::test_a_pair_that_does_not_fit_is_refused_before_anything_starts',
    'tests/test_env_manager.py::test_breakout_plays_the_same_games',
    'tests/replay/test_saving.py::test_a_loaded_buffer_equals_the_saved_one_and_continues_alike',
    'tests/replay/test_damaged_saves.py::test_a_file_that_is_cut_off_is_refused',
    'tests/test_resume.py::test_everything_comes_back',
    'tests/test_resume.py::test_a_checkpoint_that_would_run_code_is_refused',
)
# What a wheel is made of.
PACKAGE = ('breakout_env', 'configs', 'entry', 'LICENSE', 'README.md', 'setup.py')
# What lies beside tests/ for them; the package must not.
BESIDE_TESTS = ('tests', 'configs', 'entry', 'examples', 'pytest.ini')
TEST_LIMIT_S = 1800.0
INSTALL_LIMIT_S = 1800.0


class Failed(Exception):
    """A step of an environment did not work; the message says what and why."""


@dataclass(frozen=True)
class Set:
    """
    Overview:
        Versions to try together.
    """

    # (str) Such as '3.11'.
    python: str
    # (tuple) Canonical names of the packages at their lowest.
    lowest: Tuple[str, ...]
    # (str) What the table calls it.
    name: str


# ------------------------------------------------------------------------------------------- what there is to be tried


def wanted_sets(wheel: Path) -> List[Set]:
    """
    Overview:
        What the bounds in a wheel's metadata leave to be tried.
    """
    pythons = supported_pythons(wheel)
    everything = tuple(canonicalize_name(requirement.name) for requirement in requirements(wheel))
    sets = []
    for python in pythons:
        sets += [Set(python, everything, f'{python}, all lowest'), Set(python, (), f'{python}, all highest')]
    sets += [Set(pythons[-2], (name,), f'{pythons[-2]}, {name} lowest, others highest') for name in MAIN]
    return sets


def metadata(wheel: Path) -> Any:
    """The fields of a wheel's METADATA."""
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith('.dist-info/METADATA'))
        return Parser().parsestr(archive.read(name).decode())


def requirements(wheel: Path) -> List[Requirement]:
    """What a wheel asks for without extras."""
    found = [Requirement(line) for line in metadata(wheel).get_all('Requires-Dist')]
    return [requirement for requirement in found if 'extra' not in str(requirement.marker or '')]


def supported_pythons(wheel: Path) -> List[str]:
    """Of Python 3, what a wheel's bounds admit."""
    bounds = SpecifierSet(metadata(wheel)['Requires-Python'])
    return [f'3.{minor}' for minor in range(50) if f'3.{minor}.99' in bounds]


def find_python(version: str, named: Sequence[str]) -> Optional[str]:
    """
    Overview:
        An interpreter: among the named ones, on PATH, or where pyenv keeps them.
    """
    pyenv = Path(os.environ.get('PYENV_ROOT', Path.home() / '.pyenv')) / 'versions'
    kept = sorted(pyenv.glob(f'{version}.*/bin/python'), reverse=True)
    # pyenv puts a script of each name on PATH that works only where that version was chosen, so all are asked
    for path in (*named, shutil.which(f'python{version}'), shutil.which('python3'), *map(str, kept)):
        said = _says(path, 'import sys; print("%d.%d" % sys.version_info[:2], sys.executable)') if path else None
        if said and said.split(' ', 1)[0] == version:
            return said.split(' ', 1)[1]
    return None


def _says(python: str, code: str) -> Optional[str]:
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        return subprocess.run(
            [python, '-c', code], capture_output=True, text=True, check=True, timeout=60
        ).stdout.strip()
    return None


# --------------------------------------------------------------------------------------------------- one environment


class Place(object):
    """
    Overview:
        A folder for everything that is made on the way, and the tools that are taken along.
    Interfaces:
        ``run``, ``build_wheel``, ``pins``, ``install``.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.tests = folder / 'source'
        self.uv = _find_uv() or self._install_uv()

    def run(self, *command: Any, limit_s: float = INSTALL_LIMIT_S, cwd: Optional[Path] = None) -> str:
        """
        Overview:
            A command's standard output.
        Raises:
            - Failed: If its exit code is not 0, or it does not end.
        """
        words = [str(word) for word in command]
        environ = {name: value for name, value in os.environ.items() if name not in ('PYTHONPATH', 'VIRTUAL_ENV')}
        try:
            done = subprocess.run(
                words, cwd=cwd or self.folder, env=environ, timeout=limit_s, capture_output=True, text=True
            )
        except subprocess.TimeoutExpired:
            raise Failed(f'{self._spelled(words)}: did not end within {limit_s:g} s') from None
        if done.returncode:
            said = self._spelled([(done.stdout + done.stderr).strip()[-2000:]])
            raise Failed(f'{self._spelled(words)}: exit code {done.returncode}: {said}')
        return done.stdout

    def _spelled(self, words: Sequence[str]) -> str:
        return ' '.join(words).replace(str(self.folder), '.').replace(str(ROOT), '.').replace(self.uv, 'uv')

    def _install_uv(self) -> str:
        self.uv = 'uv'  # for messages, until it is there
        tools = self.folder / 'tools'
        self.run(sys.executable, '-m', 'venv', tools)
        self.run(tools / 'bin' / 'python', '-m', 'pip', 'install', '-q', 'uv')
        return str(tools / 'bin' / 'uv')

    def build_wheel(self) -> Path:
        """
        Overview:
            The wheel of this tree, and beside it the tests, as they are now: whatever changes meanwhile, all
            environments meet the same.
        """
        clone = self.folder / 'clone'
        for target, names in ((clone, PACKAGE), (self.tests, BESIDE_TESTS)):
            shutil.rmtree(target, ignore_errors=True)
            target.mkdir()
            for name in names:
                if (ROOT / name).is_dir():
                    shutil.copytree(ROOT / name, target / name, ignore=shutil.ignore_patterns('__pycache__'))
                else:
                    shutil.copy(ROOT / name, target / name)
        # of a copy, as setuptools leaves its own files beside the sources and takes in what lies there from before
        self.run(self.uv, 'build', '-q', '--wheel', '--out-dir', self.folder / 'wheel', clone)
        return max((self.folder / 'wheel').glob('*.whl'), key=lambda path: path.stat().st_mtime)

    def pins(self, wheel: Path, wanted: Set) -> List[str]:
        """
        Overview:
            Exact versions of everything, as a resolver finds them.
        """
        asked = requirements(wheel)
        lines = [str(requirement) for requirement in asked]
        if wanted.lowest and len(wanted.lowest) < len(asked):
            alone = [requirement for requirement in asked if canonicalize_name(requirement.name) in wanted.lowest]
            lowest = {pin.split('==')[0]: pin for pin in self._resolve(lines, wanted.python, 'lowest-direct')}
            lines += [lowest[canonicalize_name(requirement.name)] for requirement in alone]
        resolution = 'lowest-direct' if len(wanted.lowest) == len(asked) else 'highest'
        return self._resolve(lines, wanted.python, resolution)

    def _resolve(self, lines: List[str], python: str, resolution: str) -> List[str]:
        with tempfile.NamedTemporaryFile('w', suffix='.in', dir=self.folder) as file:
            file.write('\n'.join(lines) + '\n')
            file.flush()
            names = {canonicalize_name(Requirement(line).name) for line in lines}.difference(SOURCE_ALLOWED)
            wheels_only = [word for name in sorted(names) for word in ('--only-binary', name)]
            options = ['-q', '--no-header', '--no-annotate', '--resolution', resolution, '--python-version', python]
            text = self.run(self.uv, 'pip', 'compile', *options, *wheels_only, file.name)
        return [line for line in text.splitlines() if '==' in line]

    def install(self, environment: Path, python: str, wheel: Path, pins: List[str]) -> Path:
        """
        Overview:
            A new environment with the wheel and these versions; its Python.
        """
        shutil.rmtree(environment, ignore_errors=True)
        self.run(self.uv, 'venv', '-q', '--python', python, environment)
        listed = environment / 'pins.txt'
        listed.write_text('\n'.join(pins) + '\n')
        inside = environment / 'bin' / 'python'
        # pip for `pip check`; uv's own seeds would bring packages that have requirements of their own
        self.run(self.uv, 'pip', 'install', '-q', '--python', inside, '-r', listed, wheel, 'pip')
        return inside


def _find_uv() -> Optional[str]:
    if importlib.util.find_spec('uv') is not None:
        import uv

        return uv.find_uv_bin()
    return shutil.which('uv')


def versions_in(place: Place, python: Path) -> Dict[str, str]:
    """What is installed, by canonical name."""
    listed = place.run(python, '-m', 'pip', 'list', '--format', 'json', '--disable-pip-version-check')
    return {canonicalize_name(entry['name']): entry['version'] for entry in json.loads(listed)}


def try_set(place: Place, wheel: Path, wanted: Set, python: str, keep: bool, tell: Callable[[str], None]) -> Dict:
    """
    Overview:
        Make an environment and look what works in it; a row of the result.
    """
    environment = place.folder / re.sub(r'[^\w.]+', '-', wanted.name)
    row: Dict[str, Any] = dict(
        name=wanted.name, python=_says(python, 'import platform; print(platform.python_version())')
    )
    begin = time.monotonic()
    try:
        tell(f'{wanted.name}: installing')
        inside = place.install(environment, python, wheel, place.pins(wheel, wanted))
        before = versions_in(place, inside)
        told = [canonicalize_name(requirement.name) for requirement in requirements(wheel)]
        row['versions'] = {name: before[name] for name in sorted({*told, *ALSO_TOLD})}
        row['lowest'] = sorted(wanted.lowest)
        row['pip_check'] = place.run(inside, '-m', 'pip', 'check', '--disable-pip-version-check').strip()
        folder = Path(tempfile.mkdtemp(prefix='empty-', dir=place.folder))
        if not where_it_lies(inside, folder).is_relative_to(environment):
            raise Failed('the package is imported from elsewhere than the environment')
        tell(f'{wanted.name}: commands')
        row['commands'] = [asdict(outcome) for outcome in try_all(inside, folder, 3 * LIMIT_S)]
        tell(f'{wanted.name}: tests')
        place.run(place.uv, 'pip', 'install', '-q', '--python', inside, '-c', environment / 'pins.txt', *TEST_PACKAGES)
        row['tests'] = run_tests(place, inside, environment)
        after = versions_in(place, inside)
        changed = {name: after.get(name) for name, version in before.items() if after.get(name) != version}
        if changed:
            raise Failed(f'the packages of the tests changed what they are to try: {changed}')
    except (Failed, OSError, subprocess.SubprocessError) as error:
        row['error'] = str(error).replace(str(place.folder), '.')
    row['seconds'] = round(time.monotonic() - begin, 1)
    row['date'] = datetime.now(timezone.utc).isoformat(timespec='seconds')
    row['works'] = works(row)
    tell(f'{wanted.name}: {"works" if row["works"] else "fails"}')
    if not keep:
        shutil.rmtree(environment, ignore_errors=True)
    return row


def run_tests(place: Place, inside: Path, environment: Path) -> Dict[str, Any]:
    """
    Overview:
        The tests on the installed package; how many passed, and what became of the others.
    """
    report = environment / 'tests.xml'
    command = [str(inside), '-m', 'pytest', '-q', '-p', 'no:cacheprovider', '-W', 'ignore', '-o', 'timeout=900']
    environ = {name: value for name, value in os.environ.items() if name not in ('PYTHONPATH', 'VIRTUAL_ENV')}
    environ.update(OMP_NUM_THREADS='1', PATH=f'{inside.parent}{os.pathsep}{os.environ["PATH"]}')
    options = dict(cwd=place.tests, env=environ)
    _, stdout, stderr = run_with_all_it_starts([*command, f'--junitxml={report}', *TESTS], TEST_LIMIT_S, **options)
    (environment / 'tests.log').write_text(stdout + stderr)
    if not report.exists():
        raise Failed(f'the tests came to no end: {(stdout + stderr)[-2000:]}')
    counts = dict(passed=0, skipped=0, failed=0)
    failures = {}
    for case in ElementTree.parse(report).iter('testcase'):
        wrong = [element for element in case if element.tag in ('failure', 'error')]
        became = 'failed' if wrong else 'skipped' if case.find('skipped') is not None else 'passed'
        counts[became] += 1
        if wrong:
            message = (wrong[0].get('message') or '').replace(str(place.folder), '.')
            failures[f'{case.get("classname")}::{case.get("name")}'] = message[-500:]
    return dict(**counts, failures=failures)


def works(row: Dict[str, Any]) -> bool:
    """Whether all that was tried in an environment has worked."""
    if 'error' in row:
        return False
    failed = any(outcome['error'] for outcome in row['commands'])
    return not failed and not row['tests']['failed'] and row['tests']['passed'] > 0


# ------------------------------------------------------------------------------------------------------- the program


def table(rows: List[Dict[str, Any]]) -> str:
    """
    Overview:
        An environment a line, as printed and as docs show it.
    """
    lines = []
    for row in rows:
        tests, commands = row.get('tests', {}), row.get('commands', [])
        lines.append(
            [
                row['name'],
                row['python'] or 'not found',
                *(row.get('versions', {}).get(name, '') for name in MAIN),
                'clean' if 'pip_check' in row else '',
                f'{sum(not outcome["error"] for outcome in commands)}/{len(commands)}' if commands else '',
                f'{tests["passed"]} passed, {tests["failed"]} failed' if tests else '',
                'works' if row['works'] else 'fails' if row['python'] else 'not tried',
            ]
        )
    headers = ['environment', 'Python', *MAIN, 'pip check', 'commands', 'tests', '']
    return tabulate(lines, headers=headers, tablefmt='github', disable_numparse=True)


def what_fails(row: Dict[str, Any]) -> List[str]:
    """Sentences about what did not work in an environment."""
    found = [row['error']] if 'error' in row else []
    found += [f'{outcome["name"]}: {outcome["error"]}' for outcome in row.get('commands', []) if outcome['error']]
    return found + [f'{test}: {message}' for test, message in row.get('tests', {}).get('failures', {}).items()]


def surroundings() -> Dict[str, Any]:
    """The machine in words."""
    gigabytes = os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 1e9
    return dict(cores=len(os.sched_getaffinity(0)), memory_gb=round(gigabytes), system=platform.system())


@click.command(help=__doc__.split('\n\n')[0])
@click.option('--out', type=click.Path(dir_okay=False), help='Write the result here, as JSON.')
@click.option('--only', multiple=True, help='Only environments with this in their names; others in --out are kept.')
@click.option('--python', 'named', multiple=True, help='An interpreter that is not on PATH; may be repeated.')
@click.option('--keep', type=click.Path(file_okay=False), help='Keep the environments in this folder.')
@click.option('--jobs', default=1, show_default=True, type=click.IntRange(1, 64), help='Environments at once.')
@click.option('--strict', is_flag=True, help='A Python that is not there is a failure.')
def main(
    out: Optional[str], only: Sequence[str], named: Sequence[str], keep: Optional[str], jobs: int, strict: bool
) -> None:
    with contextlib.ExitStack() as stack:
        if keep:
            Path(keep).mkdir(parents=True, exist_ok=True)
        folder = keep or stack.enter_context(tempfile.TemporaryDirectory(prefix='matrix-', ignore_cleanup_errors=True))
        place = Place(Path(folder).resolve())
        wheel = place.build_wheel()
        sets = wanted_sets(wheel)
        names = [wanted.name for wanted in sets]
        if only:
            sets = [wanted for wanted in sets if any(word in wanted.name for word in only)]
        if not sets:
            raise click.UsageError(f'--only is {", ".join(only)}; expected part of one of: {"; ".join(names)}')
        begin = time.monotonic()

        def tell(message: str) -> None:
            click.echo(f'[{time.monotonic() - begin:5.0f} s] {message}', err=True)

        def row_of(wanted: Set) -> Dict[str, Any]:
            python = find_python(wanted.python, named)
            if python is None:
                tell(f'{wanted.name}: Python {wanted.python} not found; name one with --python')
                return dict(name=wanted.name, python=None, works=False)
            return try_set(place, wheel, wanted, python, bool(keep), tell)

        result: Dict[str, Any] = dict(version=metadata(wheel)['Version'], machine=surroundings(), rows=[])
        if only and out and Path(out).exists():
            result['rows'] = [row for row in json.loads(Path(out).read_text())['rows'] if row['name'] in names]
        fresh = []
        with ThreadPoolExecutor(jobs) as pool:
            for done in as_completed([pool.submit(row_of, wanted) for wanted in sets]):
                fresh.append(row := done.result())
                rows = {kept['name']: kept for kept in (*result['rows'], row)}
                result['rows'] = [rows[name] for name in names if name in rows]
                if out:  # after each, as it takes long
                    Path(out).parent.mkdir(parents=True, exist_ok=True)
                    Path(out).write_text(json.dumps(result, indent=1) + '\n')
    fresh.sort(key=lambda row: names.index(row['name']))
    click.echo(table(fresh))
    for row in fresh:
        for sentence in what_fails(row):
            click.echo(f'{row["name"]}: {sentence}')
    sys.exit(any(not row['works'] and (row['python'] is not None or strict) for row in fresh))


if __name__ == '__main__':
    main()
