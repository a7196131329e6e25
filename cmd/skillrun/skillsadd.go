package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	skillrun "github.com/skillrun/skillrun/clients/go"
	"github.com/skillrun/skillrun/internal/wellknown"
	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// addOptions are the flags of skills add.
type addOptions struct {
	update    bool
	lock      string
	tokenFile string
}

// addCommand downloads skills of a published index and pushes them.
func (a *app) addCommand() *cobra.Command {
	var o addOptions
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
			return a.addSkills(cmd, at, args[1:], o)
		},
	}
	cmd.Flags().BoolVar(&o.update, "update", false, "take skills whose digest differs from the lock file's")
	cmd.Flags().StringVar(&o.lock, "lock", lockName, "the lock `file`")
	cmd.Flags().StringVar(&o.tokenFile, "index-token-file", "", "`file` with a token for the host of URL")
	return cmd
}

// addSkills adds the named skills of the index at a URL, or all. Everything that can be refused on this side is refused
// before the first push.
func (a *app) addSkills(cmd *cobra.Command, at string, names []string, o addOptions) error {
	lock := lockFile(o.lock)
	pins, err := lock.read()
	if err != nil {
		return err
	}
	client, err := a.indexClient(cmd.Context(), at, o.tokenFile)
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
	chosen, err := choose(index, names, pins, o.update)
	if err != nil {
		return err
	}
	if len(chosen) == 0 {
		a.note("nothing to add: %s names no skills that skillrun can add", at)
		return nil
	}
	if err := lock.check(cmd.Context()); err != nil {
		return err
	}
	a.words = map[string]string{"header.name": "the skill's name in the index", "header.source": "URL"}
	c, err := a.dial()
	if err != nil {
		return err
	}
	defer c.Close()
	for _, e := range chosen {
		if err := a.addSkill(cmd.Context(), c, client, at, e, o); err != nil {
			return err
		}
	}
	return nil
}

// indexClient returns a client for an index that sends the token of a file, if one is named.
// The token must fit an HTTP header: printable ASCII without blanks.
func (a *app) indexClient(ctx context.Context, at, tokenFile string) (wellknown.Client, error) {
	if tokenFile == "" {
		return wellknown.Client{}, nil
	}
	u, err := url.Parse(at)
	if err != nil {
		return wellknown.Client{}, err
	}
	data, err := readShort(ctx, tokenFile)
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

// maxIndexToken is the largest file with a token for an index, in bytes. HTTP servers take hardly longer headers.
const maxIndexToken = 8 << 10

// readShort reads a file of at most maxIndexToken bytes. The file may be a pipe, such as <(COMMAND) of bash. The wait for
// its writer ends with ctx; the goroutine stays then.
func readShort(ctx context.Context, file string) ([]byte, error) {
	var data []byte
	done := make(chan error, 1)
	go func() {
		f, err := os.Open(file)
		if err == nil {
			data, err = io.ReadAll(io.LimitReader(f, maxIndexToken+1))
			f.Close()
		}
		done <- err
	}()
	select {
	case err := <-done:
		if err == nil && len(data) > maxIndexToken {
			err = fmt.Errorf("%s: has more than %d bytes", file, maxIndexToken)
		}
		return data, err
	case <-ctx.Done():
		return nil, fmt.Errorf("%s: %w", file, context.Cause(ctx))
	}
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
		if err := unlike(e, pins, update); err != nil {
			return nil, err
		}
	}
	return chosen, nil
}

// unlike returns an error if an entry's digest differs from its pin, and the pin may not be replaced.
func unlike(e wellknown.Entry, pins map[string]pin, update bool) error {
	if p, pinned := pins[e.Name]; pinned && p.Digest != e.Digest && !update {
		return fmt.Errorf("skill %q: the index has the digest %s, and the lock file pins %s; look at what has changed, then add --update", e.Name, e.Digest, p.Digest)
	}
	return nil
}

// addSkill downloads, pushes and pins one skill. Each skill is pinned before the next push: if a later skill fails, the
// earlier ones, which the daemon has, are pinned.
func (a *app) addSkill(ctx context.Context, c *skillrun.Client, from wellknown.Client, index string, e wellknown.Entry, o addOptions) error {
	pushed, err := a.pushEntry(ctx, c, from, index, e)
	if err != nil {
		return err
	}
	// The daemon has the skill now, so an interrupt must not keep it from being pinned.
	return lockFile(o.lock).change(context.WithoutCancel(ctx), func(pins map[string]pin) error {
		if err := unlike(e, pins, o.update); err != nil { // another command has pinned it since choose
			return err
		}
		pins[e.Name] = pin{Index: index, Version: e.Version, Digest: e.Digest, Skill: pushed.GetVersion().GetDigest()}
		return nil
	})
}

// pushEntry downloads and pushes one skill.
// The archive is unpacked into a temporary directory of this machine, never into the working
// directory, because its names come from a stranger.
func (a *app) pushEntry(ctx context.Context, c *skillrun.Client, from wellknown.Client, index string, e wellknown.Entry) (_ *pb.PushSkillResponse, err error) {
	dir, err := os.MkdirTemp("", "skillrun-add-")
	if err != nil {
		return nil, err
	}
	defer func() { err = cmp.Or(err, os.RemoveAll(dir)) }() // a joined error would hide the status of the push
	if err := from.Fetch(ctx, e, dir); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	// The name of the index must be the name in SKILL.md, so that the pin's key is the name that run takes.
	return a.push(ctx, c, e.Name, root.FS(), skillrun.PushOptions{Name: e.Name, Source: index})
}
