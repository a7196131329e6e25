from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor
EXECUTION_DEADLINE_CPU: ExecutionDeadline
EXECUTION_DEADLINE_QUEUE: ExecutionDeadline
EXECUTION_DEADLINE_UNSPECIFIED: ExecutionDeadline
EXECUTION_DEADLINE_WALL: ExecutionDeadline
EXECUTION_END_CANCELLED: ExecutionEnd
EXECUTION_END_DAEMON_LOST: ExecutionEnd
EXECUTION_END_EXITED: ExecutionEnd
EXECUTION_END_OOM_KILLED: ExecutionEnd
EXECUTION_END_SETUP_FAILED: ExecutionEnd
EXECUTION_END_SIGNALED: ExecutionEnd
EXECUTION_END_TIMED_OUT: ExecutionEnd
EXECUTION_END_UNSPECIFIED: ExecutionEnd
EXECUTION_ORDER_NEWEST_FIRST: ExecutionOrder
EXECUTION_ORDER_OLDEST_FIRST: ExecutionOrder
EXECUTION_ORDER_UNSPECIFIED: ExecutionOrder
EXECUTION_STATE_ENDED: ExecutionState
EXECUTION_STATE_QUEUED: ExecutionState
EXECUTION_STATE_RUNNING: ExecutionState
EXECUTION_STATE_UNSPECIFIED: ExecutionState
ON_DISCONNECT_CANCEL: OnDisconnect
ON_DISCONNECT_CONTINUE: OnDisconnect
ON_DISCONNECT_UNSPECIFIED: OnDisconnect
OOM_SCOPE_EXECUTION: OomScope
OOM_SCOPE_MACHINE: OomScope
OOM_SCOPE_TENANT: OomScope
OOM_SCOPE_UNSPECIFIED: OomScope
OUTPUT_STREAM_STDERR: OutputStream
OUTPUT_STREAM_STDOUT: OutputStream
OUTPUT_STREAM_UNSPECIFIED: OutputStream
SESSION_UNCOMMITTED_ERROR: SessionUncommitted
SESSION_UNCOMMITTED_NOT_COLLECTED: SessionUncommitted
SESSION_UNCOMMITTED_NOT_SUCCEEDED: SessionUncommitted
SESSION_UNCOMMITTED_OVER_QUOTA: SessionUncommitted
SESSION_UNCOMMITTED_UNKNOWN: SessionUncommitted
SESSION_UNCOMMITTED_UNSPECIFIED: SessionUncommitted
SOURCE_KIND_CODE: SourceKind
SOURCE_KIND_COMMAND: SourceKind
SOURCE_KIND_SCRIPT: SourceKind
SOURCE_KIND_UNSPECIFIED: SourceKind

class Argv(_message.Message):
    __slots__ = ["args"]
    ARGS_FIELD_NUMBER: _ClassVar[int]
    args: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, args: _Optional[_Iterable[str]] = ...) -> None: ...

class Artifact(_message.Message):
    __slots__ = ["executable", "path", "raw_path", "sha256", "size_bytes", "uri"]
    EXECUTABLE_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    RAW_PATH_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    URI_FIELD_NUMBER: _ClassVar[int]
    executable: bool
    path: str
    raw_path: bytes
    sha256: str
    size_bytes: int
    uri: str
    def __init__(self, path: _Optional[str] = ..., size_bytes: _Optional[int] = ..., sha256: _Optional[str] = ..., raw_path: _Optional[bytes] = ..., executable: bool = ..., uri: _Optional[str] = ...) -> None: ...

class AttachExecutionRequest(_message.Message):
    __slots__ = ["after_sequence", "execution_id"]
    AFTER_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    EXECUTION_ID_FIELD_NUMBER: _ClassVar[int]
    after_sequence: int
    execution_id: str
    def __init__(self, execution_id: _Optional[str] = ..., after_sequence: _Optional[int] = ...) -> None: ...

class AttachExecutionResponse(_message.Message):
    __slots__ = ["event"]
    EVENT_FIELD_NUMBER: _ClassVar[int]
    event: ExecutionEvent
    def __init__(self, event: _Optional[_Union[ExecutionEvent, _Mapping]] = ...) -> None: ...

class CancelExecutionRequest(_message.Message):
    __slots__ = ["execution_id", "grace", "reason", "return_immediately"]
    EXECUTION_ID_FIELD_NUMBER: _ClassVar[int]
    GRACE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    RETURN_IMMEDIATELY_FIELD_NUMBER: _ClassVar[int]
    execution_id: str
    grace: _duration_pb2.Duration
    reason: str
    return_immediately: bool
    def __init__(self, execution_id: _Optional[str] = ..., grace: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., reason: _Optional[str] = ..., return_immediately: bool = ...) -> None: ...

