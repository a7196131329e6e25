"""A daemon on a real socket whose answers come from a test."""

import concurrent.futures
import os
import tempfile
import unittest

import grpc
from google.protobuf import any_pb2

import skillrun
from skillrun import details_pb2
from skillrun.v1 import execution_pb2 as pb
from skillrun.v1 import execution_pb2_grpc, skill_pb2, skill_pb2_grpc, tool_pb2_grpc

# Short pauses, so that the tests are fast.
QUICK = skillrun.Patience(tries=4, first=0.001, most=0.002)

SERVICES = {
    "execution": (execution_pb2_grpc.ExecutionServiceServicer, execution_pb2_grpc.add_ExecutionServiceServicer_to_server),
    "skill": (skill_pb2_grpc.SkillServiceServicer, skill_pb2_grpc.add_SkillServiceServicer_to_server),
    "tool": (tool_pb2_grpc.ToolServiceServicer, tool_pb2_grpc.add_ToolServiceServicer_to_server),
}


# The responses that have only one field, and its name. Functions of a test return the field's
# value: an event, an execution or a skill.
STREAMED = {"Execute": pb.ExecuteResponse, "ExecuteInteractive": pb.ExecuteInteractiveResponse, "AttachExecution": pb.AttachExecutionResponse}
WRAPPED = {
    "GetExecution": lambda e: pb.GetExecutionResponse(execution=e),
    "CancelExecution": lambda e: pb.CancelExecutionResponse(execution=e),
    "GetSkill": lambda s: skill_pb2.GetSkillResponse(skill=s),
}


class Daemon:
    """Answers calls with functions of the test, f(request, context), by method name. A
    method without a function answers UNIMPLEMENTED. seen has every (method, request)."""

    def __init__(self, **answers):
        self.answers = answers
        self.seen = []
        self.server = grpc.server(
            concurrent.futures.ThreadPoolExecutor(max_workers=16), options=[("grpc.max_receive_message_length", 16 << 20)]
        )
        for base, add in SERVICES.values():
            methods = {name: self._method(name) for name in dir(base) if name[0].isupper() and name in answers}
            add(type("Fake", (base,), methods)(), self.server)
        self.folder = tempfile.TemporaryDirectory()
        self.address = "unix://" + os.path.join(self.folder.name, "s")
        self.server.add_insecure_port(self.address)
        self.server.start()

    def _method(self, name):
        def answer(_, request, context):
            if hasattr(request, "DESCRIPTOR"):
                self.seen.append((name, request))
            given = self.answers[name](request, context)
            if name in STREAMED:
                return (STREAMED[name](event=event) for event in given)
            return WRAPPED[name](given) if name in WRAPPED else given

        return answer

    def asked(self, name):
        return [request for method, request in self.seen if method == name]

    def close(self):
        self.server.stop(None).wait()
        self.folder.cleanup()


class Case(unittest.TestCase):
    """A test with a fake daemon and a client."""

    def daemon(self, **answers):
        daemon = Daemon(**answers)
        self.addCleanup(daemon.close)
        client = skillrun.connect(daemon.address, patience=QUICK)
        self.addCleanup(client.close)
        return daemon, client


def header(execution_id="x1", **fields):
    return pb.ExecutionEvent(execution_id=execution_id, sequence=1, header=pb.ExecutionHeader(skill="s", **fields))


class Record:
    """The stored events of one execution."""

    def __init__(self, execution_id="x1"):
        self.id = execution_id
        self.events = [header(execution_id), pb.ExecutionEvent(execution_id=execution_id, sequence=2, started=pb.ExecutionStarted())]
        self.at = {pb.OUTPUT_STREAM_STDOUT: 0, pb.OUTPUT_STREAM_STDERR: 0}

    def _add(self, **event):
        self.events.append(pb.ExecutionEvent(execution_id=self.id, sequence=len(self.events) + 1, **event))
        return self

    def out(self, data, stream=pb.OUTPUT_STREAM_STDOUT):
        self._add(output=pb.OutputChunk(stream=stream, offset_bytes=self.at[stream], data=data))
        self.at[stream] += len(data)
        return self

    def err(self, data):
        return self.out(data, pb.OUTPUT_STREAM_STDERR)

    def exit(self, code=0):
        return self._add(outcome=pb.ExecutionOutcome(end=pb.EXECUTION_END_EXITED, exit_code=code))

    def end(self, end, **fields):
        return self._add(outcome=pb.ExecutionOutcome(end=end, **fields))

    def after(self, sequence):
        return self.events[sequence:]


def abort(context, code, message, reason="", field="", retry=0.0, metadata=None, domain="skillrun"):
    """Refuses a call with an error like the daemon's."""
    status = details_pb2.Status(code=code.value[0], message=message)

    def add(name, detail):
        status.details.append(any_pb2.Any(type_url="type.googleapis.com/google.rpc." + name, value=detail.SerializeToString()))

    if reason:
        add("ErrorInfo", details_pb2.ErrorInfo(reason=reason, domain=domain, metadata=metadata or {}))
    if field:
        add("BadRequest", details_pb2.BadRequest(field_violations=[dict(field=field, description=message)]))
    if retry:
        info = details_pb2.RetryInfo()
        info.retry_delay.FromMilliseconds(int(retry * 1000))
        add("RetryInfo", info)
    if status.details:
        context.set_trailing_metadata([("grpc-status-details-bin", status.SerializeToString())])
    context.abort(code, message)
