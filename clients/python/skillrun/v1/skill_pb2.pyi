from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import struct_pb2 as _struct_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from skillrun.v1 import execution_pb2 as _execution_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor
FINDING_SEVERITY_ERROR: FindingSeverity
FINDING_SEVERITY_UNSPECIFIED: FindingSeverity
FINDING_SEVERITY_WARNING: FindingSeverity

class ActivateSkillRequest(_message.Message):
    __slots__ = ["limits", "skill"]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    SKILL_FIELD_NUMBER: _ClassVar[int]
    limits: _execution_pb2.ExecutionLimits
    skill: str
    def __init__(self, skill: _Optional[str] = ..., limits: _Optional[_Union[_execution_pb2.ExecutionLimits, _Mapping]] = ...) -> None: ...

class ActivateSkillResponse(_message.Message):
    __slots__ = ["allowed_tools", "base_dir", "context", "digest", "instructions", "limits", "messages", "model", "name", "network_access"]
    ALLOWED_TOOLS_FIELD_NUMBER: _ClassVar[int]
    BASE_DIR_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    INSTRUCTIONS_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    NETWORK_ACCESS_FIELD_NUMBER: _ClassVar[int]
    allowed_tools: _containers.RepeatedScalarFieldContainer[str]
    base_dir: str
    context: ActivationContext
    digest: str
    instructions: str
    limits: _execution_pb2.ExecutionLimits
    messages: _containers.RepeatedCompositeFieldContainer[ActivationMessage]
    model: str
    name: str
    network_access: bool
    def __init__(self, name: _Optional[str] = ..., digest: _Optional[str] = ..., instructions: _Optional[str] = ..., base_dir: _Optional[str] = ..., allowed_tools: _Optional[_Iterable[str]] = ..., limits: _Optional[_Union[_execution_pb2.ExecutionLimits, _Mapping]] = ..., network_access: bool = ..., messages: _Optional[_Iterable[_Union[ActivationMessage, _Mapping]]] = ..., model: _Optional[str] = ..., context: _Optional[_Union[ActivationContext, _Mapping]] = ...) -> None: ...

class ActivationContext(_message.Message):
    __slots__ = ["base_dir", "constraints", "script_executor"]
    BASE_DIR_FIELD_NUMBER: _ClassVar[int]
    CONSTRAINTS_FIELD_NUMBER: _ClassVar[int]
    SCRIPT_EXECUTOR_FIELD_NUMBER: _ClassVar[int]
    base_dir: str
    constraints: ExecutionConstraints
    script_executor: bool
    def __init__(self, base_dir: _Optional[str] = ..., script_executor: bool = ..., constraints: _Optional[_Union[ExecutionConstraints, _Mapping]] = ...) -> None: ...

class ActivationMessage(_message.Message):
    __slots__ = ["allowed_tools", "content", "is_meta", "model", "role", "type"]
    ALLOWED_TOOLS_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    IS_META_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    allowed_tools: _containers.RepeatedScalarFieldContainer[str]
    content: str
    is_meta: bool
    model: str
    role: str
    type: str
    def __init__(self, role: _Optional[str] = ..., type: _Optional[str] = ..., is_meta: bool = ..., content: _Optional[str] = ..., allowed_tools: _Optional[_Iterable[str]] = ..., model: _Optional[str] = ...) -> None: ...

class CheckCommandRequest(_message.Message):
    __slots__ = ["allowed_tools", "command", "skill"]
    ALLOWED_TOOLS_FIELD_NUMBER: _ClassVar[int]
    COMMAND_FIELD_NUMBER: _ClassVar[int]
    SKILL_FIELD_NUMBER: _ClassVar[int]
    allowed_tools: str
    command: str
    skill: str
    def __init__(self, skill: _Optional[str] = ..., command: _Optional[str] = ..., allowed_tools: _Optional[str] = ...) -> None: ...

