package main

import (
	"flag"
	"testing"
)

// Messages and help have two dashes, as the documents do.
func TestFlagsHaveTwoDashes(t *testing.T) {
	flags := func() *flag.FlagSet {
		f := flag.NewFlagSet("x", flag.ContinueOnError)
		f.String("config", "", "a `file`")
		f.Bool("check", false, "check it")
		f.Duration("expires", 0, "")
		return f
	}
	for arg, want := range map[string]string{
		"-nosuch":      "flag provided but not defined: --nosuch",
		"--config":     "flag needs an argument: --config",
		"--check=-x":   `invalid boolean value "-x" for --check: parse error`,
		"-expires=-no": `invalid value "-no" for flag --expires: parse error`,
	} {
		if err := parseFlags(flags(), []string{arg}); err == nil || err.Error() != want {
			t.Errorf("%s: got %v, want %s", arg, err, want)
		}
	}
	if got, want := flagUsage(flags()), "  --check\n    \tcheck it\n  --config file\n    \ta file\n  --expires duration\n    \t\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
