package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/skillrun/skillrun/internal/quantity"
)

// A field says how the command line spells one field of a request. Errors and advice of
// the daemon name the field as the contract does; the user of a command never sees that
// name.
type field struct {
	path string // in the request, as the contract names it
	// On the command line: a flag, or an argument in capitals. Empty: messages name the file, so the path is left out.
	word string

	// Only of limits.
	unit   func(value string) string // writes a value of the daemon for people; nil: unchanged
	config string                    // key of the daemon's configuration that holds the ceiling
	skill  string                    // key of SKILL.md that can lower the ceiling; empty: none
}

// fields lists every field of the requests that a command line can set. A path with a dot
// or an underscore is also replaced in the middle of a sentence; a plain word such as
// "env" only where a message begins with it.
var fields = []field{
	{path: "limits.wall_time", word: "--timeout", unit: userTime, config: "limits.max.wall_time", skill: "max_execution_time"},
	{path: "limits.cpu_time", word: "--cpu-time", unit: userTime, config: "limits.max.cpu_time"},
	{path: "limits.memory_bytes", word: "--memory", unit: userBytes, config: "limits.max.memory", skill: "max_memory"},
	{path: "limits.processes", word: "--processes", config: "limits.max.processes"},
	{path: "limits.output_bytes", word: "--output", unit: userBytes, config: "limits.max.output"},
	{path: "limits.workspace_bytes", word: "--workspace", unit: userBytes, config: "limits.max.workspace"},
	{path: "limits.workspace_files", word: "--workspace-files", config: "limits.max.workspace_files"},
	{path: "limits.open_files", word: "--open-files", config: "limits.max.open_files"},
	{path: "limits.milli_cpus", word: "--cpus", unit: userCPUs, config: "limits.max.cpus"},
	{path: "queue_timeout", word: "--queue-timeout"},
	{path: "working_directory", word: "--dir"},
	{path: "json_arguments", word: "--args"},
	{path: "stdin_bytes", word: "standard input"},
	{path: "idempotency_key", word: "--key"},
	{path: "on_disconnect", word: "--on-disconnect"},
	{path: "code.language", word: "--language"},
	{path: "code.text", word: "--code"},
	{path: "secret_env", word: "--secret-env"},
	{path: "env", word: "--env"},
	{path: "labels", word: "--label"},
	{path: "files", word: "--file"},
	{path: "network_rules.allow", word: "--network"},
	{path: "network_rules.deny", word: "--network-deny"},
	{path: "network_rules.learn", word: "--learn"},
	{path: "idle_ttl", word: "--idle-ttl"},
	{path: "ttl", word: "--ttl"},
	{path: "max_bytes", word: "--max-bytes"},
	{path: "max_files", word: "--max-files"},
	{path: "session.session_id", word: "--session"},
	{path: "session.version", word: "--at"},
	{path: "session.wait", word: "--session-wait"},
	{path: "session.commit_failed", word: "--commit-failed"},
	{path: "session_id", word: "SESSION"},
	{path: "version", word: "--at"},
	{path: "args", word: "ARG"},
	{path: "skill", word: "SKILL"},
	{path: "script", word: "SCRIPT"},
	{path: "command", word: "COMMAND"},
	{path: "source", word: "SCRIPT, --code or COMMAND"},
	{path: "execution_id", word: "ID"},
	{path: "after_sequence", word: "--after"},
	{path: "signal", word: "SIGNAL"},
	{path: "grace", word: "--grace"},
	{path: "reason", word: "--reason"},
	{path: "ends", word: "--end"},
	{path: "principal", word: "--principal"},
	{path: "tenant", word: "--tenant"},
	{path: "header.session_id", word: "SESSION"},
	{path: "header.path", word: "PATH"},
	{path: "header.name", word: "--name"},
	{path: "header.size_bytes", word: "size in bytes"},
	{path: "entry.path"},
	{path: "entry.size_bytes"},
	{path: "entry.data"},
	{path: "entry.link_target"},
	{path: "entry"},
	{path: "data"},
	{path: "order", word: "--oldest"},
	{path: "return_immediately", word: "--no-wait"},
	{path: "allowed_tools", word: "--allowed-tools"},
	{path: "arguments_json", word: "ARGUMENTS"},
}

// fieldOf looks a path up. An index is not part of the table: args[3] is an argument, and
// files[0].path is a file.
func fieldOf(path string) (field, bool) {
	name, _, _ := strings.Cut(path, "[")
	for _, f := range fields {
		if f.path == name {
			return f, true
		}
	}
	return field{}, false
}

// wordOf returns the command line's word for a path, or the path if the command line has no word for it.
func wordOf(path string) string {
	var index int
	if n, _ := fmt.Sscanf(path, "args[%d]", &index); n == 1 {
		return fmt.Sprintf("argument %d", index+1)
	}
	if f, ok := fieldOf(path); ok {
		return f.word
	}
	return path
}

