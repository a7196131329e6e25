package main

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"gopkg.in/yaml.v3"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// loggedAddress returns the address in the line of a log that contains text.
func loggedAddress(t testing.TB, log *logFile, text string) string {
	t.Helper()
	var address string
	until(t, "no address after "+text, func() bool {
		_, rest, ok := strings.Cut(log.String(), text)
		line, _, whole := strings.Cut(rest, "\n")
		address = strings.TrimSpace(line)
		return ok && whole
	})
	return address
}

// A prometheus is a real Prometheus that scrapes a daemon once a second.
type prometheus struct{ url string }

func startPrometheus(t *testing.T, target string) prometheus {
	t.Helper()
	dir := t.TempDir()
	rules, err := filepath.Abs("../../deploy/prometheus/skillrund.rules.yml")
	if err != nil {
		t.Fatal(err)
	}
	config := fmt.Sprintf("global: {scrape_interval: 1s, evaluation_interval: 1s}\nrule_files: [%q]\nscrape_configs: [{job_name: skillrund, static_configs: [{targets: [%q]}]}]\n", rules, target)
	if err := os.WriteFile(filepath.Join(dir, "prometheus.yml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command(debianProgram(t, "prometheus"), "--config.file="+filepath.Join(dir, "prometheus.yml"),
		"--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address=127.0.0.1:0")
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Signal(syscall.SIGTERM)
		cmd.Wait()
		if text, _ := os.ReadFile(log.Name()); t.Failed() {
			t.Logf("Prometheus' log:\n%s", text)
		}
	})
	return prometheus{"http://" + loggedAddress(t, &logFile{log.Name()}, `msg="Listening on" address=`)}
}

// query returns how many series a query has. Prometheus answers 503 until it is ready.
func (p prometheus) query(t *testing.T, expr string) int {
	t.Helper()
	r, err := http.Get(p.url + "/api/v1/query?query=" + url.QueryEscape(expr))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	var answer struct {
		Error string
		Data  struct{ Result []json.RawMessage }
	}
	if r.StatusCode == http.StatusServiceUnavailable {
		return 0
	}
	if err := json.NewDecoder(r.Body).Decode(&answer); err != nil {
		t.Fatalf("%s: %s, %v", expr, r.Status, err)
	}
	if answer.Error != "" {
		t.Fatalf("%s: %s", expr, answer.Error)
	}
	return len(answer.Data.Result)
}

// dashboardQueries returns the queries of the Grafana dashboard, by panel. The variables have the
// values that show everything.
func dashboardQueries(t *testing.T) map[string][]string {
	t.Helper()
	data, err := os.ReadFile("../../deploy/grafana/skillrund.json")
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct {
		Panels []struct {
			Title   string
			Type    string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(data, &dashboard); err != nil {
		t.Fatal(err)
	}
	variables := strings.NewReplacer("$instance", ".*", "$tenant", ".*", "$__rate_interval", "1m")
	queries := map[string][]string{}
	for _, p := range dashboard.Panels {
		if p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("panel %s has no query", p.Title)
		}
		for _, target := range p.Targets {
			queries[p.Title] = append(queries[p.Title], variables.Replace(target.Expr))
		}
	}
	return queries
}

// comparison is an operator between an alert's value and its threshold. With bool it gives data
// whether it holds or not, as long as both sides have data.
var comparison = regexp.MustCompile(` (==|<|>) `)

// ruleQueries returns the queries of the recorded series and of the alerts, by name.
func ruleQueries(t *testing.T) map[string][]string {
	t.Helper()
	data, err := os.ReadFile("../../deploy/prometheus/skillrund.rules.yml")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Groups []struct {
			Rules []struct{ Record, Alert, Expr string }
		}
	}
	if err := yaml.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	queries := map[string][]string{}
	for _, g := range file.Groups {
		for _, r := range g.Rules {
			queries[r.Record+r.Alert] = []string{comparison.ReplaceAllString(r.Expr, " $1 bool ")}
		}
	}
	return queries
}

