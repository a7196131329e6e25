"""The trace context of calls (W3C Trace Context, OpenTelemetry)."""

from __future__ import annotations

import importlib
from typing import Any, Callable, Dict, Optional

import grpc

# Returns the headers of the present trace: traceparent and, if it is set, tracestate.
Source = Callable[[], Dict[str, str]]

_FIELDS = ("traceparent", "tracestate")


def trace_source(traceparent: Optional[Callable[[], Optional[str]]]) -> Optional[Source]:
    """Returns the source of the trace context: the caller's function, else OpenTelemetry if it is
    installed, else None."""
    if traceparent is not None:
        ask = traceparent

        def asked() -> Dict[str, str]:
            value = ask()
            return {"traceparent": value} if value else {}

        return asked
    try:
        inject: Any = importlib.import_module("opentelemetry.propagate").inject
    except ImportError:
        return None

    def current() -> Dict[str, str]:
        headers: Dict[str, str] = {}
        inject(headers)
        return {name: headers[name] for name in _FIELDS if headers.get(name)}

    return current


class Interceptor(
    grpc.UnaryUnaryClientInterceptor,  # type: ignore[misc] # grpc has no types
    grpc.UnaryStreamClientInterceptor,  # type: ignore[misc]
    grpc.StreamUnaryClientInterceptor,  # type: ignore[misc]
    grpc.StreamStreamClientInterceptor,  # type: ignore[misc]
):
    """Adds the trace context to the metadata of each call."""

    def __init__(self, headers: Source) -> None:
        self._headers = headers

    def _add(self, proceed: Callable[[Any, Any], Any], details: Any, request: Any) -> Any:
        return proceed(with_trace(details, self._headers), request)

    intercept_unary_unary = intercept_unary_stream = _add
    intercept_stream_unary = intercept_stream_stream = _add


def with_trace(details: Any, headers: Source) -> Any:
    """Returns the details of a call, a named tuple of grpc, with the trace context."""
    return details._replace(metadata=tuple(details.metadata or ()) + tuple(headers().items()))
