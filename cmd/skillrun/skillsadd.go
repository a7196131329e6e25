package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	skillrun "github.com/skillrun/skillrun/clients/go"
	"github.com/skillrun/skillrun/internal/durable"
	"github.com/skillrun/skillrun/internal/wellknown"
)

// lockName is the default file that pins what skills add has installed.
const lockName = "skillrun.lock.json"

// A pin is a skill in the lock file. Digest is compared with the index before a download. The daemon computed Skill
// from the unpacked folder, so a script can run exactly the version that was added.
type pin struct {
	Index   string `json:"index"`
	Version string `json:"version,omitempty"`
	Digest  string `json:"digest"` // of the artifact, as the index has it
	Skill   string `json:"skill"`  // the digest that name@ takes
}

// addCommand downloads skills of a published index and pushes them.
// The pins are written after each skill, not at the end. If a later skill fails, the earlier ones,
// which the daemon has, are pinned.
func (a *app) addCommand() *cobra.Command {
	var update bool
	var lock, tokenFile string
	cmd := &cobra.Command{
		Use:   "add URL [SKILL...]",
		Short: "Push skills of a published index to your tenant",
		Long: `Add reads the index that a host publishes at ` + wellknown.Path + `,
downloads the named skills (or all), verifies their digests, and pushes them to your tenant. URL is
https://HOST, or the URL of a versioned index.json.

The lock file pins each skill's digest. A skill whose digest in the index differs from its pin is
refused; --update takes the new one. It needs the role admin, and the tenant's policy must allow the
host. Only https is used, redirects to other hosts and archives with links are refused.

With --index-token-file, requests to the host of URL carry the file's token. Other hosts, such as one that
the index names for an archive, never get it. skillrund asks for a token if it serves an index
(listen.skills_index).`,
		Example: `  skillrun skills add https://skills.example.com code-review
  skillrun skills add https://skillrund.example.com:7879 --index-token-file token code-review`,
		Args: arguments(needs("URL", "[SKILL...]")),
		RunE: func(cmd *cobra.Command, args []string) error {
			at, err := wellknown.IndexURL(args[0])
			if err != nil {
				return err
			}
			pins, err := readPins(lock)
			if err != nil {
				return err
			}
			client, err := a.indexClient(at, tokenFile)
			if err != nil {
				return err
			}
			index, err := client.Index(cmd.Context(), at)
			if errors.Is(err, wellknown.ErrUnauthorized) {
				return fmt.Errorf("%w (--index-token-file FILE has a token that this host knows)", err)
			}
			if err != nil {
				return err
			}
			for _, what := range index.Skipped {
				a.note("skipped, because its type is not known: %s", what)
			}
			chosen, err := choose(index, args[1:], pins, update)
			if err != nil {
				return err
			}
			c, err := a.dial()
			if err != nil {
				return err
			}
			defer c.Close()
			for _, e := range chosen {
				if err := a.addSkill(cmd, c, client, index.URL, e, pins); err != nil {
					return err
				}
				if err := writePins(lock, pins); err != nil {
					return err
				}
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&update, "update", false, "take skills whose digest differs from the lock file's")
	cmd.Flags().StringVar(&lock, "lock", lockName, "the lock `file`")
	cmd.Flags().StringVar(&tokenFile, "index-token-file", "", "`file` with a token for the host of URL")
	return cmd
}

// indexClient returns a client for an index that sends the token of a file, if one is named.
// The token must fit an HTTP header: printable ASCII without blanks.
func (a *app) indexClient(at, tokenFile string) (wellknown.Client, error) {
	if tokenFile == "" {
		return wellknown.Client{}, nil
	}
	u, err := url.Parse(at)
	if err != nil {
		return wellknown.Client{}, err
	}
	data, err := os.ReadFile(tokenFile)
	token := strings.TrimSpace(string(data))
	if err == nil && (token == "" || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' })) {
		err = fmt.Errorf("%s: want one line with a token", tokenFile)
	}
	if err != nil {
		return wellknown.Client{}, fmt.Errorf("--index-token-file: %w", err)
	}
	a.warnExposed(tokenFile)
	return wellknown.Client{Token: token, Host: u.Host}, nil
}

// choose returns the entries with these names, or all. A digest that differs from its pin is an error.
// All names and pins are checked before the first download, so a mistake changes nothing.
func choose(index *wellknown.Index, names []string, pins map[string]pin, update bool) ([]wellknown.Entry, error) {
	var chosen []wellknown.Entry
	for _, e := range index.Skills {
		if len(names) == 0 || slices.Contains(names, e.Name) {
			chosen = append(chosen, e)
		}
	}
	for _, name := range names {
		if !slices.ContainsFunc(chosen, func(e wellknown.Entry) bool { return e.Name == name }) {
			return nil, fmt.Errorf("%s has no skill %q", index.URL, name)
		}
	}
	for _, e := range chosen {
		if p, pinned := pins[e.Name]; pinned && p.Digest != e.Digest && !update {
			return nil, fmt.Errorf("skill %q: the index has the digest %s, and the lock file pins %s; look at what has changed, then add --update", e.Name, e.Digest, p.Digest)
		}
	}
	return chosen, nil
}

// addSkill downloads and pushes one skill, and pins it.
// The archive is unpacked into a temporary directory of this machine, never into the working
// directory, because its names come from a stranger.
func (a *app) addSkill(cmd *cobra.Command, c *skillrun.Client, from wellknown.Client, index string, e wellknown.Entry, pins map[string]pin) (err error) {
	dir, err := os.MkdirTemp("", "skillrun-add-")
	if err != nil {
		return err
	}
	defer func() { err = cmp.Or(err, os.RemoveAll(dir)) }() // a joined error would hide the status of the push
	if err := from.Fetch(cmd.Context(), e, dir); err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	// The name of the index must be the name in SKILL.md, so that the pin's key is the name that run takes.
	pushed, err := a.push(cmd.Context(), c, e.Name, root.FS(), skillrun.PushOptions{Name: e.Name, Source: index})
	if err != nil {
		return err
	}
	pins[e.Name] = pin{Index: index, Version: e.Version, Digest: e.Digest, Skill: pushed.GetVersion().GetDigest()}
	return nil
}

// readPins returns no pins without a lock file, which the first add makes.
func readPins(file string) (map[string]pin, error) {
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return map[string]pin{}, nil
	}
	if err != nil {
		return nil, err
	}
	pins := map[string]pin{}
	if err := json.Unmarshal(data, &pins); err != nil {
		return nil, fmt.Errorf("--lock %s: %w", file, err)
	}
	if pins == nil { // the file has null
		pins = map[string]pin{}
	}
	return pins, nil
}

// writePins replaces the lock file as a whole.
func writePins(file string, pins map[string]pin) error {
	data, err := json.MarshalIndent(pins, "", "  ")
	if err != nil {
		return err
	}
	return durable.WriteFile(file, append(data, '\n'))
}
