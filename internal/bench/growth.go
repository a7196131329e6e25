package bench

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	skillrun "github.com/skillrun/skillrun/clients/go"
)

// growSamples is the number of samples for each of the two sizes. The two sizes differ by little
// if all is well, so they need many samples.
const growSamples = 200

// growStarts is the number of timed starts of each of the two daemons.
const growStarts = 7

// against compares `true` through two clients.
func (r *run) against(name string, row *Row, large, small func() error) error {
	all := []*subject{{name: "large", run: large}, {name: "small", run: small}}
	times, err := r.warmTurns(name, growSamples, 0, all)
	if err != nil {
		return err
	}
	row.setPairs(times[0], times[1], 0.5)
	return nil
}

// twoDaemons compares a daemon with a large directory with one with a small directory.
// The two daemons start in turns, and no other daemon runs during a start: even an idle daemon takes
// memory and processor time. Then both run at the same time, so that their requests take turns.
func (r *run) twoDaemons(name string, rows rowSet, large, small string) error {
	if err := r.startTurns(name+"-ready", rows[name+"-ready"], large, small); err != nil {
		return err
	}
	big, err := r.start(large)
	if err != nil {
		return err
	}
	little, err := r.start(small)
	if err != nil {
		return errors.Join(err, big.stop())
	}
	err = r.against(name, rows[name],
		func() error { return trueProgram.request(r.ctx, big.client) },
		func() error { return trueProgram.request(r.ctx, little.client) })
	return errors.Join(err, big.stop(), little.stop())
}

// startTurns compares the starts of daemons in two directories.
func (r *run) startTurns(name string, row *Row, large, small string) error {
	dirs := []string{large, small}
	times := make([][]float64, len(dirs))
	for range r.samples(growStarts) {
		for i, dir := range dirs {
			t, err := r.startTime(dir)
			if err != nil {
				return err
			}
			times[i] = append(times[i], t)
		}
	}
	r.report.keep(name, "ms", []*subject{{name: "large"}, {name: "small"}}, times)
	row.setPairs(times[0], times[1], 0.5)
	return nil
}

// growRecord compares a daemon with a long record with one with a short record.
func growRecord(r *run, rows rowSet) error {
	small, err := r.prepare("short-record", "")
	if err != nil {
		return err
	}
	large, err := r.prepare("long-record", "")
	if err != nil {
		return err
	}
	// Both have run something; of one, that is then there many times.
	for _, dir := range []string{small, large} {
		d, err := r.start(dir)
		if err != nil {
			return err
		}
		if err := errors.Join(trueProgram.request(r.ctx, d.client), d.stop()); err != nil {
			return err
		}
	}
	r.Say("filling a record with %s executions", grouped(r.scale.records))
	if err := fillRecord(r.ctx, large, r.scale.records); err != nil {
		return err
	}
	return r.twoDaemons("grow-record", rows, large, small)
}

// growSkills compares a daemon with many skills with one with ten.
// Ten, not one: some costs grow with the number of skills, however few there are.
func growSkills(r *run, rows rowSet) error {
	small, err := r.withSkills("few-skills", min(10, r.scale.skills))
	if err != nil {
		return err
	}
	large, err := r.withSkills("many-skills", r.scale.skills)
	if err != nil {
		return err
	}
	return r.twoDaemons("grow-skills", rows, large, small)
}

// withSkills prepares a daemon's directory with n imported skills.
func (r *run) withSkills(name string, n int) (string, error) {
	dir, err := r.prepare(name, "")
	if err != nil {
		return "", err
	}
	for i := range n - 1 { // the benchmark's skill is one of them
		name := fmt.Sprintf("other-%d", i)
		files := map[string]string{
			"SKILL.md":       "---\nname: " + name + "\ndescription: One of many.\n---\n\n# " + name + "\n",
			"scripts/run.py": "print(" + strconv.Itoa(i) + ")\n",
		}
		if err := writeSkill(filepath.Join(dir, "skills"), name, files); err != nil {
			return "", err
		}
	}
	r.Say("importing %s skills", grouped(n))
	took, err := r.startTime(dir) // the first start imports the skills
	r.Say("imported in %.1f s", took/1000)
	return dir, err
}

// growSnapshot compares a large skill with a small one, in one daemon.
// A sandbox mounts the snapshot and reads none of its files, so the size should not matter.
func growSnapshot(r *run, rows rowSet) error {
	dir, err := r.prepare("snapshot", "")
	if err != nil {
		return err
	}
	for name, size := range map[string]int{"small": 1_000_000, "large": r.scale.snapshotBytes} {
		skill := map[string]string{"SKILL.md": "---\nname: " + name + "\ndescription: Data.\nallowed-tools: Bash(true)\n---\n\n# Data\n"}
		if err := writeSkill(filepath.Join(dir, "skills"), name, skill); err != nil {
			return err
		}
		if err := writeData(filepath.Join(dir, "skills", name), size); err != nil {
			return err
		}
	}
	r.Say("importing a skill of %s MB", grouped(r.scale.snapshotBytes/1_000_000))
	d, err := r.start(dir)
	if err != nil {
		return err
	}
	runTrue := func(skill string) func() error {
		p := trueProgram
		p.sandboxed = func(c *skillrun.Client) *skillrun.Cmd { return c.Command(skill, "true") }
		return func() error { return p.request(r.ctx, d.client) }
	}
	err = r.against("grow-snapshot", rows["grow-snapshot"], runTrue("large"), runTrue("small"))
	return errors.Join(err, d.stop())
}

// writeData writes size bytes to dir/data, in files of 1 MB. Random bytes, so that no file system
// or store can make the files smaller.
func writeData(dir string, size int) error {
	const each = 1_000_000
	if err := os.MkdirAll(filepath.Join(dir, "data"), 0o755); err != nil {
		return err
	}
	data := make([]byte, each)
	for i := 0; i < size; i += each {
		rand.Read(data)
		if err := os.WriteFile(filepath.Join(dir, "data", fmt.Sprintf("%d.bin", i/each)), data[:min(each, size-i)], 0o644); err != nil {
			return err
		}
	}
	return nil
}
