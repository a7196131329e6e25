package main

import (
	"crypto/ed25519"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/skillrun/skillrun/internal/audit"
	"github.com/skillrun/skillrun/internal/server"
)

// auditDir and auditKey are where the audit log and its private key are.
func (c *config) auditDir() string {
	if c.Audit.Dir != "" {
		return c.Audit.Dir
	}
	return filepath.Join(c.StateDir, "audit")
}

// The key is not in the directory of the log, so that a copy of the directory for an auditor has no
// private key.
func (c *config) auditKey() string { return filepath.Join(c.StateDir, "audit.key") }

// openAudit opens the audit log. The result is nil if it is switched off.
func (d *daemon) openAudit() (*audit.Log, error) {
	c := d.config
	if !c.Audit.Enabled {
		return nil, nil
	}
	return audit.Open(audit.Config{
		Dir: c.auditDir(), KeyFile: c.auditKey(), FileBytes: int64(c.Audit.FileBytes), Files: c.Audit.Files,
		Reason: server.Reason, Log: d.log, Takeover: d.earlier != nil,
		Changed: func(err error) { d.readiness.set(func(r *readiness) { r.unaudited = err != nil }) },
	})
}

// unidentified notes a caller that could not be identified.
// Anyone can cause it, so NoteRefusal counts repeated ones in one entry.
func (d *daemon) unidentified(from string, err error) {
	d.audit.NoteRefusal(audit.Entry{Event: audit.Unidentified, Address: from, Reason: "UNIDENTIFIED"}, err)
}

const auditUsage = `usage: skillrund --config FILE audit verify [--key FILE] [--head FILE] [DIR | FILE...]
       skillrund --config FILE audit key
verify compares the audit log with the key of --key and the head of --head; default: both from its directory.
key prints the public key.`

// auditCommand verifies the audit log, or prints its public key. It needs no daemon, and one may run.
func auditCommand(c config, args []string, out, _ io.Writer) error {
	if len(args) == 0 {
		return fmt.Errorf("audit: which command?\n%s", auditUsage)
	}
	switch {
	case args[0] == "verify":
		return verifyAudit(c, args[1:], out)
	case args[0] == "key" && len(args) == 1:
		text, err := audit.PublicKey(c.auditKey())
		if err != nil {
			return fmt.Errorf("audit key: %w", err)
		}
		_, err = out.Write(text)
		return err
	case args[0] == "key":
		return fmt.Errorf("audit key: %q is too much\n%s", args[1], auditUsage)
	}
	return fmt.Errorf("audit %q: no such command\n%s", args[0], auditUsage)
}

// verifyAudit verifies a directory, by default the configured one, or files that follow each other.
// Without --key it uses the public key next to the log, which shows accidents and careless changes
// only: a person with write access can replace the key, too.
func verifyAudit(c config, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("audit verify", flag.ContinueOnError)
	keyFile := flags.String("key", "", "`file` with the public key that skillrund audit key prints; default: audit.pub in the directory")
	head := flags.String("head", "", "`file` with a copy of the file head; default: head in the directory")
	if err := parseFlags(flags, args); err != nil {
		return fmt.Errorf("audit verify: %w\n%s", err, auditUsage)
	}
	var key ed25519.PublicKey
	if *keyFile != "" {
		text, err := os.ReadFile(*keyFile)
		if err != nil {
			return fmt.Errorf("audit verify: --key: %w", err)
		}
		if key, err = audit.ParsePublicKey(text); err != nil {
			return fmt.Errorf("audit verify: --key %s: %w", *keyFile, err)
		}
	}
	paths := flags.Args()
	if len(paths) == 0 {
		paths = []string{c.auditDir()}
	}
	// The first argument decides between the two forms: one directory, or files that follow each other.
	info, err := os.Stat(paths[0])
	if err != nil {
		return fmt.Errorf("audit verify: %w", err)
	}
	var report audit.Report
	switch {
	case info.IsDir() && len(paths) == 1:
		report, err = audit.VerifyDir(paths[0], *head, key)
	case info.IsDir():
		return fmt.Errorf("audit verify: %q is too much after a directory\n%s", paths[1], auditUsage)
	case key == nil:
		return errors.New("audit verify: files need --key; skillrund audit key prints the key")
	case *head != "":
		return errors.New("audit verify: --head needs a directory, because it is about the end of the log")
	default:
		report, err = audit.VerifyFiles(paths, key)
	}
	if err != nil {
		return fmt.Errorf("audit verify: %w", err)
	}
	return printReport(report, out)
}

// printReport describes a log without a fault. An incomplete last line is no fault: entries are written while the
// daemon runs, and a daemon that is killed leaves one.
func printReport(r audit.Report, out io.Writer) error {
	if r.Last == 0 {
		_, err := fmt.Fprintln(out, "no entries")
		return err
	}
	signed := "none of them is signed yet"
	if r.Signed > 0 {
		signed = fmt.Sprintf("signed up to entry %d, at %s", r.Signed, r.SignedAt.Format(time.RFC3339))
	}
	_, err := fmt.Fprintf(out, "entries %d to %d in %d files are as they were written; %s\n", r.First, r.Last, r.Files, signed)
	if err == nil && r.Torn > 0 {
		_, err = fmt.Fprintf(out, "%d bytes of an incomplete entry follow: the daemon is writing it, or died while it wrote it\n", r.Torn)
	}
	return err
}
