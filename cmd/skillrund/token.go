package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/skillrun/skillrun/internal/ingress/identity"
)

// defaultExpiry is the life of a token without --expires: 90 days.
const defaultExpiry = 90 * 24 * time.Hour

const tokenUsage = `usage: skillrund --config FILE token create --name NAME --role ROLE [--tenant TENANT] [--expires DURATION]
       skillrund --config FILE token list
       skillrund --config FILE token revoke ID...
ROLE is read, invoke, admin or operator. DURATION is a time such as 720h, 0 for ever; default: 90 days.`

// tokenCommand changes or prints the file of identity.tokens. It needs no daemon. A running daemon
// sees the change with the next call.
// out is for results and notes for messages to a person, so that `token create >FILE` writes the
// token alone.
func tokenCommand(c config, args []string, out, notes io.Writer) error {
	if len(args) == 0 {
		return fmt.Errorf("token: which command?\n%s", tokenUsage)
	}
	path := c.Identity.Tokens
	if path == "" {
		return errors.New("the configuration has no file for tokens; set identity.tokens, such as /var/lib/skillrun/tokens.json")
	}
	switch args[0] {
	case "create":
		return createToken(&c, args[1:], out, notes)
	case "list":
		return listTokens(path, args[1:], out)
	case "revoke":
		return revokeTokens(path, args[1:], notes)
	}
	return fmt.Errorf("token %q: no such command\n%s", args[0], tokenUsage)
}

// createToken prints only the token to out, so that a caller can redirect it to a file.
func createToken(c *config, args []string, out, notes io.Writer) error {
	flags := flag.NewFlagSet("token create", flag.ContinueOnError)
	name := flags.String("name", "", "")
	tenant := flags.String("tenant", identity.DefaultTenant, "")
	word := flags.String("role", "", "")
	life := defaultExpiry
	flags.Func("expires", "", func(text string) (err error) {
		if life, err = time.ParseDuration(text); err != nil {
			err = errors.New("want hours, such as 720h for 30 days, or 0 for a token that never expires")
		}
		return err
	})
	if err := parseFlags(flags, args); err != nil {
		return fmt.Errorf("token create: %w\n%s", err, tokenUsage)
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("token create: %q is too much\n%s", flags.Arg(0), tokenUsage)
	}
	role, err := identity.ParseRole(*word)
	if err != nil {
		return fmt.Errorf("token create: --role: %w", err)
	}
	if life < 0 {
		return fmt.Errorf("token create: --expires: %s is in the past", life)
	}
	t := identity.Token{Tenant: *tenant, Name: *name, Role: role}
	if life > 0 {
		// Whole seconds, as the list shows them.
		t.Expires = time.Now().Add(life).UTC().Truncate(time.Second)
	}
	token, row, err := identity.CreateToken(c.Identity.Tokens, t)
	if err != nil {
		return fmt.Errorf("token create: %w", err)
	}
	// Before the token, so that the note is the first line even if both outputs are one terminal.
	fmt.Fprintf(notes, "token %s of tenant %s, role %s, expires %s; it can't be shown again\n", row.ID, row.Tenant, row.Role, expiryText(row))
	if note := c.tenantNote(*tenant); note != "" && role != identity.Operator { // an operator needs no tenant
		fmt.Fprintln(notes, "note: "+note)
	}
	_, err = fmt.Fprintln(out, token)
	return err
}

// tenantNote returns a warning about the tenant of a new token, or "". A tenant that is not configured is
// no error: the token may come first, and the tenant's file later.
func (c *config) tenantNote(name string) string {
	switch {
	case !c.manyTenants() || slices.ContainsFunc(c.loaded, func(s *tenantSource) bool { return s.name == name }):
		return ""
	case c.unread != nil:
		return fmt.Sprintf("could not check that the tenant %s is configured: %v", name, c.unread)
	}
	return fmt.Sprintf("the tenant %s is not configured; the token opens nothing until tenants or tenants_dir has it", name)
}

// The file has no token, only salted hashes, so the list can't show one.
func listTokens(path string, args []string, out io.Writer) error {
	if len(args) > 0 {
		return fmt.Errorf("token list: %q is too much\n%s", args[0], tokenUsage)
	}
	list, err := identity.ListTokens(path)
	if err != nil {
		return fmt.Errorf("token list: %w", err)
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "ID\tTENANT\tNAME\tROLE\tCREATED\tEXPIRES")
	for _, t := range list {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", t.ID, t.Tenant, t.Name, t.Role, t.Created.Format(time.DateTime), expiryText(t))
	}
	return w.Flush()
}

// expiryText marks a token that has expired.
func expiryText(t identity.Token) string {
	switch {
	case t.Expires.IsZero():
		return "never"
	case time.Now().Before(t.Expires):
		return t.Expires.Format(time.DateTime)
	}
	return t.Expires.Format(time.DateTime) + " (expired)"
}

// revokeTokens continues after an ID that no token has, so that it revokes all other tokens.
func revokeTokens(path string, ids []string, notes io.Writer) error {
	if len(ids) == 0 {
		return fmt.Errorf("token revoke: which one? skillrund token list has the IDs\n%s", tokenUsage)
	}
	var errs []error
	for _, id := range ids {
		if err := identity.RevokeToken(path, id); err != nil {
			errs = append(errs, fmt.Errorf("token revoke: %w", err))
			continue
		}
		fmt.Fprintf(notes, "token %s is revoked\n", id)
	}
	return errors.Join(errs...)
}
