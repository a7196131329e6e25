package permission

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/skillrun/skillrun/internal/lazyregexp"
)

// How a guard works. A rule such as Bash(sort:*) covers any words after sort, also an option that
// starts a program (--compress-program). danger looks for such options in the words that the
// wildcard matched. For most programs a table of options is enough (guards in programs.go). The
// programs in languages take a language in their arguments and need a reader for that language. A
// guard may refuse a harmless line. The skill's author can still allow that line by a rule with
// its exact words.

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
	word        string // a whole word without a dash: a subcommand
	cluster     string // stands in a word with one dash
	// runs says which values are dangerous. Nil: all.
	runs func(value string) bool
	// opens: the value is a file to write. It may be a file that a redirect may open, but not a
	// pipe: see isPipe.
	opens bool
	flag  bool // it takes no value
}

// An options table describes the dangerous options of one program.
type options struct {
	source string // where it is known from: a manual, or gtfobins for gtfobins.org
	// valued has the short options that take a value. In a cluster, the text after such a
	// letter is a value and not an option.
	valued string
	// patterns: the arguments may have patterns of file names. A match is never an option, and all
	// forms of the program are options.
	patterns bool
	forms    []form
	// cross: its builds for other machines have the machine before the name, as in
	// x86_64-linux-gnu-gcc.
	cross bool
}

// languages are the programs whose arguments are more than options.
var languages = map[string]func(args []string, fixed int) string{
	"git": gitDanger, "kubectl": kubectlDanger,
	"sed": sedDanger, "gsed": sedDanger, "ssed": sedDanger,
	"awk": awkDanger, "gawk": awkDanger, "mawk": awkDanger, "nawk": awkDanger, "original-awk": awkDanger,
	"tar": tarDanger, "gtar": tarDanger, "bsdtar": tarDanger,
	"sqlite3": sqliteDanger, "psql": psqlDanger, "mysql": mysqlDanger, "mariadb": mysqlDanger,
	"exiftool": exiftoolDanger,
	"javac":    javacDanger,
}

// danger names the part of args that a wildcard must not cover, or returns "". The
// first fixed words are in the rule itself, so the author allows a form that lies
// within them, with its value.
func danger(args []string, fixed int) string {
	name := programOf(args[0])
	if language, ok := languages[name]; ok {
		return language(args, fixed)
	}
	return guards[name].danger(args, 1, fixed)
}

// guarded reports whether danger checks the program's arguments.
func guarded(name string) bool {
	return isGuarded(programOf(name))
}

// isGuarded is guarded for a name that programOf has cut already.
func isGuarded(name string) bool { return languages[name] != nil || len(guards[name].forms) > 0 }

// programOf returns the name by which the tables know a program: without its directory, the
// version at its end and, for a compiler, the machine in front. It returns the name without
// the directory if no table has the program.
func programOf(name string) string {
	base := path.Base(name)
	short := withoutVersion(base, isGuarded)
	for rest, found := short, true; found; _, rest, found = strings.Cut(rest, "-") {
		if isGuarded(rest) && (rest == short || guards[rest].cross) {
			return rest
		}
	}
	return base
}

// version matches what distributions put at the end of a program's name: a version, the
// variant of a Python (python3.13t), the machine of a Perl (perl5.36-x86_64-linux-gnu) and
// the threads of a MinGW (gcc-posix).
var version = lazyregexp.New(`(-?[0-9][0-9.]*[a-z]?)?(-[a-z0-9_]+-linux-gnu[a-z0-9_]*|-posix|-win32|-dbg|-dev)?$`)

// withoutVersion returns a program's name without its version. It returns the whole name if a table
// has the name with the version (sqlite3, linux32).
func withoutVersion(base string, known func(string) bool) string {
	if known(base) {
		return base
	}
	return base[:version.FindStringIndex(base)[0]]
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
		case hit.opens && !isPipe(value):
			if err := checkWrite(value); err != nil {
				return fmt.Sprintf("the file %s of option %s: %v", excerpt(value), excerpt(arg), err)
			}
		default:
			return beyondRule(arg)
		}
	}
	return ""
}

// beyondRule is the reason for a form that only an exact rule covers.
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
		case f.word != "" && f.word == arg:
			return &o.forms[i], "", false
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

// javacOptions load code into the compiler, javac(1).
var javacOptions = options{source: "javac(1)", forms: []form{
	{begin: "-J"}, {exact: "processor"}, {exact: "processorpath"}, {exact: "processor-path"}, {exact: "processor-module-path"}, {begin: "-Xplugin"}, {begin: "@"},
}}

// javacClassPath has libraries. javac runs the annotation processors in them.
var javacClassPath = options{source: "javac(1)", forms: []form{{exact: "cp"}, {exact: "classpath"}, {exact: "class-path"}}}

// javacDanger allows a class path if no annotation processor runs.
func javacDanger(args []string, fixed int) string {
	others := func(arg string) bool { return strings.HasPrefix(arg, "-proc:") && arg != "-proc:none" }
	if slices.Contains(args, "-proc:none") && !slices.ContainsFunc(args, others) {
		return javacOptions.danger(args, 1, fixed)
	}
	if reason := javacClassPath.danger(args, 1, fixed); reason != "" {
		return reason + ": with -proc:none it loads no code from there"
	}
	return javacOptions.danger(args, 1, fixed)
}

var (
	tars = []string{"tar", "gtar", "bsdtar"}
	seds = []string{"sed", "gsed", "ssed"}
	awks = []string{"awk", "gawk", "mawk", "nawk", "original-awk"}
)

// tarOptions: tar(1); gtfobins/tar.
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
