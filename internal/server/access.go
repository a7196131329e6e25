package server

import (
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	reflectionv1alpha "google.golang.org/grpc/reflection/grpc_reflection_v1alpha"

	"github.com/skillrun/skillrun/internal/ingress/identity"
	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// freeing has the methods that remove data, so that callers can make room on a full disk. Its entries in the audit log
// are written even then. Package executor does the same for the methods in entriesBelow.
var freeing = map[string]bool{
	pb.SessionService_DeleteSession_FullMethodName: true,
	pb.SkillService_DeleteSkill_FullMethodName:     true,
}

// entriesBelow has the methods whose entries of the audit log package executor writes, with the
// execution and the skill. guard writes an entry for every other call that needs more than the role read.
var entriesBelow = map[string]bool{
	pb.ExecutionService_Execute_FullMethodName:            true,
	pb.ExecutionService_ExecuteInteractive_FullMethodName: true,
	pb.ExecutionService_CancelExecution_FullMethodName:    true,
	pb.ExecutionService_SignalExecution_FullMethodName:    true,
	pb.ExecutionService_DeleteExecution_FullMethodName:    true,
	pb.SkillService_PrepareSkill_FullMethodName:           true,
	pb.SystemService_PurgeTenant_FullMethodName:           true,
	pb.ToolService_RunPythonScript_FullMethodName:         true,
	pb.ToolService_ExecuteScript_FullMethodName:           true,
	pb.ToolService_ExecuteCommand_FullMethodName:          true,
	pb.ToolService_RunPython_FullMethodName:               true,
	pb.ToolService_CallTool_FullMethodName:                true,
}

// anyone marks methods that need no identity: probes. It is not a role.
const anyone identity.Role = -1

// accessTable has every method of the services that New registers, with the role that it needs.
// guard reads it before the handler receives a message. A method that is not in the table is closed
// for everybody, so a method that a library adds is closed until someone opens it here.
var accessTable = map[string]identity.Role{
	pb.ExecutionService_Execute_FullMethodName:            identity.Invoke,
	pb.ExecutionService_ExecuteInteractive_FullMethodName: identity.Invoke,
	pb.ExecutionService_AttachExecution_FullMethodName:    identity.Read,
	pb.ExecutionService_GetExecution_FullMethodName:       identity.Read,
	pb.ExecutionService_ListExecutions_FullMethodName:     identity.Read,
	pb.ExecutionService_CancelExecution_FullMethodName:    identity.Invoke,
	pb.ExecutionService_SignalExecution_FullMethodName:    identity.Invoke,
	pb.ExecutionService_DeleteExecution_FullMethodName:    identity.Invoke,
	pb.ExecutionService_ListArtifacts_FullMethodName:      identity.Read,
	pb.ExecutionService_GetArtifact_FullMethodName:        identity.Read,

	pb.SkillService_ListSkills_FullMethodName:    identity.Read,
	pb.SkillService_GetSkill_FullMethodName:      identity.Read,
	pb.SkillService_ActivateSkill_FullMethodName: identity.Read,
	pb.SkillService_ReadSkillFile_FullMethodName: identity.Read,
	pb.SkillService_CheckCommand_FullMethodName:  identity.Read,
	pb.SkillService_ValidateSkill_FullMethodName: identity.Read,
	// It installs packages for every user of the tenant.
	pb.SkillService_PrepareSkill_FullMethodName:      identity.Admin,
	pb.SkillService_PushSkill_FullMethodName:         identity.Admin,
	pb.SkillService_DeleteSkill_FullMethodName:       identity.Admin,
	pb.SkillService_ListSkillVersions_FullMethodName: identity.Read,

	pb.SessionService_CreateSession_FullMethodName:       identity.Invoke,
	pb.SessionService_GetSession_FullMethodName:          identity.Read,
	pb.SessionService_ListSessions_FullMethodName:        identity.Read,
	pb.SessionService_UpdateSession_FullMethodName:       identity.Invoke,
	pb.SessionService_DeleteSession_FullMethodName:       identity.Invoke,
	pb.SessionService_ListSessionVersions_FullMethodName: identity.Read,
	pb.SessionService_ListSessionFiles_FullMethodName:    identity.Read,
	pb.SessionService_GetSessionFile_FullMethodName:      identity.Read,
	pb.SessionService_PutSessionFile_FullMethodName:      identity.Invoke,

	pb.ToolService_RunPythonScript_FullMethodName:    identity.Invoke,
	pb.ToolService_ExecuteScript_FullMethodName:      identity.Invoke,
	pb.ToolService_ExecuteCommand_FullMethodName:     identity.Invoke,
	pb.ToolService_ValidateScriptPath_FullMethodName: identity.Read,
	pb.ToolService_RunPython_FullMethodName:          identity.Invoke,
	pb.ToolService_ListTools_FullMethodName:          identity.Read,
	// A tool that runs a program needs Invoke, see CallTool.
	pb.ToolService_CallTool_FullMethodName: identity.Read,

	pb.SystemService_GetCapabilities_FullMethodName: identity.Read,
	pb.SystemService_GetBudget_FullMethodName:       identity.Read,
	// Of the own tenant; of all tenants for an operator.
	pb.SystemService_ListTenants_FullMethodName: identity.Admin,
	pb.SystemService_PurgeTenant_FullMethodName: identity.Operator,

	healthpb.Health_Check_FullMethodName: anyone,
	healthpb.Health_List_FullMethodName:  anyone,
	healthpb.Health_Watch_FullMethodName: anyone,

	reflectionv1.ServerReflection_ServerReflectionInfo_FullMethodName:      identity.Read,
	reflectionv1alpha.ServerReflection_ServerReflectionInfo_FullMethodName: identity.Read,
}

// aboutDaemon has the methods that concern the daemon, or that give an operator every tenant. An operator may call
// them even if the tenant of its credential is not configured: root of a Unix socket is of the tenant default.
var aboutDaemon = map[string]bool{
	pb.ExecutionService_GetExecution_FullMethodName:    true,
	pb.ExecutionService_ListExecutions_FullMethodName:  true,
	pb.ExecutionService_AttachExecution_FullMethodName: true,
	pb.ExecutionService_CancelExecution_FullMethodName: true,
	pb.ExecutionService_SignalExecution_FullMethodName: true,
	pb.ExecutionService_DeleteExecution_FullMethodName: true,
	pb.ExecutionService_ListArtifacts_FullMethodName:   true,
	pb.ExecutionService_GetArtifact_FullMethodName:     true,

	pb.SystemService_GetCapabilities_FullMethodName: true,
	pb.SystemService_ListTenants_FullMethodName:     true,
	pb.SystemService_PurgeTenant_FullMethodName:     true,

	reflectionv1.ServerReflection_ServerReflectionInfo_FullMethodName:      true,
	reflectionv1alpha.ServerReflection_ServerReflectionInfo_FullMethodName: true,
}
