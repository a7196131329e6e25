package network

import (
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/skillrun/skillrun/internal/network/networktest"
)

const (
	sinkAddress   = networktest.Public + ":7001" // reads everything
	sourceAddress = networktest.Public + ":7002" // writes until the end
)

func serveStreams(b *testing.B) {
	b.Helper()
	for address, handle := range map[string]func(net.Conn){
		sinkAddress: func(c net.Conn) {
			_, _ = io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{c}, make([]byte, 256<<10))
		},
		sourceAddress: func(c net.Conn) {
			block := make([]byte, 256<<10)
			for {
				if _, err := c.Write(block); err != nil {
					return
				}
			}
		},
	} {
		l, err := net.Listen("tcp", address)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { l.Close() })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				go func() { defer c.Close(); handle(c) }()
			}
		}()
	}
}

// stream moves 64 MiB over one connection and returns the rate in MiB/s.
func stream(b *testing.B, dial func(network, to string) (net.Conn, error), to string) float64 {
	b.Helper()
	const size = 64 << 20
	c, err := dial("tcp", to)
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	block := make([]byte, 256<<10)
	start := time.Now()
	for n := 0; n < size; {
		var k int
		if to == sinkAddress {
			k, err = c.Write(block)
		} else {
			k, err = c.Read(block)
		}
		if err != nil {
			b.Fatal(err)
		}
		n += k
	}
	return size / float64(1<<20) / time.Since(start).Seconds()
}

// The throughput of one connection, in turns with the machine's loopback.
func BenchmarkThroughput(b *testing.B) {
	serveStreams(b)
	box := newBox(b, newManager(b), "a")
	rates := map[string][]float64{}
	for b.Loop() {
		rates["out"] = append(rates["out"], stream(b, box.Dial, sinkAddress))
		rates["loopback-out"] = append(rates["loopback-out"], stream(b, net.Dial, sinkAddress))
		rates["in"] = append(rates["in"], stream(b, box.Dial, sourceAddress))
		rates["loopback-in"] = append(rates["loopback-in"], stream(b, net.Dial, sourceAddress))
	}
	for name, list := range rates {
		b.ReportMetric(median(list), name+"-MiB/s")
	}
}

func median(list []float64) float64 { return quantile(list, 0.5) }

func quantile(list []float64, q float64) float64 {
	slices.Sort(list)
	return list[min(int(float64(len(list))*q), len(list)-1)]
}

// The time until a connection is there, or is refused, in turns with the machine's loopback.
func BenchmarkConnect(b *testing.B) {
	serveStreams(b)
	box := newBox(b, newManager(b), "a")
	times := map[string][]float64{}
	dial := func(name string, dial func(network, to string) (net.Conn, error), to string) {
		start := time.Now()
		c, err := dial("tcp", to)
		times[name] = append(times[name], float64(time.Since(start).Nanoseconds())/1000)
		if err == nil {
			c.Close()
		}
	}
	for b.Loop() {
		box.Do(func() { dial("sandbox", net.Dial, sinkAddress) })
		dial("loopback", net.Dial, sinkAddress)
		box.Do(func() { dial("refused", net.Dial, networktest.Private+":80") })
	}
	for name, list := range times {
		b.ReportMetric(quantile(list, 0.5), name+"-p50-us")
		b.ReportMetric(quantile(list, 0.95), name+"-p95-us")
	}
}

// The memory of a helper for each idle network.
func BenchmarkMemory(b *testing.B) {
	const networks = 200
	for b.Loop() {
		m := newManager(b)
		newBox(b, m, "a")
		pid := strconv.Itoa(m.process(b, "a").command.Process.Pid)
		before := resident(b, pid)
		for range networks {
			newBox(b, m, "a")
		}
		b.ReportMetric(float64(resident(b, pid)-before)/networks, "KiB/network")
		b.ReportMetric(float64(before), "KiB-for-one")
	}
}

func resident(b *testing.B, pid string) int {
	b.Helper()
	text, err := os.ReadFile("/proc/" + pid + "/status")
	if err != nil {
		b.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "VmRSS:")
	n, err := strconv.Atoi(strings.Fields(rest)[0])
	if err != nil {
		b.Fatal(err)
	}
	return n
}

// The memory of a helper for each connection: idle, and after the destination has sent as much as the
// helper takes, because the program does not read.
func BenchmarkConnectionMemory(b *testing.B) {
	serveStreams(b)
	for b.Loop() {
		for name, to := range map[string]string{"idle": sinkAddress, "unread": sourceAddress} {
			const connections = 250
			m := newManager(b)
			box := newBox(b, m, "a")
			pid := strconv.Itoa(m.process(b, "a").command.Process.Pid)
			warm, err := box.Dial("tcp", to)
			if err != nil {
				b.Fatal(err)
			}
			warm.Close()
			before := resident(b, pid)
			for range connections {
				c, err := box.Dial("tcp", to)
				if err != nil {
					b.Fatal(err)
				}
				defer c.Close()
			}
			// The buffers are full when the memory no longer grows.
			after := resident(b, pid)
			for last := 0; after != last; after = resident(b, pid) {
				last = after
				time.Sleep(500 * time.Millisecond)
			}
			b.ReportMetric(float64(after-before)/connections, "KiB/"+name+"-connection")
		}
	}
}
