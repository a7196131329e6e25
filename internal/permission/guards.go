package permission

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// A form is an option of a program that starts another program, loads code, or
// writes a file that another option names. A rule that ends in a wildcard does
// not cover it.
type form struct {
	short byte   // as -x, also inside a cluster of short options
	long  string // as --name or --name=value, or any abbreviation of it
	// exact is -name or --name, whole or with =value, for programs with long
	// options that begin with one dash.
	exact string
	// opens: the value is a file to write. It may be one that a redirect may open.
	opens bool
}

// An options table describes the dangerous options of one program.
type options struct {
	// valued are the short options that take a value: what follows such a letter
	// in a cluster is not an option.
	valued string
	forms  []form
}

// guards are the programs whose dangerous forms are all options. find, git, sed,
// tar and awk have more to them: see danger. Sources are the manuals.
var guards = map[string]options{
	"find": {forms: []form{
		{exact: "exec"}, {exact: "execdir"}, {exact: "ok"}, {exact: "okdir"}, {exact: "delete"},
		{exact: "fprint"}, {exact: "fprint0"}, {exact: "fprintf"}, {exact: "fls"},
	}},
	"sort":   {valued: "kStT", forms: []form{{long: "compress-program"}, {short: 'o', long: "output", opens: true}}},
	"shuf":   {valued: "in", forms: []form{{short: 'o', long: "output", opens: true}}},
	"tree":   {valued: "LPIHT", forms: []form{{short: 'o', opens: true}}},
	"split":  {valued: "abCln", forms: []form{{long: "filter"}}},
	"rg":     {forms: []form{{long: "pre"}, {long: "hostname-bin"}}},
	"fd":     {valued: "dteEcjSoC", forms: []form{{short: 'x', long: "exec"}, {short: 'X', long: "exec-batch"}}},
	"fdfind": {valued: "dteEcjSoC", forms: []form{{short: 'x', long: "exec"}, {short: 'X', long: "exec-batch"}}},
	"ag":     {forms: []form{{long: "pager"}}},
	"ack":    {forms: []form{{long: "pager"}, {long: "ackrc"}}},
	"sdiff":  {forms: []form{{long: "diff-program"}, {short: 'o', long: "output", opens: true}}},
	"diff3":  {forms: []form{{long: "diff-program"}}},
	"man":    {forms: []form{{short: 'P', long: "pager"}, {short: 'H', long: "html"}, {short: 'C', long: "config-file"}}},
	"rsync":  {valued: "fBTM", forms: []form{{short: 'e', long: "rsh"}, {long: "rsync-path"}}},
	"wget":   {valued: "aioBtOTwQPUlARDI", forms: []form{{short: 'e', long: "execute"}, {long: "use-askpass"}}},
	"zip":    {forms: []form{{exact: "TT"}, {long: "unzip-command"}}},
	"pandoc": {valued: "frtwoMVHBAcDT", forms: []form{{short: 'F', long: "filter"}, {short: 'L', long: "lua-filter"}, {long: "pdf-engine"}}},
	"go":     {forms: []form{{exact: "exec"}, {exact: "toolexec"}, {exact: "vettool"}, {exact: "overlay"}}},
	"gcc":    compilers, "g++": compilers, "cc": compilers, "c++": compilers, "clang": compilers, "clang++": compilers,
	"npm": packagers, "pnpm": packagers, "yarn": packagers,
	"make": {valued: "CfIjloW", forms: []form{{short: 'E', long: "eval"}}}, "gmake": {valued: "CfIjloW", forms: []form{{short: 'E', long: "eval"}}},
	"tex": typesetters, "latex": typesetters, "pdflatex": typesetters, "xelatex": typesetters, "lualatex": typesetters, "pdftex": typesetters, "luatex": typesetters,
	"tcpdump": {valued: "BcCDEFGijMrsTVwy", forms: []form{{short: 'z'}, {long: "postrotate-command"}}},
	"install": {valued: "gmotS", forms: []form{{long: "strip-program"}}},
	"apt":     {forms: []form{{short: 'o', long: "option"}, {short: 'c', long: "config-file"}}},
	"apt-get": {forms: []form{{short: 'o', long: "option"}, {short: 'c', long: "config-file"}}},
}

