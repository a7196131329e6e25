package main

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/skillrun/skillrun/internal/durable"
	"github.com/skillrun/skillrun/internal/filelock"
)

// The three ways in which a changed key of the configuration takes effect.
type change string

const (
	byReload   change = "SIGHUP"
	byTakeover change = "a takeover (systemctl reload skillrund, or kill -USR2)"
	byRestart  change = "a restart (systemctl restart skillrund)"
)

// changes says of every key how a change takes effect. In a map such as tenants, each name is a key, and the last part
// * stands for all names. A list is one key.
var changes = func() map[string]change {
	all := map[string]change{}
	for way, keys := range map[change]string{
		byReload: `tenants.*`,
		// A takeover can't change these, because both daemons use the same directories and the same cgroup.
		byRestart: `state_dir run_dir cgroup_parent`,
		byTakeover: `
listen.unix listen.unix_mode listen.unix_group listen.tcp listen.mcp_unix listen.mcp_tcp listen.skills_index
listen.metrics_tcp listen.connections listen.peer_connections listen.tls.certificate listen.tls.key listen.insecure
identity.callers identity.authorities identity.spiffe.* identity.tokens identity.issuers tenants_dir secrets_dir
skills shell without_allowed_tools python packages images.* runtimes.* pull.wall_time pull.bytes pull.files
network network.allow network.deny network.skills.* network.credentials network_resolvers
network_limits.connections network_limits.new_connections network_limits.tenant_connections
network_limits.tenant_new_connections network_limits.tenant_bytes_per_second network_limits.bytes
network_own_addresses network_limits.idle network_limits.idle_udp network_limits.names network_limits.questions
network_proxy.url network_proxy.username network_proxy.password network_proxy.password.file
network_proxy.password.systemd_credential network_proxy.password.env network_proxy.ca_file
network_proxy.resolve_names network_proxy.no_proxy
ids.first ids.count ids.network boundaries.allow_missing
limits.default.wall_time limits.default.cpu_time limits.default.memory limits.default.processes limits.default.output
limits.default.workspace limits.default.workspace_files limits.default.open_files limits.default.cpus
limits.command_wall_time limits.max.wall_time limits.max.cpu_time limits.max.memory limits.max.processes
limits.max.output limits.max.workspace limits.max.workspace_files limits.max.open_files limits.max.cpus
concurrency.memory concurrency.cpus concurrency.running concurrency.reserved concurrency.queued concurrency.queue_timeout
prepared.zygote prepared.sandboxes prepared.python_zygotes prepared.tenant_zygotes prepared.python_fast_exit
grace cancel_grace drain keepalive artifacts.files artifacts.file_bytes artifacts.total_bytes
retention.age retention.bytes snapshots.files snapshots.bytes snapshots.pushed_bytes snapshots.pushed_versions
snapshots.sources sessions.count sessions.total_bytes sessions.bytes sessions.files sessions.versions
sessions.idle_ttl sessions.ttl sessions.mcp_idle_ttl
environments.index environments.wheels environments.sdists environments.registry environments.tarballs
environments.install_scripts environments.bytes environments.wall_time environments.memory
message_bytes request_bytes audit.enabled audit.dir audit.file_bytes audit.files
tracing.endpoint tracing.insecure tracing.ca tracing.headers_file tracing.sample_ratio
log.format log.level log.arguments`,
	} {
		for _, key := range strings.Fields(keys) {
			all[key] = way
		}
	}
	return all
}()

// wayOf returns how a change of a key takes effect. entry reports whether the key is a name in a map. ok is false for a
// key that is not in changes.
func wayOf(key string) (way change, entry, ok bool) {
	if way, ok = changes[key]; ok {
		return way, false, true
	}
	for at, r := range key { // a name can have dots
		if r == '.' {
			if way, ok = changes[key[:at]+".*"]; ok {
				return way, true, true
			}
		}
	}
	return "", false, false
}

// inForce is the content of state_dir/config.json: the configuration that a daemon uses. It has hashes instead of
// values, because some values are secret, such as a password in a URL.
type inForce struct {
	// The key of the HMACs. It is random in each file, so that equal values have different hashes in two files.
	Salt []byte `json:"salt"`
	// Whether the daemon has started with tenants. Otherwise it never loads tenants.
	Tenants bool `json:"tenants"`
	// The HMAC-SHA-256 of the value of each key.
	Keys map[string]string `json:"keys"`
}

// inForce returns the hashes of all values of c, with the given tenants instead of c's.
func (c *config) inForce(salt []byte, tenants map[string]tenantConfig) inForce {
	f := inForce{Salt: salt, Tenants: c.manyTenants(), Keys: map[string]string{}}
	with := *c
	with.Tenants = tenants
	f.add("", reflect.ValueOf(with))
	return f
}

