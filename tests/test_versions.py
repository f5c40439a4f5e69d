"""What is promised about versions: wheel and sdist work from an empty folder, bounds are those that were tried."""

import ast
import importlib.util
import json
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

import breakout_env
from helpers.processes import ROOT, run

MATRIX = ROOT / 'docs' / 'results' / 'matrix.json'
MATERIALS = ROOT / 'docs' / 'materials'
# what lies in a checkout and is none of the project
LEFT_OUT = shutil.ignore_patterns(
    '.*', '__pycache__', '*.egg-info', 'build', 'dist', 'experiments', 'video', 'default_*'
)


def declared(name: str):
    """An argument that setup.py gives to setup(), without running it."""
    call = next(
        node.value
        for node in ast.parse((ROOT / 'setup.py').read_text()).body
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
    )
    return ast.literal_eval(next(keyword.value for keyword in call.keywords if keyword.arg == name))


REQUIREMENTS = {canonicalize_name(line.name): line for line in map(Requirement, declared('install_requires'))}


def lower_bound(requirement: Requirement) -> Version:
    (bound,) = [Version(part.version) for part in requirement.specifier if part.operator == '>=']
    return bound


# ---------------------------------------------------------------------------------------------------- wheel and sdist


@pytest.fixture(scope='module')
def built(tmp_path_factory):
    """A folder with the sdist of a copy of this tree, and the wheel that is built from that sdist."""
    folder = tmp_path_factory.mktemp('built')
    source = folder / 'source'
    shutil.copytree(ROOT, source, ignore=LEFT_OUT)
    for name in ('.ci', '.coveragerc', '.dockerignore'):
        if (ROOT / name).is_file():
            shutil.copy(ROOT / name, source)
        elif (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, source / name)
    run([sys.executable, '-m', 'build', '-q', '--outdir', str(folder / 'dist'), str(source)], folder)
    return folder / 'dist'


def test_the_package_index_would_take_both(built):
    printed = run([sys.executable, '-m', 'twine', 'check', '--strict', *map(str, built.iterdir())], built)
    assert printed.count('PASSED') == 2


