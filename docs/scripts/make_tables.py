"""Write the tables of the README and the guides, from the measurements in docs/results.

    python docs/scripts/make_tables.py

sources.py says which program measured which result.
"""

import json
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import sources
import training_rows
from blocks import ROOT, fill, markdown

from breakout_env.run.config import read_config_file
from breakout_env.run.log import RunLog

sys.path.insert(0, str(ROOT))  # for the table of benchmarks.replay.cost
RESULTS = ROOT / 'docs' / 'results'
TRAINING = RESULTS / 'training'
PPO, DQN = TRAINING / 'ppo_gpu_seed0.jsonl.gz', TRAINING / 'dqn_gpu_seed0.jsonl.gz'
PPO_AFTER = [TRAINING / f'ppo_gpu_seed0_{which}.jsonl.gz' for which in ('second', 'third', 'fourth')]
PROTOCOLS = ('nature', 'sticky', 'greedy')
RULES = (', episodes end with a life', ', full games')


def load(name: str) -> dict[str, Any]:
    """A result by the name of its file."""
    return json.loads((RESULTS / f'{name}.json').read_text())


def bold(name: str) -> str:
    """Contestants of this project stand out."""
    return f'**{name}**' if name.startswith(('ours', 'BreakoutEnv')) else name


# ---------------------------------------------------------------------------------------------- benchmarks


def figures(row: dict[str, Any]) -> str:
    """What a contestant reached in a section: median, spread and ratio."""
    if 'failure' in row:
        return 'failed'
    digits = 0 if row['median'] >= 100 else 1
    spread = f' ({row["low"]:,.{digits}f} to {row["high"]:,.{digits}f})' if 'low' in row else ''
    return f'{row["median"]:,.{digits}f}{spread}' + (f', {row["ratio"]:.2f}' if row['ratio'] else '')


def benchmark(*names: str, rules: Sequence[str] = ('',)) -> str:
    """A row for each contestant of benchmarks in interleaved rounds; a column for each of their sections."""
    title = load(names[0])['sections'][0]['title'].split(', episodes')[0]
    headers, rows = [f'{title}: env steps/s (min to max), ratio'], {}
    for about in map(load, names):
        for section, rule in zip(about['sections'], rules):
            headers.append(f'{about["cpu"]}{rule}')
            for row in section['rows']:
                rows.setdefault(row['name'], [bold(row['name'])]).append(figures(row))
    return '\n\n'.join([markdown(headers, list(rows.values()), len(headers) - 1), *map(provenance, names)])


def provenance(name: str) -> str:
    """What stands below the tables of a benchmark: where, how often and when it was measured."""
    about = load(name)
    seconds = f' of {about["seconds"]:g} s' if 'seconds' in about else ''
    turns = f'medians of {about["repeats"]} turns{seconds} each'
    load_before = f', load {about["load"]:g} before' if 'load' in about else ''
    return f'{about["cpu"]}, {about["cores"]} cores{load_before}; {turns}, {about["date"][:10]}.'


def life_cycle() -> str:
    rows = [[row['name'], f'{row["median_ms"]:.2f}'] for row in load('bench_env')['sections'][1]['rows']]
    return markdown([f'life cycle of BreakoutEnv, {load("bench_env")["cpu"]}', 'ms, median'], rows, 1)


def replay() -> str:
    from benchmarks.replay.cost import table

    measured = load('bench_replay')
    where = f'{measured["cpu"]}, {measured["cores"]} cores, {measured["date"][:10]}.'
    return f'{table(measured["results"], measured["sizes"])}\n\n{where}'


def million() -> str:
    """What a million transitions take, by what was played."""
    rows = []
    for name, file in (('random play', 'bench_replay'), ('a player that follows the ball', 'bench_replay_ball')):
        measured = load(file)
        taken = [measured['results'][kind]['1000000'] for kind in ('compressed', 'compressed, prioritised')]
        cells = [f'{row["bytes_per_transition"] / 1e3:.2f} GB' for row in taken]
        rows.append([name, f'{measured["play"]["bricks_per_game"]:.1f}', *cells])
    return markdown(['1,000,000 transitions of', 'bricks a game', 'uniform', 'prioritised'], rows, 3)


def million_transitions() -> str:
    """The one number that all documents name: of play that fills the buffer with more different screens."""
    return _gb(load('bench_replay_ball')['results']['compressed'])


