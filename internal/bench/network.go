package bench

import (
	"errors"
	"fmt"
	"path/filepath"

	skillrun "github.com/skillrun/skillrun/clients/go"
)

// networkSkill is the skill with the programs that use the network.
const networkSkill = "bench-network"

var networkFiles = map[string]string{
	"SKILL.md":           "---\nname: " + networkSkill + "\ndescription: What the benchmark runs with a network.\nallowed-tools: Bash(true)\n---\n\n# Benchmark\n",
	"scripts/network.py": networkProgram,
	"scripts/sum.py":     sumProgram,
	"scripts/hold.sh":    holdProgram,
}

// networkConfig allows the servers' ports, and no other: closedPort is refused.
const networkConfig = "network: {'skills': {" + networkSkill + ": {allow: ['" + serverAddress + ":" + sinkPort + "-" + holdPort + "']}}}\n"

// The program takes the time of each thing itself, so the start of a Python does not count. It prints
// nanoseconds.
const networkProgram = `
import socket, sys, time

def open_to(port):
    s = socket.socket()
    began = time.perf_counter_ns()
    try: s.connect(("` + serverAddress + `", port))
    except ConnectionRefusedError:
        if port != ` + closedPort + `: raise
    return s, time.perf_counter_ns() - began

def send(size):
    began = time.perf_counter_ns()
    s, _ = open_to(` + sinkPort + `)
    block = bytes(256 << 10)
    for _ in range(size // len(block)): s.sendall(block)
    s.shutdown(socket.SHUT_WR)
    assert s.recv(1) == b"x"
    print(time.perf_counter_ns() - began)

def receive(size):
    began = time.perf_counter_ns()
    s, _ = open_to(` + sourcePort + `)
    block, got = bytearray(256 << 10), 0
    while got < size:
        n = s.recv_into(block)
        assert n
        got += n
    print(time.perf_counter_ns() - began)

def greeted():
    s, took = open_to(` + greetPort + `)
    assert s.recv(2) == b"x" and s.recv(1) == b""
    s.close()
    return took

def connect(count):
    for _ in range(count): print(greeted())

def refuse(count):
    for _ in range(count):
        s, took = open_to(` + closedPort + `)
        s.close()
        print(took)

def paced(count):
    due = time.perf_counter()
    for n in range(count):
        start = time.perf_counter()
        if start < due: time.sleep(due - start)
        due = max(start, due) + 1 / 900 # a sandbox may open 1,000 in a second
        yield n

def many(count):
    slowest = 0
    for _ in paced(count):
        start = time.perf_counter_ns()
        greeted()
        slowest = max(slowest, time.perf_counter_ns() - start)
    print(slowest)

def closing(count):
    made = 0
    for _ in paced(count):
        s = socket.socket()
        try: s.connect(("` + serverAddress + `", ` + holdPort + `))
        except OSError: break
        assert s.recv(1) == b"x"
        s.close() # the server ends its side after this
        made += 1
    print(made)

try: globals()[sys.argv[1]](int(sys.argv[2]))
except Exception as e:
    print(type(e).__name__, e) # the bare runs drop standard error
    raise
`

// networking measures the network of one sandbox, in turns with the same script without a sandbox and with
// other carriers. All servers are in a namespace of the benchmark.
func networking(r *run, rows rowSet) error {
	return r.onInternet("network", "", func(i *internet, d *daemon) error {
		all := []*carrier{{name: "skillrun", run: r.sandboxedIn(d.client)}, {name: "bare", run: bareIn(i.machine)}}
		peers, end := r.peersOn(i)
		all = append(all, peers...)
		return errors.Join(r.streams(rows, all), r.connects(rows, all), r.networkStarts(rows, i, d.client), r.manyConnections(rows, all[0]),
			r.closingConnections(rows, all[0]), end())
	})
}