class CancelExecutionResponse(_message.Message):
    __slots__ = ["execution"]
    EXECUTION_FIELD_NUMBER: _ClassVar[int]
    execution: Execution
    def __init__(self, execution: _Optional[_Union[Execution, _Mapping]] = ...) -> None: ...

class CloseStdin(_message.Message):
    __slots__ = []
    def __init__(self) -> None: ...

class DeleteExecutionRequest(_message.Message):
    __slots__ = ["execution_id"]
    EXECUTION_ID_FIELD_NUMBER: _ClassVar[int]
    execution_id: str
    def __init__(self, execution_id: _Optional[str] = ...) -> None: ...

class DeleteExecutionResponse(_message.Message):
    __slots__ = []
    def __init__(self) -> None: ...

class ExecuteInteractiveRequest(_message.Message):
    __slots__ = ["close_stdin", "file_chunk", "signal", "start", "stdin"]
    CLOSE_STDIN_FIELD_NUMBER: _ClassVar[int]
    FILE_CHUNK_FIELD_NUMBER: _ClassVar[int]
    SIGNAL_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    STDIN_FIELD_NUMBER: _ClassVar[int]
    close_stdin: CloseStdin
    file_chunk: FileChunk
    signal: SendSignal
    start: ExecuteRequest
    stdin: bytes
    def __init__(self, start: _Optional[_Union[ExecuteRequest, _Mapping]] = ..., file_chunk: _Optional[_Union[FileChunk, _Mapping]] = ..., stdin: _Optional[bytes] = ..., close_stdin: _Optional[_Union[CloseStdin, _Mapping]] = ..., signal: _Optional[_Union[SendSignal, _Mapping]] = ...) -> None: ...

class ExecuteInteractiveResponse(_message.Message):
    __slots__ = ["event"]
    EVENT_FIELD_NUMBER: _ClassVar[int]
    event: ExecutionEvent
    def __init__(self, event: _Optional[_Union[ExecutionEvent, _Mapping]] = ...) -> None: ...

class ExecuteRequest(_message.Message):
    __slots__ = ["args", "code", "command", "env", "files", "idempotency_key", "json_arguments", "labels", "limits", "network_rules", "on_disconnect", "queue_timeout", "script", "secret_env", "session", "skill", "stdin_bytes", "working_directory"]
    class EnvEntry(_message.Message):
        __slots__ = ["key", "value"]
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class LabelsEntry(_message.Message):
        __slots__ = ["key", "value"]
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class SecretEnvEntry(_message.Message):
        __slots__ = ["key", "value"]
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ARGS_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    COMMAND_FIELD_NUMBER: _ClassVar[int]
    ENV_FIELD_NUMBER: _ClassVar[int]
    FILES_FIELD_NUMBER: _ClassVar[int]
    IDEMPOTENCY_KEY_FIELD_NUMBER: _ClassVar[int]
    JSON_ARGUMENTS_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    NETWORK_RULES_FIELD_NUMBER: _ClassVar[int]
    ON_DISCONNECT_FIELD_NUMBER: _ClassVar[int]
    QUEUE_TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    SCRIPT_FIELD_NUMBER: _ClassVar[int]
    SECRET_ENV_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    SKILL_FIELD_NUMBER: _ClassVar[int]
    STDIN_BYTES_FIELD_NUMBER: _ClassVar[int]
    WORKING_DIRECTORY_FIELD_NUMBER: _ClassVar[int]
    args: _containers.RepeatedScalarFieldContainer[str]
    code: InlineCode
    command: str
    env: _containers.ScalarMap[str, str]
    files: _containers.RepeatedCompositeFieldContainer[InputFile]
    idempotency_key: str
    json_arguments: str
    labels: _containers.ScalarMap[str, str]
    limits: ExecutionLimits
    network_rules: NetworkRules
    on_disconnect: OnDisconnect
    queue_timeout: _duration_pb2.Duration
    script: str
    secret_env: _containers.ScalarMap[str, str]
    session: SessionUse
    skill: str
    stdin_bytes: bytes
    working_directory: str
    def __init__(self, skill: _Optional[str] = ..., script: _Optional[str] = ..., code: _Optional[_Union[InlineCode, _Mapping]] = ..., command: _Optional[str] = ..., args: _Optional[_Iterable[str]] = ..., stdin_bytes: _Optional[bytes] = ..., json_arguments: _Optional[str] = ..., working_directory: _Optional[str] = ..., files: _Optional[_Iterable[_Union[InputFile, _Mapping]]] = ..., env: _Optional[_Mapping[str, str]] = ..., secret_env: _Optional[_Mapping[str, str]] = ..., labels: _Optional[_Mapping[str, str]] = ..., limits: _Optional[_Union[ExecutionLimits, _Mapping]] = ..., on_disconnect: _Optional[_Union[OnDisconnect, str]] = ..., idempotency_key: _Optional[str] = ..., queue_timeout: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., network_rules: _Optional[_Union[NetworkRules, _Mapping]] = ..., session: _Optional[_Union[SessionUse, _Mapping]] = ...) -> None: ...

