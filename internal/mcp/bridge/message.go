package bridge

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// maxMessage bounds the memory for one message: the largest message_bytes that a daemon
// can have.
const maxMessage = 256 << 20

// Methods of MCP that the bridge knows.
const (
	methodInitialize   = "initialize"
	methodInitialized  = "notifications/initialized"
	methodCancelled    = "notifications/cancelled"
	methodCall         = "tools/call"
	methodListen       = "subscriptions/listen" // lasts until the agent cancels it
	methodAcknowledged = "notifications/subscriptions/acknowledged"
)

// Notifications of the daemon to the bridge; internal/mcp has the same. The bridge does not pass them on to the agent.
const (
	ownPrefix   = "notifications/skillrun/"
	methodLeave = ownPrefix + "leave"
)

// Codes of JSON-RPC errors. -32000 is in the range that JSON-RPC 2.0 leaves to implementations. With -32800 the daemon
// answers a call that the agent has cancelled.
const (
	codeUnanswered = -32000
	codeCancelled  = -32800
)

// onlyReads has the requests that may be made again when their answer is lost: they change nothing, or nothing more
// the second time.
var onlyReads = map[string]bool{
	methodInitialize: true, methodListen: true, "ping": true, "server/discover": true, "logging/setLevel": true,
	"completion/complete": true, "prompts/list": true, "prompts/get": true, "tools/list": true,
	"resources/list": true, "resources/templates/list": true, "resources/read": true,
	"skills/list": true, "skills/get": true, "resources/directory/read": true,
}

// readingTools has the tools of which the same holds. A test compares it with the daemon's tools.
var readingTools = map[string]bool{
	"list_skills": true, "activate_skill": true, "read_skill_file": true, "check_command": true, "list_files": true, "read_file": true,
}

// A message is a line of the agent or the daemon, with the fields that the bridge reads. If the line is not JSON-RPC,
// all fields but line are zero; the daemon answers such a line.
type message struct {
	line   []byte // with its end
	id     string // as JSON; empty: a notification
	method string // empty: an answer
	params json.RawMessage

	// The state of a request. mu of the bridge guards it.
	tries     int  // connections that have ended without the answer
	renewed   bool // a listening request that an earlier daemon has answered, too
	cancelled bool // the agent no longer wants an answer
}

func readMessage(line []byte) *message {
	var m struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
		Params json.RawMessage `json:"params"`
	}
	if json.Unmarshal(line, &m) != nil {
		return &message{line: line}
	}
	return &message{line: line, id: idOf(m.ID), method: m.Method, params: m.Params}
}

// idOf returns an id in the one form that the daemon's JSON encoder gives it. It returns "" for no id.
func idOf(id json.RawMessage) string {
	var text string
	switch {
	case len(id) == 0 || string(id) == "null":
		return ""
	case json.Unmarshal(id, &text) != nil:
		return string(id)
	}
	data, err := json.Marshal(text)
	if err != nil {
		return string(id)
	}
	return string(data)
}

// isCall reports whether the message is a request, which must be answered.
func (m *message) isCall() bool { return m.method != "" && m.id != "" }

// mayRepeat reports whether the daemon may do the request twice.
func (m *message) mayRepeat() bool {
	var p struct {
		Name string `json:"name"`
	}
	return onlyReads[m.method] || m.method == methodCall && json.Unmarshal(m.params, &p) == nil && readingTools[p.Name]
}

// isLost reports whether a request stays without an answer when the connection on which it was sent ends. It counts
// these connections.
func (m *message) isLost() bool {
	if m.method == methodListen {
		m.renewed = true
		return false
	}
	m.tries++
	return !m.mayRepeat() || m.tries == maxTries
}

// cancels returns the id of the request that a notification cancels.
func (m *message) cancels() string {
	var p struct {
		ID json.RawMessage `json:"requestId"`
	}
	if m.method != methodCancelled || json.Unmarshal(m.params, &p) != nil {
		return ""
	}
	return idOf(p.ID)
}

// outcome returns the result of an answer, or its error. Both are zero if the answer is malformed.
func (m *message) outcome() (result json.RawMessage, failed *wireError) {
	var a struct {
		Result json.RawMessage `json:"result"`
		Error  *wireError      `json:"error"`
	}
	if json.Unmarshal(m.line, &a) != nil {
		return nil, nil
	}
	return a.Result, a.Error
}

// A wireError is an error of JSON-RPC.
type wireError struct {
	Code    int             `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data,omitempty"`
}

// refused reports whether an answer says that a daemon which is about to end has not begun the request.
func (m *message) refused() bool {
	// Most answers are results, and may be long.
	if !bytes.Contains(m.line[:min(len(m.line), maxRefusal)], []byte(`"leave"`)) {
		return false
	}
	var why struct {
		Reason string `json:"reason"`
	}
	_, failed := m.outcome()
	return failed != nil && failed.Code == codeUnanswered && json.Unmarshal(failed.Data, &why) == nil && why.Reason == "leave"
}

// maxRefusal is more than a refusal has.
const maxRefusal = 4 << 10

// answer makes an error that answers a request.
func (m *message) answer(code int, text string) []byte {
	data, err := json.Marshal(map[string]any{
		"jsonrpc": "2.0", "id": json.RawMessage(m.id), "error": wireError{Code: code, Message: text},
	})
	if err != nil {
		panic(err) // cannot happen: texts, and an id that was valid JSON
	}
	return append(data, '\n')
}

// notification makes a notification for the agent. nil: no params.
func notification(method string, params any) []byte {
	data, err := json.Marshal(struct {
		Version string `json:"jsonrpc"`
		Method  string `json:"method"`
		Params  any    `json:"params,omitempty"`
	}{"2.0", method, params})
	if err != nil {
		panic(err) // cannot happen: texts, and an id that was valid JSON
	}
	return append(data, '\n')
}

// readError and writeError say which side of the bridge broke: an agent that has closed its pipe is no reason to blame
// the daemon.
type (
	readError  struct{ err error }
	writeError struct{ err error }
)

func (e *readError) Error() string  { return "read messages: " + e.err.Error() }
func (e *writeError) Error() string { return "write messages: " + e.err.Error() }
func (e *readError) Unwrap() error  { return e.err }
func (e *writeError) Unwrap() error { return e.err }

// eachLine calls f with each line until from ends, which is not an error. Other errors are a readError. The last line
// may lack its newline; f gets it with one. eachLine drops empty lines, because JSON-RPC has no empty messages. f may
// keep the line.
func eachLine(from *bufio.Reader, f func(line []byte)) error {
	for {
		line, err := readLine(from)
		if len(bytes.TrimSpace(line)) > 0 && (err == nil || errors.Is(err, io.EOF)) {
			if line[len(line)-1] != '\n' {
				line = append(line, '\n')
			}
			f(line)
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return &readError{err}
		}
	}
}

// readLine returns a line with its end, or what there is before the end of file.
func readLine(r *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		piece, err := r.ReadSlice('\n')
		if len(line)+len(piece) > maxMessage {
			return nil, fmt.Errorf("a message of more than %d bytes", maxMessage)
		}
		line = append(line, piece...)
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, err
		}
	}
}
