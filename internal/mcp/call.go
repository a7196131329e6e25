package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/skillrun/skillrun/internal/audit"
	"github.com/skillrun/skillrun/internal/executor"
	"github.com/skillrun/skillrun/internal/permission"
	"github.com/skillrun/skillrun/internal/toolview"
)

// linkVersion is the first protocol version in which a result may have resource links.
// Older clients would not understand the result.
const linkVersion = "2025-06-18"

// addTools registers the view's tools. They never change.
func (s *Server) addTools(to *sdk.Server) {
	for _, t := range s.tools.Tools() {
		tool := &sdk.Tool{
			Name:        t.Name,
			Title:       title(t.Name),
			Description: t.Description,
			InputSchema: t.Parameters,
			Annotations: s.annotations(t),
		}
		if t.Output != nil {
			tool.OutputSchema = t.Output
		}
		to.AddTool(tool, s.call)
	}
}

// annotations tell an agent how careful to be with a tool. No tool is destructive, because
// a program can only change its own copy of the skill, and a session keeps its last versions. The protocol calls them
// hints: a client must not rely on them.
func (s *Server) annotations(t toolview.Tool) *sdk.ToolAnnotations {
	destructive, open := false, s.openWorld && !t.ReadOnly && !t.NoProgram
	return &sdk.ToolAnnotations{
		ReadOnlyHint: t.ReadOnly, IdempotentHint: t.ReadOnly, DestructiveHint: &destructive, OpenWorldHint: &open,
	}
}

// title turns a tool's name into text for people.
func title(name string) string {
	words := strings.ReplaceAll(name, "_", " ")
	return strings.ToUpper(words[:1]) + words[1:]
}

// call runs a tool. A failure that the model can act on is a result with isError. Only an
// invalid call, or one whose caller has gone, is a protocol error.
func (s *Server) call(ctx context.Context, req *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
	c := callerOf(ctx, req.Extra)
	running, stop := c.while(ctx)
	defer stop()
	p := progressOf(ctx, req)
	var sink toolview.Sink
	if p != nil {
		sink = p.add
	}
	if c.keepAlive != nil {
		defer c.keepAlive()()
	}
	r, err := s.tools.Call(running, toolview.ToolCall{
		Who: c.Principal, Tool: req.Params.Name, Arguments: req.Params.Arguments, Sink: sink, Conversation: c.conversation,
	})
	if p != nil {
		p.end()
	}
	moves := executor.IsDraining(err) && running.Err() == nil && c.moveOn()
	if err != nil && !moves && !audit.CallerOf(ctx).Wrote() {
		s.audit.NoteRefusal(audit.By(ctx, audit.Call, c.Tenant, c.Name), err)
	}
	// A call that ended well before the cancellation is still answered with its result.
	if running.Err() != nil && err != nil {
		return nil, &jsonrpc.Error{Code: codeCancelled, Message: "cancelled"}
	}
	if moves {
		return nil, errLeave
	}
	if bad := (*toolview.ArgumentsError)(nil); errors.As(err, &bad) {
		return failed(bad.Error()), nil
	}
	if err != nil {
		return failed(s.explain(err)), nil
	}
	return result(r, versionOf(req.Session) >= linkVersion, func() []string { return s.printed(ctx, c.Principal, r.ExecutionID) }), nil
}

// printed returns the streams of which the execution's record has any output.
func (s *Server) printed(ctx context.Context, who permission.Principal, id string) []string {
	x, err := s.x.Get(ctx, who, id)
	if err != nil || x.Outcome == nil {
		return []string{"stdout", "stderr"} // not known, and a link too many does no harm
	}
	var names []string
	if x.Outcome.Stdout.DeliveredBytes > 0 {
		names = append(names, "stdout")
	}
	if x.Outcome.Stderr.DeliveredBytes > 0 {
		names = append(names, "stderr")
	}
	return names
}

// codeCancelled answers a request that its client has cancelled, in case the client still
// listens. The Language Server Protocol uses this code for the same purpose.
const codeCancelled = -32800

// failed is a result that says why a tool failed. The model reads it; the protocol goes on.
func failed(text string) *sdk.CallToolResult {
	return &sdk.CallToolResult{IsError: true, Content: []sdk.Content{&sdk.TextContent{Text: text}}}
}

// versionOf returns the protocol version that the session's client asked for.
func versionOf(ss *sdk.ServerSession) string {
	if p := ss.InitializeParams(); p != nil {
		return p.ProtocolVersion
	}
	return ""
}

// progressOf returns nil if the client does not want progress notifications.
func progressOf(ctx context.Context, req *sdk.CallToolRequest) *progress {
	token := req.Params.GetProgressToken()
	if token == nil {
		return nil
	}
	return &progress{send: func(text string, bytes uint64) {
		// If the client cannot be reached, the call ends because its caller has gone.
		_ = req.Session.NotifyProgress(ctx, &sdk.ProgressNotificationParams{
			ProgressToken: token, Message: text, Progress: float64(bytes),
		})
	}}
}

