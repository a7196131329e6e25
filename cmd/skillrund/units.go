package main

import (
	"errors"
	"io/fs"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/docker/go-units"
	"gopkg.in/yaml.v3"

	"github.com/skillrun/skillrun/internal/executor"
	"github.com/skillrun/skillrun/internal/permission"
)

// errNotRead is the error of UnmarshalYAML methods. decode writes the message itself, with
// the type's wants.
var errNotRead = errors.New("not such a value")

// duration is a time.Duration in Go's notation: 30s, 1m30s, 250ms. A number without a unit is a mistake, apart from
// 0, because readers would take it for seconds or for milliseconds.
type duration time.Duration

func (d *duration) UnmarshalYAML(node *yaml.Node) error {
	v, err := time.ParseDuration(node.Value)
	if err != nil {
		return err
	}
	*d = duration(v)
	return nil
}

func (d duration) String() string { return time.Duration(d).String() }

// wants says, in the words of an error, which values the type accepts. decode asks each type for
// it after UnmarshalYAML has failed.
func (duration) wants() string { return "a duration; write 30s, 1m30s or 250ms" }

// commandRules are rules for command lines: a list, or one of the words nothing and scripts.
type commandRules []string

func (r *commandRules) UnmarshalYAML(node *yaml.Node) error {
	switch {
	case node.Kind == yaml.SequenceNode:
		return node.Decode((*[]string)(r))
	case node.Kind == yaml.ScalarNode && node.Value == "nothing":
		*r = commandRules{}
	case node.Kind == yaml.ScalarNode && node.Value == permission.OwnScripts:
		*r = commandRules{permission.OwnScripts}
	default:
		return errNotRead
	}
	return nil
}

func (commandRules) wants() string {
	return `nothing, scripts or a list of rules; write [scripts, "Bash(git log:*)"]`
}

// number formats an int for a message. The table of checkRanges needs a String method for each
// value.
type number int

func (n number) String() string { return strconv.Itoa(int(n)) }

// size is a number of bytes, written as on the command line: 1048576, 512MiB, 1.5g. Every
// unit is a power of 1024.
type size int64

// maxSize bounds a size. Above 1<<63 the conversion of a float64 to int64 has different
// results on different processors.
const maxSize = 1 << 60

func (s *size) UnmarshalYAML(node *yaml.Node) error {
	n, err := units.RAMInBytes(node.Value)
	if err != nil || n < 0 || n > maxSize {
		return errNotRead
	}
	*s = size(n)
	return nil
}

// String uses the largest unit that divides the number.
func (s size) String() string {
	for _, unit := range []struct {
		suffix string
		factor size
	}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if s >= unit.factor && s%unit.factor == 0 {
			return strconv.FormatInt(int64(s/unit.factor), 10) + unit.suffix
		}
	}
	return strconv.FormatInt(int64(s), 10)
}

func (size) wants() string {
	return "a size; write a number of bytes, or a number with a unit such as 512MiB or 2GiB"
}

// cpus is a number of processors in thousandths. The configuration has it as 0.5 or 2.
type cpus int

func (c *cpus) UnmarshalYAML(node *yaml.Node) error {
	v, err := strconv.ParseFloat(node.Value, 64)
	milli := math.Round(v * 1000)
	if err != nil || !(v == 0 || milli >= executor.MinMilliCPUs && milli <= executor.MaxMilliCPUs) {
		return errNotRead
	}
	*c = cpus(milli)
	return nil
}

func (c cpus) String() string { return strconv.FormatFloat(float64(c)/1000, 'f', -1, 64) }

func (cpus) wants() string { return "a number of processors; write 0.01 or more, or 0 for no limit" }

// rate is a number in a second. The configuration has it as 5 or 0.5.
type rate float64

func (r *rate) UnmarshalYAML(node *yaml.Node) error {
	v, err := strconv.ParseFloat(node.Value, 64)
	if err != nil || !(v == 0 || v >= minRate && v <= maxRate) {
		return errNotRead
	}
	*r = rate(v)
	return nil
}

// Bounds of a rate other than 0. At more than a million starts in a second nothing is limited.
const (
	minRate = 0.001
	maxRate = 1e6
)

func (rate) wants() string {
	return "a number in a second; write 0.001 to 1000000, or 0 for no limit"
}

// fileMode is a file mode, in octal: 0660. It has the nine permission bits and no others.
type fileMode fs.FileMode

func (m *fileMode) UnmarshalYAML(node *yaml.Node) error {
	// YAML 1.1 writes octal as 0660 and YAML 1.2 as 0o660; both mean the same here. The 9 is the
	// number of bits.
	v, err := strconv.ParseUint(strings.TrimPrefix(node.Value, "0o"), 8, 9)
	if err != nil {
		return err
	}
	*m = fileMode(v)
	return nil
}

func (fileMode) wants() string { return "a file mode; write it in octal, such as 0660" }
