"""Channels of grpc.aio, and their errors as exceptions of this package."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from typing import Any, AsyncIterator, Callable, List, Optional, Sequence, Tuple

import grpc
import grpc.aio

from skillrun.credentials import with_token
from skillrun.errors import CallError, call_error
from skillrun.trace import Source, with_trace


# Changes the details of a call.
Change = Callable[[Any], Any]


class _UnaryUnary(grpc.aio.UnaryUnaryClientInterceptor):  # type: ignore[misc] # grpc has no types
    def __init__(self, change: Change) -> None:
        self._change = change

    async def intercept_unary_unary(self, proceed: Any, details: Any, request: Any) -> Any:
        return await proceed(self._change(details), request)


class _UnaryStream(grpc.aio.UnaryStreamClientInterceptor):  # type: ignore[misc]
    def __init__(self, change: Change) -> None:
        self._change = change

    async def intercept_unary_stream(self, proceed: Any, details: Any, request: Any) -> Any:
        return await proceed(self._change(details), request)


class _StreamUnary(grpc.aio.StreamUnaryClientInterceptor):  # type: ignore[misc]
    def __init__(self, change: Change) -> None:
        self._change = change

    async def intercept_stream_unary(self, proceed: Any, details: Any, requests: Any) -> Any:
        return await proceed(self._change(details), requests)


class _StreamStream(grpc.aio.StreamStreamClientInterceptor):  # type: ignore[misc]
    def __init__(self, change: Change) -> None:
        self._change = change

    async def intercept_stream_stream(self, proceed: Any, details: Any, requests: Any) -> Any:
        return await proceed(self._change(details), requests)


def channel(
    target: str,
    credentials: Optional[grpc.ChannelCredentials],
    source: Optional[Callable[[], str]],
    trace: Optional[Source],
    options: Sequence[Tuple[str, int]],
) -> Any:
    """Returns a channel. source is the second result of channel_credentials, trace the result of trace_source."""
    changes: List[Change] = []
    if source is not None:
        changes.append(functools.partial(with_token, source=source))
    if trace is not None:
        changes.append(functools.partial(with_trace, headers=trace))
    adding = [kind(change) for change in changes for kind in (_UnaryUnary, _UnaryStream, _StreamUnary, _StreamStream)]
    if credentials is None:
        return grpc.aio.insecure_channel(target, options=options, interceptors=adding)
    return grpc.aio.secure_channel(target, credentials, options=options, interceptors=adding)


@contextlib.contextmanager
def translated() -> Any:
    """Raises the exceptions of this package for those of grpc."""
    try:
        yield
    except grpc.RpcError as error:
        raise call_error(error) from None
    except grpc.aio.UsageError as error:  # raised on a closed channel
        raise CallError(f"the client is closed: {error}", grpc.StatusCode.CANCELLED) from error


class Stream:
    """A streaming call. Its errors are raised with its messages."""

    def __init__(self, call: Any) -> None:
        self._call = call
        self._messages: Optional[AsyncIterator[Any]] = None
        self._cancelled = False

    def __aiter__(self) -> "Stream":
        return self

    async def __anext__(self) -> Any:
        with translated():
            if self._messages is None:
                self._messages = self._call.__aiter__()
            try:
                return await self._messages.__anext__()
            except asyncio.CancelledError:
                if not self._cancelled:
                    raise  # this task is cancelled
        raise CallError("the call was cancelled", grpc.StatusCode.CANCELLED)

    def cancel(self) -> None:
        self._cancelled = True
        self._call.cancel()


class Events:
    """The events of a call whose responses have one event each. Some were read already."""

    def __init__(self, stream: Stream, *read: Any) -> None:
        self._stream = stream
        self._read = list(read)

    async def next(self) -> Any:
        """Returns the next event, or None at the end."""
        if self._read:
            return self._read.pop(0)
        try:
            return (await self._stream.__anext__()).event
        except StopAsyncIteration:
            return None

    def cancel(self) -> None:
        self._stream.cancel()