# ---------------------------------------------------------------------------------------------- trainings and agents


def last(values: np.ndarray) -> float:
    """The last value that is a number."""
    numbers = values[np.isfinite(values)]
    return float(numbers[-1]) if len(numbers) else float('nan')


def runs_of_the_agent() -> str:
    """What the trainings of the shipped agent reached, from their logs."""
    logs = [RunLog.read(path).progress for path in (PPO, *PPO_AFTER)]
    rows = [
        ['env steps', *(f'{last(log["env_step"]):,.0f}' for log in logs)],
        ['updates', *(f'{last(log["updates"]):,.0f}' for log in logs)],
        ['minutes', *(f'{last(log["hours"]) * 60:.1f}' for log in logs)],
        ['env steps/s, median', *(f'{np.nanmedian(log["env_steps_per_s"]):,.0f}' for log in logs)],
        ['score while training, last 100 games', *(f'{last(log["train_return"]):.1f}' for log in logs)],
        ['most memory', *(f'{np.nanmax(log["memory_bytes"]) / 1e9:.2f} GB' for log in logs)],
    ]
    return markdown(['PPO on one H100 and 16 CPU cores, seed 0', 'first', 'second', 'third', 'fourth'], rows, 4)


def on_gpu() -> str:
    """After minutes on a GPU: env steps and score of PPO and of DQN, as far as each went; then their speed."""
    runs = [RunLog.read(path).progress for path in (PPO, DQN)]
    rows = []
    for minute in (1, 2, 3, 5, 7, 10):
        cells = [str(minute)]
        for progress in runs:
            newest = np.flatnonzero(progress['hours'] * 60 <= minute + 0.01)[-1]
            ended = minute > progress['hours'][-1] * 60 + 0.5
            values = [progress[name][newest] for name in ('env_step', 'train_return')]
            cells += ['', ''] if ended else [f'{value:,.0f}' for value in values]
        rows.append(cells)
    speeds = [np.nanmedian(progress[f'{name}_per_s']) for progress in runs for name in ('env_steps', 'updates')]
    medians = 'Medians: PPO {:,.0f} env steps/s and {:.0f} updates/s, DQN {:,.0f} and {:.0f}.'.format(*speeds)
    table = markdown(['minutes', 'PPO: env steps', 'score', 'DQN: env steps', 'score'], rows, 5)
    return f'{table}\n\n{medians}'


def agents() -> list[dict[str, Any]]:
    """The shipped agents, the one with the fewest env steps first."""
    found = [json.loads(path.read_text()) for path in (RESULTS / 'agents').glob('*.json')]
    return sorted(found, key=lambda agent: agent['card']['env_steps'])


def scores() -> str:
    rows = []
    for card in (agent['card'] for agent in agents()):
        for protocol in PROTOCOLS:
            measured = card['scores'][protocol]
            interval = measured['interval_95']
            rows.append([card['name'], protocol, f'{card["env_steps"]:,}', f'{card["hours"]:.2f}'])
            rows[-1] += [f'{measured["mean"]:.1f}', f'{measured["std"]:.1f}']
            rows[-1] += ['{:.1f} to {:.1f}'.format(*interval) if interval else 'none']
            rows[-1] += [str(measured['episodes']), str(measured['distinct_games'])]
    headers = ['agent', 'protocol', 'env steps', 'hours', 'mean score', 'std', '95% interval', 'games', 'different']
    return markdown(headers, rows, 7)


def averages() -> str:
    compared = [agent for agent in agents() if len(agent['selection']['candidates']) > 1]
    counts = sorted({row['checkpoints'] for agent in compared for row in agent['selection']['candidates']})
    rows = []
    for agent in compared:
        by_count = {row['checkpoints']: row for row in agent['selection']['candidates']}
        cells = [f'{by_count[count]["mean"]:.1f}' if count in by_count else '' for count in counts]
        rows.append([f'{agent["card"]["env_steps"]:,} env steps, {agent["selection"]["games"]} games', *cells])
    return markdown(['mean score by averaged checkpoints', *map(str, counts)], rows, len(counts))


