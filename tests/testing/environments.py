"""Environments for the lifecycle kit: sound ones, and others with one planted fault each."""

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import shared_memory

import ale_py
import cv2
import gym
import numpy as np
import torch
from ding.envs import BaseEnv, BaseEnvTimestep

SLEEP = [sys.executable, '-S', '-c', 'import time; time.sleep(600)']
STUBBORN = [
    sys.executable, '-S', '-c',
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(600)",
]  # fmt: skip
SHARED = []


class Sound(BaseEnv):
    """A walk of ten steps; float32 observations."""

    state = 'closed'
    _seed = None

    def __init__(self, cfg={}):
        self.observation_space = gym.spaces.Box(-100, 100, (3,), np.float32)
        self.action_space = gym.spaces.Discrete(2)
        self.reward_space = gym.spaces.Box(0, 10, (1,), np.float32)

    def seed(self, seed, dynamic_seed=True):
        self._seed = seed

    def reset(self):
        if self.state == 'closed':
            self.open()
        self.state, self.time = 'playing', 0
        self.place = np.random.default_rng(self._seed).normal(size=3).astype(np.float32)
        return self.observe()

    def open(self):
        pass

    def observe(self):
        return self.place.copy()

    def step(self, action):
        if self.state != 'playing':
            raise RuntimeError('no episode')
        self.time += 1
        self.place += np.float32(int(action) - 0.5)
        done = self.time == 10
        info = {'eval_episode_return': 1.0} if done else {}
        return BaseEnvTimestep(self.observe(), np.array([1], np.float32), done, info)

    def random_action(self):
        return np.array([self.action_space.sample()])

    def close(self):
        self.state = 'closed'

    def __repr__(self):
        return 'an environment'


class WithArguments(Sound):
    def reset(self, *, seed=None, options=None, **kwargs):
        return super().reset()


class DictObservations(Sound):
    def __init__(self):
        super().__init__()
        spaces = dict(place=self.observation_space, time=gym.spaces.Box(0, 99, (1,), np.int64))
        self.observation_space = gym.spaces.Dict(spaces)

    def observe(self):
        return {'place': self.place.copy(), 'time': np.array([self.time])}


class Continuous(Sound):
    def __init__(self):
        super().__init__()
        self.action_space = gym.spaces.Box(0, 1, (1,), np.float32)

    def random_action(self):
        return self.action_space.sample()


class ByItsActionSpace(Sound):
    random_action = BaseEnv.random_action


class CachesOfLibraries(Sound):
    """Imports, thread pools of native libraries, a file of the module's, in the first reset of the process."""

    def open(self):
        import sqlite3  # noqa: F401

        cv2.setNumThreads(4)
        cv2.GaussianBlur(np.zeros((2000, 2000), np.uint8), (31, 31), 0)
        torch.ones(500, 500) @ torch.ones(500, 500)
        if not SHARED:
            SHARED.append((open(os.devnull), ThreadPoolExecutor(2).submit(int)))


class LogFile(Sound):
    def open(self):
        self.log = open(os.path.join(tempfile.gettempdir(), 'log'), 'a')

    def close(self):
        super().close()
        if getattr(self, 'log', None):
            self.log.close()


class Owner(Sound):
    """A controller, a thread and a folder, released by a finalizer."""

    release = None

    def open(self):
        self.controller = subprocess.Popen(STUBBORN, stdout=subprocess.PIPE)
        self.controller.stdout.readline()
        self.folder = tempfile.TemporaryDirectory()
        event = threading.Event()
        thread = threading.Thread(target=event.wait, daemon=True)
        thread.start()
        self.release = weakref.finalize(self, self.release_all, self.controller, self.folder, event, thread)

    @staticmethod
    def release_all(controller, folder, event, thread):
        controller.kill(), controller.wait(), controller.stdout.close()
        folder.cleanup()
        event.set(), thread.join()

    def close(self):
        super().close()
        if self.release:
            self.release()


class DescriptorAtEachReset(Sound):
    def reset(self):
        self.files = getattr(self, 'files', []) + [open(os.devnull)]
        return super().reset()

    def close(self):
        super().close()
        for file in getattr(self, 'files', []):
            file.close()


class ThreadNotJoined(Sound):
    def open(self):
        threading.Thread(target=time.sleep, args=(600,), daemon=True).start()


class ThreadAtEachReset(ThreadNotJoined):
    def reset(self):
        self.open()
        return super().reset()


class ChildOutlivesClose(Sound):
    def open(self):
        self.child = subprocess.Popen(SLEEP)


class OneChildForEver(Sound):
    def open(self):
        if 'child' not in vars(OneChildForEver):
            OneChildForEver.child = subprocess.Popen(SLEEP)


class SharedMemoryLeft(Sound):
    def open(self):
        shared_memory.SharedMemory(create=True, size=100).close()


class FolderLeft(Sound):
    def open(self):
        tempfile.mkdtemp()


class ChildInConstructor(Sound):
    def __init__(self):
        super().__init__()
        self.child = subprocess.Popen(SLEEP)
        self.release = weakref.finalize(self, self.child.kill)

    def close(self):
        super().close()
        if hasattr(self, 'child'):
            self.child.kill(), self.child.wait()


class EmulatorInConstructor(Sound):
    def __init__(self):
        super().__init__()
        self.emulator = ale_py.ALEInterface()


