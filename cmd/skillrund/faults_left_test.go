package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// A deadInstance describes an instance whose daemon is about to die.
type deadInstance struct {
	name       string
	namespaces map[string]bool // of its sandboxes, zygotes and helpers, like "net:[4026532281]"
}

// doomed describes the daemon's instance before its end.
func (d *running) doomed() deadInstance { return doomed(d.instance()) }

func doomed(instance string) deadInstance {
	dead := deadInstance{instance, map[string]bool{}}
	for _, b := range boxesOf(instance) {
		for _, pid := range b.pids {
			for _, name := range namespacesOf(pid) {
				dead.namespaces[name] = true
			}
		}
	}
	for _, name := range namespacesOf("self") {
		delete(dead.namespaces, name)
	}
	return dead
}

// namespacesOf returns the namespaces of a process.
func namespacesOf(pid string) (names []string) {
	links, _ := filepath.Glob("/proc/" + pid + "/ns/*")
	for _, link := range links {
		if name, err := os.Readlink(link); err == nil {
			names = append(names, name)
		}
	}
	return names
}

// firstID is the first id of manyIDs.
const firstID = 536870912

// leftOf counts the cgroups, processes, namespaces, mounts and directories of a dead instance.
func (d *running) leftOf(dead deadInstance) (left int) {
	d.t.Helper()
	if dead.name == "" {
		d.t.Error("the dead daemon had no instance")
		return 1
	}
	note := func(what string) {
		left++
		d.t.Errorf("left over: %s", what)
	}
	for _, path := range cgroupsOf(dead.name) {
		note("cgroup " + path)
	}
	files, _ := filepath.Glob("/proc/[0-9]*/cgroup")
	for _, path := range files {
		groups, _ := os.ReadFile(path)
		pid := filepath.Base(filepath.Dir(path))
		status := statusOf(pid)
		// Dead processes wait, as zombies, until the machine's init reaps them, which may be between the two reads.
		if bytes.Contains(groups, []byte(dead.name)) && len(status) > 0 && !strings.HasPrefix(status["State"], "Z") {
			note(fmt.Sprintf("process %s, %s, %s", pid, status["Name"], status["State"]))
		}
		// The kernel gives the number of a namespace that is gone to another one. So namespaces of living daemons, and
		// those of other users, don't count.
		if bytes.Contains(groups, []byte("/skillrun-")) || !isSandboxUser(status["Uid"]) {
			continue
		}
		for _, name := range namespacesOf(pid) {
			if dead.namespaces[name] {
				note(fmt.Sprintf("namespace %s, with process %s, %s", name, pid, status["Name"]))
			}
		}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		d.t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		fields := strings.Fields(line)
		if strings.Contains(line, dead.name) || dead.namespaces[fields[3]] { // the root of a mounted namespace is its name
			note("mount " + line)
		}
	}
	for _, dir := range []string{"run", "state/sandbox/instances"} {
		if _, err := os.Lstat(filepath.Join(d.dir, dir, dead.name)); err == nil {
			note("directory " + dir + "/" + dead.name)
		}
	}
	return left
}

// isSandboxUser says whether a process has a user of a sandbox or of a helper. uids are its line Uid in proc(5).
func isSandboxUser(uids string) bool {
	fields := strings.Fields(uids)
	if len(fields) == 0 {
		return false
	}
	uid, _ := strconv.Atoi(fields[0])
	return uid >= firstID
}

// litter counts the files of executions and sessions that the state directory does not need when nothing runs: staged
// inputs and uploads, outputs and artifacts of executions that the daemon does not know, and contents that no version of a
// session has.
func (l *faultLoad) litter(d *running) int {
	d.t.Helper()
	// The first writer after a start removes the files of an interrupted commit.
	for _, who := range l.tenants {
		list, err := pb.NewSessionServiceClient(d.conn).ListSessions(who, &pb.ListSessionsRequest{})
		if err != nil {
			d.t.Error(err)
		}
		for _, s := range list.GetSessions() {
			if l.damaged && !l.has(s.SessionId) {
				continue // its newest version may be damaged
			}
			req := appendTo("last", false)
			req.Session = &pb.SessionUse{SessionId: s.SessionId}
			stream, err := l.runs.Execute(who, req)
			if err == nil {
				_, err = collect(d.t, stream, 0, nil)
			}
			if err != nil {
				d.t.Errorf("session %s: %v", s.SessionId, err)
			}
		}
	}
	var left []string
	await(func() bool { left = l.litterNow(d); return len(left) == 0 }) // the daemon tidies up after its answers
	for _, what := range left {
		d.t.Errorf("left over: %s", what)
	}
	return len(left)
}

// has says whether a session is one of l.sessions.
func (l *faultLoad) has(session string) bool {
	return slices.ContainsFunc(l.sessions, func(u *sessionUser) bool { return u.id == session })
}

func (l *faultLoad) litterNow(d *running) (left []string) {
	known := map[string]bool{}
	for _, who := range l.tenants {
		for token := ""; ; {
			r, err := l.runs.ListExecutions(who, &pb.ListExecutionsRequest{PageSize: 1000, PageToken: token})
			if err != nil {
				return []string{"executions that can't be listed: " + err.Error()}
			}
			for _, e := range r.Executions {
				known[e.ExecutionId] = true
			}
			if token = r.NextPageToken; token == "" {
				break
			}
		}
	}
	each := func(pattern string, needed func(path string) bool) {
		paths, _ := filepath.Glob(filepath.Join(d.dir, "state", pattern))
		for _, path := range paths {
			if !needed(path) {
				left = append(left, path)
			}
		}
	}
	each("staging/*", func(string) bool { return false })
	each("uploads/*", func(string) bool { return false })
	each("record/spool/*", func(path string) bool { return known[filepath.Base(path)] })
	each("record/artifacts/*", func(path string) bool { return known[filepath.Base(path)] })
	named := map[string]map[string]bool{} // by session: the objects of its versions
	each("sessions/*/*/objects/*", func(path string) bool {
		session := filepath.Dir(filepath.Dir(path))
		if named[session] == nil {
			named[session] = objectsOf(session)
		}
		version, _, _ := strings.Cut(filepath.Base(path), "-")
		return named[session][filepath.Base(path)] || named[session][version]
	})
	return left
}

// objectsOf returns the contents that the versions of a session have, and the numbers of damaged versions, whose contents
// must stay. See internal/session/manifest.go.
func objectsOf(session string) map[string]bool {
	named := map[string]bool{}
	versions, _ := filepath.Glob(filepath.Join(session, "versions", "*"))
	for _, path := range versions {
		data, _ := os.ReadFile(path)
		hash, rest, _ := bytes.Cut(data, []byte{'\n'})
		named[filepath.Base(path)] = string(hash) != sum(rest)
		for line := range bytes.Lines(data) {
			var file struct {
				Object string `json:"o"`
			}
			if json.Unmarshal(line, &file) == nil && file.Object != "" {
				named[file.Object] = true
			}
		}
	}
	return named
}
