package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"regexp"
	"strings"
)

// parseFlags is flags.Parse, but prints nothing, and its errors name flags with two dashes, as the documents do. Package
// flag takes both forms, and names one dash.
func parseFlags(flags *flag.FlagSet, args []string) error {
	flags.SetOutput(io.Discard)
	err := flags.Parse(args)
	if err == nil || errors.Is(err, flag.ErrHelp) {
		return err
	}
	return errors.New(regexp.MustCompile(`(defined: |argument: |flag |for )-(\w)`).ReplaceAllString(err.Error(), "$1--$2"))
}

// flagUsage describes each flag in two lines. No flag of the daemon has a default to show.
func flagUsage(flags *flag.FlagSet) string {
	var b strings.Builder
	flags.VisitAll(func(f *flag.Flag) {
		value, usage := flag.UnquoteUsage(f)
		fmt.Fprintf(&b, "  %s\n    \t%s\n", strings.TrimSpace("--"+f.Name+" "+value), usage)
	})
	return b.String()
}
