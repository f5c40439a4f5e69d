"""`breakout plan`: what the sizing model predicts agrees with the runs that were made, and is sound beyond them."""

import dataclasses
import json
import math

import pytest
from click.testing import CliRunner

from breakout_env.cli.plan_command import command
from breakout_env.scale_model import (
    BROADCAST,
    BUFFER,
    COLLECTORS,
    CORES,
    HINTS,
    INTAKE,
    LEARNER,
    MEANING,
    MESSAGES,
    ORDERS_HINT,
    SHIPPED,
    Constants,
    Network,
    Plan,
    all_reduce_s,
    predict,
)
from conftest import ROOT

RESULTS = ROOT / 'docs' / 'results'
# Round numbers, to reckon with: a collector of one core plays 1,000 env steps a second, an update takes 20 ms.
ROUND = Constants(
    machine='a machine to reckon with',
    date='2026-01-01T00:00:00',
    wall_s=(0.0005, 0.004),
    cpu_s=(0.0005, 0.004),
    piece_steps=256,
    piece_s=0.0064,
    standing_cpus=0.05,
    draw_s=(0.0002, 0.0),
    member_s=0.0001,
    bytes_per_env_step=50.0,
    hello_bytes=250.0,
    order_bytes=100.0,
    tell_bytes=320.0,
    tells_per_piece=2.0,
    start_s=5.0,
    learner_bytes=1e9,
    collector_bytes=4e8,
    evaluator_bytes=3e8,
    shared_bytes=5e8,
    buffer_bytes_per_transition=200.0,
    networks=dict(
        small=Network(update_s=(0.004, 0.0005), weights_bytes=2_000_000, weights_s=0.0, gradient_bytes=2_000_000),
        nature=Network(update_s=(0.02, 0.002), weights_bytes=8_000_000, weights_s=0.0, gradient_bytes=8_000_000),
    ),
)


def of(constants=ROUND, **options):
    return predict(Plan(**options), constants)


def plan(*arguments):
    return CliRunner().invoke(command, [str(argument) for argument in arguments], env=dict(COLUMNS='80'))


# -------------------------------------------------------------------------------- agreement with what was measured


def measured():
    return json.loads((RESULTS / 'bench_scale.json').read_text())


def row_of(row, **options):
    """The prediction for a run of benchmarks/bench_scale.py on this number of cores."""
    about = measured()
    return of(
        Constants.read(RESULTS / 'scale_constants.json'),
        collectors=row['collectors'],
        evaluators=0,
        hosts=1,
        cores_per_host=about['cores'],
        **options,
    )


def distributed_rows():
    return [row for row in measured()['modes'] if row['collectors']]


def test_runs_with_one_to_four_collectors_are_predicted_within_a_fifth():
    rows = distributed_rows()
    assert [row['collectors'] for row in rows] == [1, 2, 3, 4]
    for row in rows:
        predicted = row_of(row)
        assert predicted.env_steps_per_s == pytest.approx(row['env_steps_per_s'], rel=0.2), row['name']
        assert predicted.updates_per_s == pytest.approx(row['updates_per_s'], rel=0.2), row['name']


def test_what_collectors_could_play_is_predicted_within_a_fifth_until_the_cores_run_out():
    rows = measured()['capacity']
    assert [row['collectors'] for row in rows] == [1, 2, 3, 4]
    for row in rows:
        predicted = row_of(row, ratio=256)  # an update a piece
        assert predicted.env_steps_per_s == pytest.approx(row['env_steps_per_s'], rel=0.2), row['name']
    assert [row_of(row, ratio=256).bottleneck for row in rows] == [COLLECTORS, CORES, CORES, CORES]


def test_bytes_on_the_wire_and_memory_are_predicted_within_a_fifth():
    for row in distributed_rows():
        predicted = row_of(row, buffer_size=0)  # which holds a few thousand transitions in so short a run
        on_the_wire = predicted.received_bytes_per_s + predicted.sent_bytes_per_s
        assert on_the_wire == pytest.approx(row['wire_bytes_per_s'], rel=0.2), row['name']
        assert predicted.learner_host_bytes == pytest.approx(row['memory_bytes'], rel=0.2), row['name']


