package sandbox_test

import (
	"context"
	"fmt"
	"os"

	"github.com/skillrun/skillrun/sandbox"
)

// A Host makes sandboxes; each runs one program. The sandbox's files are deleted
// at its end, unless Collect saves them.
func Example() {
	state, err := os.MkdirTemp("", "sandbox")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(state)
	ctx := context.Background()
	host, err := sandbox.Open(ctx, sandbox.Config{StateDir: state})
	if err != nil {
		fmt.Println(err) // the missing boundaries and their remedies
		return
	}
	defer host.Close()

	process, err := host.Start(ctx, sandbox.Spec{
		ID: "example",
		Program: sandbox.Program{{Pipeline: []sandbox.Command{
			{Args: []string{"sh", "-c", `echo "I am $(id -un) on $(uname -n)" | tee note; exit 3`}},
		}}},
		Env:    []string{"PATH=/usr/bin:/bin"},
		Limits: sandbox.Limits{MemoryBytes: 64 << 20, Processes: 8},
	}, sandbox.IO{
		Stdout: os.Stdout,
		Collect: func(changes *os.Root) error {
			note, err := changes.ReadFile("note")
			fmt.Printf("note: %s", note)
			return err
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	exit, err := process.Wait()
	fmt.Println(exit.End, exit.Code, err)
	// Output:
	// I am skill on sandbox
	// note: I am skill on sandbox
	// exited 3 <nil>
}