def comparison() -> str:
    """What this package gives beside others, for the README: a row is of one CPU, which it names."""
    env, games = _medians('bench_env'), _medians('bench_manager', 1)
    (ppo, ppo_cpu), (dqn, dqn_cpu) = _trained('ppo', 80), _trained('lean_dqn', 40)
    sb3 = f'{_trained("SB3 DQN", 40)[0]}, SB3'
    rl_games = f'{_trained("rl_games PPO", 40)[0]}, rl_games after 40 minutes'
    on = {name: load(f'bench_{name}')['cpu'] for name in ('env', 'manager')}
    kinds = ('compressed', "DI-engine's advanced, uint8", 'snappy elements, as in Dopamine')
    compressed, advanced, snappy = (_gb(load('bench_replay')['results'][kind]) for kind in kinds)
    full = f"8 environments, each library's fastest mode{RULES[1]}: env steps/s"
    gpu = [agent['card'] for agent in agents() if 'gpu' in agent['card']['config']]
    on_gpu, minutes = [f'{card["scores"]["nature"]["mean"]:.0f} (1 seed)' for card in gpu], gpu[1]['hours'] * 60
    rows = [
        ['DQN, score after 40 minutes', dqn, '', sb3, dqn_cpu],
        ['one environment, env steps/s', env['BreakoutEnv'], 'does not run', _best_other(env), on['env']],
        [full, games['ours, halves in turns'], _stock(games), _best_other(games), on['manager']],
        ['PPO, score after 80 minutes', ppo, '', rl_games, ppo_cpu],
        ['memory of a million transitions of random play', compressed, advanced, f'{snappy}, as Dopamine', 'any'],
        ['PPO on a GPU and 16 CPU cores, score after 10 minutes', on_gpu[0], '', '', 'NVIDIA H100'],
        [f'the shipped agent, score after {minutes:.0f} minutes in four trainings', on_gpu[1], '', '', 'NVIDIA H100'],
    ]
    return markdown(['on 2 CPU cores, unless named', 'breakout_env', 'DI-engine', 'best other measured', 'on'], rows, 0)


def first_hour() -> str:
    """What to train first: a config, the command, what it scores after how long, and on which CPU."""
    (by_ding,) = [row for row in training_rows.by_env_steps() if row['variant'] == 'ppo_by_ding']
    config, env_steps = 'configs/breakout_ppo_config.py', by_ding['budget_env_steps']
    ding = f'GOMP_SPINCOUNT=10000 ding -m serial -c {config} -s 0 --env-step {env_steps}'
    dqn = 'breakout train -c configs/breakout_dqn_cpu_config.py --hours 0.67'
    rows = []
    for what, command, (score, cpu), minutes in (
        ('PPO', 'breakout train --hours 1.33', _trained('ppo', 80), 80),
        ('PPO', ding, (_score([by_ding]), by_ding['cpu']), 60 * by_ding['hours']),
        ('DQN', dqn, _trained('lean_dqn', 40), 40),
    ):
        rows.append([what, f'`{command}`', f'{score} after {minutes:.0f} minutes', cpu])
    return markdown(['config', 'command', 'score in full games', 'on two cores of'], rows, 0)


def _trained(name: str, minutes: int) -> tuple[str, str]:
    """The score of a training by the clock, and its CPU."""
    seeds = [row for row in training_rows.timed() if (row['variant'], row['minutes']) == (name, minutes)]
    return _score(seeds), seeds[0]['cpu']


def _score(seeds: list[dict[str, Any]]) -> str:
    return f'{np.mean([row["score"] for row in seeds]):.0f} ({len(seeds)} seed{"s" * (len(seeds) > 1)})'


def _medians(name: str, index: int = 0) -> dict[str, str]:
    """Of a section of a benchmark, by contestant."""
    rows = load(name)['sections'][index]['rows']
    return {row['name']: f'{row["median"]:,.0f}' for row in rows if 'median' in row}


def _stock(medians: dict[str, str]) -> str:
    """Of the faster of DI-engine's env managers."""
    both = (medians[f"DI-engine's {name}"] for name in ('base', 'subprocess'))
    return max(both, key=_number)


def _best_other(medians: dict[str, str]) -> str:
    """The fastest of the other libraries, with its name."""
    others = [name for name in medians if not name.startswith(('ours', 'BreakoutEnv', 'ALE act', "DI-engine's"))]
    name = max(others, key=lambda name: _number(medians[name]))
    return f'{medians[name]}, {name.split()[0].rstrip(",")}'


