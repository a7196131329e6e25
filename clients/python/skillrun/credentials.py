"""TLS and tokens of a client."""

from __future__ import annotations

import functools
import os
from typing import Callable, Optional, Union

import grpc

File = Union[str, "os.PathLike[str]"]


def channel_credentials(
    target: str,
    credentials: Optional[grpc.ChannelCredentials],
    tls_ca: Optional[File],
    tls_cert: Optional[File],
    tls_key: Optional[File],
    token: Optional[str],
    token_file: Optional[File],
) -> Optional[grpc.ChannelCredentials]:
    """Returns the credentials of a channel, or None for one that is not encrypted and sends
    no token. Raises ValueError for arguments that contradict each other, and for a token
    that could be read on the way."""
    if (tls_cert is None) != (tls_key is None):
        raise ValueError("tls_cert and tls_key go together: the certificate and its private key")
    if token is not None and token_file is not None:
        raise ValueError("token and token_file: give one of them")
    if tls_ca is not None or tls_cert is not None:
        if credentials is not None:
            raise ValueError("credentials and tls_ca, tls_cert: give one of them")
        credentials = grpc.ssl_channel_credentials(_read(tls_ca), _read(tls_key), _read(tls_cert))
    source = _source(token, token_file)
    if source is None:
        return credentials
    if credentials is None:
        if not target.startswith("unix:"):
            raise ValueError("a token needs an encrypted connection; give tls_ca, or credentials")
        # gRPC sends tokens only over channels that it knows to be safe.
        credentials = grpc.local_channel_credentials(grpc.LocalConnectionType.UDS)
    return grpc.composite_channel_credentials(credentials, grpc.metadata_call_credentials(_Token(source), "token"))


def _read(path: Optional[File]) -> Optional[bytes]:
    if path is None:
        return None
    with open(path, "rb") as f:
        return f.read()


def _source(token: Optional[str], token_file: Optional[File]) -> Optional[Callable[[], str]]:
    """Returns a function that returns the token. A file is read for each call, so that a
    renewed token counts at once."""
    if token_file is not None:
        return lambda: (_read(token_file) or b"").decode()
    return None if token is None else functools.partial(str, token)


class _Token(grpc.AuthMetadataPlugin):  # type: ignore[misc] # grpc has no types
    """Adds a token to each call."""

    def __init__(self, source: Callable[[], str]) -> None:
        self._source = source

    def __call__(self, context: grpc.AuthMetadataContext, callback: grpc.AuthMetadataPluginCallback) -> None:
        try:
            callback((("authorization", "Bearer " + self._source().strip()),), None)
        except (OSError, UnicodeDecodeError) as e:
            callback((), e)