class CheckCommandResponse(_message.Message):
    __slots__ = ["allowed", "commands", "instead", "missing_rule", "reason", "rule"]
    ALLOWED_FIELD_NUMBER: _ClassVar[int]
    COMMANDS_FIELD_NUMBER: _ClassVar[int]
    INSTEAD_FIELD_NUMBER: _ClassVar[int]
    MISSING_RULE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    RULE_FIELD_NUMBER: _ClassVar[int]
    allowed: bool
    commands: _containers.RepeatedCompositeFieldContainer[_execution_pb2.Argv]
    instead: str
    missing_rule: str
    reason: str
    rule: str
    def __init__(self, allowed: bool = ..., reason: _Optional[str] = ..., rule: _Optional[str] = ..., commands: _Optional[_Iterable[_Union[_execution_pb2.Argv, _Mapping]]] = ..., missing_rule: _Optional[str] = ..., instead: _Optional[str] = ...) -> None: ...

class DeleteSkillRequest(_message.Message):
    __slots__ = ["skill"]
    SKILL_FIELD_NUMBER: _ClassVar[int]
    skill: str
    def __init__(self, skill: _Optional[str] = ...) -> None: ...

class DeleteSkillResponse(_message.Message):
    __slots__ = ["digests"]
    DIGESTS_FIELD_NUMBER: _ClassVar[int]
    digests: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, digests: _Optional[_Iterable[str]] = ...) -> None: ...

class ExecutionConstraints(_message.Message):
    __slots__ = ["allowed_commands", "max_execution_time", "max_memory", "network_access", "working_directory"]
    ALLOWED_COMMANDS_FIELD_NUMBER: _ClassVar[int]
    MAX_EXECUTION_TIME_FIELD_NUMBER: _ClassVar[int]
    MAX_MEMORY_FIELD_NUMBER: _ClassVar[int]
    NETWORK_ACCESS_FIELD_NUMBER: _ClassVar[int]
    WORKING_DIRECTORY_FIELD_NUMBER: _ClassVar[int]
    allowed_commands: _containers.RepeatedScalarFieldContainer[str]
    max_execution_time: int
    max_memory: int
    network_access: bool
    working_directory: str
    def __init__(self, max_execution_time: _Optional[int] = ..., max_memory: _Optional[int] = ..., network_access: bool = ..., allowed_commands: _Optional[_Iterable[str]] = ..., working_directory: _Optional[str] = ...) -> None: ...

class Finding(_message.Message):
    __slots__ = ["file", "line", "message", "rule", "severity"]
    FILE_FIELD_NUMBER: _ClassVar[int]
    LINE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    RULE_FIELD_NUMBER: _ClassVar[int]
    SEVERITY_FIELD_NUMBER: _ClassVar[int]
    file: str
    line: int
    message: str
    rule: str
    severity: FindingSeverity
    def __init__(self, severity: _Optional[_Union[FindingSeverity, str]] = ..., file: _Optional[str] = ..., line: _Optional[int] = ..., rule: _Optional[str] = ..., message: _Optional[str] = ...) -> None: ...

class GetSkillRequest(_message.Message):
    __slots__ = ["skill"]
    SKILL_FIELD_NUMBER: _ClassVar[int]
    skill: str
    def __init__(self, skill: _Optional[str] = ...) -> None: ...

class GetSkillResponse(_message.Message):
    __slots__ = ["skill"]
    SKILL_FIELD_NUMBER: _ClassVar[int]
    skill: Skill
    def __init__(self, skill: _Optional[_Union[Skill, _Mapping]] = ...) -> None: ...

