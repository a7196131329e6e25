package main

import (
	"fmt"
	"io/fs"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/docker/go-units"
	"gopkg.in/yaml.v3"

	"github.com/skillrun/skillrun/internal/executor"
)

// duration is written as Go writes it: 30s, 1m30s, 250ms.
type duration time.Duration

func (d *duration) UnmarshalYAML(node *yaml.Node) error {
	v, err := time.ParseDuration(node.Value)
	if err != nil {
		return fmt.Errorf("line %d: %q is not a duration such as 30s or 1m30s", node.Line, node.Value)
	}
	*d = duration(v)
	return nil
}

// size is a number of bytes, as on the command line: 1048576, 512MiB, 1.5g. Every unit is
// a power of 1024.
type size int64

// maxSize bounds a size: a conversion of a larger float64 to int64 differs between machines.
const maxSize = 1 << 60

func (s *size) UnmarshalYAML(node *yaml.Node) error {
	n, err := units.RAMInBytes(node.Value)
	if err != nil || n < 0 || n > maxSize {
		return fmt.Errorf("line %d: %q is not a size such as 1048576, 512MiB or 2GiB", node.Line, node.Value)
	}
	*s = size(n)
	return nil
}

// cpus is a number of processors, such as 0.5 or 2, in thousandths.
type cpus int

func (c *cpus) UnmarshalYAML(node *yaml.Node) error {
	v, err := strconv.ParseFloat(node.Value, 64)
	milli := math.Round(v * 1000)
	if err != nil || !(v == 0 || milli >= executor.MinMilliCPUs && milli <= executor.MaxMilliCPUs) {
		return fmt.Errorf("line %d: %q is not a number of processors such as 0.5 or 2, or 0 for no limit", node.Line, node.Value)
	}
	*c = cpus(milli)
	return nil
}

// fileMode is written in octal: 0660.
type fileMode fs.FileMode

func (m *fileMode) UnmarshalYAML(node *yaml.Node) error {
	v, err := strconv.ParseUint(strings.TrimPrefix(node.Value, "0o"), 8, 9)
	if err != nil {
		return fmt.Errorf("line %d: %q is not a file mode such as 0660", node.Line, node.Value)
	}
	*m = fileMode(v)
	return nil
}
