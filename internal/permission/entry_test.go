package permission

import "testing"

func TestEntries(t *testing.T) {
	tests := []struct {
		field string
		want  []Entry // without Text
	}{
		{"Bash(git log:*), Read", []Entry{{Program: "git"}, {}}},
		{"Bash, Bash(*), Bash(ls:*)", []Entry{{}, {Shadow: "Bash"}, {Program: "ls", Shadow: "Bash"}}},
		{"Bash(ls:*), Bash", []Entry{{Program: "ls", Shadow: "Bash"}, {}}},
		{"Read, Read, Write", []Entry{{}, {Shadow: "Read"}, {}}},
		{"Bash(wc:*), Bash(wc *)", []Entry{{Program: "wc"}, {Program: "wc", Shadow: "Bash(wc:*)"}}},
		{"Bash(wc -l:*), Bash(wc:*)", []Entry{{Program: "wc", Shadow: "Bash(wc:*)"}, {Program: "wc"}}},
		{"Bash(wc -l), Bash(wc -c)", []Entry{{Program: "wc"}, {Program: "wc"}}},
		{"Bash(wc -l), Bash(wc:*)", []Entry{{Program: "wc", Shadow: "Bash(wc:*)"}, {Program: "wc"}}},
		{"Bash(wc), Bash(wc -l:*)", []Entry{{Program: "wc"}, {Program: "wc"}}},
		{"Bash(wc * x), Bash(wc * x y)", []Entry{{Program: "wc"}, {Program: "wc"}}},
		{"Bash(wc * x), Bash(wc a * x)", []Entry{{Program: "wc"}, {Program: "wc", Shadow: "Bash(wc * x)"}}},
		// An exact rule, or the words before a wildcard, may allow a command that a wider
		// wildcard does not.
		{"Bash(find . -delete), Bash(find:*)", []Entry{{Program: "find"}, {Program: "find"}}},
		{"Bash(find . -name x), Bash(find:*)", []Entry{{Program: "find", Shadow: "Bash(find:*)"}, {Program: "find"}}},
		{"Bash(git -c a=b log:*), Bash(git:*)", []Entry{{Program: "git"}, {Program: "git"}}},
		{"Bash(l*), Bash(ls)", []Entry{{}, {Program: "ls", Shadow: "Bash(l*)"}}},
		{"Bash({baseDir}/scripts/a.sh:*)", []Entry{{Program: "/skills/demo/scripts/a.sh"}}},
		{"Bash(a | b), Bash(a | b)", []Entry{{Problem: "it is not one simple command"}, {Problem: "it is not one simple command"}}},
		{"Bash(sudo:*)", []Entry{{Problem: "'sudo' runs other programs, so the rule must name the program to run"}}},
	}
	for _, tt := range tests {
		rules := ParseRules([]string{tt.field}, "/skills/demo")
		got := rules.Entries()
		if len(got) != len(tt.want) {
			t.Fatalf("%s: got %d entries, want %d", tt.field, len(got), len(tt.want))
		}
		for i, e := range got {
			if e.Text != rules.list[i].text {
				t.Errorf("%s: entry %d is %q, want %q", tt.field, i, e.Text, rules.list[i].text)
			}
			e.Text = ""
			if e != tt.want[i] {
				t.Errorf("%s: entry %d: got %+v, want %+v", tt.field, i, e, tt.want[i])
			}
		}
	}
}

// TestShadowsLoseNothing removes shadowed rules and checks that the remaining rules allow
// the same commands.
func TestShadowsLoseNothing(t *testing.T) {
	all := []string{
		"Bash(git:*)", "Bash(git log:*)", "Bash(git -c a=b log:*)", "Bash(git log -p)", "Bash(find:*)", "Bash(find . -delete)",
		"Bash(find . -delete:*)", "Bash(find . -name x)", "Bash(env ls:*)", "Bash(env ls -l)", "Bash(sort:*)", "Bash(sort -o a:*)",
		"Bash(l*)", "Bash(ls *.txt)", "Bash(ls)", "Bash(wc * x)", "Bash(wc:*)", "Bash(awk *)", "Bash(awk 1:*)", "Bash(sed:*)", "Bash(sed -n p:*)",
	}
	commands := []string{
		"git log", "git log -p", "git -c a=b log -p", "git -c a=b log", "git status", "find . -delete", "find . -delete -name x", "find . -name x",
		"env ls", "env ls -l", "sort -o a b", "sort a", "ls", "ls a.txt", "ls '*.txt'", "ls -l", "wc a x", "wc x", "awk 1 f", "awk 2 f", "sed -n p f", "sed -i s/a/b/ f",
	}
	for _, a := range all {
		for _, b := range all {
			entries := ParseRules([]string{a + ", " + b}, "").Entries()
			if len(entries) != 2 {
				t.Fatalf("%s, %s: %d entries", a, b, len(entries))
			}
			for i, e := range entries {
				if e.Shadow == "" {
					continue
				}
				less := ParseRules([]string{entries[1-i].Text}, "")
				alone := ParseRules([]string{e.Text}, "")
				for _, c := range commands {
					if alone.Decide(c).Allowed && !less.Decide(c).Allowed {
						t.Errorf("%s is said to be shadowed by %s, which does not allow %q", e.Text, e.Shadow, c)
					}
				}
			}
		}
	}
}