class ExecuteResponse(_message.Message):
    __slots__ = ["event"]
    EVENT_FIELD_NUMBER: _ClassVar[int]
    event: ExecutionEvent
    def __init__(self, event: _Optional[_Union[ExecutionEvent, _Mapping]] = ...) -> None: ...

class Execution(_message.Message):
    __slots__ = ["create_time", "end_time", "execution_id", "expire_time", "labels", "last_sequence", "limits", "network_rules", "outcome", "principal", "queue_position", "request", "script", "skill", "skill_digest", "source_kind", "start_time", "state", "tenant"]
    class LabelsEntry(_message.Message):
        __slots__ = ["key", "value"]
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    END_TIME_FIELD_NUMBER: _ClassVar[int]
    EXECUTION_ID_FIELD_NUMBER: _ClassVar[int]
    EXPIRE_TIME_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    LAST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    NETWORK_RULES_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    QUEUE_POSITION_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    SCRIPT_FIELD_NUMBER: _ClassVar[int]
    SKILL_DIGEST_FIELD_NUMBER: _ClassVar[int]
    SKILL_FIELD_NUMBER: _ClassVar[int]
    SOURCE_KIND_FIELD_NUMBER: _ClassVar[int]
    START_TIME_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    create_time: _timestamp_pb2.Timestamp
    end_time: _timestamp_pb2.Timestamp
    execution_id: str
    expire_time: _timestamp_pb2.Timestamp
    labels: _containers.ScalarMap[str, str]
    last_sequence: int
    limits: ExecutionLimits
    network_rules: NetworkRules
    outcome: ExecutionOutcome
    principal: str
    queue_position: int
    request: RequestSummary
    script: str
    skill: str
    skill_digest: str
    source_kind: SourceKind
    start_time: _timestamp_pb2.Timestamp
    state: ExecutionState
    tenant: str
    def __init__(self, execution_id: _Optional[str] = ..., state: _Optional[_Union[ExecutionState, str]] = ..., skill: _Optional[str] = ..., skill_digest: _Optional[str] = ..., source_kind: _Optional[_Union[SourceKind, str]] = ..., script: _Optional[str] = ..., labels: _Optional[_Mapping[str, str]] = ..., create_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., start_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., end_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., limits: _Optional[_Union[ExecutionLimits, _Mapping]] = ..., principal: _Optional[str] = ..., last_sequence: _Optional[int] = ..., outcome: _Optional[_Union[ExecutionOutcome, _Mapping]] = ..., request: _Optional[_Union[RequestSummary, _Mapping]] = ..., expire_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., queue_position: _Optional[int] = ..., tenant: _Optional[str] = ..., network_rules: _Optional[_Union[NetworkRules, _Mapping]] = ...) -> None: ...

class ExecutionEvent(_message.Message):
    __slots__ = ["denied", "execution_id", "header", "keepalive", "outcome", "output", "queued", "sequence", "started", "time"]
    DENIED_FIELD_NUMBER: _ClassVar[int]
    EXECUTION_ID_FIELD_NUMBER: _ClassVar[int]
    HEADER_FIELD_NUMBER: _ClassVar[int]
    KEEPALIVE_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    QUEUED_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    STARTED_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    denied: NetworkDenial
    execution_id: str
    header: ExecutionHeader
    keepalive: ExecutionKeepalive
    outcome: ExecutionOutcome
    output: OutputChunk
    queued: ExecutionQueued
    sequence: int
    started: ExecutionStarted
    time: _timestamp_pb2.Timestamp
    def __init__(self, execution_id: _Optional[str] = ..., sequence: _Optional[int] = ..., time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., header: _Optional[_Union[ExecutionHeader, _Mapping]] = ..., started: _Optional[_Union[ExecutionStarted, _Mapping]] = ..., output: _Optional[_Union[OutputChunk, _Mapping]] = ..., keepalive: _Optional[_Union[ExecutionKeepalive, _Mapping]] = ..., outcome: _Optional[_Union[ExecutionOutcome, _Mapping]] = ..., queued: _Optional[_Union[ExecutionQueued, _Mapping]] = ..., denied: _Optional[_Union[NetworkDenial, _Mapping]] = ...) -> None: ...

