package permission

import (
	"strings"

	"github.com/skillrun/skillrun/internal/lazyregexp"
)

// guards are the programs whose dangerous forms are all options. git, sed, tar, awk and
// others have other dangerous forms, too: see languages. For a program that is in no table,
// a rule covers every option.
var guards = map[string]options{
	"find": {source: "find(1)", patterns: true, forms: []form{
		{exact: "exec"}, {exact: "execdir"}, {exact: "ok"}, {exact: "okdir"}, {exact: "delete", flag: true},
		{exact: "fprint"}, {exact: "fprint0"}, {exact: "fprintf"}, {exact: "fls"},
	}},
	"sort":   {source: "sort(1)", valued: "kStT", patterns: true, forms: []form{{long: "compress-program"}, {short: 'o', long: "output", opens: true}}},
	"shuf":   {source: "shuf(1)", valued: "in", patterns: true, forms: []form{{short: 'o', long: "output", opens: true}}},
	"tree":   {source: "tree(1)", valued: "LPIHT", forms: []form{{short: 'o', opens: true}}},
	"split":  {source: "split(1)", valued: "abCln", forms: []form{{long: "filter"}}},
	"rg":     {source: "rg(1)", patterns: true, forms: []form{{long: "pre"}, {long: "hostname-bin"}}},
	"fd":     finders,
	"fdfind": finders,
	"ag":     {source: "ag(1)", forms: []form{{long: "pager"}}},
	"ack":    {source: "ack(1)", forms: []form{{long: "pager"}, {long: "ackrc"}}},
	"sdiff":  {source: "sdiff(1)", forms: []form{{long: "diff-program"}, {short: 'o', long: "output", opens: true}}},
	"diff3":  {source: "diff3(1)", forms: []form{{long: "diff-program"}}},
	"man":    {source: "man(1)", forms: []form{{short: 'P', long: "pager"}, {short: 'H', long: "html"}, {short: 'C', long: "config-file"}}},
	"rsync":  {source: "rsync(1)", valued: "fBTM", forms: []form{{short: 'e', long: "rsh"}, {long: "rsync-path"}, {long: "daemon"}}},
	"wget":   {source: "wget(1); gtfobins/wget", valued: "aioBtOTwQPUlARDI", forms: []form{{short: 'e', long: "execute"}, {long: "use-askpass"}, {long: "config"}}},
	"curl":   {source: "curl(1); gtfobins/curl", valued: "AbcCdDeEFhHmoPQrtTuUwxXyYz", patterns: true, forms: []form{{short: 'K', long: "config"}, {long: "engine"}}},
	"zip":    {source: "zip(1); gtfobins/zip", patterns: true, forms: []form{{cluster: "TT"}, {long: "unzip-command"}}},
	"pandoc": {source: "pandoc(1); gtfobins/pandoc", valued: "oVMHBAcTDp", forms: pandocForms},
	"go": {source: "go help build, go help test, go help env", forms: []form{
		{exact: "exec"}, {exact: "toolexec"}, {exact: "vettool"}, {exact: "overlay"}, {exact: "gccgoflags"}, {exact: "extld"}, {exact: "w", flag: true},
		{exact: "ldflags", runs: goToolRuns}, {exact: "gcflags", runs: goToolRuns}, {exact: "asmflags", runs: goToolRuns},
	}},
	"gcc":     compilers,
	"g++":     compilers,
	"cc":      compilers,
	"c++":     compilers,
	"clang":   compilers,
	"clang++": compilers,
	"cpp":     compilers, "gfortran": compilers, "c89": compilers, "c99": compilers, "c89-gcc": compilers, "c99-gcc": compilers,
	"gcc-ar": compilers, "gcc-nm": compilers, "gcc-ranlib": compilers,
	"ar":     binutils,
	"nm":     binutils,
	"ranlib": binutils,
	"ld":     {source: "ld(1)", cross: true, forms: []form{{exact: "plugin"}, {begin: "@"}}},
	"rustc":  {source: "rustc(1), The rustc book", valued: "loAWDF", forms: rustcForms},
	"nvcc":   {source: "nvcc --help", forms: nvccForms},
	"ghc":    {source: "ghc(1), GHC User's Guide", forms: ghcForms},
	"npm":    packagers,
	"pnpm":   packagers,
	"yarn":   packagers,
	"make":   makers,
	"gmake":  makers,
	"cmake":  {source: "cmake(1)", patterns: true, forms: []form{{short: 'P'}, {short: 'E'}, {short: 'C'}}},
	"tex":    typesetters, "latex": typesetters, "pdflatex": typesetters, "xelatex": typesetters, "lualatex": typesetters, "pdftex": typesetters, "luatex": typesetters, "xetex": typesetters,
	"luahbtex": typesetters, "dvilualatex": typesetters, "dviluatex": typesetters, "etex": typesetters,
	"dvips":    {source: "dvips(1)", valued: "hlnpPtTxXyYbcCdDejmO", forms: []form{{short: 'o', opens: true}, {exact: "R0", flag: true}}},
	"dvipdfmx": {source: "dvipdfmx(1)", forms: []form{{short: 'D'}, {short: 'i'}}}, "xdvipdfmx": {source: "dvipdfmx(1)", forms: []form{{short: 'D'}, {short: 'i'}}},
	"latexmk": {source: "latexmk(1); gtfobins/latexmk", patterns: true, forms: latexmkForms},
	"tcpdump": {source: "tcpdump(1); gtfobins/tcpdump", valued: "BcCDEFGijMrsTVwy", forms: []form{{short: 'z'}, {long: "postrotate-command"}}},
	"tshark":  {source: "tshark(1)", patterns: true, forms: []form{{short: 'X'}}},
	"nmap":    {source: "gtfobins/nmap", patterns: true, forms: []form{{long: "script"}, {long: "datadir"}, {long: "interactive"}}},
	"install": {source: "install(1)", valued: "gmotS", forms: []form{{long: "strip-program"}}},
	"apt":     {source: "apt.conf(5); gtfobins/apt", forms: []form{{short: 'o', long: "option"}, {short: 'c', long: "config-file"}}},
	"apt-get": {source: "apt.conf(5); gtfobins/apt-get", forms: []form{{short: 'o', long: "option"}, {short: 'c', long: "config-file"}}},
	"openssl": {source: "openssl(1); gtfobins/openssl", patterns: true, forms: []form{{exact: "engine"}, {exact: "provider-path"}, {exact: "provider"}, {exact: "config"}}},
	"gs":      postscript, "gsc": postscript, "ghostscript": postscript, "ps2pdf": postscript, "ps2pdfwr": postscript, "ps2ps": postscript, "pdf2ps": postscript, "eps2eps": postscript,
	"rpm": rpms, "rpmquery": rpms, "rpmverify": rpms, "rpmdb": rpms,
	"dnf":        {source: "dnf(8)", valued: "deRx", forms: []form{{short: 'c', long: "config"}, {long: "setopt"}}},
	"yum":        {source: "yum(8)", valued: "deRx", forms: []form{{short: 'c', long: "config"}, {long: "setopt"}}},
	"hg":         {source: "hg(1); gtfobins/hg", valued: "RbBIXmludTr", forms: mercurialForms},
	"ssh-keygen": {source: "ssh-keygen(1); gtfobins/ssh-keygen", valued: "abCEFfIJjKmNnOPRrsTtVzZM", forms: []form{{short: 'D'}, {short: 'w'}}},
	"ssh-add":    {source: "ssh-add(1)", valued: "EHhTt", forms: []form{{short: 's'}, {short: 'S'}}},
	"mail":       mailers, "mailx": mailers, "s-nail": mailers, "bsd-mailx": mailers,
	"mutt":    {source: "mutt(1)", valued: "abcDfHimQs", forms: []form{{short: 'e'}, {short: 'F'}}},
	"cpio":    {source: "cpio(1); gtfobins/cpio", patterns: true, forms: []form{{long: "rsh-command"}}},
	"less":    {source: "less(1); gtfobins/less", forms: []form{{begin: "+"}, {short: 'k', long: "lesskey-file"}, {long: "lesskey-src"}, {long: "lesskey-content"}, {short: 'o', long: "log-file"}}},
	"aria2c":  {source: "aria2c(1); gtfobins/aria2c", patterns: true, forms: []form{{begin: "--on-"}, {long: "conf-path"}}},
	"pidstat": {source: "pidstat(1); gtfobins/pidstat", valued: "CGpTU", forms: []form{{short: 'e'}}},
	"scrot":   {source: "scrot(1); gtfobins/scrot", valued: "aCdDFlMqtZ", forms: []form{{short: 'e', long: "exec"}}},
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
	compilers = options{source: "gcc(1), cpp(1), gcc-ar(1), clang(1), clang --help-hidden; gtfobins/gcc", cross: true, forms: []form{
		{exact: "wrapper"}, {exact: "specs"}, {begin: "-fplugin="}, {exact: "plugin"}, {begin: "-iplugindir"}, {exact: "load"}, {exact: "fpass-plugin"},
		{begin: "-B"}, {long: "prefix"}, {begin: "@"}, {exact: "ld-path"}, {begin: "--config"}, {exact: "Xclang"},
		{begin: "-Wl,", runs: isPlugin}, {begin: "-Wp,", runs: isPlugin}, {begin: "-Wa,", runs: isPlugin},
		{exact: "Xlinker", runs: isPlugin}, {exact: "Xpreprocessor", runs: isPlugin}, {exact: "Xassembler", runs: isPlugin},
		{exact: "for-linker", runs: isPlugin}, {exact: "for-assembler", runs: isPlugin},
		{exact: "fuse-ld", runs: isFile}, {exact: "gcc-toolchain"}, {exact: "gcc-install-dir"}, {exact: "gcc-triple"}, {begin: "-ccc-"},
		{exact: "cuda-path"}, {exact: "ptxas-path"}, {exact: "rocm-path"}, {exact: "hip-path"},
	}}
	binutils = options{source: "ar(1), nm(1)", cross: true, forms: []form{{long: "plugin"}, {begin: "@"}}}
	// rustc takes code from libraries: a library may be a procedural macro. The linker comes first
	// from the directory of --sysroot, and a target's file names its linker.
	rustcForms = []form{
		{short: 'C', long: "codegen", runs: rustcRuns}, {short: 'Z'}, {short: 'L'}, {long: "extern"}, {long: "sysroot"}, {long: "target", runs: isTargetFile}, {begin: "@"},
	}
	nvccForms = []form{
		{begin: "-ccbin"}, {exact: "compiler-bindir"}, {exact: "arbin"}, {exact: "archiver-binary"}, {exact: "optf"}, {exact: "options-file"}, {begin: "@"},
		{exact: "run", flag: true}, {begin: "-forward-unknown"}, {begin: "--forward-unknown"},
		{exact: "Xcompiler", runs: hostCompilerRuns}, {exact: "compiler-options", runs: hostCompilerRuns}, {exact: "Xlinker", runs: isPlugin}, {exact: "linker-options", runs: isPlugin},
	}
	// -opt passes options to the C compiler, the linker and others. -B is the directory of the file that
	// names them.
	ghcForms = []form{
		{begin: "-pgm"}, {exact: "F", flag: true}, {begin: "-fplugin"}, {exact: "frontend"}, {begin: "-opt"}, {begin: "-B"}, {begin: "@"},
		{exact: "e"}, {exact: "run"}, {exact: "interactive", flag: true},
	}
	packagers   = options{source: "npm help config", forms: []form{{long: "script-shell"}, {long: "node-options"}, {long: "userconfig"}, {begin: "--globalc"}}}
	makers      = options{source: "make(1); gtfobins/make", valued: "CfIjloW", forms: []form{{short: 'E', long: "eval"}}}
	typesetters = options{source: "pdftex(1), luatex(1); gtfobins/pdflatex", forms: []form{
		{exact: "shell-escape", abbreviated: true}, {exact: "enable-write18", abbreviated: true}, {exact: "shell-restricted", abbreviated: true},
		{exact: "cnf-line", abbreviated: true}, {exact: "lua", abbreviated: true}, {exact: "luaonly", abbreviated: true}, {exact: "luaconly", abbreviated: true}, {exact: "output-driver", abbreviated: true}, {exact: "fmt", abbreviated: true}, {exact: "ini", abbreviated: true}, {begin: "&"},
	}}
	latexmkForms = []form{
		{exact: "e"}, {exact: "r"}, {exact: "dF"}, {exact: "pF"}, {begin: "-shell"}, {begin: "--shell"},
		{exact: "latex"}, {exact: "pdflatex"}, {exact: "xelatex"}, {exact: "lualatex"}, {exact: "hilatex"}, {exact: "dvilualatex"}, {exact: "pdflualatex"}, {exact: "pdfxelatex"},
		{exact: "enable-write18"}, {exact: "cnf-line"}, {exact: "fmt"}, {exact: "ini"}, {exact: "lua"}, {exact: "luaonly"}, {exact: "luaconly"}, {exact: "output-driver"}, {begin: "&"},
		{exact: "latexoption"}, {exact: "pdflatexoption"}, {exact: "xelatexoption"}, {exact: "lualatexoption"}, {exact: "hilatexoption"},
		{exact: "dvilualatexoption"}, {exact: "pdflualatexoption"}, {exact: "pdfxelatexoption"},
	}
	// A # may stand for the = of -s and -d. -I and -P choose the files that gs runs at its start.
	postscript = options{source: "gs(1), Ghostscript's Use.htm", valued: "dDsSrgKZ", forms: []form{
		{begin: "-dNOSAFER"}, {begin: "-DNOSAFER"}, {begin: "-dDELAYSAFER"}, {begin: "-DDELAYSAFER"}, {begin: "-dSAFER", runs: isFalse}, {begin: "-DSAFER", runs: isFalse},
		{begin: "-sOutputFile", runs: isGhostscriptPipe}, {begin: "-SOutputFile", runs: isGhostscriptPipe}, {begin: "-sstdout", runs: isGhostscriptPipe}, {begin: "-Sstdout", runs: isGhostscriptPipe},
		{begin: "-sGenericResourceDir"}, {begin: "-SGenericResourceDir"}, {begin: "--permit-"}, {exact: "P", flag: true}, {begin: "-I"},
		{short: 'o', runs: isPipe}, {short: 'c'}, {begin: "@"},
	}}
	rpms = options{source: "rpm(8); gtfobins/rpm", patterns: true, forms: []form{
		{short: 'E', long: "eval"}, {short: 'D', long: "define"}, {long: "predefine"}, {long: "pipe"}, {long: "load"}, {long: "rcfile"}, {long: "macros"},
	}}
	// hg takes any abbreviation of a command that is unique.
	mercurialForms = []form{
		{long: "config"}, {short: 'e', long: "ssh"}, {long: "remotecmd"}, {long: "tool"}, {long: "command"}, {long: "debugger", flag: true}, {begin: "bis"}, {begin: "extd"}, {begin: "debugsh"},
	}
	mailers     = options{source: "mail(1), mailx(1), s-nail(1); gtfobins/mail", valued: "abcFqrsTtu", forms: []form{{long: "exec"}, {short: 'X'}, {short: 'S'}, {short: '~', flag: true}}}
	pandocForms = []form{
		{word: "lua"}, {word: "server"},
		{short: 'F', long: "filter"}, {short: 'L', long: "lua-filter"}, {long: "pdf-engine"}, {long: "pdf-engine-opt"},
		{short: 'd', long: "defaults"}, {long: "data-dir"},
		{short: 'f', long: "from", runs: isFile}, {short: 'r', long: "read", runs: isFile},
		{short: 't', long: "to", runs: isFile}, {short: 'w', long: "write", runs: isFile},
	}
)