class ListSkillVersionsRequest(_message.Message):
    __slots__ = ["page_size", "page_token", "skill"]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    SKILL_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    skill: str
    def __init__(self, skill: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListSkillVersionsResponse(_message.Message):
    __slots__ = ["next_page_token", "versions"]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    VERSIONS_FIELD_NUMBER: _ClassVar[int]
    next_page_token: str
    versions: _containers.RepeatedCompositeFieldContainer[SkillVersion]
    def __init__(self, versions: _Optional[_Iterable[_Union[SkillVersion, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class ListSkillsRequest(_message.Message):
    __slots__ = ["include_hidden", "page_size", "page_token"]
    INCLUDE_HIDDEN_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    include_hidden: bool
    page_size: int
    page_token: str
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., include_hidden: bool = ...) -> None: ...

class ListSkillsResponse(_message.Message):
    __slots__ = ["next_page_token", "skills"]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    SKILLS_FIELD_NUMBER: _ClassVar[int]
    next_page_token: str
    skills: _containers.RepeatedCompositeFieldContainer[SkillSummary]
    def __init__(self, skills: _Optional[_Iterable[_Union[SkillSummary, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class PrepareSkillRequest(_message.Message):
    __slots__ = ["rebuild", "skill"]
    REBUILD_FIELD_NUMBER: _ClassVar[int]
    SKILL_FIELD_NUMBER: _ClassVar[int]
    rebuild: bool
    skill: str
    def __init__(self, skill: _Optional[str] = ..., rebuild: bool = ...) -> None: ...

class PrepareSkillResponse(_message.Message):
    __slots__ = ["environment", "output"]
    ENVIRONMENT_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    environment: SkillEnvironment
    output: _execution_pb2.OutputChunk
    def __init__(self, output: _Optional[_Union[_execution_pb2.OutputChunk, _Mapping]] = ..., environment: _Optional[_Union[SkillEnvironment, _Mapping]] = ...) -> None: ...

class PushSkillEntry(_message.Message):
    __slots__ = ["data", "executable", "link_target", "path", "size_bytes"]
    DATA_FIELD_NUMBER: _ClassVar[int]
    EXECUTABLE_FIELD_NUMBER: _ClassVar[int]
    LINK_TARGET_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    executable: bool
    link_target: str
    path: str
    size_bytes: int
    def __init__(self, path: _Optional[str] = ..., executable: bool = ..., size_bytes: _Optional[int] = ..., data: _Optional[bytes] = ..., link_target: _Optional[str] = ...) -> None: ...

class PushSkillHeader(_message.Message):
    __slots__ = ["name", "size_bytes", "source"]
    NAME_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    name: str
    size_bytes: int
    source: str
    def __init__(self, name: _Optional[str] = ..., size_bytes: _Optional[int] = ..., source: _Optional[str] = ...) -> None: ...

class PushSkillRequest(_message.Message):
    __slots__ = ["data", "entry", "header"]
    DATA_FIELD_NUMBER: _ClassVar[int]
    ENTRY_FIELD_NUMBER: _ClassVar[int]
    HEADER_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    entry: PushSkillEntry
    header: PushSkillHeader
    def __init__(self, header: _Optional[_Union[PushSkillHeader, _Mapping]] = ..., entry: _Optional[_Union[PushSkillEntry, _Mapping]] = ..., data: _Optional[bytes] = ...) -> None: ...

class PushSkillResponse(_message.Message):
    __slots__ = ["existed", "findings", "name", "removed_versions", "version"]
    EXISTED_FIELD_NUMBER: _ClassVar[int]
    FINDINGS_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    REMOVED_VERSIONS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    existed: bool
    findings: _containers.RepeatedCompositeFieldContainer[Finding]
    name: str
    removed_versions: _containers.RepeatedCompositeFieldContainer[RemovedSkillVersion]
    version: SkillVersion
    def __init__(self, version: _Optional[_Union[SkillVersion, _Mapping]] = ..., name: _Optional[str] = ..., existed: bool = ..., findings: _Optional[_Iterable[_Union[Finding, _Mapping]]] = ..., removed_versions: _Optional[_Iterable[_Union[RemovedSkillVersion, _Mapping]]] = ...) -> None: ...

class ReadSkillFileRequest(_message.Message):
    __slots__ = ["offset_bytes", "path", "skill"]
    OFFSET_BYTES_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    SKILL_FIELD_NUMBER: _ClassVar[int]
    offset_bytes: int
    path: str
    skill: str
    def __init__(self, skill: _Optional[str] = ..., path: _Optional[str] = ..., offset_bytes: _Optional[int] = ...) -> None: ...

class ReadSkillFileResponse(_message.Message):
    __slots__ = ["data", "offset_bytes", "sha256", "size_bytes"]
    DATA_FIELD_NUMBER: _ClassVar[int]
    OFFSET_BYTES_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    offset_bytes: int
    sha256: str
    size_bytes: int
    def __init__(self, size_bytes: _Optional[int] = ..., sha256: _Optional[str] = ..., offset_bytes: _Optional[int] = ..., data: _Optional[bytes] = ...) -> None: ...

class RefusedEntry(_message.Message):
    __slots__ = ["path", "reason"]
    PATH_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    path: str
    reason: str
    def __init__(self, path: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class RemovedSkillVersion(_message.Message):
    __slots__ = ["digest", "name"]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    digest: str
    name: str
    def __init__(self, name: _Optional[str] = ..., digest: _Optional[str] = ...) -> None: ...

class Skill(_message.Message):
    __slots__ = ["activation_mode", "allowed_tools", "author", "compatibility", "description", "digest", "disable_model_invocation", "file_count", "has_allowed_tools", "license", "max_execution_time", "max_memory_bytes", "metadata", "mode", "model", "name", "network_access", "optional_tools", "python", "python_packages", "refused", "required_tools", "requirements", "scripts", "size_bytes", "system_packages", "tags", "unknown_fields", "version", "warnings", "when_to_use"]
    class MetadataEntry(_message.Message):
        __slots__ = ["key", "value"]
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ACTIVATION_MODE_FIELD_NUMBER: _ClassVar[int]
    ALLOWED_TOOLS_FIELD_NUMBER: _ClassVar[int]
    AUTHOR_FIELD_NUMBER: _ClassVar[int]
    COMPATIBILITY_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    DISABLE_MODEL_INVOCATION_FIELD_NUMBER: _ClassVar[int]
    FILE_COUNT_FIELD_NUMBER: _ClassVar[int]
    HAS_ALLOWED_TOOLS_FIELD_NUMBER: _ClassVar[int]
    LICENSE_FIELD_NUMBER: _ClassVar[int]
    MAX_EXECUTION_TIME_FIELD_NUMBER: _ClassVar[int]
    MAX_MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    NETWORK_ACCESS_FIELD_NUMBER: _ClassVar[int]
    OPTIONAL_TOOLS_FIELD_NUMBER: _ClassVar[int]
    PYTHON_FIELD_NUMBER: _ClassVar[int]
    PYTHON_PACKAGES_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    REQUIRED_TOOLS_FIELD_NUMBER: _ClassVar[int]
    REQUIREMENTS_FIELD_NUMBER: _ClassVar[int]
    SCRIPTS_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    SYSTEM_PACKAGES_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    UNKNOWN_FIELDS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    WHEN_TO_USE_FIELD_NUMBER: _ClassVar[int]
    activation_mode: str
    allowed_tools: _containers.RepeatedScalarFieldContainer[str]
    author: str
    compatibility: str
    description: str
    digest: str
    disable_model_invocation: bool
    file_count: int
    has_allowed_tools: bool
    license: str
    max_execution_time: _duration_pb2.Duration
    max_memory_bytes: int
    metadata: _containers.ScalarMap[str, str]
    mode: bool
    model: str
    name: str
    network_access: bool
    optional_tools: _containers.RepeatedScalarFieldContainer[str]
    python: str
    python_packages: _containers.RepeatedScalarFieldContainer[str]
    refused: _containers.RepeatedCompositeFieldContainer[RefusedEntry]
    required_tools: _containers.RepeatedScalarFieldContainer[str]
    requirements: _containers.RepeatedCompositeFieldContainer[SkillRequirement]
    scripts: _containers.RepeatedCompositeFieldContainer[SkillScript]
    size_bytes: int
    system_packages: _containers.RepeatedScalarFieldContainer[str]
    tags: _containers.RepeatedScalarFieldContainer[str]
    unknown_fields: _struct_pb2.Struct
    version: str
    warnings: _containers.RepeatedCompositeFieldContainer[Finding]
    when_to_use: str
    def __init__(self, name: _Optional[str] = ..., description: _Optional[str] = ..., digest: _Optional[str] = ..., license: _Optional[str] = ..., compatibility: _Optional[str] = ..., metadata: _Optional[_Mapping[str, str]] = ..., allowed_tools: _Optional[_Iterable[str]] = ..., has_allowed_tools: bool = ..., version: _Optional[str] = ..., author: _Optional[str] = ..., tags: _Optional[_Iterable[str]] = ..., activation_mode: _Optional[str] = ..., required_tools: _Optional[_Iterable[str]] = ..., optional_tools: _Optional[_Iterable[str]] = ..., model: _Optional[str] = ..., mode: bool = ..., when_to_use: _Optional[str] = ..., disable_model_invocation: bool = ..., max_execution_time: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., max_memory_bytes: _Optional[int] = ..., network_access: bool = ..., python_packages: _Optional[_Iterable[str]] = ..., system_packages: _Optional[_Iterable[str]] = ..., unknown_fields: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., scripts: _Optional[_Iterable[_Union[SkillScript, _Mapping]]] = ..., warnings: _Optional[_Iterable[_Union[Finding, _Mapping]]] = ..., file_count: _Optional[int] = ..., size_bytes: _Optional[int] = ..., refused: _Optional[_Iterable[_Union[RefusedEntry, _Mapping]]] = ..., python: _Optional[str] = ..., requirements: _Optional[_Iterable[_Union[SkillRequirement, _Mapping]]] = ...) -> None: ...

class SkillEnvironment(_message.Message):
    __slots__ = ["build_time", "digest", "packages", "python", "reused", "size_bytes"]
    BUILD_TIME_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    PACKAGES_FIELD_NUMBER: _ClassVar[int]
    PYTHON_FIELD_NUMBER: _ClassVar[int]
    REUSED_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    build_time: _duration_pb2.Duration
    digest: str
    packages: _containers.RepeatedScalarFieldContainer[str]
    python: str
    reused: bool
    size_bytes: int
    def __init__(self, digest: _Optional[str] = ..., packages: _Optional[_Iterable[str]] = ..., size_bytes: _Optional[int] = ..., python: _Optional[str] = ..., reused: bool = ..., build_time: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class SkillRequirement(_message.Message):
    __slots__ = ["file", "line", "script", "system", "text"]
    FILE_FIELD_NUMBER: _ClassVar[int]
    LINE_FIELD_NUMBER: _ClassVar[int]
    SCRIPT_FIELD_NUMBER: _ClassVar[int]
    SYSTEM_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    file: str
    line: int
    script: str
    system: bool
    text: str
    def __init__(self, text: _Optional[str] = ..., system: bool = ..., file: _Optional[str] = ..., line: _Optional[int] = ..., script: _Optional[str] = ...) -> None: ...

class SkillScript(_message.Message):
    __slots__ = ["description", "language", "path"]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    LANGUAGE_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    description: str
    language: str
    path: str
    def __init__(self, path: _Optional[str] = ..., language: _Optional[str] = ..., description: _Optional[str] = ...) -> None: ...

class SkillSummary(_message.Message):
    __slots__ = ["description", "digest", "mcp_unlisted", "name"]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    MCP_UNLISTED_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    description: str
    digest: str
    mcp_unlisted: str
    name: str
    def __init__(self, name: _Optional[str] = ..., description: _Optional[str] = ..., digest: _Optional[str] = ..., mcp_unlisted: _Optional[str] = ...) -> None: ...

class SkillVersion(_message.Message):
    __slots__ = ["digest", "push_time", "size_bytes", "source"]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    PUSH_TIME_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    digest: str
    push_time: _timestamp_pb2.Timestamp
    size_bytes: int
    source: str
    def __init__(self, digest: _Optional[str] = ..., push_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., source: _Optional[str] = ..., size_bytes: _Optional[int] = ...) -> None: ...

class ValidateSkillRequest(_message.Message):
    __slots__ = ["folder", "skill", "skill_md"]
    FOLDER_FIELD_NUMBER: _ClassVar[int]
    SKILL_FIELD_NUMBER: _ClassVar[int]
    SKILL_MD_FIELD_NUMBER: _ClassVar[int]
    folder: str
    skill: str
    skill_md: str
    def __init__(self, skill: _Optional[str] = ..., skill_md: _Optional[str] = ..., folder: _Optional[str] = ...) -> None: ...

class ValidateSkillResponse(_message.Message):
    __slots__ = ["findings", "valid"]
    FINDINGS_FIELD_NUMBER: _ClassVar[int]
    VALID_FIELD_NUMBER: _ClassVar[int]
    findings: _containers.RepeatedCompositeFieldContainer[Finding]
    valid: bool
    def __init__(self, valid: bool = ..., findings: _Optional[_Iterable[_Union[Finding, _Mapping]]] = ...) -> None: ...

class FindingSeverity(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []
