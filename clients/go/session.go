package skillrun

import pb "github.com/skillrun/skillrun/proto/skillrun/v1"

// A Session says in which session a program works: the program sees the session's files in /workspace,
// and its changes become the next version of the session. Execution.Outcome has the result.
type Session struct {
	// ID is Session.SessionId of CreateSession.
	ID string
	// Version to start from. Zero: the newest.
	Version uint32
	// Wait for other executions in the session, within Cmd.QueueTimeout. False: the start fails while
	// another execution works in the session.
	Wait bool
	// CommitFailed commits the changes even if the program fails or is ended.
	CommitFailed bool
}

func (s *Session) message() *pb.SessionUse {
	if s == nil {
		return nil
	}
	return &pb.SessionUse{SessionId: s.ID, Version: s.Version, Wait: s.Wait, CommitFailed: s.CommitFailed}
}