class ExecutionEvidence(_message.Message):
    __slots__ = ["cancel_reason", "cancelled_by", "deadline", "network_denied_count", "oom_kill_count", "oom_scope", "pids_max_count", "setup_error", "setup_step"]
    CANCELLED_BY_FIELD_NUMBER: _ClassVar[int]
    CANCEL_REASON_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_FIELD_NUMBER: _ClassVar[int]
    NETWORK_DENIED_COUNT_FIELD_NUMBER: _ClassVar[int]
    OOM_KILL_COUNT_FIELD_NUMBER: _ClassVar[int]
    OOM_SCOPE_FIELD_NUMBER: _ClassVar[int]
    PIDS_MAX_COUNT_FIELD_NUMBER: _ClassVar[int]
    SETUP_ERROR_FIELD_NUMBER: _ClassVar[int]
    SETUP_STEP_FIELD_NUMBER: _ClassVar[int]
    cancel_reason: str
    cancelled_by: str
    deadline: ExecutionDeadline
    network_denied_count: int
    oom_kill_count: int
    oom_scope: OomScope
    pids_max_count: int
    setup_error: str
    setup_step: str
    def __init__(self, oom_kill_count: _Optional[int] = ..., pids_max_count: _Optional[int] = ..., deadline: _Optional[_Union[ExecutionDeadline, str]] = ..., cancelled_by: _Optional[str] = ..., cancel_reason: _Optional[str] = ..., setup_step: _Optional[str] = ..., setup_error: _Optional[str] = ..., network_denied_count: _Optional[int] = ..., oom_scope: _Optional[_Union[OomScope, str]] = ...) -> None: ...

class ExecutionHeader(_message.Message):
    __slots__ = ["commands", "deduplicated", "limits", "network_rules", "session", "skill", "skill_digest", "warnings"]
    COMMANDS_FIELD_NUMBER: _ClassVar[int]
    DEDUPLICATED_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    NETWORK_RULES_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    SKILL_DIGEST_FIELD_NUMBER: _ClassVar[int]
    SKILL_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    commands: _containers.RepeatedCompositeFieldContainer[Argv]
    deduplicated: bool
    limits: ExecutionLimits
    network_rules: NetworkRules
    session: SessionBase
    skill: str
    skill_digest: str
    warnings: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, skill: _Optional[str] = ..., skill_digest: _Optional[str] = ..., limits: _Optional[_Union[ExecutionLimits, _Mapping]] = ..., commands: _Optional[_Iterable[_Union[Argv, _Mapping]]] = ..., deduplicated: bool = ..., warnings: _Optional[_Iterable[str]] = ..., network_rules: _Optional[_Union[NetworkRules, _Mapping]] = ..., session: _Optional[_Union[SessionBase, _Mapping]] = ...) -> None: ...

class ExecutionKeepalive(_message.Message):
    __slots__ = ["state"]
    STATE_FIELD_NUMBER: _ClassVar[int]
    state: ExecutionState
    def __init__(self, state: _Optional[_Union[ExecutionState, str]] = ...) -> None: ...

class ExecutionLimits(_message.Message):
    __slots__ = ["cpu_time", "memory_bytes", "milli_cpus", "open_files", "output_bytes", "processes", "wall_time", "workspace_bytes", "workspace_files"]
    CPU_TIME_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    MILLI_CPUS_FIELD_NUMBER: _ClassVar[int]
    OPEN_FILES_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_BYTES_FIELD_NUMBER: _ClassVar[int]
    PROCESSES_FIELD_NUMBER: _ClassVar[int]
    WALL_TIME_FIELD_NUMBER: _ClassVar[int]
    WORKSPACE_BYTES_FIELD_NUMBER: _ClassVar[int]
    WORKSPACE_FILES_FIELD_NUMBER: _ClassVar[int]
    cpu_time: _duration_pb2.Duration
    memory_bytes: int
    milli_cpus: int
    open_files: int
    output_bytes: int
    processes: int
    wall_time: _duration_pb2.Duration
    workspace_bytes: int
    workspace_files: int
    def __init__(self, wall_time: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., cpu_time: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., memory_bytes: _Optional[int] = ..., processes: _Optional[int] = ..., output_bytes: _Optional[int] = ..., workspace_bytes: _Optional[int] = ..., workspace_files: _Optional[int] = ..., open_files: _Optional[int] = ..., milli_cpus: _Optional[int] = ...) -> None: ...