// pathsToWords has only paths with a dot or an underscore: a plain word such as "env" or "files"
// also occurs in sentences that are not about the field. strings.NewReplacer compares the pairs
// in their order, and no path in the table is the beginning of a later one.
var pathsToWords = func() *strings.Replacer {
	var pairs []string
	for _, f := range fields {
		if strings.ContainsAny(f.path, "._") && f.word != "" {
			pairs = append(pairs, f.path, f.word)
		}
	}
	// A field of the outcome, which 'skillrun show' prints line by line.
	pairs = append(pairs, "artifacts_refused", "'skillrun show'")
	return strings.NewReplacer(pairs...)
}()

// userWords writes a sentence of the daemon in the words of the command line.
func userWords(text string) string { return pathsToWords.Replace(text) }

// fieldText is the daemon's message about a field, in the words of the command line. The daemon
// begins some messages with the path and has it in the middle of others. If the text names the
// field in neither form, the word comes in front. word is the command line's word for the path.
func fieldText(message, path, word string) string {
	if word == "" {
		return userWords(strings.TrimPrefix(message, path+": "))
	}
	// The next byte must be a blank or a colon, or the path "env" would be cut off "environment".
	if rest, ok := strings.CutPrefix(message, path); ok && strings.HasPrefix(strings.TrimLeft(rest, ":"), " ") { // "env PATH: ..."
		return word + userWords(rest)
	}
	// "code: empty" about code.text, or `language "x": unknown` about code.language: the flag says the same.
	if parent, last, ok := strings.Cut(path, "."); ok && strings.HasPrefix(word, "--") {
		if rest, ok := strings.CutPrefix(message, parent+": "); ok {
			return word + ": " + userWords(rest)
		}
		if rest, ok := strings.CutPrefix(message, last+" "); ok && strings.HasPrefix(rest, `"`) {
			return word + " " + userWords(rest)
		}
	}
	text := userWords(message)
	// An argument's word is in capitals (SKILL); a message that has "skill" in it is clear
	// enough.
	argument := !strings.HasPrefix(word, "-")
	if strings.Contains(text, word) || argument && strings.Contains(text, path) {
		return text
	}
	return word + ": " + text
}

// beginningText replaces a path with which a message begins, for an error that names no field, such as one about a reused
// idempotency key.
func beginningText(message string) string {
	for _, f := range fields {
		if rest, ok := strings.CutPrefix(message, f.path+": "); ok && strings.ContainsAny(f.path, "._") && f.word != "" {
			return f.word + ": " + rest
		}
	}
	return message
}

// limitText says that a limit is out of its range: the value, the bound, and where the
// bound is set. False means that the daemon has not sent enough for that. asked, ceiling, floor
// and setBy are keys of the ErrorInfo's metadata (internal/server/errors.go).
func limitText(d details) (string, bool) {
	if len(d.fields) != 1 || d.metadata["asked"] == "" {
		return "", false
	}
	f, ok := fieldOf(d.fields[0])
	if !ok || f.config == "" {
		return "", false
	}
	show := func(key string) string {
		if value := d.metadata[key]; f.unit != nil {
			return f.unit(value)
		}
		return d.metadata[key]
	}
	switch {
	case d.reason == "LIMIT_TOO_SMALL":
		return fmt.Sprintf("%s %s is too small; the minimum is %s", f.word, show("asked"), show("floor")), true
	case d.reason != "LIMIT_TOO_LARGE":
		return "", false
	case d.metadata["setBy"] == "skill":
		return fmt.Sprintf("%s %s is too large; the skill allows at most %s (%s in its SKILL.md)", f.word, show("asked"), show("ceiling"), f.skill), true
	}
	return fmt.Sprintf("%s %s is too large; the daemon allows at most %s (%s in its configuration)", f.word, show("asked"), show("ceiling"), f.config), true
}

// userBytes reads "1048576 bytes". A number that a larger unit would round stays: it must
// not look equal to the bound that it is compared with.
func userBytes(value string) string {
	n, err := strconv.ParseUint(strings.TrimSuffix(value, " bytes"), 10, 64)
	if err != nil {
		return value
	}
	text := bytesText(n)
	number, unit, _ := strings.Cut(text, " ")
	// Reading the rounded text again shows whether it has lost anything.
	var back size
	if back.Set(number+unit) != nil || uint64(back) != n {
		return value
	}
	return text
}

// userTime reads "10m0s" and leaves zero parts out: "10m".
func userTime(value string) string {
	d, err := time.ParseDuration(value)
	if err != nil || d == 0 {
		return value
	}
	return quantity.Time(d)
}

// userCPUs reads thousandths of a processor.
func userCPUs(value string) string {
	n, err := strconv.ParseUint(value, 10, 32)
	if err != nil {
		return value
	}
	return cpus(n).String()
}
