"""PyTorch 2.12: it asks for the user's name to build the path of a cache, which raises for a user id without a name, as
in ``docker run -u 12345`` or OpenShift.
"""

import getpass
import os


def name_user() -> None:
    """Give a user without a name one, for this process and its children, by the variable that is asked first."""
    try:
        getpass.getuser()
    except (KeyError, OSError, ImportError):
        os.environ['LOGNAME'] = f'uid{os.getuid()}'