var (
	compilers   = options{forms: []form{{exact: "wrapper"}, {exact: "specs"}, {exact: "fplugin"}, {exact: "load"}}}
	packagers   = options{forms: []form{{long: "script-shell"}, {long: "node-options"}}}
	typesetters = options{forms: []form{
		{exact: "shell-escape"}, {exact: "enable-write18"}, {exact: "shell-restricted"}, {exact: "lua"},
	}}
)

// languages are the programs whose arguments are more than options.
var languages = map[string]func(args []string, fixed int) string{
	"git": gitDanger,
	"sed": sedDanger, "gsed": sedDanger, "ssed": sedDanger,
	"awk": awkDanger, "gawk": awkDanger, "mawk": awkDanger, "nawk": awkDanger, "original-awk": awkDanger,
	"tar": tarDanger, "gtar": tarDanger, "bsdtar": tarDanger,
}

// danger says what in args a wildcard must not cover, or "". The first fixed
// words stand in the rule itself: a form that lies within them, with its value,
// was meant.
func danger(args []string, fixed int) string {
	name := path.Base(args[0])
	if language, ok := languages[name]; ok {
		return language(args, fixed)
	}
	return guards[name].danger(args, 1, fixed)
}

// guarded reports whether danger looks at the program's arguments at all.
func guarded(name string) bool {
	name = path.Base(name)
	return languages[name] != nil || len(guards[name].forms) > 0
}

// danger looks at args from position from on. It goes on behind "--" and at the
// values of options, since "--" can itself be a value: rather refuse a file that
// is named like an option.
func (o options) danger(args []string, from, fixed int) string {
	for i := from; i < len(args); i++ {
		arg := args[i]
		if len(arg) < 2 || arg[0] != '-' {
			continue
		}
		hit, value, attached := o.find(arg)
		if hit == nil {
			continue
		}
		last := i
		if !attached && i+1 < len(args) && hit.exact != "delete" {
			last, value = i+1, args[i+1]
		}
		switch {
		case last < fixed:
		case hit.opens:
			if err := checkPath(value); err != nil {
				return fmt.Sprintf("the file %s of option %s: %v", excerpt(value), excerpt(arg), err)
			}
		default:
			return beyondRule(arg)
		}
	}
	return ""
}

func beyondRule(arg string) string {
	return fmt.Sprintf("%s can run another program or write files, which only a rule with the exact command allows", excerpt(arg))
}

// find returns the form that arg is, with the value attached to it.
func (o options) find(arg string) (hit *form, value string, attached bool) {
	name, value, attached := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(arg, "-"), "-"), "=")
	for i, f := range o.forms {
		if f.exact != "" && f.exact == name {
			return &o.forms[i], value, attached
		}
		// getopt_long(3) takes any abbreviation that is unique.
		if strings.HasPrefix(arg, "--") && f.long != "" && name != "" && strings.HasPrefix(f.long, name) {
			return &o.forms[i], value, attached
		}
	}
	if strings.HasPrefix(arg, "--") {
		return nil, "", false
	}
	for i := 1; i < len(arg); i++ {
		if at := slices.IndexFunc(o.forms, func(f form) bool { return f.short == arg[i] }); at >= 0 {
			return &o.forms[at], arg[i+1:], i+1 < len(arg)
		}
		if strings.IndexByte(o.valued, arg[i]) >= 0 {
			break
		}
	}
	return nil, "", false
}

var tarOptions = options{valued: "fbCgHKLNVXT", forms: []form{
	{short: 'I', long: "use-compress-program"}, {short: 'F', long: "info-script"}, {long: "new-volume-script"},
	{long: "to-command"}, {long: "checkpoint-action"}, {long: "rsh-command"}, {long: "rmt-command"},
}}

// tarDanger adds the old style, in which the first word is a cluster of options
// without a dash, and each takes its value from the words behind it.
func tarDanger(args []string, fixed int) string {
	if len(args) > 1 && !strings.HasPrefix(args[1], "-") && strings.ContainsAny(args[1], "IF") {
		return beyondRule(args[1])
	}
	return tarOptions.danger(args, 1, fixed)
}
