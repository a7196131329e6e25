"""TLS and tokens of a client."""

from __future__ import annotations

import functools
import ipaddress
import os
from typing import Any, Callable, Optional, Tuple, Union

import grpc

from skillrun.errors import Unauthenticated

File = Union[str, "os.PathLike[str]"]


# A token, or a function that returns it. The function is called for each call, on threads of gRPC.
Token = Union[str, Callable[[], str]]


def channel_credentials(
    target: str,
    credentials: Optional[grpc.ChannelCredentials],
    tls_ca: Optional[File],
    tls_cert: Optional[File],
    tls_key: Optional[File],
    token: Optional[Token],
    token_file: Optional[File],
) -> Tuple[Optional[grpc.ChannelCredentials], Optional[Callable[[], str]]]:
    """Returns the credentials of a channel, or None for one that is not encrypted. The second
    result is the source of a token that these credentials do not send, and that each call needs
    as metadata. Raises ValueError for arguments that contradict each other, and for a token
    that could be read on the way, and OSError for a file that can't be read."""
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
        return credentials, None
    if credentials is None and not target.startswith("unix"):
        if not _is_loopback(target):
            raise ValueError("a token needs an encrypted connection; give tls_ca, or credentials")
        # gRPC's credentials send no token over TCP that is not encrypted, not even to this machine.
        return None, source
    if credentials is None:
        # gRPC sends tokens only over channels that it knows to be safe.
        credentials = grpc.local_channel_credentials(grpc.LocalConnectionType.UDS)
    return grpc.composite_channel_credentials(credentials, grpc.metadata_call_credentials(_Plugin(source), "token")), None


def _is_loopback(target: str) -> bool:
    """Whether the bytes to a target of TCP stay on this machine."""
    host = target[len("dns:///") :] if target.startswith("dns:///") else target
    host = host.rpartition(":")[0].strip("[]")
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def bearer(source: Callable[[], str]) -> Tuple[str, str]:
    """Returns the metadata with a token, or raises Unauthenticated."""
    try:
        token = source().strip()
    except Exception as error:  # of the caller's function
        raise Unauthenticated(f"token: {error}", grpc.StatusCode.UNAUTHENTICATED) from error
    if not token:
        raise Unauthenticated("token: it is empty", grpc.StatusCode.UNAUTHENTICATED)
    return "authorization", "Bearer " + token


def _read(path: Optional[File]) -> Optional[bytes]:
    if path is None:
        return None
    with open(path, "rb") as f:
        return f.read()


def _source(token: Optional[Token], token_file: Optional[File]) -> Optional[Callable[[], str]]:
    """Returns a function that returns the token. A file is read for each call, so that a
    renewed token counts at once."""
    if token_file is not None:
        _read(token_file)  # a file that is missing is the caller's mistake; later, gRPC makes Unavailable of it
        return lambda: (_read(token_file) or b"").decode()
    return functools.partial(str, token) if isinstance(token, str) else token


class _Plugin(grpc.AuthMetadataPlugin):  # type: ignore[misc] # grpc has no types
    """Adds a token to each call."""

    def __init__(self, source: Callable[[], str]) -> None:
        self._source = source

    def __call__(self, context: grpc.AuthMetadataContext, callback: grpc.AuthMetadataPluginCallback) -> None:
        try:
            callback((bearer(self._source),), None)
        except Unauthenticated as e:  # the call fails with it
            callback((), e)


class Interceptor(
    grpc.UnaryUnaryClientInterceptor,  # type: ignore[misc] # grpc has no types
    grpc.UnaryStreamClientInterceptor,  # type: ignore[misc]
    grpc.StreamUnaryClientInterceptor,  # type: ignore[misc]
    grpc.StreamStreamClientInterceptor,  # type: ignore[misc]
):
    """Adds a token to each call of a channel without credentials."""

    def __init__(self, source: Callable[[], str]) -> None:
        self._source = source

    def _add(self, proceed: Callable[[Any, Any], Any], details: Any, request: Any) -> Any:
        return proceed(with_token(details, self._source), request)

    intercept_unary_unary = intercept_unary_stream = _add
    intercept_stream_unary = intercept_stream_stream = _add


def with_token(details: Any, source: Callable[[], str]) -> Any:
    """Returns the details of a call, a named tuple of grpc, with a token."""
    return details._replace(metadata=tuple(details.metadata or ()) + (bearer(source),))
