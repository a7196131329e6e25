"""Addresses of the daemon."""

from __future__ import annotations

import os
from typing import Optional

# The environment variable that has the daemon's address.
VARIABLE = "SKILLRUN_ADDRESS"

# Where a daemon listens if its configuration does not say otherwise.
DEFAULT = "unix:///run/skillrun/skillrun.sock"


def target(address: Optional[str]) -> str:
    """Converts an address into a gRPC target. The address is "unix:///path", the absolute
    path of a socket, "tcp://host:port" or "host:port". None means $SKILLRUN_ADDRESS, or
    DEFAULT if that is empty. Raises ValueError for any other address."""
    address = address or os.environ.get(VARIABLE) or DEFAULT
    if address.startswith("/"):
        return "unix://" + address
    if address.startswith(("unix:", "unix-abstract:")):
        return address
    host = address[len("tcp://") :] if address.startswith("tcp://") else address
    if "://" in host and not host.startswith(("http://", "https://")):
        return host  # a resolver that gRPC knows, such as dns:///host:port
    name, colon, port = host.rpartition(":")
    if not colon or not port.isdigit() or (":" in name and not (name.startswith("[") and name.endswith("]"))):
        raise ValueError(f"address {address!r}: want unix:///path or host:port")
    return "dns:///" + host