// isFile reports whether the value of an option that takes a name looks like a file.
func isFile(value string) bool { return strings.ContainsAny(value, "./\\") }

// isPipe reports whether the value of an option that takes a file to write is a program:
// psql(1), gs(1), and dvips(1), where ! is the same.
func isPipe(value string) bool {
	return strings.HasPrefix(value, "|") || strings.HasPrefix(value, "!") || strings.Contains(value, "%pipe%")
}

// isGhostscriptPipe is isPipe for the value after = or #.
func isGhostscriptPipe(value string) bool { return isPipe(strings.TrimLeft(value, "=#")) }

// isPlugin reports whether a compiler's options for the preprocessor, assembler or linker
// load a plugin or take more options from a file. clang's preprocessor has -load.
func isPlugin(value string) bool {
	return strings.Contains(value, "plugin") || strings.Contains(value, "@") || strings.Contains(value, "-load")
}

// rustcRuns matches the code generation options of rustc that choose the linker, give it options
// or give options to LLVM. rustc takes _ for -.
var rustcRuns = lazyregexp.New(`^(linker|link[-_]arg|llvm[-_]args)`).MatchString

// isTargetFile reports whether a target of rustc is a file that describes it.
func isTargetFile(value string) bool { return strings.HasSuffix(value, ".json") }

// hostCompilerRuns matches the options that nvcc passes to gcc or clang, separated by commas or
// blanks, if they run another program: see compilers.
var hostCompilerRuns = lazyregexp.New(`plugin|@|-load|(^|[,\s'"])--?(B|prefix|wrapper|specs|fuse-ld|ld-path|config|Xclang|gcc-toolchain|gcc-install-dir|ccc)`).MatchString

// goToolRuns matches the options in go's -ldflags that name a linker, and files with more
// options: go tool link -help.
var goToolRuns = lazyregexp.New(`(^|[\s'"=])(--?ext|@)`).MatchString

// isFalse reports whether a value turns off a switch that is on by default.
func isFalse(value string) bool { return value != "" && !strings.HasSuffix(value, "true") }
