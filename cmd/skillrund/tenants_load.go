package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/skillrun/skillrun/internal/ingress/identity"
)

// tenantExt is the extension of the files of tenants_dir. Other files there are ignored.
const tenantExt = ".yaml"

// maxTenantFile bounds a file of tenants_dir, so that a wrong file does not fill the memory.
const maxTenantFile = 1 << 20

// A tenantSource is the configuration of one tenant, with the mistakes in it.
// It is made anew by each load. config is complete after check; only a source without mistakes in
// found becomes a tenant.Tenant.
type tenantSource struct {
	name   string
	key    string // of the tenant in its file: "tenants.NAME", or ""
	config tenantConfig
	found  *problems
	// A mistake may end without a change of the file: the file could not be read, or the mistake is in something else
	// on this machine.
	elsewhere bool
	// The tenant of the key tenants, before check adds the defaults from the daemon's keys.
	written tenantConfig
}

// bad reports a mistake. key is beneath the tenant.
func (s *tenantSource) bad(key, format string, args ...any) {
	s.found.bad(join(s.key, key), format, args...)
}

// readTenants returns the tenants of the key tenants, which found has decoded, and of the files of
// tenants_dir, in the order of their names. It has checked each tenant alone; chooseVersions compares them. c has the
// daemon's other keys. The error says why the directory can't be read.
func (c *config) readTenants(inline map[string]tenantConfig, found *problems) ([]*tenantSource, error) {
	var list []*tenantSource
	dir, err := filepath.Abs(filepath.Dir(found.path))
	if err != nil {
		return nil, err
	}
	for name, t := range inline {
		s := &tenantSource{name: name, key: join("tenants", name), config: t, found: found.take(join("tenants", name)), written: t}
		s.check(c, dir)
		list = append(list, s)
	}
	files, err := tenantFiles(c.TenantsDir)
	for _, path := range files {
		s := readTenant(path)
		s.check(c, filepath.Dir(path))
		if _, ok := inline[s.name]; ok {
			s.bad("", "the tenant %s is in tenants of %s already; remove one of the two", s.name, found.path)
		}
		list = append(list, s)
	}
	slices.SortFunc(list, func(a, b *tenantSource) int { return strings.Compare(a.name, b.name) })
	return list, err
}

// tenantFiles returns the paths of the files of tenants_dir: none if dir is "".
func tenantFiles(dir string) (paths []string, err error) {
	if dir == "" {
		return nil, nil
	}
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if name := e.Name(); strings.HasSuffix(name, tenantExt) && !strings.HasPrefix(name, ".") {
			paths = append(paths, filepath.Join(dir, name))
		}
	}
	return paths, err
}

// readTenant reads one file of tenants_dir.
// The name of the file is the tenant's name. Stat comes before the read: a pipe in the directory
// would block the daemon, and a link to a large file would fill its memory.
func readTenant(path string) *tenantSource {
	s := &tenantSource{name: strings.TrimSuffix(filepath.Base(path), tenantExt), found: &problems{path: path, lines: map[string]int{}}}
	info, err := os.Stat(path)
	switch {
	case err == nil && !info.Mode().IsRegular():
		err = errors.New("is not a file")
	case err == nil && info.Size() > maxTenantFile:
		err = errors.New("is larger than 1 MiB")
	}
	var data []byte
	if err == nil {
		data, err = os.ReadFile(path)
	}
	if err != nil {
		// The report has the path already.
		if pathError, ok := errors.AsType[*fs.PathError](err); ok {
			err = pathError.Err
		}
		s.bad("", "%v; write a file with the keys of a tenant", err)
		s.elsewhere = true
		return s
	}
	s.found.decode(data, &s.config)
	return s
}

// check completes the configuration of a tenant and reports its mistakes. Relative paths are relative
// to dir.
func (s *tenantSource) check(c *config, dir string) {
	if err := identity.CheckTenant(s.name); err != nil {
		s.bad("", "%v", err)
	}
	s.place(c)
	s.config.inherit(c, dir, s.key, s.found.lines)
	s.config.check(c, s.bad)
	if s.key != "" {
		return
	}
	// Root is an operator without a row. Another person than the daemon's may write the file.
	for n, row := range s.config.Callers {
		if row.Caller == "uid:0" || row.Caller == "uid:"+strconv.Itoa(os.Geteuid()) {
			s.bad(join(index("callers", n), "caller"), "%s is the daemon's operator, whom a tenant's file can't take; add the row to identity.callers or to tenants of the daemon's configuration", row.Caller)
		}
	}
}

// inspect compares a tenant with this machine.
func (s *tenantSource) inspect() {
	before := len(s.found.list)
	for i, root := range s.config.Skills {
		if err := readableDir(root.Path); err != nil {
			s.bad(index("skills", i), "%v; write the folder that holds the skills", err)
		}
	}
	if s.found.lines[join(s.key, "policy.network")] > 0 { // the daemon's own are inspected with the daemon
		inspectCredentials("policy.network.credentials", s.config.Policy.Network.Credentials, s.bad)
	}
	s.elsewhere = s.elsewhere || len(s.found.list) > before
}

// rows returns the credentials of a tenant.
func (s *tenantSource) rows() (rows []identity.Row) {
	for _, row := range s.config.Callers {
		rows = append(rows, identity.Row{Caller: row.Caller, Tenant: s.name, Role: row.Role})
	}
	return rows
}
