package permission

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// A form is an option of a program that starts another program, loads code, takes
// options from a file, or writes a file that another option names. A rule that ends in
// a wildcard does not cover it.
type form struct {
	short byte   // as -x, also inside a cluster of short options
	long  string // as --name or --name=value, or any abbreviation of it
	// exact is -name or --name, whole or with =value, for programs with long
	// options that begin with one dash.
	exact       string
	abbreviated bool   // any abbreviation of exact, getopt_long_only(3)
	begin       string // prefix of a word
	cluster     string // stands in a word with one dash
	// runs says which values are dangerous. Nil: all.
	runs func(value string) bool
	// opens: the value is a file to write. It may be one that a redirect may open.
	opens bool
	flag  bool // it takes no value
}

// An options table describes the dangerous options of one program.
type options struct {
	source string // where it is known from: a manual, or gtfobins for gtfobins.org
	// valued has the short options that take a value. In a cluster, the text after such a
	// letter is a value and not an option.
	valued string
	// patterns of file names may be among the arguments: what one matches is never an
	// option, and all forms are.
	patterns bool
	forms    []form
}

// guards are the programs whose dangerous forms are all options. git, sed, tar, awk and
// others have more to them: see languages. A program that is in no table is covered as
// its author wrote the rule.
var guards = map[string]options{
	"find": {source: "find(1)", forms: []form{
		{exact: "exec"}, {exact: "execdir"}, {exact: "ok"}, {exact: "okdir"}, {exact: "delete", flag: true},
		{exact: "fprint"}, {exact: "fprint0"}, {exact: "fprintf"}, {exact: "fls"},
	}},
	"sort":    {source: "sort(1)", valued: "kStT", forms: []form{{long: "compress-program"}, {short: 'o', long: "output", opens: true}}},
	"shuf":    {source: "shuf(1)", valued: "in", forms: []form{{short: 'o', long: "output", opens: true}}},
	"tree":    {source: "tree(1)", valued: "LPIHT", forms: []form{{short: 'o', opens: true}}},
	"split":   {source: "split(1)", valued: "abCln", forms: []form{{long: "filter"}}},
	"rg":      {source: "rg(1)", forms: []form{{long: "pre"}, {long: "hostname-bin"}}},
	"fd":      finders,
	"fdfind":  finders,
	"ag":      {source: "ag(1)", forms: []form{{long: "pager"}}},
	"ack":     {source: "ack(1)", forms: []form{{long: "pager"}, {long: "ackrc"}}},
	"sdiff":   {source: "sdiff(1)", forms: []form{{long: "diff-program"}, {short: 'o', long: "output", opens: true}}},
	"diff3":   {source: "diff3(1)", forms: []form{{long: "diff-program"}}},
	"man":     {source: "man(1)", forms: []form{{short: 'P', long: "pager"}, {short: 'H', long: "html"}, {short: 'C', long: "config-file"}}},
	"rsync":   {source: "rsync(1)", valued: "fBTM", forms: []form{{short: 'e', long: "rsh"}, {long: "rsync-path"}, {long: "daemon"}}},
	"wget":    {source: "wget(1); gtfobins/wget", valued: "aioBtOTwQPUlARDI", forms: []form{{short: 'e', long: "execute"}, {long: "use-askpass"}, {long: "config"}}},
	"curl":    {source: "curl(1); gtfobins/curl", valued: "AbcCdDeEFhHmoPQrtTuUwxXyYz", patterns: true, forms: []form{{short: 'K', long: "config"}, {long: "engine"}}},
	"zip":     {source: "zip(1); gtfobins/zip", forms: []form{{cluster: "TT"}, {long: "unzip-command"}}},
	"pandoc":  {source: "pandoc(1); gtfobins/pandoc", valued: "oVMHBAcTDp", forms: pandocForms},
	"go":      {source: "go help build, go help test", forms: []form{{exact: "exec"}, {exact: "toolexec"}, {exact: "vettool"}, {exact: "overlay"}}},
	"gcc":     compilers,
	"g++":     compilers,
	"cc":      compilers,
	"c++":     compilers,
	"clang":   compilers,
	"clang++": compilers,
	"ar":      binutils,
	"nm":      binutils,
	"ranlib":  binutils,
	"ld":      {source: "ld(1)", forms: []form{{exact: "plugin"}, {begin: "@"}}},
	"npm":     packagers,
	"pnpm":    packagers,
	"yarn":    packagers,
	"make":    makers,
	"gmake":   makers,
	"cmake":   {source: "cmake(1)", patterns: true, forms: []form{{short: 'P'}, {short: 'E'}, {short: 'C'}}},
	"tex":     typesetters, "latex": typesetters, "pdflatex": typesetters, "xelatex": typesetters, "lualatex": typesetters, "pdftex": typesetters, "luatex": typesetters, "xetex": typesetters,
	"latexmk": {source: "latexmk(1); gtfobins/latexmk", patterns: true, forms: []form{
		{exact: "e"}, {exact: "r"}, {exact: "latex"}, {exact: "pdflatex"}, {exact: "xelatex"}, {exact: "lualatex"}, {exact: "latexoption"}, {exact: "pdflatexoption"}, {begin: "-shell"}, {begin: "--shell"},
	}},
	"tcpdump": {source: "tcpdump(1); gtfobins/tcpdump", valued: "BcCDEFGijMrsTVwy", forms: []form{{short: 'z'}, {long: "postrotate-command"}}},
	"tshark":  {source: "tshark(1)", patterns: true, forms: []form{{short: 'X'}}},
	"nmap":    {source: "gtfobins/nmap", patterns: true, forms: []form{{long: "script"}, {long: "datadir"}, {long: "interactive"}}},
	"install": {source: "install(1)", valued: "gmotS", forms: []form{{long: "strip-program"}}},
	"apt":     {source: "apt.conf(5); gtfobins/apt", forms: []form{{short: 'o', long: "option"}, {short: 'c', long: "config-file"}}},
	"apt-get": {source: "apt.conf(5); gtfobins/apt-get", forms: []form{{short: 'o', long: "option"}, {short: 'c', long: "config-file"}}},
	"openssl": {source: "openssl(1); gtfobins/openssl", patterns: true, forms: []form{{exact: "engine"}, {exact: "provider-path"}, {exact: "provider"}, {exact: "config"}}},
	"gs":      {source: "gs(1)", forms: []form{{exact: "dNOSAFER"}, {short: 'c'}, {begin: "@"}}},
	"rpm":     {source: "rpm(8); gtfobins/rpm", patterns: true, forms: []form{{short: 'E', long: "eval"}, {long: "pipe"}, {long: "load"}, {long: "rcfile"}, {long: "macros"}}},
	"cpio":    {source: "cpio(1); gtfobins/cpio", patterns: true, forms: []form{{long: "rsh-command"}}},
	"less":    {source: "less(1); gtfobins/less", forms: []form{{begin: "+"}, {short: 'k', long: "lesskey-file"}, {long: "lesskey-src"}, {long: "lesskey-content"}, {short: 'o', long: "log-file"}}},
	"cowsay":  {source: "gtfobins/cowsay", patterns: true, forms: []form{{short: 'f'}}},
	"restic":  {source: "gtfobins/restic", patterns: true, forms: []form{{long: "password-command"}}},
	"rclone":  {source: "rclone(1)", patterns: true, forms: []form{{long: "password-command"}, {long: "config"}, {long: "metadata-mapper"}}},
	"sqlmap":  {source: "gtfobins/sqlmap", patterns: true, forms: []form{{long: "eval"}}},
	"groff":   {source: "groff(1)", patterns: true, forms: []form{{short: 'U'}}},
	"pic":     {source: "pic(1)", patterns: true, forms: []form{{short: 'U'}}},
	"eslint":  {source: "eslint --help", patterns: true, forms: []form{{long: "rulesdir"}, {long: "resolve-plugins-relative-to"}, {short: 'c', long: "config"}, {short: 'f', long: "format", runs: isFile}, {long: "parser"}, {long: "plugin"}}},
}

