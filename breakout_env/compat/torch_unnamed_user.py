"""A user id without a name: ``docker run -u 12345``, OpenShift.

Upstream behaviour worked around (PyTorch 2.12, Python's ``getpass.getuser``): PyTorch asks for the user's name to build
the path of a cache, also where nothing is cached, as when a network is built on the meta device. Without a name that is
a KeyError (an OSError since Python 3.13), which DI-engine's registries report as an unknown type.
"""

import getpass
import os


def name_user() -> None:
    """Give a user without a name one, for this process and those it starts, by the variable that is asked first."""
    try:
        getpass.getuser()
    except (KeyError, OSError, ImportError):
        os.environ['LOGNAME'] = f'uid{os.getuid()}'