def test_the_age_of_weights_is_predicted_within_a_quarter():
    for row in distributed_rows():
        assert row_of(row).staleness_updates == pytest.approx(row['weights_age_updates'], rel=0.25), row['name']


def test_the_shipped_constants_are_those_that_were_measured():
    assert SHIPPED.read_bytes() == (RESULTS / 'scale_constants.json').read_bytes()
    constants = Constants.read()
    about = json.loads(SHIPPED.read_text())
    assert about['cpu'] in constants.machine and constants.date == about['date']


# -------------------------------------------------------------------------------- the formulas


def test_each_ceiling_is_what_the_seconds_say():
    ceilings = of(collectors=10, hosts=1, cores_per_host=16, weights_every_s=1).ceilings
    assert ceilings[COLLECTORS] == pytest.approx(10 / 0.001)
    # 20 ms for 4 env steps, a piece of 256 in 6.4 ms; a thousandth of the core is for 10 nodes, a twentieth for logs
    assert ceilings[LEARNER] == pytest.approx(0.949 / (0.020 / 4 + 0.0064 / 256))
    assert ceilings[BUFFER] == pytest.approx(0.949 / (0.0064 / 256 + 0.0002 / 4))
    assert ceilings[MESSAGES] == pytest.approx(0.949 / (0.0064 / 256))
    assert ceilings[CORES] == pytest.approx((16 - 0.051) / (0.001 + 0.020 / 4 + 0.0064 / 256))
    assert ceilings[INTAKE] == ceilings[BROADCAST] == math.inf  # on one host there is no network


def test_the_network_carries_what_the_messages_weigh():
    predicted = of(collectors=30, hosts=31, cores_per_host=1, network_gbit=1)
    assert predicted.collectors_at_learner == 0
    steps_per_s = predicted.env_steps_per_s
    assert predicted.in_bytes_per_s == pytest.approx(30 * 250 + steps_per_s * 50)
    pieces_per_s = steps_per_s / 256
    assert pieces_per_s < 1  # so that weights are sent after each
    assert predicted.out_bytes_per_s == pytest.approx(
        30 * (2_000_000 * pieces_per_s + 30 * 100 + pieces_per_s * 2 * 320)
    )
    # 2 MB a second to each, and little besides: 125 MB a second are used up at 62 collectors
    assert predicted.ceilings[BROADCAST] > 0
    assert of(collectors=62, hosts=63, cores_per_host=1, network_gbit=1).ceilings[BROADCAST] > 0
    assert of(collectors=63, hosts=64, cores_per_host=1, network_gbit=1).ceilings[BROADCAST] == 0


def test_orders_grow_with_the_square_of_the_collectors():
    sent = [of(collectors=n, hosts=n + 1, cores_per_host=1, weights_every_s=1e9).sent_bytes_per_s for n in (500, 1000)]
    assert sent[1] / sent[0] == pytest.approx(4, rel=0.1)


def test_redis_takes_the_copies_over_from_the_learner():
    alike = dict(collectors=100, hosts=101, cores_per_host=1)
    by_nng, by_redis = of(**alike), of(**alike, queue='redis')
    assert by_nng.sent_bytes_per_s == pytest.approx(100 * by_redis.sent_bytes_per_s)
    assert by_redis.server_out_bytes_per_s == pytest.approx(by_nng.sent_bytes_per_s)
    assert by_nng.server_out_bytes_per_s == 0


def test_gradients_go_over_the_network_only_between_hosts():
    options = dict(gpus=8, update_ms=10, network='nature', collectors=8, network_gbit=10)
    together = of(**options).ceilings[LEARNER]
    assert together == pytest.approx(8 * 4 / 0.010)
    apart = of(**options, gpus_per_host=4).ceilings[LEARNER]
    assert apart == pytest.approx(8 * 4 / (0.010 + all_reduce_s(8_000_000, 8, 1.25e9)))
    assert all_reduce_s(8_000_000, 8, 1.25e9) == pytest.approx(2 * 7 / 8 * 8_000_000 / 1.25e9)
    assert all_reduce_s(8_000_000, 1, 1.25e9) == 0


