from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import struct_pb2 as _struct_pb2
from skillrun.v1 import execution_pb2 as _execution_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class CallToolRequest(_message.Message):
    __slots__ = ["arguments_json", "name"]
    ARGUMENTS_JSON_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    arguments_json: str
    name: str
    def __init__(self, name: _Optional[str] = ..., arguments_json: _Optional[str] = ...) -> None: ...

class CallToolResponse(_message.Message):
    __slots__ = ["output", "result"]
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    output: _execution_pb2.OutputChunk
    result: ToolResult
    def __init__(self, output: _Optional[_Union[_execution_pb2.OutputChunk, _Mapping]] = ..., result: _Optional[_Union[ToolResult, _Mapping]] = ...) -> None: ...

class ExecuteCommandRequest(_message.Message):
    __slots__ = ["command", "env", "files", "skill", "timeout", "working_dir"]
    class EnvEntry(_message.Message):
        __slots__ = ["key", "value"]
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    COMMAND_FIELD_NUMBER: _ClassVar[int]
    ENV_FIELD_NUMBER: _ClassVar[int]
    FILES_FIELD_NUMBER: _ClassVar[int]
    SKILL_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    WORKING_DIR_FIELD_NUMBER: _ClassVar[int]
    command: str
    env: _containers.ScalarMap[str, str]
    files: _containers.RepeatedCompositeFieldContainer[_execution_pb2.InputFile]
    skill: str
    timeout: _duration_pb2.Duration
    working_dir: str
    def __init__(self, skill: _Optional[str] = ..., command: _Optional[str] = ..., working_dir: _Optional[str] = ..., env: _Optional[_Mapping[str, str]] = ..., timeout: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., files: _Optional[_Iterable[_Union[_execution_pb2.InputFile, _Mapping]]] = ...) -> None: ...

class ExecuteCommandResponse(_message.Message):
    __slots__ = ["artifacts", "command", "error", "execution_time", "exit_code", "instead", "missing_rule", "reason", "stderr", "stdout", "success", "warnings"]
    ARTIFACTS_FIELD_NUMBER: _ClassVar[int]
    COMMAND_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    EXECUTION_TIME_FIELD_NUMBER: _ClassVar[int]
    EXIT_CODE_FIELD_NUMBER: _ClassVar[int]
    INSTEAD_FIELD_NUMBER: _ClassVar[int]
    MISSING_RULE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    STDERR_FIELD_NUMBER: _ClassVar[int]
    STDOUT_FIELD_NUMBER: _ClassVar[int]
    SUCCESS_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    artifacts: _containers.RepeatedCompositeFieldContainer[_execution_pb2.Artifact]
    command: str
    error: str
    execution_time: float
    exit_code: int
    instead: str
    missing_rule: str
    reason: str
    stderr: str
    stdout: str
    success: bool
    warnings: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, success: bool = ..., exit_code: _Optional[int] = ..., stdout: _Optional[str] = ..., stderr: _Optional[str] = ..., execution_time: _Optional[float] = ..., command: _Optional[str] = ..., error: _Optional[str] = ..., artifacts: _Optional[_Iterable[_Union[_execution_pb2.Artifact, _Mapping]]] = ..., warnings: _Optional[_Iterable[str]] = ..., reason: _Optional[str] = ..., missing_rule: _Optional[str] = ..., instead: _Optional[str] = ...) -> None: ...

class ExecuteScriptRequest(_message.Message):
    __slots__ = ["args", "arguments", "arguments_json", "files", "max_output_size", "script_path", "skill", "timeout"]
    ARGS_FIELD_NUMBER: _ClassVar[int]
    ARGUMENTS_FIELD_NUMBER: _ClassVar[int]
    ARGUMENTS_JSON_FIELD_NUMBER: _ClassVar[int]
    FILES_FIELD_NUMBER: _ClassVar[int]
    MAX_OUTPUT_SIZE_FIELD_NUMBER: _ClassVar[int]
    SCRIPT_PATH_FIELD_NUMBER: _ClassVar[int]
    SKILL_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    args: _containers.RepeatedScalarFieldContainer[str]
    arguments: _struct_pb2.Struct
    arguments_json: str
    files: _containers.RepeatedCompositeFieldContainer[_execution_pb2.InputFile]
    max_output_size: int
    script_path: str
    skill: str
    timeout: _duration_pb2.Duration
    def __init__(self, skill: _Optional[str] = ..., script_path: _Optional[str] = ..., arguments: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., arguments_json: _Optional[str] = ..., timeout: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., max_output_size: _Optional[int] = ..., args: _Optional[_Iterable[str]] = ..., files: _Optional[_Iterable[_Union[_execution_pb2.InputFile, _Mapping]]] = ...) -> None: ...

