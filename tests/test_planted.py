"""Planted faults: there is one for each release, flush and reference count, and a test that finds it is told."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.processes import ROOT, watched_by_nobody

sys.path.insert(0, str(ROOT / 'reliability'))
import planted  # noqa: E402
import sites  # noqa: E402
from plants import NOT_PLANTED, PLANTS, Plant  # noqa: E402

PACKAGE = ROOT / 'breakout_env'
QUICK = 'test_releases.py::test_strings_are_forgotten_with_the_last_transition_that_has_them'
STRINGS = ('replay/transition_schema.py', 'StringTable.release')


def source_of(file: str) -> str:
    return (PACKAGE / file).read_text()


def uncovered(found: list, plants: list, reasons: dict) -> list:
    """Places with neither a fault nor a reason why there is none."""
    covered = {}
    for plant in plants:
        covered.setdefault(plant.file, []).append(planted.place_of(plant, source_of(plant.file)))
    return [
        str(site)
        for site in found
        if (site.file, site.function, site.text) not in reasons
        and not any(start <= site.start and site.end <= end for start, end in covered.get(site.file, []))
    ]


def test_there_is_a_fault_for_each_release_flush_and_reference_count():
    found = sites.sites_of_package(PACKAGE)
    missing = uncovered(found, PLANTS, NOT_PLANTED)
    assert not missing, 'without a fault in reliability/plants.py:\n' + '\n'.join(missing)
    assert {kind: sum(site.kind == kind for site in found) > least for kind, least in KINDS.items()} == dict.fromkeys(
        KINDS, True
    )
    there = {(site.file, site.function, site.text) for site in found}
    assert not set(NOT_PLANTED) - there, 'reasons for what is not there any more'


KINDS = dict(fsync=4, release=100, reference=40)  # more of each than these


def test_a_release_that_is_added_is_missed_until_a_fault_is_planted_in_it():
    source = source_of('video_file.py').replace(
        'class VideoFile', 'def forget(file):\n    file.close()\n\n\nclass VideoFile'
    )
    (missing,) = [site for site in sites.sites_in(source, 'video_file.py') if site.function == 'forget']
    assert (missing.kind, missing.text) == ('release', 'file.close()')
    assert uncovered([missing], [], {}) == [f'video_file.py:{missing.line} (forget): file.close()']
    for line, kind in (
        ('os.fsync(file)', 'fsync'),
        ('try:\n        pass\n    finally:\n        process.kill()', 'release'),
        ('shutil.rmtree(folder)', 'release'),
        ('weakref.finalize(owner, file.close)', 'release'),
        ("','.join(names)", None),
    ):
        (kinds,) = [[site.kind for site in sites.sites_in(f'def f():\n    {line}\n', 'replay/x.py')]]
        assert kinds == ([kind] if kind else []), line
    counted = 'def drop(self, frame):\n    self.references[frame] -= 1\n    self._index.take([frame])\n'
    assert [site.kind for site in sites.sites_in(counted, 'replay/x.py')] == ['reference'] * 2


@pytest.mark.parametrize('file', sorted({plant.file for plant in PLANTS}))
def test_what_each_fault_changes_is_there_once_and_its_tests_are_there(file):
    for plant in PLANTS:
        if plant.file == file:
            faulty = planted.faulty_source(plant, source_of(file))  # an error if it is not there once
            assert faulty != source_of(file), plant.name
            compile(faulty, file, 'exec')
            assert plant.tests and all(planted.is_there(test) for test in plant.tests), plant.name


def test_no_fault_is_there_twice():
    names = [plant.name for plant in PLANTS]
    assert sorted(names) == sorted(set(names))


def test_a_fault_that_is_out_of_date_is_named():
    gone = Plant('release', *STRINGS, 'self._no_such_thing()', 'pass', (QUICK,))
    with pytest.raises(ValueError, match="'self._no_such_thing.*' is 0 times in StringTable.release; expected once"):
        planted.faulty_source(gone, source_of(STRINGS[0]))
    with pytest.raises(ValueError, match='there is no StringTable.nothing in replay/transition_schema.py'):
        planted.place_of(Plant('release', STRINGS[0], 'StringTable.nothing', 'a', 'b', (QUICK,)), source_of(STRINGS[0]))


def test_faults_are_found_and_what_is_none_is_not(monkeypatch):
    """Real ones in a real copy: two that are found, one that changes nothing, one that no program could have."""
    found = [plant for plant in PLANTS if (plant.file, plant.function) == STRINGS][:1]
    found += [plant for plant in PLANTS if plant.kind == 'fsync' and plant.function == 'write_bytes'][:1]
    old = 'self._uses[number] -= 1'
    harmless = Plant('reference', *STRINGS, old, f'{old}  # as it is', (QUICK,))
    unusable = Plant('reference', *STRINGS, old, 'self._uses[nonsense] -= 1', (QUICK,))
    before = {plant.file: source_of(plant.file) for plant in (*found, harmless)}
    said = []
    # what a copy with a fault runs is not the package's
    monkeypatch.setattr(os, 'environ', watched_by_nobody())
    outcomes = planted.run_plants([*found, harmless, unusable], 1, lambda outcome, *_: said.append(outcome))
    assert [outcome.state for outcome in outcomes] == ['found', 'found', 'NOT FOUND', 'NOT TRIED']
    assert outcomes[0].by == QUICK and outcomes[0].said.startswith('AssertionError')
    assert outcomes[3].said.startswith('NameError') and said == outcomes
    assert {file: source_of(file) for file in before} == before  # the project itself is as it was
    text = planted.table(outcomes)
    assert 'NOT FOUND: no test' in text and outcomes[1].by in text
    figures = planted.figures(outcomes, 1)
    assert (figures['planted'], figures['found']) == (4, 2) and str(ROOT) not in json.dumps(figures)


def test_the_command_ends_with_1_where_a_fault_was_not_found_and_with_a_line_where_there_is_none(tmp_path):
    program = (
        f'import sys; sys.path.insert(0, {str(ROOT / "reliability")!r})\n'
        'import planted\n'
        'def found_one(plants, jobs, say):\n'
        '    for number, plant in enumerate(plants):\n'
        '        state = planted.SURVIVED if number else planted.FOUND\n'
        '        digest = planted.digest_of(plant)\n'
        '        say(planted.Outcome(plant.name, plant.kind, plant.file, state, "x", digest=digest), number, 2)\n'
        'planted.run_plants = found_one\n'
        'planted.main()\n'
    )

    def command(*arguments: str) -> subprocess.CompletedProcess:
        return subprocess.run(
            [sys.executable, '-c', program, *arguments], cwd=tmp_path, capture_output=True, text=True, timeout=60
        )

    done = command('--only', 'memory_lock', '--out', 'planted.json')
    count = sum('memory_lock' in plant.name for plant in PLANTS)
    assert done.returncode == 1 and f'1 of {count} planted faults were found' in done.stdout
    assert json.loads(Path(tmp_path, 'planted.json').read_text())['found'] == 1
    again = command('--only', 'memory_lock', '--out', 'planted.json', '--resume')
    # what was found is passed over, and of the rest the first is found now
    assert f'2 of {count} planted faults were found' in again.stdout and again.returncode == 1
    nothing = command('--only', 'no such fault')
    assert nothing.returncode == 2 and "'no such fault' names no fault; --list shows all" in nothing.stderr
    assert command('--resume').returncode == 2
