from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from skillrun.v1 import execution_pb2 as _execution_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

BOUNDARY_GROUP_FILES: BoundaryGroup
BOUNDARY_GROUP_IDENTITY: BoundaryGroup
BOUNDARY_GROUP_KERNEL: BoundaryGroup
BOUNDARY_GROUP_LIMITS: BoundaryGroup
BOUNDARY_GROUP_MACHINE: BoundaryGroup
BOUNDARY_GROUP_NAMESPACES: BoundaryGroup
BOUNDARY_GROUP_NETWORK: BoundaryGroup
BOUNDARY_GROUP_PROBE: BoundaryGroup
BOUNDARY_GROUP_PROCESSES: BoundaryGroup
BOUNDARY_GROUP_UNSPECIFIED: BoundaryGroup
CGROUP_VERSION_HYBRID: CgroupVersion
CGROUP_VERSION_UNSPECIFIED: CgroupVersion
CGROUP_VERSION_V1: CgroupVersion
CGROUP_VERSION_V2: CgroupVersion
DAEMON_STATE_DEGRADED: DaemonState
DAEMON_STATE_DRAINING: DaemonState
DAEMON_STATE_NOT_READY: DaemonState
DAEMON_STATE_READY: DaemonState
DAEMON_STATE_UNSPECIFIED: DaemonState
DESCRIPTOR: _descriptor.FileDescriptor
NETWORK_MODE_NONE: NetworkMode
NETWORK_MODE_RULES: NetworkMode
NETWORK_MODE_UNSPECIFIED: NetworkMode

class Boundary(_message.Message):
    __slots__ = ["allowed", "detail", "found", "group", "name", "why"]
    ALLOWED_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    FOUND_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    allowed: bool
    detail: str
    found: bool
    group: BoundaryGroup
    name: str
    why: str
    def __init__(self, name: _Optional[str] = ..., found: bool = ..., why: _Optional[str] = ..., detail: _Optional[str] = ..., group: _Optional[_Union[BoundaryGroup, str]] = ..., allowed: bool = ...) -> None: ...