def _number(text: str) -> int:
    return int(text.replace(',', ''))


def lifecycle(name: str) -> str:
    """What the lifecycle kit says about the environments of a library: the checks that at least one does not pass."""
    envs: dict[str, dict[str, list[str]]] = {}
    for row in load(name)['rows']:
        for finding in row['findings']:
            envs.setdefault(finding['check'], {}).setdefault(finding['state'], []).append(row['env'].split(',')[0])
    rows = [[f'`{name}`', *(', '.join(of.get(key, ())) for key in ('fail', 'warning'))] for name, of in envs.items()]
    return markdown(['check', 'fails', 'warns'], [row for row in rows if any(row[1:])], 0)


def on_ray() -> str:
    """What collectors on Ray reach beside one process, and what a lost part of a rollout costs."""
    about = load('bench_ray')
    rows = []
    for section in (about['sections'][0], about['sections'][2]):
        rows += [[section['title'].rsplit(', ', 1)[0], row['name'], figures(row)] for row in section['rows']]
    headers = ['training', 'contestant', 'env steps/s (min to max), ratio']
    return f'{markdown(headers, rows, 1)}\n\n{provenance("bench_ray")}'


def room_for_collectors() -> str:
    """How many env steps a second each part of a run on Ray takes, and how many collectors fill it."""
    about = load('bench_ray')
    play, (speed, intake, _) = about['play'], about['sections']
    learner, taken_in = speed['rows'][0], intake['rows'][0]
    gpu = RunLog.read(PPO).progress['env_steps_per_s']
    rollout = read_config_file(str(ROOT / 'configs' / 'breakout_ppo_config.py')).main.policy.collect.n_sample
    weights = play['weights_bytes'] / rollout
    one = 1e6 / play['collector_us_per_step']
    parts = [
        (f'the updates, on one core of {about["cpu"]}', learner['median']),
        ('the updates, on an NVIDIA H100 by its config, at least', float(np.nanmedian(gpu))),
        ("the learner's process, updates left out", 1e6 / taken_in['learner_us_per_step']),
        (f'1 Gbit/s, {play["bytes_per_step"]:.0f} bytes an env step', 125e6 / play['bytes_per_step']),
        (f'1 Gbit/s, the weights for 4 nodes, {weights:.0f} bytes an env step each', 125e6 / (4 * weights)),
    ]
    rows = [[what, f'{per_s:,.0f}', f'{per_s / one:,.0f}'] for what, per_s in parts]
    headers = ['what takes env steps in', 'env steps/s', f'collectors, at {one:,.0f} env steps/s each']
    return markdown(headers, rows, 2)


def _gb(by_size: dict[str, Any]) -> str:
    """What a million transitions take, in memory and on the disk."""
    row = by_size['1000000']
    return f'{(row["bytes_per_transition"] + row["disk_bytes_per_transition"]) / 1e3:,.2f} GB'


TABLES: dict[str, dict[str, Callable[[], str]]] = {
    **dict.fromkeys(['README.md', 'README.zh-CN.md'], {'first-hour': first_hour, 'comparison': comparison}),
    'docs/performance.md': {
        'env': lambda: benchmark('bench_env'),
        'life-cycle': life_cycle,
        'manager': lambda: benchmark('bench_manager_bfloat16', 'bench_manager', rules=RULES),
        'acting': lambda: benchmark('bench_acting_bfloat16', 'bench_acting', rules=RULES),
        'train': lambda: benchmark('bench_train_bfloat16', 'bench_train'),
    },
    'docs/results/README.md': {'sources': sources.table},
    'docs/scale.md': {'on-ray': on_ray, 'room': room_for_collectors},
    'docs/lifecycle.md': {
        'dizoo': lambda: lifecycle('lifecycle'),
        'gymnasium': lambda: lifecycle('lifecycle_gymnasium'),
    },
    'docs/memory.md': {'replay': replay, 'million': million},
    'docs/training.md': {
        'expect': training_rows.expect,
        'scores': scores,
    },
    'docs/experiments.md': {
        'recipes': training_rows.table,
        'after-env-steps': training_rows.after_env_steps,
        'gpu': on_gpu,
        'runs': runs_of_the_agent,
        'averages': averages,
    },
}


if __name__ == '__main__':
    for guide, tables in TABLES.items():
        for name, make in tables.items():
            fill(ROOT / guide, name, make())