def test_the_sdist_has_all_that_tests_and_builds_need(built):
    with tarfile.open(next(built.glob('*.tar.gz'))) as archive:
        there = {name.split('/', 1)[1] for name in archive.getnames() if '/' in name}
    listed = subprocess.run(['git', 'ls-files', '-z'], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:  # the tests of an sdist, which is no clone
        expected = {str(path.relative_to(ROOT)) for path in ROOT.glob('tests/*.py')}
    else:
        expected = {name for name in listed.stdout.split('\0') if name and (ROOT / name).exists()} - {'.gitignore'}
    assert expected and not expected - there
    assert not [name for name in there if '__pycache__' in name or name.endswith('.pyc')]


def install(file: Path, folder: Path) -> tuple:
    """An environment that has our package from a file, and all others from the environment of the tests."""
    environment, empty = folder / 'environment', folder / 'empty'
    empty.mkdir()
    run([sys.executable, '-m', 'venv', str(environment)], folder)
    inside = environment / 'bin' / 'python'
    run([str(inside), '-m', 'pip', 'install', '-q', '--no-deps', str(file)], empty)
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    site = Path(run([str(inside), '-c', code], empty).strip())
    (site / 'the_others.pth').write_text(sysconfig.get_path('purelib') + '\n')
    return inside, site, empty


def test_the_wheel_works_from_an_empty_folder(built, tmp_path):
    inside, site, empty = install(next(built.glob('*.whl')), tmp_path)
    spec = importlib.util.spec_from_file_location('installed', ROOT / 'reliability' / 'installed.py')
    installed = importlib.util.module_from_spec(spec)
    sys.modules['installed'] = installed  # dataclasses look their module up
    spec.loader.exec_module(installed)
    assert installed.where_it_lies(inside, empty) == site / 'breakout_env'
    outcomes = installed.try_all(inside, empty)
    assert len(outcomes) >= 5 and not [outcome for outcome in outcomes if outcome.error]


def test_the_sdist_installs_what_the_wheel_has_and_that_works_from_an_empty_folder(built, tmp_path):
    inside, site, empty = install(next(built.glob('*.tar.gz')), tmp_path)
    with zipfile.ZipFile(next(built.glob('*.whl'))) as archive:
        in_wheel = {name: archive.read(name) for name in archive.namelist() if name.startswith('breakout_env/')}
    assert in_wheel and all((site / name).read_bytes() == content for name, content in in_wheel.items())
    assert 'worker process' in run([str(inside), '-m', 'breakout_env', 'doctor'], empty)


# ------------------------------------------------------------------------------------------------------------- bounds


def tried_rows() -> list:
    """The kept matrix."""
    return json.loads(MATRIX.read_text())['rows']


def rows(kind: str) -> dict:
    """Of the kept matrix, by version of Python."""
    found = {row['name'].split(',')[0]: row for row in tried_rows() if row['name'].endswith(f'all {kind}')}
    assert found
    return found


def test_all_that_was_tried_works():
    tried = tried_rows()
    assert tried
    for row in tried:
        assert row['works'] and row['pip_check'] == 'No broken requirements found.', row['name']
        assert row['tests']['passed'] >= 50 and not row['tests']['failed'], row['name']
        assert len(row['commands']) >= 5 and not any(outcome['error'] for outcome in row['commands']), row['name']


@pytest.mark.parametrize('kind', ['lowest', 'highest'])
def test_the_pythons_are_those_that_were_tried(kind):
    bounds = SpecifierSet(declared('python_requires'))
    admitted = {f'3.{minor}' for minor in range(50) if f'3.{minor}.99' in bounds}
    classified = re.findall(r"Python :: (3\.\d+)'", (ROOT / 'setup.py').read_text())
    assert set(rows(kind)) == admitted == set(classified)
    assert all(row['python'].startswith(f'{python}.') for python, row in rows(kind).items())


@pytest.mark.parametrize('name', REQUIREMENTS)
def test_the_lowest_version_that_is_admitted_is_one_that_was_tried(name):
    bound = lower_bound(REQUIREMENTS[name])
    for python, row in rows('lowest').items():
        tried = Version(row['versions'][name])
        # 4.8 admits nothing older than 4.8.0.74, the first of that name
        assert tried >= bound and tried.release[: len(bound.release)] == bound.release, python


@pytest.mark.parametrize('name', REQUIREMENTS)
def test_the_highest_versions_that_were_tried_are_newer_and_admitted(name):
    for python, row in rows('highest').items():
        tried = Version(row['versions'][name])
        assert tried in REQUIREMENTS[name].specifier, python
        assert tried >= Version(rows('lowest')[python]['versions'][name])


def test_torch_load_is_safe_by_default_from_the_lowest_version_on():
    assert lower_bound(REQUIREMENTS['torch']) >= Version('2.6')


# ---------------------------------------------------------------------------------------------------------- materials


def test_the_bill_of_materials_names_us_and_what_we_ask_for():
    bill = json.loads((MATERIALS / 'sbom.cdx.json').read_text())
    assert bill['bomFormat'] == 'CycloneDX'
    own = bill['metadata']['component']
    assert (own['name'], own['version']) == ('breakout-env', breakout_env.__version__)
    there = {canonicalize_name(part['name']): Version(part['version']) for part in bill['components']}
    for name, requirement in REQUIREMENTS.items():
        assert there[name] in requirement.specifier
    asked = next(entry for entry in bill['dependencies'] if entry['ref'] == own['bom-ref'])['dependsOn']
    assert {canonicalize_name(ref.split('==')[0]) for ref in asked} == set(REQUIREMENTS)
    assert not {'pytest', 'hypothesis', 'ruff'} & set(there)


def test_the_bill_of_materials_says_nothing_of_the_machine_and_moment_that_made_it():
    text = (MATERIALS / 'sbom.cdx.json').read_text()
    assert not re.search(r'"(timestamp|serialNumber)"|file://|/home/|/root/|/tmp/', text)


def test_the_list_of_licences_is_of_the_same_packages():
    bill = json.loads((MATERIALS / 'sbom.cdx.json').read_text())
    text = (MATERIALS / 'licences.md').read_text()
    listed = re.findall(r'^\| (\S+) \| (\d\S*) \| (.+?) \|', text, re.M)
    versions = {canonicalize_name(name): version for name, version, _ in listed}
    assert versions == {canonicalize_name(part['name']): part['version'] for part in bill['components']}
    # the program in one of them has a licence of its own
    assert 'GNU General Public License' in text and '--enable-gpl' in text and 'ROM' in text
