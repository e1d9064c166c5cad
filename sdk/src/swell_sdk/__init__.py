"""What runs inside Swell jobs. Standard library only, Python 3.9 or newer.

Public: `read_environment` and the `Environment` it returns. What needs the server or another package does
not belong here.
"""

from swell_sdk.environment import Environment, read_environment

__all__ = ["Environment", "read_environment"]
