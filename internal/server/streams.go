package server

import pb "github.com/skillrun/skillrun/proto/skillrun/v1"

// streaming has the methods that count in a tenant's quota of streams: all methods with a stream, since each can stay
// open for long. Calls that get, list or cancel executions have no stream, so they work while the quota is used up.
var streaming = map[string]bool{
	pb.ExecutionService_Execute_FullMethodName:            true,
	pb.ExecutionService_ExecuteInteractive_FullMethodName: true,
	pb.ExecutionService_AttachExecution_FullMethodName:    true,
	pb.ExecutionService_GetArtifact_FullMethodName:        true,
	pb.SkillService_ReadSkillFile_FullMethodName:          true,
	pb.SkillService_PrepareSkill_FullMethodName:           true,
	pb.SkillService_PushSkill_FullMethodName:              true,
	pb.SessionService_GetSessionFile_FullMethodName:       true,
	pb.SessionService_PutSessionFile_FullMethodName:       true,
	pb.ToolService_CallTool_FullMethodName:                true,
}