def test_the_age_of_weights_follows_from_what_is_under_way():
    predicted = of(collectors=3, hosts=1)
    # five pieces of 64 updates each, and half of the time between two broadcasts, which is a piece here
    assert predicted.bottleneck == LEARNER
    assert predicted.staleness_updates == pytest.approx(5 * 64 + 32)
    assert predicted.staleness_s == pytest.approx(5.5 * 256 / predicted.env_steps_per_s)


def test_memory_is_that_of_the_processes_on_a_host_and_of_the_buffer():
    predicted = of(collectors=6, hosts=2, cores_per_host=4, buffer_size=1_000_000)
    assert predicted.collectors_at_learner == 3  # of seven cores that are free, three are here
    assert predicted.learner_host_bytes == pytest.approx(5e8 + 1e9 + 3e8 + 3 * 4e8 + 2e8)
    assert predicted.collector_host_bytes == pytest.approx(5e8 + 3 * 4e8)


# -------------------------------------------------------------------------------- where the bottleneck moves to


def test_the_bottleneck_moves_on_as_each_one_is_mended():
    """From one collector to thousands, in the order of the guide."""
    gpu = dict(gpus=1, update_ms=1.0, cores_per_host=16)
    assert of(collectors=1, update_ms=1.0).bottleneck == COLLECTORS
    assert of(collectors=1, hosts=1, cores_per_host=1, update_ms=1.0).bottleneck == CORES
    assert of(collectors=64).bottleneck == LEARNER  # on a core
    assert of(collectors=64, **gpu).bottleneck == LEARNER
    several = dict(gpu, gpus=8)
    assert of(collectors=64, **several).bottleneck == BUFFER
    assert of(collectors=1024, **several).bottleneck == BROADCAST
    seldom = dict(several, weights_every_s=60)
    assert of(collectors=1024, **seldom).bottleneck == BUFFER
    assert of(collectors=10_000, **seldom).bottleneck == MESSAGES
    assert of(collectors=64, **several, network_gbit=0.01, weights_every_s=10_000).bottleneck in (INTAKE, BROADCAST)


@pytest.mark.parametrize('constants', [ROUND, Constants.read()], ids=['round', 'shipped'])
def test_more_of_anything_never_makes_it_slower_but_for_collectors_that_have_to_be_told(constants):
    def grows(values):
        return all(later >= earlier * (1 - 1e-9) for earlier, later in zip(values, values[1:]))

    counts = [1, 2, 3, 5, 10, 30, 100, 300, 1000, 3000, 10_000]
    many = [of(constants, collectors=count, gpus=4, update_ms=2.0) for count in counts]
    assert all(math.isfinite(each.env_steps_per_s) and each.env_steps_per_s >= 0 for each in many)
    assert grows([each.ceilings[COLLECTORS] for each in many])
    # up to a point; beyond it each further one costs more than it plays
    speeds = [each.env_steps_per_s for each in many]
    peak = speeds.index(max(speeds))
    assert grows(speeds[: peak + 1]) and grows(speeds[peak:][::-1])
    assert grows([each.sent_bytes_per_s for each in many[: peak + 1]])

    for name, values in dict(
        gpus=[1, 2, 4, 8],
        cores_per_host=[2, 4, 8, 64],
        network_gbit=[0.1, 1, 10, 100],
        weights_every_s=[0.5, 1, 10, 100],
        ratio=[1, 2, 4, 16],
        envs_per_collector=[1, 2, 4, 16],
    ).items():
        speeds = [
            of(constants, **{**dict(collectors=200, hosts=20, gpus=2, update_ms=2.0), name: value}).env_steps_per_s
            for value in values
        ]
        assert grows(speeds), (name, speeds)
    slower = [of(constants, collectors=50, gpus=1, update_ms=ms).env_steps_per_s for ms in (8.0, 4.0, 2.0, 1.0)]
    assert grows(slower)


def test_the_throughput_is_the_lowest_ceiling_and_has_a_hint():
    assert set(MEANING) == set(HINTS) == set(of().ceilings)
    for count in (1, 100, 10_000):
        predicted = of(collectors=count)
        assert predicted.env_steps_per_s == min(predicted.ceilings.values()) == predicted.ceilings[predicted.bottleneck]
        assert predicted.hint == HINTS[predicted.bottleneck]
    # weights less often would not help where it is orders that fill the network
    orders = of(collectors=4000, weights_every_s=1000, gpus=8, update_ms=1.0)
    assert orders.bottleneck == BROADCAST and orders.hint == ORDERS_HINT


