package executor

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/skillrun/skillrun/internal/network/policy"
	"github.com/skillrun/skillrun/internal/permission"
	"github.com/skillrun/skillrun/internal/runtime"
	"github.com/skillrun/skillrun/internal/tenant"
	"github.com/skillrun/skillrun/internal/workspace"
)

// A Request names a program to run, its inputs and its limits. No part of it is
// approved yet.
type Request struct {
	// Principal is the caller, by its credentials. It never comes from the message.
	Principal permission.Principal
	// Skill is a name, or name@sha256:digest.
	Skill string
	// Source is the script, the code or the command.
	Source permission.Source
	// Args are the arguments of a script or code. A command takes no Args.
	Args []string
	// Stdin is the program's standard input. The zero Stdin is empty.
	Stdin Stdin
	// Dir is the program's working directory, relative to /workspace. Empty: ".".
	Dir string
	// Files are put into /workspace before the start.
	Files []workspace.Input
	// Resources are put into /workspace, too.
	Resources []Resource
	// Env is added to the base environment.
	Env map[string]string
	// SecretEnv is like Env, but only the program sees its values.
	SecretEnv map[string]Secret
	// Labels are for finding the execution again.
	Labels map[string]string
	// Limits that are zero are derived.
	Limits Limits
	// Network has rules that the network must keep to as well. Nil: as skill and policy say. See
	// [permission.Policy.Check].
	Network *policy.Config
	// Key is the idempotency key: a repeated request with the same Key gives the same execution.
	// Empty: no key.
	Key string
	// Python chooses the execution's Python for every kind of source. Empty: the skill's
	// choice, else the configuration's.
	Python runtime.Python
	// Runner is Python code that runs a Python script or code in its place; its
	// sys.argv[1:] are the arguments that python would get. It comes from this daemon and
	// not from the caller: the request's hash and its record leave it out. Empty: no
	// runner.
	Runner string
	// Session is the session that the execution works in. Nil: none.
	Session *SessionUse
	// QueueTimeout bounds the wait for a slot, and the wait for the session. Zero: the daemon's default.
	QueueTimeout time.Duration
	// Ended is called when the execution has ended and its request may be freed. It is
	// not called if Execute returns an error or a duplicate. Nil: no call.
	Ended func()

	// Only with a Session, after enterSession.
	id   string
	turn *sessionTurn
}

// Input is a file for /workspace.
type Input = workspace.Input

// Stdin is a program's standard input: Bytes first, then JSON, then Stream.
// Callers set at most one of Bytes and JSON.
type Stdin struct {
	// Bytes are passed on unchanged.
	Bytes []byte
	// JSON is the text of one object; it is re-encoded by [EncodeArguments].
	JSON *string
	// Stream is read while the program runs. Nil: none.
	Stream io.Reader
}

// A Secret prints as a mask: fmt's %v, %s and %q, log/slog and encoding/json each call one of its
// methods. An explicit conversion to string gives the value; newSpec and the request's hash do that.
type Secret string

const mask = "[secret]"

// Format prints the mask for every verb. With String alone, fmt would print the value in its
// report of a wrong verb such as %d.
func (Secret) Format(f fmt.State, _ rune)   { _, _ = io.WriteString(f, mask) }
func (Secret) String() string               { return mask }
func (Secret) LogValue() slog.Value         { return slog.StringValue(mask) }
func (Secret) MarshalJSON() ([]byte, error) { return []byte(`"` + mask + `"`), nil }

// Limits bound one execution. In a request, zero means "derive it".
type Limits = tenant.Limits

// inputPaths returns the paths in /workspace at which the request puts files.
func (r Request) inputPaths() []string {
	paths := make([]string, 0, len(r.Files)+len(r.Resources))
	for _, f := range r.Files {
		paths = append(paths, f.Path)
	}
	for _, f := range r.Resources {
		paths = append(paths, f.Path)
	}
	return paths
}

// hash is a keyed hash of everything that makes two requests equal. Without the key, a reader
// of a stored record can't guess stdin, code and secrets from it. Only a request with an
// idempotency key needs a hash.
//
// It has the principal's tenant but not the name: keys belong to a tenant. JSON keeps the
// fields apart, and encoding/json sorts the keys of maps, so equal requests give equal bytes.
func (r Request) hash(key []byte) ([]byte, error) {
	type file struct {
		Path       string
		SHA256     []byte
		Executable bool
	}
	secrets := make(map[string]string, len(r.SecretEnv))
	for name, value := range r.SecretEnv {
		secrets[name] = string(value)
	}
	files := make([]file, len(r.Files))
	for i, f := range r.Files {
		sum, err := inputSum(f)
		if err != nil {
			return nil, err
		}
		files[i] = file{f.Path, sum, f.Executable}
	}
	// Large parts are in the hash by their sums, because encoding them would copy them in memory.
	source := r.Source
	source.Code = ""
	var arguments []byte
	if r.Stdin.JSON != nil {
		arguments = sumOf(*r.Stdin.JSON)
	}
	mac := hmac.New(sha256.New, key)
	err := json.NewEncoder(mac).Encode(struct {
		Tenant, Skill, Dir string
		Source             permission.Source
		Args               []string
		Code, Stdin, JSON  []byte
		Streamed           bool
		Files              []file
		Resources          []Resource
		Env, Secrets       map[string]string
		Labels             map[string]string
		Limits             Limits
		Network            *policy.Config
		QueueTimeout       time.Duration
		Python             runtime.Python
		Session            *SessionUse `json:",omitempty"`
	}{
		r.Principal.Tenant, r.Skill, r.Dir, source, r.Args, sumOf(r.Source.Code), sumOf(r.Stdin.Bytes), arguments,
		r.Stdin.Stream != nil, files, r.Resources, r.Env, secrets, r.Labels, r.Limits, r.Network, r.QueueTimeout, r.Python, r.Session,
	})
	return mac.Sum(nil), err
}

// sumOf is SHA-256 of data. A string goes through a small buffer, because []byte(data) would
// copy all of it.
func sumOf[T string | []byte](data T) []byte {
	h := sha256.New()
	piece := make([]byte, 1<<10) // on the stack, so that this needs no allocation
	for len(data) > 0 {
		n := copy(piece, data)
		h.Write(piece[:n])
		data = data[n:]
	}
	return h.Sum(nil)
}

// inputSum is SHA-256 of a file's content. accept calls it before workspace.Stage moves the
// source away.
func inputSum(f workspace.Input) ([]byte, error) {
	h := sha256.New()
	if f.Source == "" {
		h.Write(f.Content)
		return h.Sum(nil), nil
	}
	file, err := os.Open(f.Source)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	_, err = io.Copy(h, file)
	return h.Sum(nil), err
}
