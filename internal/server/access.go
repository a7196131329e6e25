package server

import (
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	reflectionv1alpha "google.golang.org/grpc/reflection/grpc_reflection_v1alpha"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// access is the set of callers that may call a method. The zero access is nobody, and a method
// that is not in the table has it. So a method that a library adds is closed until someone
// opens it here.
type access int

const (
	nobody  access = iota
	anyone         // needs no identity: probes
	callers        // every caller with an identity
)

// accessTable has every method of the services that New registers. guard reads it before the
// handler receives a message.
var accessTable = map[string]access{
	pb.ExecutionService_Execute_FullMethodName:            callers,
	pb.ExecutionService_ExecuteInteractive_FullMethodName: callers,
	pb.ExecutionService_AttachExecution_FullMethodName:    callers,
	pb.ExecutionService_GetExecution_FullMethodName:       callers,
	pb.ExecutionService_ListExecutions_FullMethodName:     callers,
	pb.ExecutionService_CancelExecution_FullMethodName:    callers,
	pb.ExecutionService_SignalExecution_FullMethodName:    callers,
	pb.ExecutionService_ListArtifacts_FullMethodName:      callers,
	pb.ExecutionService_GetArtifact_FullMethodName:        callers,

	pb.SkillService_ListSkills_FullMethodName:    callers,
	pb.SkillService_GetSkill_FullMethodName:      callers,
	pb.SkillService_ActivateSkill_FullMethodName: callers,
	pb.SkillService_ReadSkillFile_FullMethodName: callers,
	pb.SkillService_CheckCommand_FullMethodName:  callers,
	pb.SkillService_ValidateSkill_FullMethodName: callers,
	pb.SkillService_PrepareSkill_FullMethodName:  callers,

	pb.ToolService_RunPythonScript_FullMethodName:    callers,
	pb.ToolService_ExecuteScript_FullMethodName:      callers,
	pb.ToolService_ExecuteCommand_FullMethodName:     callers,
	pb.ToolService_ValidateScriptPath_FullMethodName: callers,
	pb.ToolService_RunPython_FullMethodName:          callers,
	pb.ToolService_ListTools_FullMethodName:          callers,
	pb.ToolService_CallTool_FullMethodName:           callers,

	pb.SystemService_GetCapabilities_FullMethodName: callers,

	healthpb.Health_Check_FullMethodName: anyone,
	healthpb.Health_List_FullMethodName:  anyone,
	healthpb.Health_Watch_FullMethodName: anyone,

	reflectionv1.ServerReflection_ServerReflectionInfo_FullMethodName:      callers,
	reflectionv1alpha.ServerReflection_ServerReflectionInfo_FullMethodName: callers,
}