def test_without_a_number_of_hosts_each_process_has_a_core():
    assert of(collectors=15, cores_per_host=16).hosts == 1
    assert of(collectors=16, cores_per_host=16).hosts == 2
    assert of(collectors=1, gpus=16, gpus_per_host=8, update_ms=1, cores_per_host=64).hosts == 2


# -------------------------------------------------------------------------------- the command


def test_the_table_can_be_read_on_80_columns():
    done = plan('--collectors', 4096, '--gpus', 16, '--update-ms', 2, '--nature', '--mq-type', 'redis')
    assert done.exit_code == 0, done.output
    lines = done.output.splitlines()
    assert max(map(len, lines)) <= 80
    table = [line for line in lines if line.startswith('│')]
    assert len(table) == len(MEANING)  # a line each
    assert all(any(meaning in line for line in table) for meaning in MEANING.values())
    for words in ('held up by: ', 'network, Redis', 'memory', 'What would move it: ', 'Measured on '):
        assert words in done.output


def test_programs_get_plan_and_prediction_as_json():
    done = plan('--collectors', 64, '--gpus', 4, '--update-ms', 2, '--json')
    assert done.exit_code == 0, done.output
    found = json.loads(done.output)
    asked = Plan(collectors=64, gpus=4, update_ms=2.0)
    assert found['plan'] == dataclasses.asdict(asked)
    expected = predict(asked, Constants.read())
    assert found['prediction']['env_steps_per_s'] == expected.env_steps_per_s
    assert found['prediction']['bottleneck'] == expected.bottleneck
    assert found['measured_on']['date'] == Constants.read().date


def test_json_has_null_for_what_has_no_limit():
    found = json.loads(plan('--collectors', 2, '--hosts', 1, '--json').output)
    assert found['prediction']['ceilings'][BROADCAST] is None


def test_constants_of_ones_own_machine_are_taken(tmp_path):
    about = json.loads(SHIPPED.read_text())
    about['constants'].update(machine='mine', wall_s=[0.01, 0.0], cpu_s=[0.01, 0.0])
    (tmp_path / 'mine.json').write_text(json.dumps(about))
    done = plan('--collectors', 1, '--hosts', 1, '--constants', tmp_path / 'mine.json', '--json')
    found = json.loads(done.output)
    assert found['measured_on']['machine'] == 'mine'
    assert found['prediction']['ceilings'][COLLECTORS] == pytest.approx(100)


@pytest.mark.parametrize(
    'arguments, sentence',
    [
        (['--collectors', 0], '--collectors is 0; expected at least 1'),
        (['--gpus', -1], '--gpus is -1; expected at least 0'),
        (['--gpus', 2], '--gpus is 2, and --update-ms is not given; expected the milliseconds of an update'),
        (['--update-ms', 0], '--update-ms is 0.0; expected a number above 0'),
        (['--update-ms', 'nan'], '--update-ms is nan; expected a number above 0'),
        (['--ratio', 0], '--ratio is 0.0; expected a number above 0'),
        (['--network-gbit', 'inf'], '--network-gbit is inf; expected a number above 0'),
        (['--weights-every', -1], '--weights-every is -1.0; expected a number above 0'),
        (['--hosts', 0], '--hosts is 0; expected at least 1'),
        (['--gpus', 16, '--hosts', 1, '--update-ms', 1], '--hosts is 1; expected at least 2 for 16 GPUs'),
        (['--buffer-size', -5], '--buffer-size is -5; expected at least 0'),
    ],
)
def test_what_can_not_be_planned_gets_a_sentence(arguments, sentence):
    done = plan(*arguments)
    assert done.exit_code == 2
    assert sentence in ' '.join(done.output.split()), done.output


@pytest.mark.parametrize('text', ['{}', 'no json', '{"constants": {"machine": "mine"}}', '[1]', '{"constants": 3}'])
def test_a_file_of_constants_that_is_none_gets_a_sentence(tmp_path, text):
    path = tmp_path / 'constants.json'
    path.write_text(text)
    done = plan('--constants', path)
    assert done.exit_code == 1
    assert 'expected a file that benchmarks/scale_constants.py wrote' in done.output and 'Traceback' not in done.output