class ExecutionOutcome(_message.Message):
    __slots__ = ["advice", "artifact_count", "artifacts", "artifacts_refused", "end", "evidence", "exit_code", "learned_rules", "limits", "session", "signal", "skill_digest", "stderr", "stdout", "timed_out", "usage"]
    ADVICE_FIELD_NUMBER: _ClassVar[int]
    ARTIFACTS_FIELD_NUMBER: _ClassVar[int]
    ARTIFACTS_REFUSED_FIELD_NUMBER: _ClassVar[int]
    ARTIFACT_COUNT_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    EVIDENCE_FIELD_NUMBER: _ClassVar[int]
    EXIT_CODE_FIELD_NUMBER: _ClassVar[int]
    LEARNED_RULES_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    SIGNAL_FIELD_NUMBER: _ClassVar[int]
    SKILL_DIGEST_FIELD_NUMBER: _ClassVar[int]
    STDERR_FIELD_NUMBER: _ClassVar[int]
    STDOUT_FIELD_NUMBER: _ClassVar[int]
    TIMED_OUT_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    advice: str
    artifact_count: int
    artifacts: _containers.RepeatedCompositeFieldContainer[Artifact]
    artifacts_refused: _containers.RepeatedScalarFieldContainer[str]
    end: ExecutionEnd
    evidence: ExecutionEvidence
    exit_code: int
    learned_rules: LearnedRules
    limits: ExecutionLimits
    session: SessionResult
    signal: str
    skill_digest: str
    stderr: OutputTruncation
    stdout: OutputTruncation
    timed_out: bool
    usage: ExecutionUsage
    def __init__(self, end: _Optional[_Union[ExecutionEnd, str]] = ..., exit_code: _Optional[int] = ..., signal: _Optional[str] = ..., timed_out: bool = ..., evidence: _Optional[_Union[ExecutionEvidence, _Mapping]] = ..., usage: _Optional[_Union[ExecutionUsage, _Mapping]] = ..., stdout: _Optional[_Union[OutputTruncation, _Mapping]] = ..., stderr: _Optional[_Union[OutputTruncation, _Mapping]] = ..., artifacts: _Optional[_Iterable[_Union[Artifact, _Mapping]]] = ..., artifact_count: _Optional[int] = ..., artifacts_refused: _Optional[_Iterable[str]] = ..., skill_digest: _Optional[str] = ..., limits: _Optional[_Union[ExecutionLimits, _Mapping]] = ..., advice: _Optional[str] = ..., session: _Optional[_Union[SessionResult, _Mapping]] = ..., learned_rules: _Optional[_Union[LearnedRules, _Mapping]] = ...) -> None: ...

class ExecutionQueued(_message.Message):
    __slots__ = ["position"]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    position: int
    def __init__(self, position: _Optional[int] = ...) -> None: ...