// onInternet starts a daemon on an internet, and ends both after f.
func (r *run) onInternet(name, more string, f func(*internet, *daemon) error) error {
	if err := hasPython(); err != nil {
		return err
	}
	i, err := newInternet()
	if err != nil {
		return err
	}
	defer i.close()
	dir, err := r.prepare(name, networkConfig+more)
	if err == nil {
		err = writeSkill(filepath.Join(dir, "skills"), networkSkill, networkFiles)
	}
	if err != nil {
		return err
	}
	d, err := r.startIn(dir, i.machine)
	if err != nil {
		return err
	}
	return errors.Join(f(i, d), d.stop())
}

// peersOn returns the carriers of the attachers. One that can't be attached is broken.
func (r *run) peersOn(i *internet) (all []*carrier, end func() error) {
	var ends []func() error
	for _, p := range attachers {
		n, end, err := attached(r, i.machine, p.attach)
		if err == nil {
			ends = append(ends, end)
		}
		c := &carrier{name: p.name, broken: err}
		if err == nil {
			c.run = bareIn(n)
		}
		all = append(all, c)
	}
	return all, func() (err error) {
		for _, end := range ends {
			err = errors.Join(err, end())
		}
		return err
	}
}

// turns runs the script n times by each carrier, in turns, after one run that does not count. A peer that
// fails again and again, or is too slow, is left out of these turns.
func (r *run) turns(n int, all []*carrier, args ...string) ([][]float64, error) {
	samples := make([][]float64, len(all))
	for _, c := range all {
		if c.failed, c.spent = 0, 0; c.run != nil {
			c.broken = nil
		}
	}
	// Turn 0 does not count: it fills caches, and the helper of the tenant starts in it.
	for turn := range n + 1 {
		for i, c := range all {
			if err := r.pause(0); err != nil {
				return nil, err
			}
			if c.broken != nil || i >= firstPeer && turn > 1 && c.spent > peerPatience {
				continue
			}
			took, err := c.try(i >= firstPeer, args...)
			switch {
			case err != nil && i >= firstPeer:
				c.broken, samples[i] = fault(args[0], err), nil
			case err != nil:
				return nil, fault(args[0], err)
			case turn > 0:
				samples[i] = append(samples[i], took...)
			}
		}
	}
	return samples, nil
}

// streams measures the rates of one connection in each direction.
func (r *run) streams(rows rowSet, all []*carrier) error {
	for name, kind := range map[string]string{"network-out": "send", "network-in": "receive"} {
		r.Say("%s", name)
		samples, err := r.turns(r.samples(30), all, kind, fmt.Sprint(r.scale.networkBytes))
		if err != nil {
			return err
		}
		rate := func(i int) float64 { return float64(r.scale.networkBytes) / (1 << 20) / (median(samples[i]) / 1e9) }
		row := rows[name]
		row.setRatio(rate(sandboxedSubject), rate(bareSubject), len(samples[sandboxedSubject]))
		row.setCarriers(all, samples, rate)
	}
	return nil
}

// connects measures how much longer a connection takes than without a sandbox, and how long a refusal takes.
// Without a sandbox the kernel refuses it, because no server listens. The peers have no rules.
func (r *run) connects(rows rowSet, all []*carrier) error {
	r.Say("network-connect")
	samples, err := r.turns(r.samples(30), all, "connect", "100")
	if err != nil {
		return err
	}
	for suffix, q := range map[string]float64{"-p50": 0.5, "-p95": 0.95} {
		added := func(i int) float64 { return quantile(differences(samples[i], samples[bareSubject]), q) / 1e6 }
		row := rows["network-connect"+suffix]
		row.set(added(sandboxedSubject), len(samples[sandboxedSubject]))
		row.Bare = number(quantile(samples[bareSubject], q) / 1e6)
		row.setCarriers(all, samples, added)
	}
	r.Say("network-refuse")
	// The peers have no rules that could refuse.
	if samples, err = r.turns(r.samples(30), all[:firstPeer], "refuse", "100"); err != nil {
		return err
	}
	took := func(i int) float64 { return median(samples[i]) / 1e6 }
	row := rows["network-refuse-p50"]
	row.set(took(sandboxedSubject), len(samples[sandboxedSubject]))
	row.Bare = number(took(bareSubject))
	return nil
}

