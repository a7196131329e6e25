package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// skillrun doctor reads the secrets of credentials when it is asked: one that has vanished since the start is a
// warning until it is back.
func TestDoctorShowsVanishedSecrets(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	write := func(name, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("key", "x")
	write("secrets/acme/key", "x")
	write("tenants/acme.yaml", "policy: {network: {credentials: [{name: of-acme, domain: a.example, secret: {file: key}}]}}\n")
	startDaemonIn(t, dir, "tenants_dir: tenants\nsecrets_dir: secrets\nnetwork: {credentials: [{name: hub, domain: a.example, secret: {file: "+dir+"/key}}]}\n")
	doctor := func() string {
		t.Helper()
		out, _ := exec.Command(binary(t, "skillrun"), "--address", "unix://"+dir+"/s.sock", "doctor").CombinedOutput()
		return string(out)
	}
	warnings := []string{"the credential hub can't be used; executions that may use it are refused: open " + dir + "/key: no such file",
		"the credential of-acme can't be used; executions that may use it are refused: "}
	for _, step := range []struct {
		name string
		do   func()
		want bool
	}{
		{"at the start", func() {}, false},
		{"without the secrets", func() { os.Remove(dir + "/key"); os.Remove(dir + "/secrets/acme/key") }, true},
		{"with the secrets again", func() { write("key", "y"); write("secrets/acme/key", "y") }, false},
	} {
		step.do()
		out := doctor()
		for _, w := range warnings {
			if strings.Contains(out, w) != step.want {
				t.Errorf("%s: %q: want %v\n%s", step.name, w, step.want, out)
			}
		}
	}
}
