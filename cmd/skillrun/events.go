package main

import (
	"strings"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// A printer shows events: as JSON, or the header's warnings and with -v the whole header on
// stderr. The client writes the output itself.
type printer struct {
	app  *app
	bars *progress // shows the position in the queue; nil: nothing
	err  error     // the first error of standard output
}

// event is a Cmd's OnEvent: the client calls it from one goroutine, in the order of the events,
// before it writes the event's output. After an error of standard output it prints no more; the
// execution goes on, and ended returns the error.
func (p *printer) event(e *pb.ExecutionEvent) {
	// First the bar is removed, so that the next line of output begins on an empty line.
	p.bars.event(e)
	if p.app.json {
		if p.err == nil {
			p.err = p.app.printJSON(e)
		}
		return
	}
	h := e.GetHeader()
	for _, warning := range h.GetWarnings() {
		p.app.note("warning: %s", warning)
	}
	if d := e.GetDenied(); d != nil {
		p.app.note("execution %s: denied: %s", e.GetExecutionId(), denialText(d))
	}
	if !p.app.verbose {
		return
	}
	if h != nil {
		p.app.note("execution %s: %s@%s", e.GetExecutionId(), h.GetSkill(), h.GetSkillDigest())
		for _, command := range h.GetCommands() {
			p.app.note("execution %s: runs %s", e.GetExecutionId(), quoteAll(command.GetArgs()))
		}
		if h.GetDeduplicated() {
			p.app.note("execution %s: its key was used before; these are its events", e.GetExecutionId())
		}
	}
}

// quoteAll writes the words of one vetted command so that a user can paste them into a shell.
func quoteAll(words []string) string {
	quoted := make([]string, len(words))
	for i, word := range words {
		quoted[i] = quote(word)
	}
	return strings.Join(quoted, " ")
}

// notices adds the facts on stderr that the output lacks: how the program ended, if it did
// not exit with a code; truncated streams; refused artifacts; advice; a session without the changes. It is called
// once, after the last event. Each line begins with the execution's id: with several skillrun processes on
// one terminal a reader must know whose line it is.
func (a *app) notices(id string, o *pb.ExecutionOutcome) {
	if a.json {
		return // it is all in the last event
	}
	if o.GetEnd() != pb.ExecutionEnd_EXECUTION_END_EXITED || o.ExitCode == nil {
		a.note("execution %s: %s", id, endText(o))
	}
	a.truncated(id, "stdout", o.GetStdout())
	a.truncated(id, "stderr", o.GetStderr())
	for _, line := range o.GetArtifactsRefused() {
		a.note("execution %s: not an artifact: %s", id, line)
	}
	if o.GetAdvice() != "" {
		a.note("execution %s: %s", id, outcomeWords(o, o.GetAdvice()))
	}
	switch s := o.GetSession(); {
	case s.GetUncommitted() == pb.SessionUncommitted_SESSION_UNCOMMITTED_UNSPECIFIED:
	case s.GetUncommitted() == pb.SessionUncommitted_SESSION_UNCOMMITTED_NOT_SUCCEEDED:
		a.note("execution %s: it did not succeed, so the session has none of its changes (--commit-failed keeps them)", id)
	case !strings.Contains(o.GetAdvice(), s.GetReason()): // the advice is about something else
		a.note("execution %s: the session does not have its changes, or may not: %s", id, userWords(s.GetReason()))
	}
	if !a.verbose {
		return
	}
	for _, artifact := range o.GetArtifacts() {
		a.note("execution %s: artifact %s (%s)", id, artifact.GetPath(), bytesText(artifact.GetSizeBytes()))
	}
	// The difference of unsigned numbers wraps around if a faulty daemon lists more than it
	// counts.
	if more := o.GetArtifactCount() - uint64(len(o.GetArtifacts())); more > 0 && more < o.GetArtifactCount() {
		a.note("execution %s: %d more artifacts ('skillrun artifacts %s' lists them)", id, more, id)
	}
	a.note("execution %s: %s; %s", id, endText(o), usageText(o.GetUsage()))
}

// truncated says how many bytes of a stream are lost. They can't be fetched later: the daemon
// counts output beyond the limit but does not store it.
func (a *app) truncated(id, stream string, t *pb.OutputTruncation) {
	if t.GetTruncated() {
		a.note("execution %s: %s truncated: %d of %d bytes delivered (--output raises the bound)", id, stream, t.GetDeliveredBytes(), t.GetTotalBytes())
	}
}
