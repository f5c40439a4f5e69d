"""Steps, resets, kills, closes and launches in any order leave every game as a copy of its environment plays it."""

import numpy as np
from hypothesis import Phase
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from helpers.managers import GameEnv, build_inline, frozen, kill_worker_of, worker_of
from helpers.replay import examples


class AnySequence(RuleBasedStateMachine):
    """A manager beside a copy of each of its environments."""

    ENVS = 4

    @initialize(reset_inplace=st.booleans(), worker_num=st.integers(1, 4))
    def start(self, reset_inplace, worker_num):
        self.reset_inplace = reset_inplace
        self.manager = build_inline(reset_inplace=reset_inplace, worker_num=worker_num, max_retry=2)
        self.launch()

    @precondition(lambda self: self.manager.closed)
    @rule()
    def launch(self):
        self.manager.seed(0)
        self.manager.launch()
        self.copies = [self.copy_of(seed) for seed in range(self.ENVS)]
        self.ready = {env_id: copy.reset() for env_id, copy in enumerate(self.copies)}
        self.killed = set()

    def copy_of(self, seed):
        env = GameEnv({})
        env.seed(seed)
        return env

    def group_of(self, env_ids):
        """Those environments and all that share their workers."""
        return {j for i in env_ids for j in worker_of(self.manager, i).env_ids}

    def lose(self, env_ids):
        for i in self.group_of(env_ids):
            self.copies[i] = None
            self.ready.pop(i, None)

    @precondition(lambda self: not self.manager.closed and self.ready)
    @rule(data=st.data(), rounds=st.integers(1, 8))
    def step(self, data, rounds):
        for _ in range(rounds):
            if self.ready:
                self.step_once(data)

    def step_once(self, data):
        ids = data.draw(st.lists(st.sampled_from(sorted(self.ready)), min_size=1, unique=True))
        actions = {i: data.draw(st.integers(0, 3)) for i in ids}
        timesteps = self.manager.step(actions)
        lost = self.killed.intersection(ids)
        self.lose(lost)
        assert list(timesteps)[: len(ids)] == ids
        for i, timestep in timesteps.items():
            if self.copies[i] is None:
                assert timestep.info['abnormal']
                continue
            expected = self.copies[i].step(actions[i])
            self.ready[i] = expected.obs
            if expected.done:
                self.ready[i] = self.copies[i].reset()
                if self.reset_inplace:
                    expected = expected._replace(obs=self.ready[i])
            assert frozen(timestep) == frozen(expected)
        if lost:  # as DI-engine's collectors do
            self.reset([i for i in timesteps if self.copies[i] is None], False)

    @precondition(lambda self: not self.manager.closed)
    @rule(data=st.data(), rounds=st.integers(1, 8))
    def step_halves(self, data, rounds):
        """By the array interface, two steps under way at a time; the last ones may be left to the next call."""
        halves, self.underway = self.manager.halves, []
        for _ in range(rounds):
            for half in halves:
                if len(self.underway) == len(halves):
                    self.receive()
                actions = [data.draw(st.integers(0, 3)) for _ in half]
                self.manager.send(np.array(actions), half)
                self.underway.append((half, actions))
        if data.draw(st.booleans()):
            while self.underway:
                self.receive()
        else:  # the manager receives them itself
            for half, actions in self.underway:
                assert self.manager.ready_obs_id == list(range(self.ENVS))
                self.follow(half, actions, None)

    def receive(self):
        half, actions = self.underway.pop(0)
        self.follow(half, actions, self.manager.recv())

    def follow(self, half, actions, batch):
        """The same step by the copies."""
        for row, (i, action) in enumerate(zip(half, actions)):
            info = batch.infos.get(row, {}) if batch else dict(abnormal=i in self.killed)
            if info.get('abnormal'):
                assert i in self.killed
                env = worker_of(self.manager, i).group.envs[i]  # to ask the manager would receive the next step
                self.copies[i] = self.copy_of(env.seeds[-1][0])
                self.ready[i] = self.copies[i].reset()
                self.killed.discard(i)
                continue
            assert i not in self.killed
            expected = self.copies[i].step(action)
            self.ready[i] = self.copies[i].reset() if expected.done else expected.obs
            if batch:
                assert (batch.reward[row], batch.done[row]) == (expected.reward[0], expected.done)
                np.testing.assert_array_equal(batch.obs[row], self.ready[i])
                assert not expected.done or (batch.final_obs[row] == expected.obs).all()

    @precondition(lambda self: not self.manager.closed)
    @rule(ids=st.lists(st.integers(0, 3), min_size=1, unique=True), all_of_them=st.booleans())
    def reset(self, ids, all_of_them):
        lost = self.group_of(self.killed.intersection(ids))
        ids = [i for i in range(self.ENVS) if all_of_them or i in ids or i in lost]
        self.lose(self.killed.intersection(ids))
        self.manager.reset(None if all_of_them else dict.fromkeys(ids))
        for i in ids:
            (about,) = self.manager.reward_shaping(i, [{}])  # tells the seed
            self.killed.discard(i)
            self.copies[i] = self.copies[i] or self.copy_of(about['seed'])
            self.ready[i] = self.copies[i].reset()

    @precondition(lambda self: not self.manager.closed and len(self.killed) < self.ENVS)
    @rule(data=st.data())
    def kill(self, data):
        victim = data.draw(st.sampled_from([i for i in range(self.ENVS) if i not in self.killed]))
        kill_worker_of(self.manager, victim)
        self.killed |= self.group_of([victim])

    @rule()
    def close(self):
        self.manager.close()
        assert self.manager.closed

    @invariant()
    def ready_observations_are_those_of_the_copies(self):
        if hasattr(self, 'ready') and not self.manager.closed:
            assert frozen(self.manager.ready_obs) == frozen(self.ready)
            assert self.manager.ready_obs_id == sorted(self.ready)

    def teardown(self):
        self.manager.close()


def test_any_sequence_of_calls_and_kills_keeps_the_games_in_order():
    phases = [Phase.generate, Phase.shrink]
    AnySequence.TestCase.settings = examples(100, stateful_step_count=30, phases=phases)
    AnySequence.TestCase('runTest').runTest()