// add hashes a value under its key. In a struct or a map it hashes each value under its own key. A field without a key
// holds a word that stands for a whole mapping, such as network: none; add hashes it under the key of the struct.
func (f *inForce) add(key string, v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		var own []reflect.Value
		for i := range v.NumField() {
			if name := v.Type().Field(i).Tag.Get("yaml"); name != "" {
				f.add(join(key, name), v.Field(i))
			} else if key != "" {
				own = append(own, v.Field(i))
			}
		}
		if len(own) > 0 {
			f.hash(key, own...)
		}
	case reflect.Map:
		for _, name := range v.MapKeys() {
			f.hash(join(key, name.String()), v.MapIndex(name))
		}
	default:
		f.hash(key, v)
	}
}

// hash stores the HMAC of values under a key. The values must have no pointers, because it would hash their addresses.
func (f *inForce) hash(key string, values ...reflect.Value) {
	h := hmac.New(sha256.New, f.Salt)
	for _, v := range values {
		fmt.Fprintf(h, "%#v\n", v)
	}
	f.Keys[key] = hex.EncodeToString(h.Sum(nil))
}

// changed returns the keys whose values in c differ from the values in force, sorted by name, for each way in which
// they take effect.
func (f inForce) changed(c *config) map[change][]string {
	now, all := c.inForce(f.Salt, c.Tenants), maps.Clone(f.Keys)
	maps.Copy(all, now.Keys)
	changed := map[change][]string{}
	for _, key := range slices.Sorted(maps.Keys(all)) {
		before, inBefore := f.Keys[key]
		after, inAfter := now.Keys[key]
		way, entry, ok := wayOf(key)
		// Only a name in a map can come and go. If one side lacks another key, the daemon is of another version, and the
		// key can't be compared.
		if before == after || !ok || !entry && !(inBefore && inAfter) {
			continue
		}
		if way == byReload && !(f.Tenants && now.Tenants) {
			way = byTakeover
		}
		changed[way] = append(changed[way], key)
	}
	return changed
}

// inForceFile is in StateDir and not in RunDir: --check must find it even if the new configuration has another RunDir.
func (c *config) inForceFile() string { return filepath.Join(c.StateDir, "config.json") }

// inForce returns the hashes of the configuration that the daemon uses, with the tenants of the last reload.
// d.tenants.mu is held.
func (d *daemon) inForce() inForce {
	salt, tenants := make([]byte, sha256.Size), map[string]tenantConfig{}
	rand.Read(salt) // never fails
	for name, s := range d.tenants.sources {
		if s.key != "" {
			tenants[name] = s.written
		}
	}
	return d.config.inForce(salt, tenants)
}

// writeInForce writes the file from which --check and the next daemon of a takeover learn the configuration in force.
// An error is only logged. d.tenants.mu is held.
func (d *daemon) writeInForce() {
	if d.tenants.handed.Load() {
		return // it belongs to the next daemon
	}
	data, err := json.Marshal(d.inForce())
	if err == nil {
		err = durable.WriteFile(d.config.inForceFile(), data)
	}
	if err != nil {
		d.log.Error("skillrund --check and a takeover can't tell which keys have changed until the next reload; make room in state_dir", "err", err)
	}
}

// readInForce reads the file that writeInForce has written in the state_dir of c.
func (c *config) readInForce() (f inForce, err error) {
	data, err := os.ReadFile(c.inForceFile())
	if err == nil {
		err = json.Unmarshal(data, &f)
	}
	return f, err
}

// warnChanged logs the keys whose values in the file are not in force after a reload.
func (d *daemon) warnChanged() {
	if d.path == "" {
		return
	}
	c, found, err := readConfig(d.path)
	if err == nil {
		err = found.ofDaemon()
	}
	if err != nil {
		d.log.Error("the configuration file has mistakes; only its tenants are reloaded", "err", err)
		return
	}
	d.tenants.mu.Lock()
	changed := d.inForce().changed(&c)
	d.tenants.mu.Unlock()
	if takeover, restart := changed[byTakeover], changed[byRestart]; len(takeover)+len(restart) > 0 {
		d.log.Warn("changed keys are not in force yet: run systemctl reload skillrund (a takeover) for the keys in keys, and restart the daemon for those in restart_only",
			"keys", strings.Join(takeover, " "), "restart_only", strings.Join(restart, " "))
	}
}

// printChanged compares c with the configuration of a running daemon that has the same state_dir. It writes one line
// with the keys that differ for each way in which they take effect.
func (c *config) printChanged(out io.Writer) {
	if !stateLocked(c.StateDir) {
		return
	}
	f, err := c.readInForce()
	if err != nil {
		fmt.Fprintf(out, "skillrund: note: a daemon runs with this state_dir, but its configuration is unknown: %v\n", err)
		return
	}
	changed := f.changed(c)
	for _, way := range []change{byReload, byTakeover, byRestart} {
		if keys := changed[way]; len(keys) > 0 {
			fmt.Fprintf(out, "skillrund: note: differs from the running daemon, in force after %s: %s\n", way, strings.Join(keys, ", "))
		}
	}
}

// stateLocked reports whether a daemon holds the lock of lockState. To find out, it takes a shared lock for a moment. A
// daemon that starts in that moment tries again.
func stateLocked(dir string) bool {
	f, err := os.Open(filepath.Join(dir, lockName))
	if err != nil {
		return false
	}
	defer f.Close()
	return errors.Is(filelock.Try(f, filelock.Shared), filelock.ErrHeld)
}