var (
	finders   = options{source: "fd(1)", valued: "dteEcjSoC", forms: []form{{short: 'x', long: "exec"}, {short: 'X', long: "exec-batch"}}}
	compilers = options{source: "gcc(1); gtfobins/gcc", forms: []form{
		{exact: "wrapper"}, {exact: "specs"}, {begin: "-fplugin="}, {begin: "-iplugindir"}, {exact: "load"}, {exact: "fpass-plugin"},
		{begin: "-B"}, {long: "prefix"}, {begin: "@"}, {exact: "Xlinker", runs: isPlugin}, {begin: "-Wl,", runs: isPlugin}, {exact: "ld-path"}, {begin: "--config"}, {exact: "Xclang"},
	}}
	binutils    = options{source: "ar(1), nm(1)", forms: []form{{long: "plugin"}, {begin: "@"}}}
	packagers   = options{source: "npm help config", forms: []form{{long: "script-shell"}, {long: "node-options"}, {long: "userconfig"}, {begin: "--globalc"}}}
	makers      = options{source: "make(1); gtfobins/make", valued: "CfIjloW", forms: []form{{short: 'E', long: "eval"}}}
	typesetters = options{source: "pdftex(1), luatex(1); gtfobins/pdflatex", forms: []form{
		{exact: "shell-escape", abbreviated: true}, {exact: "enable-write18", abbreviated: true}, {exact: "shell-restricted", abbreviated: true},
		{exact: "cnf-line", abbreviated: true}, {exact: "lua", abbreviated: true}, {exact: "fmt", abbreviated: true}, {exact: "ini", abbreviated: true}, {begin: "&"},
	}}
	pandocForms = []form{
		{short: 'F', long: "filter"}, {short: 'L', long: "lua-filter"}, {long: "pdf-engine"}, {long: "pdf-engine-opt"},
		{short: 'd', long: "defaults"}, {long: "data-dir"},
		{short: 'f', long: "from", runs: isFile}, {short: 'r', long: "read", runs: isFile},
		{short: 't', long: "to", runs: isFile}, {short: 'w', long: "write", runs: isFile},
	}
)

