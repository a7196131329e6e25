package lint

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/skillrun/skillrun/internal/runtime"
	"github.com/skillrun/skillrun/internal/skill/manifest"
)

// packages compares the declared packages and the imports of the Python code.
// Without a machine only the rules that need none run: unpinned and undeclared packages.
func (c *check) packages(ctx context.Context) error {
	var here *installed
	if c.machine != nil {
		var err error
		if here, err = c.installed(); err != nil {
			return err
		}
	}
	declared := map[string][]string{} // normal names, by the script that they are for
	for _, r := range c.skill.Requirements() {
		if r.System {
			if here == nil {
				continue
			}
			// dpkg's list may be unreadable, for this user or at all. Then nothing is known of the
			// package, and the other findings don't depend on it.
			if ok, err := here.system.Has(r.Text); err == nil && !ok {
				c.warn(r.File, r.Line, RuleSystemMissing, "the system package %s is not on this machine: install it where the daemon runs, skillrun installs none", r.Text)
			}
			continue
		}
		p, err := manifest.ParseRequirement(r.Text)
		if err != nil {
			continue // a finding of validation
		}
		name := manifest.NormalName(p.Name)
		declared[r.Script] = append(declared[r.Script], name)
		if p.URL == "" && !bounded(p.Specifier) {
			c.warn(r.File, r.Line, RulePackageUnpinned, "%s has no upper bound, so another day gives another version: write %s==VERSION, or a bound such as <2", r.Text, p.Name)
		}
		// A marker may mean that it isn't needed here.
		if here == nil || c.machine.HasPackages || p.Marker != "" {
			continue
		}
		if found, ok := here.python.Has(p); !ok {
			c.packageMissing(r, p, found)
		}
	}
	if err := c.imports(ctx, declared); err != nil {
		return err
	}
	c.nodePackages()
	return nil
}