class DescriptorInConstructor(Sound):
    def __init__(self):
        super().__init__()
        self.file = open(os.devnull)


class SpacesAfterReset(Sound):
    def __init__(self):
        pass

    def open(self):
        Sound.__init__(self)


class CloseBeforeReset(Sound):
    opened = False

    def open(self):
        self.opened = True

    def close(self):
        super().close()
        if not self.opened:
            raise AttributeError('nothing to close')


class SecondClose(Sound):
    def open(self):
        self.opened = True

    def close(self):
        super().close()
        if 'opened' in vars(self):
            assert self.opened, 'closed twice'
            self.opened = False


class CloseHalfBuilt(Sound):
    def __init__(self):
        super().__init__()
        self.files = []

    def close(self):
        super().close()
        self.files.clear()


class CloseAfterError(Sound):
    broken = False

    def step(self, action):
        try:
            return super().step(action)
        except Exception:
            self.broken = self.state == 'playing'
            raise

    def close(self):
        super().close()
        if self.broken:
            raise RuntimeError('broken')


class CloseAfterHalfAReset(Sound):
    """Opens two things; the second is missing where an error comes between them."""

    def open(self):
        self.one = 1
        self.two = 2

    def close(self):
        super().close()
        if hasattr(self, 'one'):
            self.two += self.one


class CloseHangs(Sound):
    def close(self):
        if self.state == 'playing':
            threading.Event().wait()


class IgnoresSigterm(Sound):
    def open(self):
        self.window = subprocess.Popen(STUBBORN, stdout=subprocess.PIPE)
        self.window.stdout.readline()
        weakref.finalize(self, self.window.kill)

    def close(self):
        if self.state == 'playing':
            self.window.terminate()
            self.window.wait()
            self.window.stdout.close()
        super().close()


class WaitsForWindow(Sound):
    """Ends its window in time, unless the window does not answer."""

    def open(self):
        self.window = subprocess.Popen(SLEEP)
        weakref.finalize(self, self.window.kill)

    def close(self):
        if self.state == 'playing':
            self.window.terminate()
            self.window.wait()
        super().close()


class NoResetAfterClose(Sound):
    def close(self):
        super().close()
        self.__dict__.pop('place', None)
        self.closed = True

    def open(self):
        assert not hasattr(self, 'closed'), 'closed for ever'


class StepsAfterClose(Sound):
    def close(self):
        pass


class MemoryGrows(Sound):
    kept = []

    def reset(self):
        self.kept.append(bytes(50_000))
        return super().reset()


class MemoryGrowsByStep(Sound):
    def __init__(self):
        super().__init__()
        self.history = []

    def observe(self):
        self.history.append(np.ones(500))
        return super().observe()


class Overwritten(Sound):
    def observe(self):
        return self.place


class SeedIgnored(Sound):
    def seed(self, seed, dynamic_seed=True):
        pass


class AnotherInAnotherProcess(Sound):
    def observe(self):
        return self.place + np.float32(os.getpid() % 97)


class WrongDtype(Sound):
    def observe(self):
        return self.place.astype(np.float64)


class NoReturn(Sound):
    def step(self, action):
        return super().step(action)._replace(info={})


class ForgottenChild(Sound):
    child = None

    def open(self):
        self.child = subprocess.Popen(SLEEP)

    def close(self):
        super().close()
        if self.child:
            self.child.kill(), self.child.wait()


class Crashes(Sound):
    def close(self):
        if self.state == 'closed' and hasattr(self, 'place'):
            os.kill(os.getpid(), signal.SIGSEGV)
        super().close()


class LeavesAChildInManagers(Sound):
    def open(self):
        self.child = os.getpid() != os.getsid(0) and subprocess.Popen(SLEEP)


SOUND = [Sound, WithArguments, DictObservations, Continuous, ByItsActionSpace, CachesOfLibraries, LogFile, Owner]
FAULTY = {
    DescriptorAtEachReset: 'reset_reuses',
    ThreadAtEachReset: 'reset_reuses',
    ThreadNotJoined: 'close_releases',
    ChildOutlivesClose: 'close_releases',
    OneChildForEver: 'close_releases',
    SharedMemoryLeft: 'close_releases',
    FolderLeft: 'close_releases',
    ForgottenChild: 'forgotten_close',
    ChildInConstructor: 'lazy_constructor',
    EmulatorInConstructor: 'lazy_constructor',
    DescriptorInConstructor: 'lazy_constructor',
    CloseBeforeReset: 'close_before_reset',
    SecondClose: 'close_twice',
    Crashes: 'close_twice',
    CloseHalfBuilt: 'close_half_built',
    CloseAfterError: 'close_after_error',
    CloseAfterHalfAReset: 'close_after_error',
    CloseHangs: 'close_in_time',
    IgnoresSigterm: 'close_in_time',
    WaitsForWindow: 'close_in_time',
    NoResetAfterClose: 'reset_after_close',
    StepsAfterClose: 'step_after_close',
    MemoryGrows: 'memory_level',
    MemoryGrowsByStep: 'memory_level',
    Overwritten: 'observations_owned',
    SeedIgnored: 'same_seed_same_episode',
    AnotherInAnotherProcess: 'same_seed_same_episode',
    WrongDtype: 'matches_spaces',
    NoReturn: 'info_at_the_end',
    LeavesAChildInManagers: 'managers',
}