// setCarriers adds the values of the peers to the row.
func (r *Row) setCarriers(all []*carrier, samples [][]float64, value func(i int) float64) {
	for i := firstPeer; i < len(all); i++ {
		if all[i].broken != nil {
			r.setPeer(all[i].name, PeerValue{Broken: all[i].broken.Error()})
		} else {
			r.setPeer(all[i].name, PeerValue{Value: rounded(value(i)), Failed: all[i].failed})
		}
	}
}

// networkStarts measures the time that a network adds to an execution in a prewarmed sandbox, in turns
// without one. The peers attach a namespace and end.
func (r *run) networkStarts(rows rowSet, i *internet, c *skillrun.Client) error {
	for name, p := range map[string]program{"true": trueProgram, "python": sum} {
		r.Say("network-start-%s", name)
		request := func(network *skillrun.Network) func() error {
			// A copy for each request: p is shared by both, and the next line changes it.
			p := p
			p.sandboxed = func(c *skillrun.Client) *skillrun.Cmd {
				cmd := c.Command(networkSkill, "true")
				if name == "python" {
					cmd = c.Script(networkSkill, "scripts/sum.py")
				}
				cmd.Network = network
				return cmd
			}
			return func() error { return p.request(r.ctx, c) }
		}
		all := []*subject{{name: "with a network", run: request(nil)}, {name: "without", run: request(skillrun.NoNetwork())}}
		if name == "true" {
			all = append(all, r.attachSubjects(i)...)
		}
		times, err := r.warmTurns("network-start-"+name, 200, r.scale.networkIdle, all)
		if err != nil {
			return err
		}
		row := rows["network-start-"+name]
		added := differences(times[0], times[1])
		row.set(median(added), len(added))
		row.Bare = number(median(times[1]))
		for at, s := range all[firstPeer:] {
			v := PeerValue{Value: rounded(median(times[firstPeer+at]))}
			if s.broken != nil {
				v = PeerValue{Broken: s.broken.Error()}
			}
			row.setPeer(s.name, v)
		}
	}
	return nil
}

// attachSubjects attach a new namespace each.
func (r *run) attachSubjects(i *internet) (all []*subject) {
	for _, p := range attachers {
		all = append(all, &subject{name: p.name, run: func() error {
			_, end, err := attached(r, i.machine, p.attach)
			if err == nil {
				err = end()
			}
			return err
		}})
	}
	return all
}

// manyConnections opens connections through one network, one after the other. If a connection waits for a
// packet that was lost, it takes a second longer.
func (r *run) manyConnections(rows rowSet, sandboxed *carrier) error {
	r.Say("network-many")
	slowest, err := sandboxed.run("many", fmt.Sprint(r.scale.connections))
	if err == nil {
		rows["network-many"].set(slowest[0]/1e6, r.scale.connections)
	}
	return err
}

// mostClosing is more than the ports of a tenant. A machine that opens fewer than 250 connections in a second never
// runs out of ports, and the row would take minutes.
const mostClosing = 20_000

// closingConnections opens connections to one destination, one after the other, until one fails. The program ends each
// first, so the kernel keeps the port of each for a minute. These ports are no longer free for the row's destination,
// so no other row has it.
func (r *run) closingConnections(rows rowSet, sandboxed *carrier) error {
	r.Say("network-closing")
	made, err := sandboxed.run("closing", fmt.Sprint(min(r.scale.connections, mostClosing)))
	if err == nil {
		rows["network-closing"].set(made[0], 1)
	}
	return err
}