// nodePackages names the Node packages that are neither prepared nor in the skill.
func (c *check) nodePackages() {
	needs := c.skill.Node()
	if c.machine == nil || c.machine.HasNodePackages || needs.Problem.Reason != "" {
		return
	}
	var missing []string
	for _, name := range needs.Packages {
		if !c.skill.ShipsNode(name) {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		c.warn(needs.File, 0, RuleNodePackageMissing, "Node packages are not installed for the skill: %s: run `skillrun prepare %s`%s", strings.Join(missing, ", "), c.skill.Name, c.when())
	}
}

// when says when prepare helps, at the end of a sentence.
func (c *check) when() string {
	if c.machine.Daemon {
		return ""
	}
	return " once the daemon has the skill"
}

// packageMissing says that a package is not there, or in a version that the skill
// doesn't ask for.
func (c *check) packageMissing(r manifest.Requirement, p manifest.PythonRequirement, found string) {
	what := fmt.Sprintf("the Python package %s is not on this machine", p.Name)
	if found != "" {
		what = fmt.Sprintf("the Python package %s is on this machine as %s, not %s", p.Name, found, p.Specifier)
	}
	c.warn(r.File, r.Line, RulePackageMissing, "%s: run `skillrun prepare %s`%s", what, c.skill.Name, c.when())
}

// bounded reports whether the versions of a requirement have an upper bound.
// The comparison is by the beginning of each clause: ==, ===, ~=, < and <= bound from above.
func bounded(specifier string) bool {
	return slices.ContainsFunc(strings.Split(specifier, ","), func(clause string) bool {
		return strings.HasPrefix(clause, "=") || strings.HasPrefix(clause, "~=") || strings.HasPrefix(clause, "<")
	})
}

// imports looks for modules that come from nowhere. One in a try is optional.
// A module is reported once for the skill, not once for each program. A package for one script
// counts in that script only. The error is that of ctx.
func (c *check) imports(ctx context.Context, declared map[string][]string) error {
	local := c.modules()
	said := map[string]bool{}
	for _, p := range c.programs {
		if p.language != "python" {
			continue
		}
		have := slices.Concat(declared[""], declared[p.path])
		seen := map[string]bool{} // in this program
		for _, m := range pythonImports(p.text) {
			root := m.root()
			if m.optional || said[root] || seen[root] || stdlib[root] || strings.HasPrefix(root, "_") || local[root] {
				continue
			}
			seen[root] = true
			if err := ctx.Err(); err != nil {
				return err
			}
			if provided(root, have) {
				continue
			}
			said[root] = true
			c.warn(p.path, m.line, RulePackageUndeclared,
				"%s looks like a module of a package, and none that the skill declares: add %s to python_packages in SKILL.md, with a version", root, distributions(root)[0])
		}
	}
	return nil
}

// modules returns the names that a program can import from its skill, from any directory of the skill.
// In doubt a name counts as a module of the skill, because programs may add any directory to sys.path.
func (c *check) modules() map[string]bool {
	found := map[string]bool{}
	for e := range c.skill.Entries() {
		dir, name := path.Split(e.Path)
		for _, ext := range []string{".py", ".pyi", ".so", ".pyc"} {
			if base, ok := strings.CutSuffix(name, ext); ok {
				base, _, _ = strings.Cut(base, ".") // x.cpython-311-x86_64-linux-gnu.so
				found[base] = true
				for _, part := range strings.Split(strings.Trim(dir, "/"), "/") {
					found[part] = true
				}
			}
		}
	}
	return found
}

// provided reports whether one of the declared packages has a module, judged by their names
// and by a table of well-known packages.
func provided(module string, declared []string) bool {
	names, begin := distributions(module), manifest.NormalName(module)+"-"
	return slices.ContainsFunc(declared, func(d string) bool {
		return slices.Contains(names, d) || strings.HasPrefix(d, begin) ||
			slices.Contains(strings.Fields(brings[d]), module)
	})
}

// distributions are the packages that a top-level module may come from, the usual
// one first.
func distributions(module string) []string {
	names := strings.Fields(packagesOf[module])
	return append(names, manifest.NormalName(module))
}

// packagesOf has the modules whose package has another name.
// The first name is the one that a finding proposes. A module that is not here is looked
// for by its own name.
var packagesOf = map[string]string{
	"PIL": "pillow", "cv2": "opencv-python opencv-python-headless opencv-contrib-python", "yaml": "pyyaml", "bs4": "beautifulsoup4",
	"sklearn": "scikit-learn", "skimage": "scikit-image", "docx": "python-docx", "pptx": "python-pptx", "fitz": "pymupdf", "pymupdf": "pymupdf",
	"dateutil": "python-dateutil", "dotenv": "python-dotenv", "OpenSSL": "pyopenssl", "Crypto": "pycryptodome", "Cryptodome": "pycryptodomex",
	"serial": "pyserial", "magic": "python-magic", "jwt": "pyjwt", "attr": "attrs", "git": "gitpython", "github": "pygithub", "gitlab": "python-gitlab",
	"MySQLdb": "mysqlclient", "psycopg2": "psycopg2-binary psycopg2", "usb": "pyusb", "zmq": "pyzmq", "wx": "wxpython", "gi": "pygobject", "slugify": "python-slugify",
	"telegram": "python-telegram-bot", "markdown": "markdown", "lxml": "lxml", "pkg_resources": "setuptools", "OCC": "pythonocc-core", "Bio": "biopython",
	"jose": "python-jose", "multipart": "python-multipart", "nacl": "pynacl", "odf": "odfpy", "pdfminer": "pdfminer-six", "websocket": "websocket-client",
	"win32com": "pywin32", "googleapiclient": "google-api-python-client", "rest_framework": "djangorestframework", "umap": "umap-learn", "faiss": "faiss-cpu faiss-gpu",
	"community": "python-louvain", "igraph": "igraph python-igraph", "graphviz": "graphviz", "barcode": "python-barcode", "ffmpeg": "ffmpeg-python",
	"moviepy": "moviepy", "pythoncom": "pywin32", "Levenshtein": "levenshtein python-levenshtein", "rdkit": "rdkit", "xdg": "pyxdg",
	"grpc": "grpcio", "grpc_status": "grpcio-status", "grpc_tools": "grpcio-tools", "dns": "dnspython", "fpdf": "fpdf2 fpdf", "kafka": "kafka-python",
	"absl": "absl-py", "discord": "discord-py", "bson": "pymongo", "socks": "pysocks", "markdown_it": "markdown-it-py",
}

// brings has modules that come along with a package.
// A skill that declares pandas may import numpy without a finding: pandas always installs
// it.
var brings = map[string]string{
	"pandas": "numpy dateutil pytz six", "matplotlib": "numpy PIL dateutil mpl_toolkits pylab cycler", "scipy": "numpy", "scikit-learn": "numpy scipy joblib",
	"seaborn": "numpy pandas matplotlib", "requests": "urllib3 certifi idna", "python-docx": "lxml", "python-pptx": "lxml PIL", "torch": "numpy",
	"opencv-python": "numpy", "opencv-python-headless": "numpy", "scikit-image": "numpy scipy PIL", "statsmodels": "numpy scipy pandas", "xarray": "numpy pandas",
	"jinja2": "markupsafe", "flask": "jinja2 werkzeug click", "fastapi": "pydantic starlette", "httpx": "httpcore anyio", "setuptools": "pkg_resources",
	"protobuf": "google", "grpcio-status": "grpc google", "grpcio-tools": "grpc google",
}

// installed has a machine's packages: those on its Python's path, and Debian's.
type installed struct {
	python runtime.Packages
	system *runtime.SystemPackages
}

// Both are read anew for each skill, since an operator installs packages between two runs.
func (c *check) installed() (*installed, error) {
	python, err := c.pythonPackages()
	return &installed{python, runtime.NewSystemPackages(c.rootfs(), c.onPath)}, err
}

// pythonPackages returns the packages that an execution finds without an environment. If the
// skill's Python is not known (only a daemon knows the embedded one), it returns the packages
// of the skill's own virtual environment.
func (c *check) pythonPackages() (runtime.Packages, error) {
	if c.machine.Runtimes == nil {
		return runtime.ReadPackages(c.machine.rootfs(), "", runtime.Runtime{}, c.skill)
	}
	python, err := c.machine.Runtimes.ForCommand(c.skill, []string{"python3"})
	if err != nil && c.skill.Manifest.Python != string(runtime.Embedded) {
		// Another rule says it. The packages are judged by the Python that is there.
		list := c.machine.Runtimes.List()
		if i := slices.IndexFunc(list, func(r runtime.Runtime) bool { return r.Language == "python" }); i >= 0 {
			python.Python = list[i]
		}
	}
	embedded := ""
	for _, m := range python.Mounts {
		if m.Target == runtime.EmbeddedDir {
			embedded = m.Source
		}
	}
	rootfs := c.machine.rootfs()
	if python.Image != (runtime.Image{}) {
		rootfs = python.Image.Rootfs()
	}
	return runtime.ReadPackages(rootfs, embedded, python.Python, c.skill)
}

// rootfs returns the root file system of programs that belong to no language.
func (c *check) rootfs() string {
	if c.machine.Rootfs == "" && c.machine.Runtimes != nil {
		return c.machine.Runtimes.Image().Rootfs()
	}
	return c.machine.rootfs()
}