// Every query of the dashboard, of the recorded series and of the alerts has data in a real
// Prometheus that scrapes a real daemon.
func TestMetricsInPrometheus(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "listen: {unix: s.sock, metrics_tcp: '127.0.0.1:0'}\n")
	p := startPrometheus(t, loggedAddress(t, d.log, `msg="listening for Prometheus" network=tcp address=`))
	// Before the first execution, so that a rate sees it. The first scrape makes the series of the tenant, so only
	// the second one surely has all of them.
	until(t, "Prometheus has no metrics", func() bool {
		return p.query(t, `count_over_time(skillrun_executions_total{end="EXITED"}[10m]) >= 2`) > 0
	})
	d.run(script("calculator", "scripts/calc.py", "6 * 7")).wantStdout(t, "42\n")
	if _, err := d.try(script("no-such-skill", "scripts/x.py")); err == nil {
		t.Error("an unknown skill ran")
	}
	until(t, "the refusal is not counted", func() bool {
		return p.query(t, `skillrun_executions_refused_total{reason="SKILL_NOT_FOUND"} == 1`) > 0
	})
	d.newSession(t.Context(), &pb.CreateSessionRequest{})
	for _, all := range []map[string][]string{dashboardQueries(t), ruleQueries(t)} {
		if len(all) == 0 {
			t.Error("no queries")
		}
		for name, queries := range all {
			for _, q := range queries {
				if !await(func() bool { return p.query(t, q) > 0 }) {
					t.Errorf("%s: no data for %s", name, q)
				}
			}
		}
	}
	for _, q := range []string{
		`skillrun_executions_total{tenant="default", end="EXITED"} == 1`,
		`skillrun_execution_run_seconds_count == 1`,
		`skillrun_sessions{tenant="default"} == 1`,
		`skillrun_session_bytes{tenant="default"} >= 0`,
		`sum(skillrun_sandboxes_started_total) > 0`,
		`skillrun_serving == 1`,
		`skillrun_degraded == 0`,
		`skillrun_audit_failures_total == 0`,
	} {
		if !await(func() bool { return p.query(t, q) > 0 }) {
			t.Errorf("not true: %s", q)
		}
	}
	wantDrawn(t, p)
}

// wantDrawn checks that the picture of the dashboard, as make dashboard draws it, is XML, and has data in each
// panel. Queries of rates need some seconds until they have some. Quantiles have data only around the time of
// the one execution, which the picture of the last ten minutes still shows on a slow machine.
func wantDrawn(t *testing.T, p prometheus) {
	t.Helper()
	var picture []byte
	drawn := await(func() bool {
		var err error
		if picture, err = exec.Command("python3", "../../deploy/grafana/draw.py", p.url, "10").Output(); err != nil {
			t.Fatal(err)
		}
		return !bytes.Contains(picture, []byte("no data"))
	})
	if !drawn {
		t.Errorf("a panel has no data: %s", picture)
	}
	var parsed struct {
		Text []string `xml:"text"`
	}
	if err := xml.Unmarshal(picture, &parsed); err != nil {
		t.Errorf("the picture is not XML: %v", err)
	}
	for title := range dashboardQueries(t) {
		if !slices.Contains(parsed.Text, title) {
			t.Errorf("the picture has no panel %s: %q", title, parsed.Text)
		}
	}
}

// promtool finds no mistake in the rules, its tests of the rules pass, and it finds no mistake in the
// daemon's metrics.
func TestPromtool(t *testing.T) {
	t.Parallel()
	tool := debianProgram(t, "promtool")
	for _, args := range [][]string{
		{"check", "rules", "skillrund.rules.yml"},
		{"test", "rules", "skillrund.rules_test.yml"},
		{"check", "config", "prometheus.yml"},
	} {
		cmd := exec.Command(tool, args...)
		cmd.Dir = "../../deploy/prometheus"
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	d := startDaemon(t, "listen: {unix: s.sock, metrics_tcp: '127.0.0.1:0'}\n")
	r, err := http.Get("http://" + loggedAddress(t, d.log, `msg="listening for Prometheus" network=tcp address=`) + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	cmd := exec.Command(tool, "check", "metrics")
	cmd.Stdin = r.Body
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("promtool check metrics: %v\n%s", err, out)
	}
}
