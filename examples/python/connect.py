"""What both examples need: the generated code, and a channel to the daemon."""

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
# generate.sh puts the code there; it imports itself as skillrun.v1.
sys.path.insert(0, os.environ.get("SKILLRUN_GENERATED", os.path.join(HERE, "generated")))

import grpc

from skillrun.v1 import execution_pb2 as pb
from skillrun.v1 import execution_pb2_grpc as rpc

DEFAULT = "unix:///run/skillrun/skillrun.sock"


def executions():
    """Returns a stub of the ExecutionService at $SKILLRUN_ADDRESS."""
    address = os.environ.get("SKILLRUN_ADDRESS") or DEFAULT
    # The contract allows messages of 16 MiB; gRPC's own default is 4.
    options = [("grpc.max_receive_message_length", 16 << 20)]
    return rpc.ExecutionServiceStub(grpc.insecure_channel(address, options=options))


def show(output):
    """Writes a piece of output to the stream that the program wrote it to."""
    stream = sys.stdout if output.stream == pb.STREAM_STDOUT else sys.stderr
    stream.buffer.write(output.data)
    stream.flush()


def explain(outcome):
    """Says on stderr how an execution ended, in one line."""
    took = outcome.usage.wall_time.ToTimedelta()
    peak = outcome.usage.memory_peak_bytes >> 20
    code = outcome.exit_code if outcome.HasField("exit_code") else "none"
    line = f"{pb.End.Name(outcome.end)}, exit code {code}, {took.total_seconds():.3f} s, {peak} MiB"
    print(f"[{line}] {outcome.advice}".rstrip(), file=sys.stderr)


def exit_code(outcome):
    """Maps an outcome to an exit code, as `skillrun run` does."""
    if outcome.end in (pb.END_SETUP_FAILED, pb.END_DAEMON_LOST) or not outcome.HasField("exit_code"):
        return 125
    code = outcome.exit_code
    if code < 0:
        return 128 - code
    return code or (0 if outcome.end == pb.END_EXITED else 125)