// isFile reports whether the value of an option that takes a name looks like a file.
func isFile(value string) bool { return strings.ContainsAny(value, "./\\") }

// isPlugin reports whether a compiler's options for the linker load a plugin or take more
// options from a file.
func isPlugin(value string) bool {
	return strings.Contains(value, "plugin") || strings.Contains(value, "@")
}

// languages are the programs whose arguments are more than options.
var languages = map[string]func(args []string, fixed int) string{
	"git": gitDanger,
	"sed": sedDanger, "gsed": sedDanger, "ssed": sedDanger,
	"awk": awkDanger, "gawk": awkDanger, "mawk": awkDanger, "nawk": awkDanger, "original-awk": awkDanger,
	"tar": tarDanger, "gtar": tarDanger, "bsdtar": tarDanger,
	"sqlite3": sqliteDanger, "psql": psqlDanger, "mysql": mysqlDanger, "mariadb": mysqlDanger,
	"exiftool": exiftoolDanger,
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

// danger checks args from position from on. It also checks words after "--" and values of
// options, since "--" can itself be a value. So it may refuse a file that is named like an
// option.
func (o options) danger(args []string, from, fixed int) string {
	for i := from; i < len(args); i++ {
		arg := args[i]
		hit, value, attached := o.find(arg)
		if hit == nil {
			continue
		}
		last := i
		if !attached && i+1 < len(args) && !hit.flag {
			last, value = i+1, args[i+1]
		}
		switch {
		case last < fixed:
		case hit.runs != nil && !hit.runs(value):
		case hit.opens:
			if err := checkWrite(value); err != nil {
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
	dashes := len(arg) > 1 && arg[0] == '-'
	for i, f := range o.forms {
		switch {
		case f.begin != "" && strings.HasPrefix(arg, f.begin):
			return &o.forms[i], arg[len(f.begin):], true
		case !dashes:
		case f.exact != "" && (f.exact == name || f.abbreviated && name != "" && strings.HasPrefix(f.exact, name)):
			return &o.forms[i], value, attached
		case f.cluster != "" && arg[1] != '-' && strings.Contains(arg, f.cluster):
			return &o.forms[i], "", true
		// getopt_long(3) takes any abbreviation that is unique.
		case strings.HasPrefix(arg, "--") && f.long != "" && name != "" && strings.HasPrefix(f.long, name):
			return &o.forms[i], value, attached
		}
	}
	if !dashes || strings.HasPrefix(arg, "--") {
		return nil, "", false
	}
	for i := 1; i < len(arg); i++ {
		if at := slices.IndexFunc(o.forms, func(f form) bool { return f.short == arg[i] }); at >= 0 {
			return &o.forms[at], strings.TrimPrefix(arg[i+1:], "="), i+1 < len(arg)
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

// tarDanger adds the old style: the first word is a cluster of options without a dash, and
// each option takes its value from the following words.
func tarDanger(args []string, fixed int) string {
	if len(args) > 1 && !strings.HasPrefix(args[1], "-") && strings.ContainsAny(args[1], "IF") {
		return beyondRule(args[1])
	}
	return tarOptions.danger(args, 1, fixed)
}
