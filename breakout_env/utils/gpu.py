"""Does this build of PyTorch compute on this machine's GPU?"""

import re

import torch

# The newest builds for CUDA 12.6 still have the code of GPUs from compute capability 5.0 on (Maxwell, Pascal, Volta).
OLD_GPU_WHEEL = "pip install --force-reinstall 'torch>=2.6,<2.13' --index-url https://download.pytorch.org/whl/cu126"


def gpu_problem() -> str:
    """Why training cannot use the GPU; an empty text if it can. PyTorch finds a GPU that its build has no code for,
    too: the first operation on it fails with 'no kernel image is available'. Code for ``sm_75`` runs on 7.5 and later
    minor versions, ``compute_120`` is compiled for any later GPU (CUDA C++ Programming Guide, 3.1.3).
    """
    if not torch.cuda.is_available():
        return 'PyTorch finds no GPU'
    built_for, capability = torch.cuda.get_arch_list(), torch.cuda.get_device_capability()
    codes = [match for match in map(re.compile(r'(sm|compute)_(\d+)(\d)').fullmatch, built_for) if match]
    for kind, major, minor in (code.groups() for code in codes):
        if (int(major), int(minor)) <= capability and (kind == 'compute' or int(major) == capability[0]):
            return ''
    if not codes:  # AMD's have other names
        return ''
    name, version = torch.cuda.get_device_name(), '.'.join(map(str, capability))
    return (
        f'{name} has compute capability {version}, and this PyTorch ({torch.__version__}) was built for '
        f'{", ".join(built_for)}; expected a build that has its code, such as: {OLD_GPU_WHEEL}'
    )