// result converts a view's result for a client. It cuts long texts, and links the full
// output and the files. printed is asked for the streams to link if the result's text
// combines both.
func result(r toolview.Result, links bool, printed func() []string) *sdk.CallToolResult {
	out := &sdk.CallToolResult{IsError: r.IsError}
	text := r.Content
	var cuts []string
	if r.Structured != nil {
		var object json.RawMessage
		// A tool that runs no program takes limits as arguments, so its result is not cut here.
		if r.ExecutionID == "" {
			object = r.Structured
		} else {
			object, cuts = cutFields(r.Structured, r.ExecutionID)
		}
		if len(cuts) > 0 {
			text = string(object)
		}
		out.StructuredContent = object
	} else if r.ExecutionID != "" && len(text) > 2*maxText {
		text = cutText(text, 2*maxText, "")
		cuts = printed()
	}
	linked := linksOf(r, cuts)
	if !links && len(linked) > 0 {
		var b strings.Builder
		b.WriteString(text)
		b.WriteString("\n\nResources:\n")
		for _, l := range linked {
			fmt.Fprintf(&b, "%s (%s)\n", l.URI, l.Name)
		}
		text, linked = b.String(), nil
	}
	out.Content = append(out.Content, &sdk.TextContent{Text: text})
	for _, l := range linked {
		out.Content = append(out.Content, l)
	}
	return out
}

// linksOf returns links to the streams that were cut, to the files that the call has changed in its session,
// and to the other artifacts. At most maxLinks files. A client reads each by resources/read.
func linksOf(r toolview.Result, cuts []string) []*sdk.ResourceLink {
	var links []*sdk.ResourceLink
	for _, name := range cuts {
		if name == "stdout" || name == "stderr" {
			links = append(links, &sdk.ResourceLink{
				URI: executor.StreamURI(r.ExecutionID, name), Name: name, MIMEType: "text/plain", Description: "The program's " + name + ", as far as it is kept.",
			})
		}
	}
	most := len(links) + maxLinks
	inSession := map[string]bool{}
	if r.Session != nil {
		for _, c := range r.Session.Changes {
			if c.Deleted() {
				continue
			}
			inSession[c.Path] = true
			links = append(links, fileLink(c.URI(r.Session.ID), c.Path, c.SizeBytes, "A file of the session, which the call wrote."))
		}
	}
	for _, a := range r.Artifacts {
		if !inSession[a.Path] {
			links = append(links, fileLink(a.URI(r.ExecutionID), a.Path, a.SizeBytes, "A file that the program wrote."))
		}
	}
	return links[:min(len(links), most)]
}

func fileLink(uri, path string, size int64, description string) *sdk.ResourceLink {
	return &sdk.ResourceLink{URI: uri, Name: path, MIMEType: mimeType(path), Size: &size, Description: description}
}

// cutFields cuts the long strings of an object and returns the names of their fields. Other
// fields, and the order, stay the same.
func cutFields(object json.RawMessage, execution string) (short json.RawMessage, cuts []string) {
	if len(object) <= maxText {
		return object, nil
	}
	dec := json.NewDecoder(bytes.NewReader(object))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return object, nil
	}
	out := []byte{'{'}
	for dec.More() {
		var value json.RawMessage
		key, err := dec.Token()
		name, _ := key.(string)
		if err != nil || dec.Decode(&value) != nil {
			return object, nil
		}
		var text string
		if len(value) > maxText && json.Unmarshal(value, &text) == nil && len(text) > maxText {
			whole := ""
			if execution != "" && (name == "stdout" || name == "stderr") {
				whole = executor.StreamURI(execution, name)
			}
			value = quote(cutText(text, maxText, whole))
			cuts = append(cuts, name)
		}
		if len(out) > 1 {
			out = append(out, ", "...)
		}
		out = append(append(append(out, quote(name)...), ": "...), value...)
	}
	return append(out, '}'), cuts
}

// cutText keeps the beginning and the end of a text, in whole characters. Between them it
// says how many bytes are missing and, unless uri is empty, which resource has them.
func cutText(text string, limit int, uri string) string {
	head, tail := limit-maxTail, len(text)-maxTail
	for head > 0 && !startsRune(text, head) {
		head--
	}
	for tail < len(text) && !startsRune(text, tail) {
		tail++
	}
	where := ""
	if uri != "" {
		where = "; they are in the resource " + uri
	}
	return fmt.Sprintf("%s\n[... %d bytes left out%s ...]\n%s", text[:head], tail-head, where, text[tail:])
}

// startsRune reports whether byte i begins a character: bytes that continue one are 10xxxxxx.
func startsRune(s string, i int) bool { return s[i]&0xC0 != 0x80 }

// quote encodes a string as JSON without escaping HTML characters.
func quote(s string) json.RawMessage {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(s); err != nil {
		panic(err) // cannot happen: a string always encodes
	}
	return bytes.TrimSpace(b.Bytes())
}