class ExecuteScriptResponse(_message.Message):
    __slots__ = ["artifacts", "execution_time_ms", "exit_code", "script_path", "signal", "signal_number", "signaled", "stderr", "stderr_truncated", "stdout", "stdout_truncated", "success", "timeout", "warnings"]
    ARTIFACTS_FIELD_NUMBER: _ClassVar[int]
    EXECUTION_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    EXIT_CODE_FIELD_NUMBER: _ClassVar[int]
    SCRIPT_PATH_FIELD_NUMBER: _ClassVar[int]
    SIGNALED_FIELD_NUMBER: _ClassVar[int]
    SIGNAL_FIELD_NUMBER: _ClassVar[int]
    SIGNAL_NUMBER_FIELD_NUMBER: _ClassVar[int]
    STDERR_FIELD_NUMBER: _ClassVar[int]
    STDERR_TRUNCATED_FIELD_NUMBER: _ClassVar[int]
    STDOUT_FIELD_NUMBER: _ClassVar[int]
    STDOUT_TRUNCATED_FIELD_NUMBER: _ClassVar[int]
    SUCCESS_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    artifacts: _containers.RepeatedCompositeFieldContainer[_execution_pb2.Artifact]
    execution_time_ms: float
    exit_code: int
    script_path: str
    signal: str
    signal_number: int
    signaled: bool
    stderr: str
    stderr_truncated: bool
    stdout: str
    stdout_truncated: bool
    success: bool
    timeout: bool
    warnings: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, exit_code: _Optional[int] = ..., stdout: _Optional[str] = ..., stderr: _Optional[str] = ..., execution_time_ms: _Optional[float] = ..., script_path: _Optional[str] = ..., signal: _Optional[str] = ..., signal_number: _Optional[int] = ..., timeout: bool = ..., stdout_truncated: bool = ..., stderr_truncated: bool = ..., success: bool = ..., signaled: bool = ..., artifacts: _Optional[_Iterable[_Union[_execution_pb2.Artifact, _Mapping]]] = ..., warnings: _Optional[_Iterable[str]] = ...) -> None: ...

class ListToolsRequest(_message.Message):
    __slots__ = []
    def __init__(self) -> None: ...

class ListToolsResponse(_message.Message):
    __slots__ = ["tools"]
    TOOLS_FIELD_NUMBER: _ClassVar[int]
    tools: _containers.RepeatedCompositeFieldContainer[Tool]
    def __init__(self, tools: _Optional[_Iterable[_Union[Tool, _Mapping]]] = ...) -> None: ...

class RunPythonRequest(_message.Message):
    __slots__ = ["args", "code", "files", "script_path", "skill", "timeout", "working_directory"]
    ARGS_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    FILES_FIELD_NUMBER: _ClassVar[int]
    SCRIPT_PATH_FIELD_NUMBER: _ClassVar[int]
    SKILL_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    WORKING_DIRECTORY_FIELD_NUMBER: _ClassVar[int]
    args: _containers.RepeatedScalarFieldContainer[str]
    code: str
    files: _containers.RepeatedCompositeFieldContainer[_execution_pb2.InputFile]
    script_path: str
    skill: str
    timeout: _duration_pb2.Duration
    working_directory: str
    def __init__(self, code: _Optional[str] = ..., script_path: _Optional[str] = ..., working_directory: _Optional[str] = ..., timeout: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., skill: _Optional[str] = ..., files: _Optional[_Iterable[_Union[_execution_pb2.InputFile, _Mapping]]] = ..., args: _Optional[_Iterable[str]] = ...) -> None: ...