class ConfigurationWarning(_message.Message):
    __slots__ = ["file", "reason", "tenant"]
    FILE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    file: str
    reason: str
    tenant: str
    def __init__(self, tenant: _Optional[str] = ..., file: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class GetBudgetRequest(_message.Message):
    __slots__ = []
    def __init__(self) -> None: ...

class GetBudgetResponse(_message.Message):
    __slots__ = ["tenant"]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    tenant: Tenant
    def __init__(self, tenant: _Optional[_Union[Tenant, _Mapping]] = ...) -> None: ...

class GetCapabilitiesRequest(_message.Message):
    __slots__ = []
    def __init__(self) -> None: ...

class GetCapabilitiesResponse(_message.Message):
    __slots__ = ["audit_problem", "boundaries", "cgroup_version", "configuration_warnings", "default_limits", "draining", "images", "kernel", "max_limits", "max_message_bytes", "max_queued", "max_running", "network", "queued", "retention", "running", "runtimes", "skill_problems", "start_time", "state", "tenant_problems", "version"]
    AUDIT_PROBLEM_FIELD_NUMBER: _ClassVar[int]
    BOUNDARIES_FIELD_NUMBER: _ClassVar[int]
    CGROUP_VERSION_FIELD_NUMBER: _ClassVar[int]
    CONFIGURATION_WARNINGS_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_LIMITS_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    IMAGES_FIELD_NUMBER: _ClassVar[int]
    KERNEL_FIELD_NUMBER: _ClassVar[int]
    MAX_LIMITS_FIELD_NUMBER: _ClassVar[int]
    MAX_MESSAGE_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_QUEUED_FIELD_NUMBER: _ClassVar[int]
    MAX_RUNNING_FIELD_NUMBER: _ClassVar[int]
    NETWORK_FIELD_NUMBER: _ClassVar[int]
    QUEUED_FIELD_NUMBER: _ClassVar[int]
    RETENTION_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    RUNTIMES_FIELD_NUMBER: _ClassVar[int]
    SKILL_PROBLEMS_FIELD_NUMBER: _ClassVar[int]
    START_TIME_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    TENANT_PROBLEMS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    audit_problem: str
    boundaries: _containers.RepeatedCompositeFieldContainer[Boundary]
    cgroup_version: CgroupVersion
    configuration_warnings: _containers.RepeatedCompositeFieldContainer[ConfigurationWarning]
    default_limits: _execution_pb2.ExecutionLimits
    draining: bool
    images: _containers.RepeatedCompositeFieldContainer[Image]
    kernel: str
    max_limits: _execution_pb2.ExecutionLimits
    max_message_bytes: int
    max_queued: int
    max_running: int
    network: NetworkMode
    queued: int
    retention: _duration_pb2.Duration
    running: int
    runtimes: _containers.RepeatedCompositeFieldContainer[Runtime]
    skill_problems: _containers.RepeatedCompositeFieldContainer[SkillProblem]
    start_time: _timestamp_pb2.Timestamp
    state: DaemonState
    tenant_problems: _containers.RepeatedCompositeFieldContainer[TenantProblem]
    version: str
    def __init__(self, version: _Optional[str] = ..., start_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., boundaries: _Optional[_Iterable[_Union[Boundary, _Mapping]]] = ..., runtimes: _Optional[_Iterable[_Union[Runtime, _Mapping]]] = ..., default_limits: _Optional[_Union[_execution_pb2.ExecutionLimits, _Mapping]] = ..., max_limits: _Optional[_Union[_execution_pb2.ExecutionLimits, _Mapping]] = ..., max_message_bytes: _Optional[int] = ..., max_running: _Optional[int] = ..., max_queued: _Optional[int] = ..., running: _Optional[int] = ..., queued: _Optional[int] = ..., network: _Optional[_Union[NetworkMode, str]] = ..., cgroup_version: _Optional[_Union[CgroupVersion, str]] = ..., kernel: _Optional[str] = ..., retention: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., draining: bool = ..., images: _Optional[_Iterable[_Union[Image, _Mapping]]] = ..., skill_problems: _Optional[_Iterable[_Union[SkillProblem, _Mapping]]] = ..., audit_problem: _Optional[str] = ..., tenant_problems: _Optional[_Iterable[_Union[TenantProblem, _Mapping]]] = ..., state: _Optional[_Union[DaemonState, str]] = ..., configuration_warnings: _Optional[_Iterable[_Union[ConfigurationWarning, _Mapping]]] = ...) -> None: ...

class Image(_message.Message):
    __slots__ = ["name", "runtimes", "source"]
    NAME_FIELD_NUMBER: _ClassVar[int]
    RUNTIMES_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    name: str
    runtimes: _containers.RepeatedScalarFieldContainer[str]
    source: str
    def __init__(self, name: _Optional[str] = ..., source: _Optional[str] = ..., runtimes: _Optional[_Iterable[str]] = ...) -> None: ...

class ListTenantsRequest(_message.Message):
    __slots__ = ["page_size", "page_token"]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListTenantsResponse(_message.Message):
    __slots__ = ["next_page_token", "tenants"]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    TENANTS_FIELD_NUMBER: _ClassVar[int]
    next_page_token: str
    tenants: _containers.RepeatedCompositeFieldContainer[Tenant]
    def __init__(self, tenants: _Optional[_Iterable[_Union[Tenant, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class PurgeTenantRequest(_message.Message):
    __slots__ = ["tenant"]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    def __init__(self, tenant: _Optional[str] = ...) -> None: ...

class PurgeTenantResponse(_message.Message):
    __slots__ = ["environment_bytes", "environments", "execution_bytes", "executions", "session_bytes", "sessions", "skill_bytes", "skill_versions"]
    ENVIRONMENTS_FIELD_NUMBER: _ClassVar[int]
    ENVIRONMENT_BYTES_FIELD_NUMBER: _ClassVar[int]
    EXECUTIONS_FIELD_NUMBER: _ClassVar[int]
    EXECUTION_BYTES_FIELD_NUMBER: _ClassVar[int]
    SESSIONS_FIELD_NUMBER: _ClassVar[int]
    SESSION_BYTES_FIELD_NUMBER: _ClassVar[int]
    SKILL_BYTES_FIELD_NUMBER: _ClassVar[int]
    SKILL_VERSIONS_FIELD_NUMBER: _ClassVar[int]
    environment_bytes: int
    environments: int
    execution_bytes: int
    executions: int
    session_bytes: int
    sessions: int
    skill_bytes: int
    skill_versions: int
    def __init__(self, executions: _Optional[int] = ..., execution_bytes: _Optional[int] = ..., skill_versions: _Optional[int] = ..., skill_bytes: _Optional[int] = ..., environments: _Optional[int] = ..., environment_bytes: _Optional[int] = ..., sessions: _Optional[int] = ..., session_bytes: _Optional[int] = ...) -> None: ...

class Quota(_message.Message):
    __slots__ = ["key", "limit", "used"]
    KEY_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    USED_FIELD_NUMBER: _ClassVar[int]
    key: str
    limit: int
    used: int
    def __init__(self, key: _Optional[str] = ..., limit: _Optional[int] = ..., used: _Optional[int] = ...) -> None: ...

class Runtime(_message.Message):
    __slots__ = ["image", "language", "path", "version"]
    IMAGE_FIELD_NUMBER: _ClassVar[int]
    LANGUAGE_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    image: str
    language: str
    path: str
    version: str
    def __init__(self, language: _Optional[str] = ..., path: _Optional[str] = ..., version: _Optional[str] = ..., image: _Optional[str] = ...) -> None: ...

class SkillProblem(_message.Message):
    __slots__ = ["folder", "kept_skill", "reason", "tenant"]
    FOLDER_FIELD_NUMBER: _ClassVar[int]
    KEPT_SKILL_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    folder: str
    kept_skill: str
    reason: str
    tenant: str
    def __init__(self, folder: _Optional[str] = ..., reason: _Optional[str] = ..., kept_skill: _Optional[str] = ..., tenant: _Optional[str] = ...) -> None: ...

class Tenant(_message.Message):
    __slots__ = ["name", "quotas", "weight"]
    NAME_FIELD_NUMBER: _ClassVar[int]
    QUOTAS_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    name: str
    quotas: _containers.RepeatedCompositeFieldContainer[Quota]
    weight: int
    def __init__(self, name: _Optional[str] = ..., weight: _Optional[int] = ..., quotas: _Optional[_Iterable[_Union[Quota, _Mapping]]] = ...) -> None: ...

class TenantProblem(_message.Message):
    __slots__ = ["file", "kept", "reason", "tenant"]
    FILE_FIELD_NUMBER: _ClassVar[int]
    KEPT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    file: str
    kept: bool
    reason: str
    tenant: str
    def __init__(self, tenant: _Optional[str] = ..., file: _Optional[str] = ..., reason: _Optional[str] = ..., kept: bool = ...) -> None: ...

class DaemonState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []

class NetworkMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []

class CgroupVersion(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []

class BoundaryGroup(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []
