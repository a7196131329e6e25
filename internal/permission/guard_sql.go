package permission

import (
	"fmt"
	"slices"
	"strings"

	"github.com/skillrun/skillrun/internal/lazyregexp"
)

// sqliteHarmless are the dot commands of sqlite3 that only show and format, sqlite3(1).
var sqliteHarmless = strings.Fields(`.tables .schema .fullschema .indexes .indices .databases .dbinfo .dump .mode .headers .header
	.width .nullvalue .separator .show .timer .echo .changes .stats .print .exit .quit .help .bail .eqp .explain .timeout .sha3sum .version .limit .lint .recover`)

// sqliteValued has the number of values of an option of sqlite3, and sqliteFlags the options
// without a value: sqlite3 -help. An unknown option could take -safe as its value.
var sqliteValued = map[string]int{
	"separator": 1, "newline": 1, "nullvalue": 1, "maxsize": 1, "heap": 1, "mmap": 1, "nonce": 1, "escape": 1, "lookaside": 2, "pagecache": 2,
}

var sqliteFlags = strings.Fields(`append ascii bail batch box column csv deserialize echo header noheader html json line list markdown
	memtrace nofollow quote readonly safe stats table tabs zip`)

// sqliteFunctions run a program, load code or write a file, in SQL of sqlite3(1).
var sqliteFunctions = lazyregexp.New(`(?i)\b(edit|load_extension|writefile|fts3_tokenizer|zipfile)\b`)

// sqliteDanger checks the commands of sqlite3: .shell, .system, .load, .read, .import and
// .output run programs or code (gtfobins/sqlite3). With -safe sqlite3 refuses all of these.
// Without a command it reads commands from standard input.
func sqliteDanger(args []string, fixed int) string {
	operands := 0
	for i := 1; i < len(args); i++ {
		arg := args[i]
		name := strings.TrimPrefix(strings.TrimPrefix(arg, "-"), "-")
		switch {
		case arg == "-safe" || arg == "--safe":
			return ""
		case arg == "-version" || arg == "--version" || arg == "-help" || arg == "--help":
			return ""
		case name == "cmd" && name != arg:
			if i++; i < len(args) && i >= fixed && sqliteRuns(args[i]) {
				return beyondRule(args[i])
			}
		case slices.Contains([]string{"init", "A", "vfs", "interactive"}, name) && name != arg:
			if i+1 >= fixed {
				return beyondRule(arg)
			}
		case name != arg && sqliteValued[name] > 0:
			i += sqliteValued[name]
		case name != arg && !slices.Contains(sqliteFlags, name):
			if i >= fixed {
				return beyondRule(arg)
			}
		case name != arg:
		default:
			if operands++; operands > 1 && i >= fixed && sqliteRuns(arg) {
				return beyondRule(arg)
			}
		}
	}
	if operands < 2 { // the first operand is the database, the second its SQL
		return "sqlite3 would take commands from standard input, which can't be checked: write the SQL as an argument, or use -safe"
	}
	return ""
}

// sqliteRuns reports whether SQL or dot commands run a program, load code or write a file. In a dot
// command a | sends the output to a program (.output, .once).
func sqliteRuns(text string) bool {
	for line := range strings.Lines(text) {
		if line = strings.TrimLeft(line, " \t\n;"); strings.HasPrefix(line, ".") {
			words := strings.Fields(line)
			if !slices.Contains(sqliteHarmless, strings.ToLower(words[0])) || strings.Contains(line, "|") {
				return true
			}
		}
	}
	return sqliteFunctions.MatchString(text)
}

// psqlHarmless matches the backslash commands of psql that only show: \d and its
// kind, \l, \conninfo, \x and the like, psql(1).
var psqlHarmless = lazyregexp.New(`^\\(d[A-Za-z]*\+?|l\+?|list|conninfo|encoding|x|timing|pset|a|t|sf\+?|sv\+?|z|\?|h|q|du|dn)(\s|$)`)

// psqlFiles and mysqlFiles are the options that take a script, write a file or load code.
var psqlFiles = options{source: "psql(1); gtfobins/psql", valued: "dhpUvFRTP", forms: []form{
	{short: 'f', long: "file"}, {short: 'o', long: "output", opens: true}, {short: 'L', long: "log-file", opens: true},
}}

// psqlDanger checks the commands of psql. \! runs a program, and so does a command with
// a pipe for its input or output. \i runs a script.
func psqlDanger(args []string, fixed int) string {
	if reason := psqlFiles.danger(args, 1, fixed); reason != "" {
		return reason
	}
	given := false
	for i := 1; i < len(args); i++ {
		text, is := optionValue(args, &i, 'c', "command")
		given = given || is || strings.HasPrefix("--list", args[i]) && len(args[i]) > 2 || strings.HasPrefix(args[i], "-l") || args[i] == "--version" || args[i] == "-V"
		// psql(1) runs the text between backquotes in the words of a backslash command.
		if is && i >= fixed && strings.Contains(text, `\`) && (!psqlHarmless.MatchString(strings.TrimSpace(text)) || strings.Contains(text, "`")) {
			return beyondRule(text)
		}
	}
	if !given && !slices.Contains(args, "-f") {
		return "psql would take commands from standard input, which can't be checked: write the command after -c"
	}
	return ""
}

// mysqlFiles has the options of mysql that open files or run programs. valued lists the short
// options that take a value.
var mysqlFiles = options{source: "mysql(1); gtfobins/mysql", valued: "DhPpuSe", forms: []form{
	{long: "pager"}, {long: "tee", opens: true}, {long: "defaults-file"}, {long: "defaults-extra-file"}, {long: "plugin-dir"}, {long: "init-command"}, {long: "default-auth"},
}}

var mysqlRuns = lazyregexp.New(`(?i)\\[!.PTe]|(^|;|\n)\s*(system|source|pager|tee|edit)\b`)

// mysqlPrefix matches the prefixes that mysql removes from an option that it does not know. The prefixes
// skip and disable turn an option off.
var mysqlPrefix = lazyregexp.New(`^((skip|disable|enable|maximum|loose|autoset)-)*(enable|maximum|loose|autoset)-`)

// mysqlOption returns a word with the name that mysql takes it for: "Program Option Modifiers" and
// "Using Options on the Command Line" in MySQL's manual.
func mysqlOption(arg string) string {
	name, value, attached := strings.Cut(arg, "=")
	name, long := strings.CutPrefix(name, "--")
	if !long {
		return arg
	}
	name = "--" + mysqlPrefix.ReplaceAllString(strings.ReplaceAll(name, "_", "-"), "")
	if attached {
		name += "=" + value
	}
	return name
}

// mysqlDanger checks the commands of mysql: system and \! run a program.
func mysqlDanger(args []string, fixed int) string {
	words := make([]string, len(args))
	for i, arg := range args {
		words[i] = mysqlOption(arg)
	}
	args = words
	if reason := mysqlFiles.danger(args, 1, fixed); reason != "" {
		return reason
	}
	given := slices.Contains(args, "--version") || slices.Contains(args, "-V") || slices.Contains(args, "--help")
	for i := 1; i < len(args); i++ {
		text, is := optionValue(args, &i, 'e', "execute")
		given = given || is
		if is && i >= fixed && mysqlRuns.MatchString(text) {
			return beyondRule(text)
		}
	}
	if !given {
		return "mysql would take commands from standard input, which can't be checked: write the command after -e"
	}
	return ""
}

// optionValue returns the value of the option at *i, if it is this one, and leaves *i
// at the word of the value. A cluster is taken for the option too if it has its letter.
func optionValue(args []string, i *int, short byte, long string) (value string, is bool) {
	arg := args[*i]
	if name, value, attached := strings.Cut(arg, "="); len(name) > 2 && strings.HasPrefix("--"+long, name) {
		if !attached && *i+1 < len(args) {
			*i++
			value = args[*i]
		}
		return value, true
	}
	at := strings.IndexByte(arg, short)
	if len(arg) < 2 || arg[0] != '-' || arg[1] == '-' || at < 0 {
		return "", false
	}
	if value = arg[at+1:]; value == "" && *i+1 < len(args) {
		*i++
		value = args[*i]
	}
	return value, true
}

// exiftoolDanger looks for Perl in the words of exiftool: -if and -p take
// expressions, -config and -@ files, and ${TAG;EXPRESSION} may stand in every value,
// exiftool(1). Its options are the same in upper case.
func exiftoolDanger(args []string, fixed int) string {
	for i := max(fixed, 1); i < len(args); i++ {
		arg := strings.ToLower(args[i])
		name := strings.TrimRight(arg, "0123456789")
		switch {
		case slices.Contains([]string{"-if", "-config", "-@", "-p", "-printformat", "-api", "-userparam", "-execute", "-stay_open", "-common_args", "-fileorder", "-diff"}, name),
			strings.Contains(arg, "${"), strings.Contains(arg, "#["):
			return fmt.Sprintf("%s can hold Perl, which only a rule with the exact command allows", excerpt(args[i]))
		}
	}
	return ""
}