class ExecutionStarted(_message.Message):
    __slots__ = ["queue_time", "setup_time"]
    QUEUE_TIME_FIELD_NUMBER: _ClassVar[int]
    SETUP_TIME_FIELD_NUMBER: _ClassVar[int]
    queue_time: _duration_pb2.Duration
    setup_time: _duration_pb2.Duration
    def __init__(self, queue_time: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., setup_time: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class ExecutionUsage(_message.Message):
    __slots__ = ["cpu_system", "cpu_user", "memory_peak_bytes", "network", "queue_time", "setup_time", "wall_time"]
    CPU_SYSTEM_FIELD_NUMBER: _ClassVar[int]
    CPU_USER_FIELD_NUMBER: _ClassVar[int]
    MEMORY_PEAK_BYTES_FIELD_NUMBER: _ClassVar[int]
    NETWORK_FIELD_NUMBER: _ClassVar[int]
    QUEUE_TIME_FIELD_NUMBER: _ClassVar[int]
    SETUP_TIME_FIELD_NUMBER: _ClassVar[int]
    WALL_TIME_FIELD_NUMBER: _ClassVar[int]
    cpu_system: _duration_pb2.Duration
    cpu_user: _duration_pb2.Duration
    memory_peak_bytes: int
    network: NetworkUsage
    queue_time: _duration_pb2.Duration
    setup_time: _duration_pb2.Duration
    wall_time: _duration_pb2.Duration
    def __init__(self, cpu_user: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., cpu_system: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., memory_peak_bytes: _Optional[int] = ..., wall_time: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., queue_time: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., setup_time: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., network: _Optional[_Union[NetworkUsage, _Mapping]] = ...) -> None: ...

class FileChunk(_message.Message):
    __slots__ = ["data", "offset_bytes", "path"]
    DATA_FIELD_NUMBER: _ClassVar[int]
    OFFSET_BYTES_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    offset_bytes: int
    path: str
    def __init__(self, path: _Optional[str] = ..., offset_bytes: _Optional[int] = ..., data: _Optional[bytes] = ...) -> None: ...

class GetArtifactRequest(_message.Message):
    __slots__ = ["execution_id", "offset_bytes", "path", "raw_path"]
    EXECUTION_ID_FIELD_NUMBER: _ClassVar[int]
    OFFSET_BYTES_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    RAW_PATH_FIELD_NUMBER: _ClassVar[int]
    execution_id: str
    offset_bytes: int
    path: str
    raw_path: bytes
    def __init__(self, execution_id: _Optional[str] = ..., path: _Optional[str] = ..., raw_path: _Optional[bytes] = ..., offset_bytes: _Optional[int] = ...) -> None: ...

class GetArtifactResponse(_message.Message):
    __slots__ = ["artifact", "data", "offset_bytes"]
    ARTIFACT_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    OFFSET_BYTES_FIELD_NUMBER: _ClassVar[int]
    artifact: Artifact
    data: bytes
    offset_bytes: int
    def __init__(self, artifact: _Optional[_Union[Artifact, _Mapping]] = ..., offset_bytes: _Optional[int] = ..., data: _Optional[bytes] = ...) -> None: ...

class GetExecutionRequest(_message.Message):
    __slots__ = ["execution_id"]
    EXECUTION_ID_FIELD_NUMBER: _ClassVar[int]
    execution_id: str
    def __init__(self, execution_id: _Optional[str] = ...) -> None: ...

class GetExecutionResponse(_message.Message):
    __slots__ = ["execution"]
    EXECUTION_FIELD_NUMBER: _ClassVar[int]
    execution: Execution
    def __init__(self, execution: _Optional[_Union[Execution, _Mapping]] = ...) -> None: ...

class InlineCode(_message.Message):
    __slots__ = ["language", "text"]
    LANGUAGE_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    language: str
    text: str
    def __init__(self, text: _Optional[str] = ..., language: _Optional[str] = ...) -> None: ...

class InputFile(_message.Message):
    __slots__ = ["content", "executable", "path", "streamed", "uri"]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    EXECUTABLE_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    STREAMED_FIELD_NUMBER: _ClassVar[int]
    URI_FIELD_NUMBER: _ClassVar[int]
    content: bytes
    executable: bool
    path: str
    streamed: StreamedFile
    uri: str
    def __init__(self, path: _Optional[str] = ..., content: _Optional[bytes] = ..., streamed: _Optional[_Union[StreamedFile, _Mapping]] = ..., uri: _Optional[str] = ..., executable: bool = ...) -> None: ...

class LearnedRules(_message.Message):
    __slots__ = ["allow", "incomplete"]
    ALLOW_FIELD_NUMBER: _ClassVar[int]
    INCOMPLETE_FIELD_NUMBER: _ClassVar[int]
    allow: _containers.RepeatedScalarFieldContainer[str]
    incomplete: bool
    def __init__(self, allow: _Optional[_Iterable[str]] = ..., incomplete: bool = ...) -> None: ...

class ListArtifactsRequest(_message.Message):
    __slots__ = ["execution_id", "page_size", "page_token"]
    EXECUTION_ID_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    execution_id: str
    page_size: int
    page_token: str
    def __init__(self, execution_id: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListArtifactsResponse(_message.Message):
    __slots__ = ["artifacts", "next_page_token"]
    ARTIFACTS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    artifacts: _containers.RepeatedCompositeFieldContainer[Artifact]
    next_page_token: str
    def __init__(self, artifacts: _Optional[_Iterable[_Union[Artifact, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class ListExecutionsRequest(_message.Message):
    __slots__ = ["created_after", "created_before", "ends", "labels", "order", "page_size", "page_token", "principal", "skill", "states", "tenant"]
    class LabelsEntry(_message.Message):
        __slots__ = ["key", "value"]
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    CREATED_AFTER_FIELD_NUMBER: _ClassVar[int]
    CREATED_BEFORE_FIELD_NUMBER: _ClassVar[int]
    ENDS_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    ORDER_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    SKILL_FIELD_NUMBER: _ClassVar[int]
    STATES_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    created_after: _timestamp_pb2.Timestamp
    created_before: _timestamp_pb2.Timestamp
    ends: _containers.RepeatedScalarFieldContainer[ExecutionEnd]
    labels: _containers.ScalarMap[str, str]
    order: ExecutionOrder
    page_size: int
    page_token: str
    principal: str
    skill: str
    states: _containers.RepeatedScalarFieldContainer[ExecutionState]
    tenant: str
    def __init__(self, skill: _Optional[str] = ..., states: _Optional[_Iterable[_Union[ExecutionState, str]]] = ..., labels: _Optional[_Mapping[str, str]] = ..., ends: _Optional[_Iterable[_Union[ExecutionEnd, str]]] = ..., created_after: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., created_before: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., principal: _Optional[str] = ..., order: _Optional[_Union[ExecutionOrder, str]] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., tenant: _Optional[str] = ...) -> None: ...

class ListExecutionsResponse(_message.Message):
    __slots__ = ["executions", "next_page_token"]
    EXECUTIONS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    executions: _containers.RepeatedCompositeFieldContainer[Execution]
    next_page_token: str
    def __init__(self, executions: _Optional[_Iterable[_Union[Execution, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class NetworkConnection(_message.Message):
    __slots__ = ["address", "credentials", "duration", "error", "name", "port", "protocol", "received_bytes", "sent_bytes", "start_time"]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    CREDENTIALS_FIELD_NUMBER: _ClassVar[int]
    DURATION_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_BYTES_FIELD_NUMBER: _ClassVar[int]
    SENT_BYTES_FIELD_NUMBER: _ClassVar[int]
    START_TIME_FIELD_NUMBER: _ClassVar[int]
    address: str
    credentials: _containers.RepeatedScalarFieldContainer[str]
    duration: _duration_pb2.Duration
    error: str
    name: str
    port: int
    protocol: str
    received_bytes: int
    sent_bytes: int
    start_time: _timestamp_pb2.Timestamp
    def __init__(self, start_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., duration: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., protocol: _Optional[str] = ..., address: _Optional[str] = ..., port: _Optional[int] = ..., name: _Optional[str] = ..., sent_bytes: _Optional[int] = ..., received_bytes: _Optional[int] = ..., credentials: _Optional[_Iterable[str]] = ..., error: _Optional[str] = ...) -> None: ...

class NetworkDenial(_message.Message):
    __slots__ = ["address", "missing_rule", "name", "port", "protocol", "reason", "rule"]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    MISSING_RULE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    RULE_FIELD_NUMBER: _ClassVar[int]
    address: str
    missing_rule: str
    name: str
    port: int
    protocol: str
    reason: str
    rule: str
    def __init__(self, protocol: _Optional[str] = ..., address: _Optional[str] = ..., port: _Optional[int] = ..., name: _Optional[str] = ..., reason: _Optional[str] = ..., rule: _Optional[str] = ..., missing_rule: _Optional[str] = ...) -> None: ...

class NetworkRules(_message.Message):
    __slots__ = ["allow", "deny", "learn"]
    ALLOW_FIELD_NUMBER: _ClassVar[int]
    DENY_FIELD_NUMBER: _ClassVar[int]
    LEARN_FIELD_NUMBER: _ClassVar[int]
    allow: _containers.RepeatedScalarFieldContainer[str]
    deny: _containers.RepeatedScalarFieldContainer[str]
    learn: bool
    def __init__(self, allow: _Optional[_Iterable[str]] = ..., deny: _Optional[_Iterable[str]] = ..., learn: bool = ...) -> None: ...

class NetworkUsage(_message.Message):
    __slots__ = ["connection_count", "connections", "denials", "incomplete", "received_bytes", "sent_bytes"]
    CONNECTIONS_FIELD_NUMBER: _ClassVar[int]
    CONNECTION_COUNT_FIELD_NUMBER: _ClassVar[int]
    DENIALS_FIELD_NUMBER: _ClassVar[int]
    INCOMPLETE_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_BYTES_FIELD_NUMBER: _ClassVar[int]
    SENT_BYTES_FIELD_NUMBER: _ClassVar[int]
    connection_count: int
    connections: _containers.RepeatedCompositeFieldContainer[NetworkConnection]
    denials: _containers.RepeatedCompositeFieldContainer[NetworkDenial]
    incomplete: bool
    received_bytes: int
    sent_bytes: int
    def __init__(self, connection_count: _Optional[int] = ..., sent_bytes: _Optional[int] = ..., received_bytes: _Optional[int] = ..., connections: _Optional[_Iterable[_Union[NetworkConnection, _Mapping]]] = ..., denials: _Optional[_Iterable[_Union[NetworkDenial, _Mapping]]] = ..., incomplete: bool = ...) -> None: ...

class OutputChunk(_message.Message):
    __slots__ = ["data", "offset_bytes", "stream"]
    DATA_FIELD_NUMBER: _ClassVar[int]
    OFFSET_BYTES_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    offset_bytes: int
    stream: OutputStream
    def __init__(self, stream: _Optional[_Union[OutputStream, str]] = ..., offset_bytes: _Optional[int] = ..., data: _Optional[bytes] = ...) -> None: ...

class OutputTruncation(_message.Message):
    __slots__ = ["delivered_bytes", "total_bytes", "truncated"]
    DELIVERED_BYTES_FIELD_NUMBER: _ClassVar[int]
    TOTAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    TRUNCATED_FIELD_NUMBER: _ClassVar[int]
    delivered_bytes: int
    total_bytes: int
    truncated: bool
    def __init__(self, truncated: bool = ..., delivered_bytes: _Optional[int] = ..., total_bytes: _Optional[int] = ...) -> None: ...

class RequestSummary(_message.Message):
    __slots__ = ["args", "command", "env_names", "file_paths", "language", "secret_env_names", "truncated", "working_directory"]
    ARGS_FIELD_NUMBER: _ClassVar[int]
    COMMAND_FIELD_NUMBER: _ClassVar[int]
    ENV_NAMES_FIELD_NUMBER: _ClassVar[int]
    FILE_PATHS_FIELD_NUMBER: _ClassVar[int]
    LANGUAGE_FIELD_NUMBER: _ClassVar[int]
    SECRET_ENV_NAMES_FIELD_NUMBER: _ClassVar[int]
    TRUNCATED_FIELD_NUMBER: _ClassVar[int]
    WORKING_DIRECTORY_FIELD_NUMBER: _ClassVar[int]
    args: _containers.RepeatedScalarFieldContainer[str]
    command: str
    env_names: _containers.RepeatedScalarFieldContainer[str]
    file_paths: _containers.RepeatedScalarFieldContainer[str]
    language: str
    secret_env_names: _containers.RepeatedScalarFieldContainer[str]
    truncated: bool
    working_directory: str
    def __init__(self, command: _Optional[str] = ..., language: _Optional[str] = ..., args: _Optional[_Iterable[str]] = ..., working_directory: _Optional[str] = ..., env_names: _Optional[_Iterable[str]] = ..., secret_env_names: _Optional[_Iterable[str]] = ..., file_paths: _Optional[_Iterable[str]] = ..., truncated: bool = ...) -> None: ...

class SendSignal(_message.Message):
    __slots__ = ["signal"]
    SIGNAL_FIELD_NUMBER: _ClassVar[int]
    signal: str
    def __init__(self, signal: _Optional[str] = ...) -> None: ...

class SessionBase(_message.Message):
    __slots__ = ["session_id", "version"]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    version: int
    def __init__(self, session_id: _Optional[str] = ..., version: _Optional[int] = ...) -> None: ...

class SessionResult(_message.Message):
    __slots__ = ["base_version", "committed_version", "file_count", "files_added", "files_changed", "files_deleted", "reason", "session_id", "size_bytes", "uncommitted", "written_bytes"]
    BASE_VERSION_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_VERSION_FIELD_NUMBER: _ClassVar[int]
    FILES_ADDED_FIELD_NUMBER: _ClassVar[int]
    FILES_CHANGED_FIELD_NUMBER: _ClassVar[int]
    FILES_DELETED_FIELD_NUMBER: _ClassVar[int]
    FILE_COUNT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    UNCOMMITTED_FIELD_NUMBER: _ClassVar[int]
    WRITTEN_BYTES_FIELD_NUMBER: _ClassVar[int]
    base_version: int
    committed_version: int
    file_count: int
    files_added: int
    files_changed: int
    files_deleted: int
    reason: str
    session_id: str
    size_bytes: int
    uncommitted: SessionUncommitted
    written_bytes: int
    def __init__(self, session_id: _Optional[str] = ..., base_version: _Optional[int] = ..., committed_version: _Optional[int] = ..., files_added: _Optional[int] = ..., files_changed: _Optional[int] = ..., files_deleted: _Optional[int] = ..., written_bytes: _Optional[int] = ..., file_count: _Optional[int] = ..., size_bytes: _Optional[int] = ..., uncommitted: _Optional[_Union[SessionUncommitted, str]] = ..., reason: _Optional[str] = ...) -> None: ...

class SessionUse(_message.Message):
    __slots__ = ["commit_failed", "session_id", "version", "wait"]
    COMMIT_FAILED_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    WAIT_FIELD_NUMBER: _ClassVar[int]
    commit_failed: bool
    session_id: str
    version: int
    wait: bool
    def __init__(self, session_id: _Optional[str] = ..., version: _Optional[int] = ..., wait: bool = ..., commit_failed: bool = ...) -> None: ...

class SignalExecutionRequest(_message.Message):
    __slots__ = ["execution_id", "signal"]
    EXECUTION_ID_FIELD_NUMBER: _ClassVar[int]
    SIGNAL_FIELD_NUMBER: _ClassVar[int]
    execution_id: str
    signal: str
    def __init__(self, execution_id: _Optional[str] = ..., signal: _Optional[str] = ...) -> None: ...

class SignalExecutionResponse(_message.Message):
    __slots__ = []
    def __init__(self) -> None: ...

class StreamedFile(_message.Message):
    __slots__ = ["sha256", "size_bytes"]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    sha256: str
    size_bytes: int
    def __init__(self, size_bytes: _Optional[int] = ..., sha256: _Optional[str] = ...) -> None: ...

class OnDisconnect(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []

class OutputStream(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []

class ExecutionEnd(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []

class SessionUncommitted(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []

class ExecutionDeadline(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []

class OomScope(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []

class ExecutionState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []

class SourceKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []

class ExecutionOrder(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []
