package main

import (
	"context"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// A networkFault ends the network helper of the tenant left, under load. Its connections end, and another helper
// starts. The tenant right, which has another helper, notices nothing.
type networkFault struct {
	name  string
	times int
	harm  func(l *faultLoad, helper *box, pid int)
}

var networkFaults = []networkFault{
	{"SIGKILL to a network helper", 8, func(l *faultLoad, _ *box, pid int) { l.signal(pid, unix.SIGKILL) }},
	{"SIGSTOP to a network helper", 3, func(l *faultLoad, _ *box, pid int) { l.signal(pid, unix.SIGSTOP) }},
	{"no memory for a network helper", 3, (*faultLoad).starve},
}

const networkFaultConfig = faultConfig + "network: {'skills': {hostile: {allow: [web.example, 20.1.0.1]}}}\n"

// fetchUntilAnswered needs connections, and makes others when they end.
const fetchUntilAnswered = `import http.client, urllib.request, uuid
print(uuid.uuid4(), flush=True)
while True:
    try:
        with urllib.request.urlopen('http://web.example/', timeout=10) as r: text = r.read()
        break
    except (OSError, http.client.HTTPException): pass
assert text == b'hello, web.example\n', text
open('made', 'w').write('x')
print('end')`

func (f networkFault) inject(t *testing.T, row *faultRow) {
	random := rand.New(rand.NewPCG(18, 4))
	dir := newDir(t)
	writeHostileSkill(t, dir)
	d, _, _ := startOnHostileInternet(t, dir, networkFaultConfig)
	programs := []faultProgram{func() *pb.ExecuteRequest { return code("hostile", fetchUntilAnswered) }}
	l := startLoadOf(t, d, programs, pb.ExecutionEnd_EXECUTION_END_SETUP_FAILED)
	l.spared = l.tenants[1]
	for range f.times {
		l.untilAnswers(1 + random.Int64N(40))
		var helper *box
		until(t, "the tenant has no helper", func() bool { helper = d.helperOf("left"); return helper != nil })
		pid, err := strconv.Atoi(helper.pids[0])
		if err != nil {
			t.Fatal(err)
		}
		f.harm(l, helper, pid)
		until(t, "the helper lives", func() bool { return len(processesIn(helper.paths)) == 0 })
		row.times++
	}
	endLoad(t, d, l, row)
}

// helperOf returns the cgroup of a tenant's network helper, or nil.
func (d *running) helperOf(tenant string) *box {
	for _, b := range boxesOf(d.instance()) {
		if strings.HasPrefix(b.name, "helper-"+tenant+"-") && len(b.pids) > 0 {
			return b
		}
	}
	return nil
}

func (l *faultLoad) signal(pid int, number unix.Signal) {
	if err := unix.Kill(pid, number); err != nil {
		l.t.Errorf("helper %d: %v", pid, err)
	}
}

// starve leaves a helper little memory, and lets an execution of its tenant fill the buffers of connections.
func (l *faultLoad) starve(_ *box, pid int) {
	leaveLittleMemory(l.t, helperGroup(l.t, pid, "memory"))
	ctx, cancel := context.WithTimeout(l.tenants[0], patience)
	defer cancel()
	stream, err := l.runs.Execute(ctx, code("hostile", holdConnections))
	if err == nil {
		_, err = collect(l.t, stream, 0, nil)
	}
	if err != nil {
		l.t.Error(err)
	}
}