class RunPythonResponse(_message.Message):
    __slots__ = ["artifacts", "text", "warnings"]
    ARTIFACTS_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    artifacts: _containers.RepeatedCompositeFieldContainer[_execution_pb2.Artifact]
    text: str
    warnings: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, text: _Optional[str] = ..., artifacts: _Optional[_Iterable[_Union[_execution_pb2.Artifact, _Mapping]]] = ..., warnings: _Optional[_Iterable[str]] = ...) -> None: ...

class RunPythonScriptRequest(_message.Message):
    __slots__ = ["args", "files", "script", "skill_name", "timeout"]
    ARGS_FIELD_NUMBER: _ClassVar[int]
    FILES_FIELD_NUMBER: _ClassVar[int]
    SCRIPT_FIELD_NUMBER: _ClassVar[int]
    SKILL_NAME_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    args: _containers.RepeatedScalarFieldContainer[str]
    files: _containers.RepeatedCompositeFieldContainer[_execution_pb2.InputFile]
    script: str
    skill_name: str
    timeout: _duration_pb2.Duration
    def __init__(self, skill_name: _Optional[str] = ..., script: _Optional[str] = ..., timeout: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., args: _Optional[_Iterable[str]] = ..., files: _Optional[_Iterable[_Union[_execution_pb2.InputFile, _Mapping]]] = ...) -> None: ...

class RunPythonScriptResponse(_message.Message):
    __slots__ = ["artifacts", "error", "returncode", "skill_name", "stderr", "stdout", "timed_out", "warnings"]
    ARTIFACTS_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    RETURNCODE_FIELD_NUMBER: _ClassVar[int]
    SKILL_NAME_FIELD_NUMBER: _ClassVar[int]
    STDERR_FIELD_NUMBER: _ClassVar[int]
    STDOUT_FIELD_NUMBER: _ClassVar[int]
    TIMED_OUT_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    artifacts: _containers.RepeatedCompositeFieldContainer[_execution_pb2.Artifact]
    error: str
    returncode: int
    skill_name: str
    stderr: str
    stdout: str
    timed_out: bool
    warnings: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, skill_name: _Optional[str] = ..., stdout: _Optional[str] = ..., stderr: _Optional[str] = ..., returncode: _Optional[int] = ..., timed_out: bool = ..., error: _Optional[str] = ..., artifacts: _Optional[_Iterable[_Union[_execution_pb2.Artifact, _Mapping]]] = ..., warnings: _Optional[_Iterable[str]] = ...) -> None: ...

class Tool(_message.Message):
    __slots__ = ["definition_json", "description", "name", "parameters"]
    DEFINITION_JSON_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    definition_json: str
    description: str
    name: str
    parameters: _struct_pb2.Struct
    def __init__(self, name: _Optional[str] = ..., description: _Optional[str] = ..., parameters: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., definition_json: _Optional[str] = ...) -> None: ...

class ToolResult(_message.Message):
    __slots__ = ["artifacts", "content", "execution_id", "is_error", "structured", "warnings"]
    ARTIFACTS_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    EXECUTION_ID_FIELD_NUMBER: _ClassVar[int]
    IS_ERROR_FIELD_NUMBER: _ClassVar[int]
    STRUCTURED_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    artifacts: _containers.RepeatedCompositeFieldContainer[_execution_pb2.Artifact]
    content: str
    execution_id: str
    is_error: bool
    structured: _struct_pb2.Struct
    warnings: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, content: _Optional[str] = ..., structured: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., is_error: bool = ..., execution_id: _Optional[str] = ..., artifacts: _Optional[_Iterable[_Union[_execution_pb2.Artifact, _Mapping]]] = ..., warnings: _Optional[_Iterable[str]] = ...) -> None: ...

class ValidateScriptPathRequest(_message.Message):
    __slots__ = ["script_path", "skill"]
    SCRIPT_PATH_FIELD_NUMBER: _ClassVar[int]
    SKILL_FIELD_NUMBER: _ClassVar[int]
    script_path: str
    skill: str
    def __init__(self, skill: _Optional[str] = ..., script_path: _Optional[str] = ...) -> None: ...

class ValidateScriptPathResponse(_message.Message):
    __slots__ = ["path"]
    PATH_FIELD_NUMBER: _ClassVar[int]
    path: str
    def __init__(self, path: _Optional[str] = ...) -> None: ...
